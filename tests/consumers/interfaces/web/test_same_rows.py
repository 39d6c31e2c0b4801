"""The same question by Python, HTTP, the command line, MCP and SQL has the same rows, for every query."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from mcp import Client
from test_web_api import path_to
from view_ledger import ARGUMENTS

from deedbook.consumers.interfaces.cli.program import run
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.projections.views.registry import QUERIES, kind_of

if TYPE_CHECKING:
    from web_reading import Reading

    from deedbook.consumers.sdk.ledger import Ledger

PAGE: Final = {"limit": 500}


class Tool(NamedTuple):
    """A tool's call, the path of its rows, and the path of the fields that both it and the query return."""

    name: str
    arguments: dict[str, Any]
    rows: str
    of: str


class Interfaces(NamedTuple):
    """The interfaces of a query: arguments, verb (or why there is none), tool, and SQL for the ids of a list.

    ``left_out`` are the parts of the answer that the verb does not print. ``ids`` are the list and the column of the
    SQL.
    """

    arguments: dict[str, Any]
    verb: str | None
    why_none: str = ""
    left_out: tuple[str, ...] = ()
    tool: Tool | None = None
    sql: str = ""
    ids: tuple[str, str] = ("", "")


def asked(query: str, verb: str | None, why_none: str = "", **more: Any) -> tuple[str, Interfaces]:
    """Return a query and its interfaces, with the arguments of the view tests and with ``arguments``."""
    arguments = ARGUMENTS.get(query, {}) | more.pop("arguments", {})
    return query, Interfaces(arguments, verb, why_none, **more)


PARTS = "a part of what other verbs show or check"
MADE = "what makes or renews things asks it, for itself"
DRAWN = "drawn on a page; the command line draws text"

TABLE: Final = dict(
    [
        asked("agents.activity", None, DRAWN),
        asked("agents.claimed", None, DRAWN),
        asked("agents.keys", "key list", ids=("items", "key"), sql="SELECT key FROM agent_keys"),
        asked(
            "agents.list",
            "agent list --all",
            arguments={"all": True},
            ids=("agents", "name"),
            sql="SELECT name FROM agents ORDER BY name",
        ),
        asked("agents.show", "agent show bob"),
        asked("agents.compromised", None, PARTS),
        asked("briefs.best", None, "`reasoning brief` shows it as a prompt, or makes one on the spot"),
        asked(
            "catalog.find",
            None,
            "`log` tells whole events: test_web_events holds them together",
            arguments=PAGE,
            ids=("items", "event_index"),
            sql="SELECT event_index FROM events ORDER BY event_index",
        ),
        asked("catalog.facets", None, DRAWN),
        asked("catalog.lanes", None, DRAWN),
        asked("catalog.instant", None, PARTS),
        asked("catalog.skipped", None, PARTS),
        asked("catalog.show", None, "`show` reads the entry itself"),
        asked("catalog.why", "why 3", left_out=("unresolved",)),
        asked(
            "decisions.list",
            "decisions --all",
            ids=("items", "id"),
            sql="SELECT id FROM decisions ORDER BY made_index DESC",
        ),
        asked("decisions.show", "decisions d1", left_out=("as_of",)),
        asked("handoffs.around", None, DRAWN),
        asked("handoffs.board", "handoff list --board"),
        asked("handoffs.counts", None, DRAWN),
        asked("handoffs.existing", None, MADE),
        asked("handoffs.facts", None, PARTS),
        asked("handoffs.files", None, MADE),
        asked("handoffs.graph", "handoff graph"),
        asked("handoffs.references", None, PARTS),
        asked("handoffs.waits", None, PARTS),
        asked(
            "handoffs.list",
            "handoff list",
            arguments={"limit": 50},
            tool=Tool("handoff_next", {"scope": "all", "limit": 10}, "items", "id"),
            ids=("items", "id"),
            sql="SELECT id FROM handoffs WHERE is_history = 0 ORDER BY created_index DESC",
        ),
        asked(
            "handoffs.next",
            "next --as bob",
            tool=Tool("handoff_next", {"agent": "bob"}, "items", "id"),
            arguments={"agent": "bob"},
            left_out=("act", "arguments"),
        ),
        asked(
            "handoffs.show",
            "handoff show b",
            left_out=("as_of",),
            tool=Tool("handoff_act", {"action": "show", "id": "b"}, "", "id"),
        ),
        asked("handoffs.unannounced", None, MADE),
        asked("handoffs.unread", "unread --peek --as bob", arguments={"agent": "bob"}),
        asked("handoffs.versions", None, "`amend` and operations on another version print what changed"),
        asked(
            "handoffs.why",
            "handoff why b",
            left_out=("as_of", "next", "waits"),
            tool=Tool("handoff_act", {"action": "why", "id": "b"}, "", "id"),
        ),
        asked("knowledge.graph", None, DRAWN),
        asked(
            "kinds.list", "kind list", ids=("items", "name"), sql="SELECT name FROM kinds ORDER BY declared_index DESC"
        ),
        asked("kinds.show", "kind show x.deploy.finished"),
        asked(
            "questions.list",
            "questions --all",
            ids=("items", "id"),
            sql="SELECT id FROM questions ORDER BY asked_index DESC",
        ),
        asked("questions.show", "questions q1", left_out=("as_of",)),
        asked("reasoning.existing", None, MADE),
        asked("reasoning.fetch", None, "`reasoning fetch` rebuilds the graph from it"),
        asked("reasoning.full", None, "`reasoning fetch` prints it, checked"),
        asked("reasoning.list", "reasoning list", ids=("items", "id"), sql="SELECT id FROM reasonings"),
        asked("reasoning.origins", None, PARTS),
        asked("reasoning.show", "reasoning show r1", left_out=("as_of",)),
        asked("records.existing", None, MADE),
        asked("records.list", "import list", ids=("items", "event_index"), sql="SELECT event_index FROM records"),
        asked("reports.accomplished", None, MADE),
        asked("reports.calibration", "report calibration"),
        asked(
            "reports.list",
            "report query",
            arguments={"task_pattern": None},
            left_out=("reports",),
            tool=Tool("query_handoff_reports", {}, "reports", "session_id"),
            ids=("reports", "session_id"),
            sql="SELECT session_id FROM handoff_reports",
        ),
        asked("reports.metrics", "report metrics"),
        asked("reports.overlap", "report overlap"),
        asked("reports.sessions", None, MADE),
        asked("reports.show", "report show s1", left_out=("citations",)),
        asked("redactions.list", None, "`show` names the redaction beside what was erased"),
        asked("redactions.versions", None, MADE),
        asked("resolve", None, PARTS),
        asked(
            "reviews.list",
            "review list",
            arguments={"status": "open"},
            ids=("items", "id"),
            sql="SELECT id FROM reviews WHERE status = 'open'",
        ),
        asked("reviews.show", "review show v1", left_out=("as_of",)),
        asked("search.facets", None, DRAWN),
        asked(
            "search.find", "search login", tool=Tool("search", {"text": "login", "limit": 20}, "hits", "event_index")
        ),
        asked("search.related", None, "`session start` tells the dead ends"),
        asked("search.similar", "report similar 'Find the leak'"),
        asked("sessions.list", "session list", ids=("items", "id"), sql="SELECT id FROM sessions"),
        asked("sessions.show", "session show s1"),
        asked("sessions.statements", None, "`search --kind` finds them by their words, and `session show` lists them"),
        asked("sessions.trajectory", None, "`session show --json` has it as `trajectory`"),
        asked("snapshots.domains", None, PARTS),
        asked("snapshots.list", "snapshot list", ids=("items", "id"), sql="SELECT id FROM snapshots"),
        asked("snapshots.show", None, "`snapshot show` opens it first, and tells it as its receiver reads it"),
        asked("tot.list", "tot list", ids=("items", "id"), sql="SELECT id FROM tot_tasks"),
        asked("tot.prove", "tot prove tot-2026"),
        asked("tot.show", None, "`tot show` draws the tree, and ends with it"),
        asked("tot.tree", "tot show tot-20260212-100000-a3f7b2"),
        asked("validations.latest", None, PARTS),
        asked("validations.list", "reasoning validations r1", left_out=("as_of",)),
    ]
)


def test_the_table_holds_every_query_and_says_why_one_has_no_verb() -> None:
    assert TABLE.keys() == QUERIES.keys()
    assert all((interfaces.verb is None) == bool(interfaces.why_none) for interfaces in TABLE.values())


def by_http(reading: Reading, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in arguments.items() if value is not None}
    document = reading.get(path_to(query, **given)).json()
    assert document["kind"] == kind_of(query)
    return dict(document["data"])


def by_command_line(reading: Reading, verb: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    import shlex

    assert run(["--home", str(reading.home), "--json", *shlex.split(verb)]) == 0, verb
    return dict(json.loads(capsys.readouterr().out))


def by_tool(reading: Reading, tool: Tool) -> Any:
    async def call() -> Any:
        with ToolLedger(home=reading.home) as ledger:
            async with Client(DeedbookServer(ledger)) as client:
                return (await client.call_tool(tool.name, tool.arguments)).structured_content

    return asyncio.run(call())


def holds(told: Any, answer: Any, *left_out: str) -> bool:
    """Return whether an interface's output contains all of an answer; it may contain more."""
    if isinstance(answer, dict) and isinstance(told, dict):
        return all(holds(told.get(name), answer[name], *left_out) for name in answer if name not in left_out)
    if isinstance(answer, list) and isinstance(told, list):
        return len(told) == len(answer) and all(holds(*pair, *left_out) for pair in zip(told, answer, strict=True))
    return bool(told == answer)


@pytest.mark.parametrize("query", sorted(TABLE))
def test_every_interface_tells_the_same_rows(
    reading: Reading, python: Ledger, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    interfaces = TABLE[query]
    answer = python.ask(query, **interfaces.arguments)
    http = by_http(reading, query, interfaces.arguments)
    assert http | {"next": None} == answer | {"next": None}
    if interfaces.verb is not None:
        document = by_command_line(reading, interfaces.verb, capsys)
        assert document["kind"] == kind_of(query)
        assert holds(document["data"], answer, *interfaces.left_out), (document["data"], answer)
    if interfaces.tool is not None:
        told = by_tool(reading, interfaces.tool)
        rows, of = interfaces.tool.rows, interfaces.tool.of
        mine = next(value for value in answer.values() if isinstance(value, list)) if rows else [answer]
        assert [row[of] for row in (told[rows] if rows else [told])] == [row[of] for row in mine]
    if interfaces.sql:
        with contextlib.closing(sqlite3.connect(f"file:{reading.home / VIEWS_FILE}?mode=ro", uri=True)) as views:
            ids = [row[0] for row in views.execute(interfaces.sql)]
        rows, column = interfaces.ids
        mine = [row[column] for row in answer[rows]]
        assert (ids if "ORDER BY" in interfaces.sql else sorted(ids)) == (
            mine if "ORDER BY" in interfaces.sql else sorted(mine)
        )
