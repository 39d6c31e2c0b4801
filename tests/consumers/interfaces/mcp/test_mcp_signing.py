"""No tool signs as a human, an admin or root; without an agent or with a locked key, errors say what to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import inside
import pytest
from building import Ledger
from forked_deed import run_deed
from mcp_clients import Caller, call_tools

from deedbook.ledger.format.identity import write_key
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from pathlib import Path

FOUND = [{"type": "finding", "finding": "x"}]
SIGNING: list[tuple[str, dict[str, Any]]] = [
    ("record_reasoning", {"entries": FOUND}),
    ("generate_handoff_report", {"session_id": "s"}),
    ("handoff_act", {"action": "claim", "id": "h"}),
]


def started(home: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Return the exit of a server that may not start; in this process, which has loaded the SDK already."""
    ended = inside.deed("mcp", "--home", home, "--json", *options)
    return ended.code, json.loads(ended.out)["error"] if ended.out else {}


def test_server_refuses_to_start_without_a_ledger_and_names_the_near_folder(own_home: Path, tmp_path: Path) -> None:
    own_home.rename(tmp_path / ".deedbook")
    for folder, end in (
        (tmp_path / "none", "run `deed init` first"),
        (tmp_path, f"did you mean {tmp_path}/.deedbook?"),
    ):
        code, error = started(folder)
        assert (code, error["code"]) == (7, "NO_LEDGER")
        assert error["message"] == f"there is no log in {folder}: {end}"


def test_server_says_at_its_start_who_signs(shared_home: Path) -> None:
    ended = run_deed("mcp", "--home", shared_home, timeout=60)
    assert ended.stderr.startswith("the tools only read: to let them sign, start with `deed mcp --as NAME`")
    for options in (("--as", "alice"), ("--harness", "alice")):
        ended = run_deed("mcp", "--home", shared_home, *options, timeout=60)
        assert ended.stderr == "the tools sign as alice\n"


def test_server_refuses_to_start_as_an_agent_that_is_not_registered(shared_home: Path) -> None:
    for options in (("--as", "nobody"), ("--harness", "nobody")):
        code, error = started(shared_home, *options)
        assert (code, error["code"]) == (3, "AGENT_UNKNOWN")
        assert "`deed agent add nobody --role agent`" in error["message"]


@pytest.mark.parametrize("name", ["rita", "ada", "root", "node"])
def test_server_refuses_to_start_as_who_decides(shared_home: Path, name: str) -> None:
    code, error = started(shared_home, "--as", name)
    assert code == 5
    assert error["code"] == "NOT_AUTHORIZED"


def test_every_signing_tool_refuses_an_agent_that_became_human_since(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        assert not (await call("record_reasoning", session_id="s", task="t", entries=FOUND)).error
        granted = ("emit", "role.granted", "--stream", "agent/alice", "--as", "root", "--home", own_home)
        grant = partial(run_deed, *granted, "--data", '{"agent":"alice","role":"human"}', timeout=60)
        assert (await asyncio.to_thread(grant)).returncode == 0
        for tool, arguments in SIGNING[:2]:
            assert (await call(tool, **arguments)).code == "NOT_AUTHORIZED"

    call_tools(own_home, work)


@pytest.mark.parametrize(("agent", "code"), [(None, "USAGE"), ("nobody", "AGENT_UNKNOWN")])
def test_without_an_agent_tools_read_and_signing_ones_say_what_to_do(
    shared_home: Path, agent: str | None, code: str
) -> None:
    async def work(call: Caller) -> None:
        assert (await call("resume_previous_session")).data["total_sessions"] == 0
        assert not (await call("query_handoff_reports")).error
        for tool, arguments in SIGNING[:1]:
            done = await call(tool, **arguments)
            assert done.code == code
            assert "`deed " in done.error["message"]

    call_tools(shared_home, work, agent=agent)


def test_locked_key_is_told_with_the_way_to_open_it(own_home: Path) -> None:
    home = Home(own_home)
    with Ledger(own_home) as ledger:
        home.key_file("alice").unlink()
        write_key(
            home.key_file("alice"), ledger.keys["alice"], ledger=ledger.id, name="alice", passphrase="long enough"
        )

    async def work(call: Caller) -> tuple[str, str]:
        done = await call("record_reasoning", session_id="s", task="t", entries=FOUND)
        return done.code, done.error.get("message", "")

    code, message = call_tools(own_home, work)
    assert code == "KEY_LOCKED"
    assert "deed key delegate --as alice" in message
    assert call_tools(own_home, work, passphrase="long enough") == ("", "")


def test_agent_without_the_reviewer_role_reviews_nothing(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        given = {"action": "create", "id": "h", "title": "H", "to": "bob", "reviewer": "critic"}
        assert not (await call("handoff_act", **given)).error
        for action, more in (
            ("approve", {"version": "sha256:" + "0" * 64}),
            ("verify", {"result": "sha256:" + "0" * 64}),
            ("reject", {"reason": "r"}),
            ("request_changes", {"reason": "r", "result": "sha256:" + "0" * 64}),
            ("waive", {"reason": "r", "criterion_numbers": [1]}),
        ):
            assert (await call("handoff_act", action=action, id="h", **more)).code == "NOT_AUTHORIZED"

    call_tools(own_home, work)


def test_missing_extra_is_a_typed_error_that_names_the_command(shared_home: Path) -> None:
    program = (
        "import sys; sys.modules['mcp'] = None; sys.modules['mcp.server'] = None;"
        "from deedbook.consumers.interfaces.cli.program import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "mcp", "--home", str(shared_home), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 8
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "EXTRA_MISSING"
    assert "pip install 'deedbook[mcp]'" in error["message"]


def test_options_of_http_are_refused_over_stdio(shared_home: Path) -> None:
    assert started(shared_home, "--port", "1")[1]["code"] == "USAGE"
