"""The MCP Inspector's command line lists the tools and calls three of them, over stdio and over HTTP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import DEEDBOOK, HttpServer, Inspector, call_tools, check_answer, read_answer

if TYPE_CHECKING:
    from pathlib import Path

# The first run on a machine installs the Inspector, which takes longer than all other tests of the tools together.
pytestmark = [pytest.mark.long_run, pytest.mark.timeout(600)]

TOOLS = [
    "fetch_reasoning",
    "generate_handoff_report",
    "handoff_act",
    "handoff_next",
    "query_handoff_reports",
    "record_reasoning",
    "resume_previous_session",
    "search",
]
READING = {"fetch_reasoning", "handoff_next", "query_handoff_reports", "resume_previous_session", "search"}


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, shared_home: Path) -> list[str]:
    """How the Inspector reaches the server, the token with it."""
    if request.param == "stdio":
        # A harness passes on few variables. The folders of this user's decisions and trust store are not among them.
        own = [f"{name}={os.environ[name]}" for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")]
        return ["env", *own, *DEEDBOOK, "mcp", "--home", str(shared_home), "--as", "alice"]
    server: HttpServer = request.getfixturevalue("http_server")
    return [server.url, "--transport", "http", "--header", f"Authorization: Bearer {server.token}"]


def test_inspector_lists_the_tools_and_calls_all_three_of_the_seed(
    inspector: Inspector, target: list[str], shared_home: Path
) -> None:
    listed = inspector(target, "tools/list", "--strict")["tools"]
    tools = {one["name"]: one for one in listed}
    assert sorted(tools) == TOOLS
    for name, tool in tools.items():
        check_announced(name, tool)
    name = f"leak-{'http' if target[0].startswith('http') else 'stdio'}"

    async def begin(call: Any) -> None:
        await call(
            "record_reasoning", session_id=name, task="t", entries=[{"type": "finding", "finding": "The pool leaks"}]
        )

    call_tools(shared_home, begin)
    made = check_answer(
        inspector(
            target,
            "tools/call",
            "--tool-name",
            "generate_handoff_report",
            session_id=name,
            task_summary="Found the leak",
            key_findings='["The pool leaks", "It grows", "Closing helps"]',
            remaining_unknowns='["who opened it"]',
            next_session_context="Watch it",
        ),
    )
    assert made["status"] == "success"
    if not target[0].startswith("http"):
        return  # each call starts a server: further calls over stdio would test nothing new
    resumed = check_answer(
        inspector(target, "tools/call", "--tool-name", "resume_previous_session", ai_id="alice"),
    )
    assert [one["session_id"] for one in resumed["sessions"]] == [name]
    found = check_answer(
        inspector(target, "tools/call", "--tool-name", "query_handoff_reports", task_pattern="LEAK", limit="1"),
    )
    assert [one["outcome"] for one in found["reports"]] == ["Found the leak"]


def test_typescript_client_sees_the_same_tools_and_answers_as_the_one_in_python(
    inspector: Inspector, http_server: HttpServer, shared_home: Path
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("record_reasoning", {"session_id": "ts", "task": "t", "entries": [{"type": "finding", "finding": "<b>"}]}),
        ("search", {"text": "b"}),
        ("resume_previous_session", {"session_id": "ts"}),
        ("fetch_reasoning", {"ref": "nothing"}),
    ]

    async def look(call: Any) -> tuple[list[Any], list[Any]]:
        tools = (await call.client.list_tools()).tools
        return tools, [await call.client.call_tool(*arguments) for arguments in calls[1:]]

    seen = inspector.typescript(http_server, calls)
    tools, answers = call_tools(shared_home, look)

    def plain(models: list[Any]) -> list[dict[str, Any]]:
        return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]

    assert seen["tools"] == plain(tools)
    for got, expected in zip(seen["answers"][1:], plain(answers), strict=True):
        for name in ("content", "structuredContent", "isError"):
            assert got.get(name, False) == expected.get(name, False)
        read_answer([content["text"] for content in got["content"]], got["structuredContent"])


def check_announced(name: str, tool: dict[str, Any]) -> None:
    """A tool has a title, a description, each annotation that differs from the default, and no schema of its answer."""
    hints = tool["annotations"]
    assert hints == {
        "readOnlyHint": name in READING,
        "openWorldHint": False,
    } | ({} if name in READING else {"destructiveHint": False, "idempotentHint": name == "generate_handoff_report"})
    assert tool["title"]
    assert tool["description"]
    assert "outputSchema" not in tool
