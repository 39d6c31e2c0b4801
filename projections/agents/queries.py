"""Queries about agents and their keys."""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.lifecycle.authority import to_ms
from deedbook.ledger.lifecycle.clock import Span
from deedbook.projections.answers.query import Arguments, Plain, QueryContext, names_in, only_match, with_json

_LAST: Final = (
    "SELECT a.name, e.event_index, e.kind, e.accepted_ms FROM agents a "
    "JOIN events e ON e.event_index = (SELECT max(event_index) FROM events WHERE author = a.name)"
)
_OPEN: Final = "SELECT author AS name, count(*) AS number FROM sessions WHERE status = 'open' GROUP BY author"
_IN_PROGRESS: Final = (
    "SELECT receiver AS name, id, title, lease_until_ms FROM (SELECT receiver, id, title, lease_until_ms, "
    "row_number() OVER (PARTITION BY receiver ORDER BY updated_index DESC) AS rank FROM handoffs "
    "WHERE status = 'in_progress') each WHERE rank <= 20 ORDER BY rank"
)
_INVITED: Final = "SELECT * FROM invitations WHERE name = ?"


class AgentName(Arguments, frozen=True):
    """An agent by its registered name."""

    name: str


class KeyFilter(Arguments, frozen=True):
    """Keys of one agent, or of all."""

    agent: str | None = None


class AgentFilter(Arguments, frozen=True, rename={"is_all": "all"}):
    """``all`` includes removed agents."""

    is_all: bool = False


def list_agents(context: QueryContext, args: AgentFilter) -> Plain:
    """Return ``{"agents", "invitations", "total"}`` by name, with the invitations that are neither used nor revoked."""
    named = f"SELECT * FROM agents{'' if args.is_all else ' WHERE removed_index IS NULL'} ORDER BY name"  # noqa: S608
    unused = "SELECT * FROM invitations WHERE ended_as IS NULL AND name NOT IN (SELECT name FROM agents) ORDER BY name"
    agents, invited = context.together((named, ()), (unused, ()))
    invitations = [_invitation(row, context.now_ms) for row in invited]
    return {"agents": [with_json(row, "roles") for row in agents], "invitations": invitations, "total": len(agents)}


def show_agent(context: QueryContext, args: AgentName) -> Plain:
    """Return one agent with its keys."""
    rows = context.rows("SELECT * FROM agents WHERE name = ?", (args.name,))
    only_match([row["name"] for row in rows], args.name, "agent", lambda: names_in(context, "agents", "name"))
    invited = [_invitation(row, context.now_ms) for row in context.rows(_INVITED, (args.name,))]
    keys = list_keys(context, KeyFilter(agent=args.name))["keys"]
    return with_json(rows[0], "roles") | {"invitation": invited[0] if invited else None, "keys": keys}


def _invitation(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return an invitation whose ``state`` is how it ended, ``open`` or ``expired``."""
    holds = Span(row["invited_ms"], to_ms(row["expires_at"])).holds(now_ms)
    row |= {"roles": row.pop("invited_roles"), "state": row["ended_as"] or ("open" if holds else "expired")}
    return with_json(row, "roles")


def agents_at_work(context: QueryContext, args: AgentFilter) -> Plain:
    """Return ``{"agents"}`` by name: each with its ``keys``, ``last`` event, ``open_sessions``, and ``handoffs``.

    ``handoffs`` are the 20 newest that the agent claimed and has not completed.
    """
    agents = list_agents(context, args)["agents"]
    keys = list_keys(context, KeyFilter())["keys"]
    last = {row.pop("name"): row for row in context.rows(_LAST)}
    opened = {row["name"]: row["number"] for row in context.rows(_OPEN)}
    claimed: dict[str, list[dict[str, Any]]] = {}
    for row in context.rows(_IN_PROGRESS):
        claimed.setdefault(row.pop("name"), []).append(row)
    for agent in agents:
        name = agent["name"]
        agent["keys"] = [key for key in keys if key["agent"] == name]
        agent |= {"last": last.get(name), "open_sessions": opened.get(name, 0), "handoffs": claimed.get(name, [])}
    return {"agents": agents}


def list_keys(context: QueryContext, args: KeyFilter) -> Plain:
    """Return ``{"keys", "total"}``; ``state`` of a key is ``valid``, ``expired``, or how it ended.

    A session key ends with the identity key that delegated it, and then has that key's end.
    """
    sql = (
        "SELECT k.*, i.ended_index AS fallen_index, i.ended_as AS fallen_as, i.ended_by AS fallen_by, "
        "i.ended_because AS fallen_because FROM agent_keys k "
        "LEFT JOIN agent_keys i ON i.agent = k.agent AND i.key = k.delegated_by "
        "WHERE k.agent = coalesce(?, k.agent) ORDER BY k.agent, k.since_index, k.key"
    )
    keys = [_key(row, context.now_ms) for row in context.rows(sql, (args.agent,))]
    return {"keys": keys, "total": len(keys)}


def _key(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    fallen = {f"ended_{name}": row.pop(f"fallen_{name}") for name in ("index", "as", "by", "because")}
    if row["ended_index"] is None:
        row |= fallen
    state, end = row["ended_as"] or "valid", row["expires_at"]
    if state == "valid" and end is not None and not Span(row["since_ms"], to_ms(end)).holds(now_ms):
        state = "expired"
    return with_json(row, "kinds", "streams") | {"state": state}
