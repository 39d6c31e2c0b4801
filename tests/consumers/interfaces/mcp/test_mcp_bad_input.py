"""Bad clients are refused: wrong types, too much data, cancelling midway, broken lines on stdio."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from credentials import jwt
from forked_deed import DeedProcess
from mcp_clients import Caller, call_tools, over_stdio

from deedbook.consumers.interfaces.mcp.answers import arguments_size_max_bytes
from deedbook.consumers.interfaces.mcp.stdio import bounded, line_size_max_bytes
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.client.local import LocalClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOUND = {"type": "finding", "finding": "x"}
OTHER = {"type": "finding", "finding": "y"}
FIVE = [{"type": "finding", "finding": f"number {number}"} for number in range(5)]
DEEP: Any = 0
for _ in range(60):
    DEEP = [DEEP]
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("record_reasoning", {}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": []}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": 5}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": DEEP}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [{"type": "opinion"}]}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [FOUND | {"impact": 2}]}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [FOUND | {"impact": "0.5"}]}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [FOUND | {"mood": "good"}]}, "UNKNOWN_FIELD"),
    ("record_reasoning", {"entries": [FOUND | {"finding": "x" * 40_001}]}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [FOUND] * 101}, "TOO_LARGE"),
    ("record_reasoning", {"entries": [FOUND] * 2}, "PARTIAL_RETRY"),
    ("record_reasoning", {"entries": [FOUND | {"finding": "x" * 39_000}] * 30}, "TOO_LARGE"),
    ("record_reasoning", {"entries": [{"type": "assessment", "phase": "LATER"}]}, "INVALID_FIELD"),
    (
        "record_reasoning",
        {"entries": [{"type": "assessment", "phase": "CHECK", "vectors": {"mood": 1}}]},
        "INVALID_FIELD",
    ),
    ("record_reasoning", {"entries": [{"type": "observation", "content": "no name"}]}, "USAGE"),
    ("record_reasoning", {"entries": [FOUND], "task": "t", "session_id": "a\nb"}, "INVALID_FIELD"),
    ("record_reasoning", {"entries": [FOUND], "task": "t", "resumes": "nobody"}, "NOT_FOUND"),
    (
        "record_reasoning",
        {"entries": [{"type": "observation", "content": "c"}], "task": "t", "resumes": "s"},
        "USAGE",
    ),
    (
        "record_reasoning",
        {"entries": [FOUND, {"type": "inference", "content": "c", "rests_on": [7]}], "task": "t"},
        "STEP_CONFLICT",
    ),
    ("record_reasoning", {"entries": [FOUND | {"finding": "key AKIAIOSFODNN7EXAMPL0"}], "who": 1}, "UNKNOWN_FIELD"),
    ("generate_handoff_report", {"session_id": "nobody"}, "NOT_FOUND"),
    ("generate_handoff_report", {"session_id": 7}, "INVALID_FIELD"),
    ("resume_previous_session", {"resume_mode": "first"}, "INVALID_FIELD"),
    ("resume_previous_session", {"resume_mode": "session_id"}, "INVALID_FIELD"),
    ("resume_previous_session", {"resume_mode": "last", "session_id": "s"}, "USAGE"),
    ("record_reasoning", {"entries": [FOUND], "session_id": "nope"}, "NOT_FOUND"),
    ("handoff_next", {"scope": "all", "after": "-1"}, "INVALID_FIELD"),
    ("handoff_next", {"scope": "mine"}, "INVALID_FIELD"),
    ("resume_previous_session", {"count": 6}, "INVALID_FIELD"),
    ("query_handoff_reports", {"task_pattern": "(?=x)"}, "PATTERN_NOT_SUPPORTED"),
    ("query_handoff_reports", {"since": "the day after never"}, "INVALID_FIELD"),
    ("query_handoff_reports", {"limit": 0}, "INVALID_FIELD"),
    ("query_handoff_reports", {"after": -1}, "INVALID_FIELD"),
    ("search", {"text": "x", "limit": True}, "INVALID_FIELD"),
    ("search", {"text": "x", "after": 2**53}, "INVALID_FIELD"),
    ("fetch_reasoning", {"ref": "nothing", "budget": True}, "INVALID_FIELD"),
    ("handoff_act", {"action": "check", "id": "h", "task_numbers": [True]}, "INVALID_FIELD"),
    ("handoff_act", {"action": "check", "id": "h", "all_open": "yes"}, "INVALID_FIELD"),
    ("handoff_act", {"action": "claim", "id": "h", "lease_minutes": True}, "INVALID_FIELD"),
    ("fetch_reasoning", {"ref": "nothing"}, "NOT_FOUND"),
    ("fetch_reasoning", {"ref": "nothing", "after": "x"}, "INVALID_FIELD"),
    ("fetch_reasoning", {"ref": "nothing", "level": "brief"}, "INVALID_FIELD"),
    ("handoff_next", {"after": "x"}, "INVALID_FIELD"),
    ("handoff_next", {"agent": "nobody"}, "AGENT_UNKNOWN"),
    ("handoff_act", {"action": "explode", "id": "h"}, "INVALID_FIELD"),
    ("handoff_act", {"action": "claim"}, "USAGE"),
    ("handoff_act", {"action": "claim", "id": "h", "text": "no"}, "UNKNOWN_FIELD"),
    ("handoff_act", {"action": "claim", "id": "h"}, "NOT_FOUND"),
    ("handoff_act", {"action": "create", "to": "bob", "title": "…", "reviewer": "critic"}, "USAGE"),
    ("search", {"text": ""}, "INVALID_FIELD"),
    ("search", {"text": "x", "family": ["gossip"]}, "INVALID_FIELD"),
    ("forget_everything", {}, "NOT_FOUND"),
]


@pytest.fixture(scope="module")
def size_before(shared_home: Path) -> int:
    with Ledger(home=shared_home) as opened:
        return opened.client.head().size


@pytest.fixture(scope="module")
def refusals(shared_home: Path, size_before: int) -> list[dict[str, Any]]:
    """The errors of all wrong calls, made on one server, one after the other."""

    async def work(call: Caller) -> list[dict[str, Any]]:
        return [(await call(tool, **arguments)).error for tool, arguments, _ in WRONG]

    found: list[dict[str, Any]] = call_tools(shared_home, work)
    return found


@pytest.mark.parametrize(("at", "tool", "code"), [(at, tool, code) for at, (tool, _, code) in enumerate(WRONG)])
def test_wrong_call_is_a_typed_error(refusals: list[dict[str, Any]], at: int, tool: str, code: str) -> None:
    assert refusals[at].get("code") == code, refusals[at]


def test_wrong_calls_left_nothing_in_the_ledger(
    shared_home: Path, size_before: int, refusals: list[dict[str, Any]]
) -> None:
    with Ledger(home=shared_home) as opened:
        assert opened.client.head().size == size_before


def test_refusals_name_what_is_near(shared_home: Path) -> None:
    async def work(call: Caller) -> None:
        for entry, near in (
            ({"type": "findng", "finding": "x"}, "did you mean finding?"),
            (FOUND | {"impct": 0.5}, "entry 1: an entry of type finding has no 'impct': did you mean impact?"),
            ({"type": "dead_end", "approach": "x"}, "why_failed"),
        ):
            assert near in (await call("record_reasoning", entries=[entry], task="t")).error["message"]
        assert "did you mean title?" in (await call("handoff_act", action="create", titel="x")).error["message"]
        assert "did you mean search?" in (await call("serch", text="x")).error["message"]

    call_tools(shared_home, work)


def test_null_for_an_argument_is_no_argument_or_a_typed_error(shared_home: Path) -> None:
    """Clients with strict schemas send every argument, and null for those that they do not use."""

    async def work(call: Caller) -> dict[tuple[str, str], str]:
        tools = (await call.client.list_tools()).tools
        needed = {"search": {"text": "x"}}
        return {
            (tool.name, name): (await call(tool.name, **(needed.get(tool.name, {}) | {name: None}))).error.get("code")
            for tool in tools
            for name in tool.input_schema["properties"]
        }

    codes = call_tools(shared_home, work)
    assert "UNEXPECTED" not in codes.values(), codes
    assert (codes["search", "family"], codes["search", "kind"]) == (None, None)


def test_arguments_beyond_their_size_are_refused_by_their_size(shared_home: Path) -> None:
    async def work(call: Caller) -> None:
        done = await call("handoff_act", action="log", id="h", artifacts=["x" * arguments_size_max_bytes])
        assert done.code == "TOO_LARGE"
        assert done.error["details"]["size"] > arguments_size_max_bytes

    call_tools(shared_home, work)


def test_refused_batch_names_the_entry_and_records_nothing_of_it(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        bad = {"type": "inference", "content": "c", "rests_on": [9]}
        done = await call("record_reasoning", entries=[FOUND, OTHER, bad], task="t")
        assert done.error["details"]["entries"] == [3]
        assert "nothing was recorded" in done.error["message"]
        assert (await call("search", text="x")).data["total"] == 0

    call_tools(own_home, work)


def test_secret_is_refused_before_it_is_signed(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        token = jwt('{"alg":"HS256","typ":"JWT"}')
        done = await call("record_reasoning", entries=[FOUND | {"finding": f"use {token}"}], task="t")
        assert done.code == "SECRET_DETECTED"
        assert token not in json.dumps(done.error)

    call_tools(own_home, work)


def test_cancelled_call_leaves_its_whole_submission(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client disconnects while the ledger decides: its submission is stored whole, and the server keeps running."""
    entered, let_go = threading.Event(), threading.Event()
    submit = LocalClient.submit

    def slow(self: LocalClient, submission: Any) -> Any:
        entered.set()
        assert let_go.wait(30)
        return submit(self, submission)

    async def work(call: Caller) -> None:
        monkeypatch.setattr(LocalClient, "submit", slow)
        asked = asyncio.create_task(call("record_reasoning", session_id="cut", task="t", entries=FIVE))
        await asyncio.to_thread(entered.wait, 30)
        other = await call("query_handoff_reports")  # a waiting call does not block another
        assert other.data["total_found"] == 0
        asked.cancel()
        await asyncio.wait([asked])
        let_go.set()
        monkeypatch.setattr(LocalClient, "submit", submit)
        after = await call("record_reasoning", session_id="after", task="t", entries=[FOUND])
        assert not after.error

    call_tools(own_home, work)
    with Ledger(home=own_home) as opened:
        found = opened.client.view("catalog.find", {"stream": "session/cut"})["items"]
        assert [one["kind"] for one in found] == ["session.started", *["finding.logged"] * 5]


def test_tool_that_fails_unforeseen_tells_no_more_than_its_kind(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("inner words")

    monkeypatch.setattr("deedbook.consumers.interfaces.mcp.reports.query_reports", broken)
    done = call_tools(own_home, lambda call: call("query_handoff_reports"))
    assert done.code == "UNEXPECTED"
    assert "inner words" not in json.dumps(done.error)
    assert "inner words" in caplog.text


@pytest.fixture
def process(own_home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server on stdio, spoken to by hand."""
    pipe = subprocess.PIPE
    with DeedProcess("mcp", "--home", own_home, "--as", "alice", stdin=pipe, stdout=pipe, stderr=pipe) as running:
        yield running
        if running.poll() is None:
            running.kill()


def begin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    said = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": said}
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    assert answer_to(process, 1)["result"]["serverInfo"]["name"] == "deedbook"
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


def answer_to(process: subprocess.Popen[bytes], number: int) -> dict[str, Any]:
    """Return the answer to a request; every earlier line belongs to the protocol, too."""
    assert process.stdout is not None
    for line in process.stdout:
        document: dict[str, Any] = json.loads(line)
        assert document["jsonrpc"] == "2.0"
        if document.get("id") == number:
            return document
    raise AssertionError(number)


def test_broken_and_endless_lines_do_not_stop_the_server(process: subprocess.Popen[bytes]) -> None:
    begin(process)
    assert process.stdin is not None
    process.stdin.write(b"no json\n\xff\xfe\n[]\n" + b'"' + b"x" * (line_size_max_bytes + 10) + b"\n")
    process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
    process.stdin.flush()
    assert len(answer_to(process, 2)["result"]["tools"]) == 8


def test_server_on_stdio_ends_cleanly_at_a_signal(process: subprocess.Popen[bytes]) -> None:
    begin(process)
    process.send_signal(signal.SIGTERM)
    process.wait(60)  # ends although its input is still open
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"the tools sign as alice\n")


def test_server_on_stdio_ends_when_its_client_closes_the_input(process: subprocess.Popen[bytes]) -> None:
    begin(process)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"the tools sign as alice\n")


def test_lines_are_kept_to_their_limit_wherever_chunks_end() -> None:
    long = b"x" * line_size_max_bytes
    kept, length = bounded(long + b"tail\nnext", 0)
    assert (kept, length) == (long + b"\nnext", 4)
    assert bounded(b"more\nend", line_size_max_bytes - 2) == (b"mo\nend", 3)


def test_instructions_tell_the_workflow_in_under_300_words(own_home: Path) -> None:
    async def work(call: Caller) -> str:
        return str(call.client.instructions)

    told = call_tools(own_home, work)
    assert len(told.split()) < 300
    assert all(name in told for name in ("resume_previous_session", "handoff_next", "POSTFLIGHT"))


def test_parallel_calls_over_stdio_are_all_answered(own_home: Path) -> None:
    async def work() -> None:
        async with over_stdio(own_home, "--as", "alice") as call:
            names = [f"s{number}" for number in range(8)]
            done = await asyncio.gather(
                *(call("record_reasoning", session_id=one, task="t", entries=[FOUND]) for one in names)
            )
            assert [one.data["session_id"] for one in done] == names

    asyncio.run(work())


def test_list_of_the_eight_tools_is_small(shared_home: Path) -> None:
    async def work(call: Caller) -> list[dict[str, Any]]:
        tools = (await call.client.list_tools()).tools
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]

    tools = call_tools(shared_home, work)
    size = len(json.dumps({"tools": tools}, separators=(",", ":")).encode())
    print(f"the list of tools has {size} bytes")
    assert (len(tools), size < 12_000) == (8, True), size
