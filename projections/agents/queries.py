"""Questions about agents and their keys."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ledger.lifecycle.authority import to_ms
from ledger.lifecycle.clock import Span
from projections.query import Answer, Arguments, Moment, names_in, only_match, with_json

held_named_max: Final = 5
_ACTIVITY: Final = (
    "SELECT a.name, roles, ai_id, removed_index, e.event_index AS last_index, e.kind AS last_kind, "
    "e.accepted_ms AS last_ms, "
    "(SELECT count(*) FROM sessions s WHERE s.author = a.name AND s.status = 'open') AS open_sessions, "
    "(SELECT count(*) FROM handoffs h WHERE h.receiver = a.name AND h.status = 'in_progress') AS working "
    "FROM agents a LEFT JOIN events e ON e.event_index = (SELECT max(event_index) FROM events WHERE author = a.name) "
    "WHERE (? IS NULL AND removed_index IS NULL) OR a.name = ? ORDER BY name"
)
_IN_PROGRESS: Final = (
    "SELECT id, title, lease_until_ms, updated_ms FROM handoffs WHERE receiver = ? AND status = 'in_progress' "
    "ORDER BY updated_index DESC LIMIT ?"
)


class AgentName(Arguments, frozen=True):
    """An agent by its registered name."""

    name: str


class KeyFilter(Arguments, frozen=True):
    """Keys of one agent, or of all."""

    agent: str | None = None


class Activity(Arguments, frozen=True):
    """One agent, also a removed one; or (None) all that are there."""

    name: str | None = None


class AgentFilter(Arguments, frozen=True, rename={"is_all": "all"}):
    """``all``: those that were removed as well."""

    is_all: bool = False


def list_agents(moment: Moment, asked: AgentFilter) -> Answer:
    """Return ``{"agents", "total"}``, by name."""
    sql = "SELECT * FROM agents WHERE ? OR removed_index IS NULL ORDER BY name"
    agents = [with_json(row, "roles") for row in moment.rows(sql, (asked.is_all,))]
    return {"agents": agents, "total": len(agents)}


def show_agent(moment: Moment, asked: AgentName) -> Answer:
    """Return one agent with its keys."""
    rows = moment.rows("SELECT * FROM agents WHERE name = ?", (asked.name,))
    only_match([row["name"] for row in rows], asked.name, "agent", lambda: names_in(moment, "agents", "name"))
    return with_json(rows[0], "roles") | {"keys": list_keys(moment, KeyFilter(agent=asked.name))["keys"]}


def agents_at_work(moment: Moment, asked: Activity) -> Answer:
    """Return ``{"agents"}`` by name: of each its last event, open sessions, its keys by state, and what it works on.

    ``working`` is how many handoffs are in progress under it, and ``handoffs`` the newest of them.
    """
    agents = [with_json(row, "roles") for row in moment.rows(_ACTIVITY, (asked.name, asked.name))]
    keys = list_keys(moment, KeyFilter(agent=asked.name))["keys"]
    for agent in agents:
        agent["key_states"] = dict(Counter(key["state"] for key in keys if key["agent"] == agent["name"]))
        agent["suspect_keys"] = sum(key["agent"] == agent["name"] and key["suspect_since"] is not None for key in keys)
        agent["handoffs"] = moment.rows(_IN_PROGRESS, (agent["name"], held_named_max)) if agent["working"] else []
    return {"agents": agents}


def list_keys(moment: Moment, asked: KeyFilter) -> Answer:
    """Return ``{"keys", "total"}``; ``state`` of a key is ``valid``, ``expired``, or how it ended.

    A session key ends with the identity key that delegated it, and then says when and how that did.
    """
    sql = (
        "SELECT k.*, i.ended_index AS fallen_index, i.ended_as AS fallen_as, i.ended_by AS fallen_by, "
        "i.ended_because AS fallen_because FROM agent_keys k "
        "LEFT JOIN agent_keys i ON i.agent = k.agent AND i.key = k.delegated_by "
        "WHERE ? IS NULL OR k.agent = ? ORDER BY k.agent, k.since_index, k.key"
    )
    keys = [_key(row, moment.now_ms) for row in moment.rows(sql, (asked.agent, asked.agent))]
    return {"keys": keys, "total": len(keys)}


def _key(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    fallen = {f"ended_{name}": row.pop(f"fallen_{name}") for name in ("index", "as", "by", "because")}
    if row["ended_index"] is None:
        row |= fallen
    state, end = row["ended_as"] or "valid", row["expires_at"]
    if state == "valid" and end is not None and not Span(row["since_ms"], to_ms(end)).holds(now_ms):
        state = "expired"
    return with_json(row, "kinds", "streams") | {"state": state}
