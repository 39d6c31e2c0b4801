"""Queries about agents and their keys."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from deedbook.ledger.events.session import Calibration
from deedbook.ledger.lifecycle.authority import to_ms
from deedbook.ledger.lifecycle.clock import Span
from deedbook.projections.agents.answers import (
    AgentKey,
    AgentLine,
    AgentLists,
    ClaimedHandoff,
    ClaimedName,
    InvitationState,
    KeyState,
    LastEvent,
    ShownAgent,
    ShownInvitation,
    WorkingAgent,
)
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import Arguments, Limit, QueryContext, Where, names_in, only_match, with_json
from deedbook.projections.catalog.words import did, words_of

_LAST: Final = (
    "SELECT a.name, e.event_index, e.kind, e.type, e.text, e.accepted_ms FROM agents a "
    "JOIN events e ON e.event_index = (SELECT max(event_index) FROM events WHERE author = a.name)"
)
_OPEN: Final = "SELECT author AS name, count(*) AS number FROM sessions WHERE status = 'open' GROUP BY author"
_IN_PROGRESS: Final = (
    "SELECT receiver AS name, id, title, status, lease_until_ms FROM (SELECT receiver, id, title, status, "
    "lease_until_ms, row_number() OVER (PARTITION BY receiver ORDER BY updated_index DESC) AS rank FROM handoffs "
    "WHERE status IN ('in_progress', 'blocked')) each WHERE rank <= 20 ORDER BY rank"
)
_JUDGED: Final = (
    "SELECT author AS name, calibration_status, count(*) AS number FROM handoff_reports "
    "WHERE imported IS NULL AND happened_ms >= ? GROUP BY author, calibration_status"
)
judged_ms: Final = 30 * 86_400_000
"""Only reports of this last period count for the calibration of agents at work."""
_CLAIMED: Final = """
    SELECT c.name, c.records, c.first_ms, c.last_ms, a.name IS NOT NULL AS is_registered,
        (SELECT count(*) FROM sessions s WHERE s.ai_id = c.name AND s.imported IS NOT NULL) AS sessions
    FROM (
        SELECT e.agent AS name, count(*) AS records, min(nullif(e.happened_ms, 0)) AS first_ms,
            max(nullif(e.happened_ms, 0)) AS last_ms
        FROM events e{} GROUP BY e.agent
    ) c LEFT JOIN agents a ON a.name = c.name
    ORDER BY coalesce(c.last_ms, 0) DESC, c.name"""
_INVITED: Final = "SELECT * FROM invitations WHERE name = ?"


class AgentName(Arguments, frozen=True):
    """``id`` is the registered name of an agent."""

    id: str


class KeyFilter(Arguments, frozen=True):
    """``agent`` selects the keys of one agent (default: all keys)."""

    agent: str | None = None


class AgentFilter(Arguments, frozen=True, rename={"is_all": "all"}):
    """``all`` includes removed agents."""

    is_all: bool = False


class ClaimedFilter(Arguments, frozen=True):
    """``name`` selects one claimed name (default: all); at most ``limit`` names are listed."""

    name: str | None = None
    limit: Limit = 50


def list_claimed(context: QueryContext, args: ClaimedFilter) -> Page[ClaimedName]:
    """Return the names that imported records claim as their authors, the last at work first."""
    where = Where()
    where.add("e.kind = 'record.imported'")
    where.equal("e.agent", args.name)
    rows = context.rows(_CLAIMED.format(where.sql), where.values)
    items = [ClaimedName(**row | {"is_registered": bool(row["is_registered"])}) for row in rows[: args.limit]]
    return Page(items=items, total=len(rows))


def list_agents(context: QueryContext, args: AgentFilter) -> AgentLists:
    """Return the agents and the invitations."""
    named = f"SELECT * FROM agents{'' if args.is_all else ' WHERE removed_index IS NULL'} ORDER BY name"  # noqa: S608
    unused = "SELECT * FROM invitations WHERE ended_as IS NULL AND name NOT IN (SELECT name FROM agents) ORDER BY name"
    rows, invited = context.together((named, ()), (unused, ()))
    agents = [AgentLine(**with_json(row, "roles")) for row in rows]
    return AgentLists(
        agents=agents, invitations=[_invitation(row, context.now_ms) for row in invited], total=len(agents)
    )


def show_agent(context: QueryContext, args: AgentName) -> ShownAgent:
    """Return one agent with its keys."""
    rows = context.rows("SELECT * FROM agents WHERE name = ?", (args.id,))
    only_match([row["name"] for row in rows], args.id, "agent", lambda: names_in(context, "agents", "name"))
    invited = [_invitation(row, context.now_ms) for row in context.rows(_INVITED, (args.id,))]
    keys = list_keys(context, KeyFilter(agent=args.id)).items
    return ShownAgent(**with_json(rows[0], "roles"), invitation=invited[0] if invited else None, keys=keys)


def _invitation(row: dict[str, Any], now_ms: int) -> ShownInvitation:
    holds = Span(row["invited_ms"], to_ms(row["expires_at"])).holds(now_ms)
    state: InvitationState = row["ended_as"] or ("open" if holds else "expired")
    return ShownInvitation(**with_json(row | {"roles": row.pop("invited_roles")}, "roles"), state=state)


def agents_at_work(context: QueryContext, args: AgentFilter) -> Page[WorkingAgent]:
    """Return the agents by name, with their keys and work."""
    agents = list_agents(context, args).agents
    keys = list_keys(context, KeyFilter()).items
    last = _last_events(context)
    opened = {row["name"]: row["number"] for row in context.rows(_OPEN)}
    claimed: dict[str, list[ClaimedHandoff]] = {}
    for row in context.rows(_IN_PROGRESS):
        claimed.setdefault(row.pop("name"), []).append(ClaimedHandoff(**row))
    judged: dict[str, dict[Calibration, int]] = {}
    for row in context.rows(_JUDGED, (context.now_ms - judged_ms,)):
        judged.setdefault(row["name"], {})[row["calibration_status"]] = row["number"]
    working = [
        WorkingAgent(
            **asdict(agent),
            keys=[key for key in keys if key.agent == agent.name],
            last=last.get(agent.name),
            open_sessions=opened.get(agent.name, 0),
            handoffs=claimed.get(agent.name, []),
            calibration=judged.get(agent.name, {}),
        )
        for agent in agents
    ]
    return Page(items=working, total=len(working))


def _last_events(context: QueryContext) -> dict[str, LastEvent]:
    """Return the last event of each agent, by name."""
    rows = context.rows(_LAST)
    words = words_of(context, (row["event_index"] for row in rows))
    return {
        row["name"]: LastEvent(
            event_index=row["event_index"],
            kind=row["kind"],
            did=did(row, words[row["event_index"]].line),
            accepted_ms=row["accepted_ms"],
        )
        for row in rows
    }


def list_keys(context: QueryContext, args: KeyFilter) -> Page[AgentKey]:
    """Return all keys by agent, each agent's oldest first."""
    sql = (
        "SELECT k.*, (SELECT e.accepted_ms FROM events e WHERE e.event_index = coalesce(k.ended_index, i.ended_index)) "
        "AS ended_ms, i.ended_index AS fallen_index, i.ended_as AS fallen_as, i.ended_by AS fallen_by, "
        "i.ended_because AS fallen_because, CASE WHEN k.max_events IS NOT NULL THEN "
        "(SELECT count(*) FROM events e WHERE e.author = k.agent AND e.key = k.key) END AS used FROM agent_keys k "
        "LEFT JOIN agent_keys i ON i.agent = k.agent AND i.key = k.delegated_by "
        "WHERE k.agent = coalesce(?, k.agent) ORDER BY k.agent, k.since_index, k.key"
    )
    keys = [_key(row, context.now_ms) for row in context.rows(sql, (args.agent,))]
    return Page(items=keys, total=len(keys))


def _key(row: dict[str, Any], now_ms: int) -> AgentKey:
    fallen = {f"ended_{name}": row.pop(f"fallen_{name}") for name in ("index", "as", "by", "because")}
    if row["ended_index"] is None:
        row |= fallen
    used, most = row.pop("used"), row["max_events"]
    left = None if most is None else max(most - used, 0)
    state: KeyState = row["ended_as"] or ("exhausted" if left == 0 else "valid")
    end = row["expires_at"]
    if state in ("valid", "exhausted") and end is not None and not Span(row["since_ms"], to_ms(end)).holds(now_ms):
        state = "expired"
    return AgentKey(**with_json(row, "kinds", "streams"), events_left=left, state=state)
