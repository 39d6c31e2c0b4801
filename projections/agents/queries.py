"""Questions about agents and their keys."""

from __future__ import annotations

from typing import Any

from ledger.lifecycle.authority import to_ms
from projections.query import Answer, Arguments, Moment, only_match, with_json


class AgentName(Arguments, frozen=True):
    """An agent by its registered name."""

    name: str


class KeyFilter(Arguments, frozen=True):
    """Keys of one agent, or of all."""

    agent: str | None = None


def list_agents(moment: Moment, _asked: Arguments) -> Answer:
    """Return ``{"agents", "total"}``, by name."""
    agents = [with_json(row, "roles") for row in moment.rows("SELECT * FROM agents ORDER BY name")]
    return {"agents": agents, "total": len(agents)}


def show_agent(moment: Moment, asked: AgentName) -> Answer:
    """Return one agent with its keys."""
    rows = moment.rows("SELECT * FROM agents WHERE name = ?", (asked.name,))
    only_match([row["name"] for row in rows], asked.name, "agent")
    return with_json(rows[0], "roles") | {"keys": list_keys(moment, KeyFilter(agent=asked.name))["keys"]}


def list_keys(moment: Moment, asked: KeyFilter) -> Answer:
    """Return ``{"keys", "total"}``; ``state`` of a key is valid, expired or revoked (with its identity key, too)."""
    sql = (
        "SELECT k.*, EXISTS (SELECT 1 FROM agent_keys i WHERE i.agent = k.agent AND i.sort = 'identity' "
        "AND i.revoked_index IS NOT NULL) AS has_fallen FROM agent_keys k WHERE ? IS NULL OR k.agent = ? "
        "ORDER BY k.agent, k.since_index, k.key"
    )
    keys = [_key(row, moment.now_ms) for row in moment.rows(sql, (asked.agent, asked.agent))]
    return {"keys": keys, "total": len(keys)}


def _key(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    state = "valid"
    if row.pop("has_fallen") or row["revoked_index"] is not None:
        state = "revoked"
    elif row["expires_at"] is not None and to_ms(row["expires_at"]) <= now_ms:
        state = "expired"
    return with_json(row, "kinds", "streams") | {"state": state}
