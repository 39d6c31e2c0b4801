"""Marks of signatures whose author had the needed role only by a grant with a compromised signature.

The rule is that of ``ledger.lifecycle.authority.report_on_signature``, by the grants and keys as they are now, also in
an answer about the past.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec.structs import replace

from deedbook.ledger.lifecycle.authority import AgentRecord, Grant, KeyRecord, report_on, report_on_signature
from deedbook.projections.agents.compromised import KEYS_NOW
from deedbook.projections.answers.query import QueryContext, json_list

_GRANTS: Final = "main.role_grants"
_BY_AUTHORS: Final = (
    "SELECT e.event_index, e.stream, e.kind, e.key FROM events e WHERE e.author IN (SELECT value FROM json_each(?)) "
    "AND (e.event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) "
    "OR e.stream IN (SELECT value FROM json_each(?)))"
)


class _AgentsNow:
    """The present grants of roles and the present keys; they count in an answer about the past, too."""

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._agents: dict[str, AgentRecord] = {}
        for row in context.rows(f"SELECT * FROM {_GRANTS} ORDER BY agent, position"):  # noqa: S608 - fixed texts
            name, by = row["agent"], (row["granted_index"], row["granted_key"], row["granted_by"])
            agent = self._agents.setdefault(name, AgentRecord(name, "", ()))
            grants = (*agent.grants, Grant(row["role"], *by, row["ended_index"]))
            self._agents[name] = replace(agent, grants=grants)
        self._keys: dict[str, KeyRecord | None] = {}

    @property
    def names(self) -> list[str]:
        """The agents whose roles somebody granted."""
        return list(self._agents)

    def agent(self, name: str) -> AgentRecord | None:
        """Return the grants of an agent."""
        return self._agents.get(name)

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex), with the fields that the rule on compromised keys reads."""
        if public_key not in self._keys:
            rows = self._context.rows(f"SELECT * FROM {KEYS_NOW} WHERE key = ?", (public_key,))  # noqa: S608 - fixed texts
            self._keys[public_key] = None if not rows else _key_record(rows[0])
        return self._keys[public_key]


def _key_record(row: Mapping[str, Any]) -> KeyRecord:
    since = {"compromised_since": row["compromised_since"], "compromised_index": row["compromised_index"]}
    delegated_by = row["delegated_by"] or ""
    return KeyRecord(row["agent"], row["key"], row["type"], row["since_index"], delegated_by=delegated_by, **since)


def reports_on_roles(context: QueryContext, indexes: Collection[int], streams: Collection[str]) -> dict[int | str, int]:
    """Return the reports by which entries (by index) and streams (by name) rest on a role that does not count."""
    agents = _AgentsNow(context)
    granted = ((name, agents.agent(name)) for name in agents.names)
    doubtful = [name for name, agent in granted if agent and any(report_on(agents, grant) for grant in agent.grants)]
    reports: dict[int | str, int] = {}
    if not doubtful:
        return reports
    wanted = (json_list(doubtful), json_list(sorted(indexes)), json_list(sorted(streams)))
    for event in context.rows(_BY_AUTHORS, wanted):
        index, stream = event["event_index"], event["stream"]
        report = report_on_signature(agents, event["key"], event["kind"], stream, index)
        if report is not None and index in indexes:
            reports[index] = report
        if report is not None and stream in streams:
            reports[stream] = min(report, reports.get(stream, report))
    return reports
