"""A cloned repository is set up to run a program and send a secret: nothing happens before `deed trust`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any, Final

import click
import pytest
from faults import is_long_run
from hostile_clone import INJECTED, SECRET, Clone, clone, origin, sink

from deedbook.consumers.interfaces.cli.app import Group
from deedbook.consumers.interfaces.cli.program import deed
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.ledger.home import trust

__all__ = ["clone", "origin", "sink"]

REFUSED: Final = {
    "watch": ["watch", "--kind", "session.started", "--from-start", "--once", "--as", "a", "--exec", "touch mark"],
    "think": ["tot", "run", "--problem", "x", "--task-type", "creative_writing"],
    "notify": ["notify", "test"],
    "serve": ["serve"],
    "show": ["dashboard"],
}
"""Calls that would certainly run or send something."""


def every_verb() -> list[list[str]]:
    """Return a call of each verb of the program: its words, and a value for each argument and required option."""
    calls: list[list[str]] = []

    def walk(group: Group, words: list[str]) -> None:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            if isinstance(command, Group):
                walk(command, [*words, name])
            elif name not in {"demo", "trust", "mcp"}:  # another test covers the tools
                calls.append([*words, name, *_given(command)])

    walk(deed, [])
    return calls


def _given(command: click.Command) -> list[str]:
    words = ["--as", "a"]
    for parameter in command.params:
        kind = parameter.type
        value = str(kind.choices[0]) if isinstance(kind, click.Choice) else "1" if "INT" in kind.name.upper() else "s"
        if isinstance(parameter, click.Argument):
            words += [value]
        elif parameter.required:
            words += [parameter.opts[0], "{}" if "data" in parameter.opts[0] else value]
        elif parameter.name == "once":
            words += ["--once"]
    return words


def test_no_verb_of_a_clone_runs_or_sends_anything_before_it_is_trusted(clone: Clone) -> None:
    # In this process, because 120 starts of Python take half a minute, and the canaries are outside of it anyway. Verbs
    # that would certainly act run in a new process, as hooks and tools do below; in the long run all verbs do.
    for words in [*every_verb(), *REFUSED.values()]:
        is_process = is_long_run or words in REFUSED.values()
        done = (clone.start if is_process else clone.call)(*words)
        _nothing_was_done(clone, words)
        assert SECRET not in done.out + done.err, words
        assert done.code != 1, (words, done.err)


def test_calls_that_would_act_are_refused_by_their_code(clone: Clone) -> None:
    for words in REFUSED.values():
        done = clone.call(*words, "--json")
        assert (done.code, json.loads(done.out)["error"]["code"]) == (5, "NOT_TRUSTED"), words
        _nothing_was_done(clone, words)


def _nothing_was_done(clone: Clone, words: list[str]) -> None:
    assert not clone.mark.exists(), words
    assert not (clone.folder / "mark").exists(), words
    assert clone.sink.sent == [], words
    assert {path.name for path in clone.folder.parent.iterdir()} == {"clone"}, words


def test_verbs_that_read_go_on_and_say_what_they_leave_out(clone: Clone) -> None:
    for words in (["log"], ["show", "0"], ["handoff", "list"], ["session", "list"]):
        done = clone.call(*words)
        assert done.code == 0, done.err
        assert "is not trusted with nats_server, llm, validator_tree, notify, reports" in done.err


def test_hooks_and_prime_say_no_word_of_a_clone(clone: Clone) -> None:
    for harness in HARNESSES.values():
        for event in harness.events:
            given = {"hook_event_name": event, "session_id": "x", "cwd": str(clone.folder), "source": "startup"}
            run = clone.start if is_long_run or event == "SessionStart" else clone.call
            done = run("hook", harness.name, "--as", "a", stdin=json.dumps(given).encode())
            assert done.code == 0
            assert INJECTED not in done.out
            assert ("deed trust" in done.out) == (event == "SessionStart")
    primed = clone.start("prime", "--as", "a")
    assert (primed.code, primed.out) == (5, "")
    assert trust.UNTRUSTED in primed.err
    assert not (clone.folder / ".deedbook" / "hooks.log").exists()


def test_tools_of_a_clone_answer_that_it_is_not_trusted(clone: Clone) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "search", "arguments": {"text": "IGNORE"}}},
    ]
    command = [sys.executable, "-P", "-m", "deedbook", "mcp", "--as", "a"]
    with subprocess.Popen(command, cwd=clone.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.writelines(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)
        server.stdin.flush()
        answers = [server.stdout.readline(), server.stdout.readline()]
        server.stdin.close()
    assert b"NOT_TRUSTED" in answers[1]
    assert INJECTED.encode() not in b"".join(answers)
    _nothing_was_done(clone, command)


def test_doctor_runs_nothing_and_calls_keys_of_a_repository_a_strangers(clone: Clone) -> None:
    said = clone.start("doctor").out
    assert "not run by this check" in said
    assert "they are the stranger's" in said
    assert "chmod" not in said
    assert not clone.mark.exists()


def test_what_was_trusted_runs_and_a_change_is_asked_about_again(clone: Clone) -> None:
    shown = clone.call("trust", "--show").out
    assert "NOT trusted" in shown
    assert "the environment's STOLEN" in shown
    clone.trust()
    clone.call("notify", "test")
    assert clone.mark.read_text() == "command\n"
    assert len(clone.sink.sent) == 1
    config = clone.home / "config.toml"
    config.write_text(config.read_text().replace('model = "m"', 'model = "other"'))
    changed = clone.call("notify", "test", "--json")
    error = json.loads(changed.out)["error"]
    assert (changed.code, error["code"], error["details"]["settings"]) == (5, "NOT_TRUSTED", ["llm"])
    assert clone.call("trust", "--remove").code == 0
    assert clone.call("emit", "session.started", "--stream", "session/t", "--as", "a", "--data", "{}").code == 5


def test_programs_of_the_repository_are_shown_whether_it_is_trusted_or_not(clone: Clone) -> None:
    settings = {
        "protocol.ext.allow": "always",
        "core.sshCommand": f"touch {clone.mark}",
        "filter.x.smudge": "sh -c evil",
        "alias.st": "!evil\nmore",
        "user.name": "somebody",
        "remote.origin.vcs": "https://me:hunter2@example.org",
    }
    for name, value in settings.items():
        subprocess.run(["git", "config", name, value], cwd=clone.folder, check=True)
    for is_trusted in (False, True):
        if is_trusted:
            clone.trust()
        shown = clone.call("trust", "--show")
        assert f"| core.sshcommand=touch {clone.mark}\n" in shown.out
        assert "by its own configuration" in shown.out
        rows = json.loads(clone.call("trust", "--show", "--json").out)["data"]["git"]
        assert {row["setting"] for row in rows} >= {
            "protocol.ext.allow",
            "core.sshcommand",
            "filter.x.smudge",
            "alias.st",
            "remote.origin.vcs",
        }
        assert not {"user.name"} & {row["setting"] for row in rows}
        assert "hunter2" not in shown.out
    assert not clone.mark.exists()


def test_trust_off_a_terminal_asks_nobody_and_says_what_to_type(clone: Clone) -> None:
    asked = clone.call("trust", "--home", str(clone.home))
    assert asked.code == 2
    assert f"deed trust --yes --home {clone.home}" in asked.err
    assert not trust.is_trusted(clone.home)


@pytest.mark.parametrize(("answer", "is_trusted"), [("y", True), ("n", False), ("", False), ("\x04", False)])
def test_person_at_a_terminal_is_shown_what_it_does_and_asked(clone: Clone, answer: str, is_trusted: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "deedbook", "trust"]
    with subprocess.Popen(command, cwd=clone.folder, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = _read_until(ours, b"Trust this folder?")
        os.write(ours, answer.encode() + (b"" if answer == "\x04" else b"\n"))
        _read_until(ours, None)
    os.close(ours)
    assert b"sh runs: echo command" in shown
    assert trust.is_trusted(clone.home) == is_trusted
    assert child.returncode == (0 if is_trusted else 130)


def _read_until(terminal: int, text: bytes | None) -> bytes:
    """Return a terminal's output up to a text, or to its end."""
    shown = b""
    while text is None or text not in shown:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the process of this terminal has ended
            break
        shown += part
        if not part:
            break
    return shown
