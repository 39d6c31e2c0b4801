"""Hooks answer harnesses in their form or not at all, and never fail, whatever their input."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import trusted, work_tree
from faults import is_long_run
from forked_deed import run_deed
from harness_place import DEED, Said, given_up

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.responses import session_name
from deedbook.consumers.interfaces.hooks.supervisor import Call, Work, log_failure, log_size_max_bytes, supervise

if TYPE_CHECKING:
    from harness_place import Place

SILENT = Said(0, b"", b"")
each_harness = pytest.mark.parametrize("harness", list(HARNESSES))


def snapshots(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.data("snapshot", "list")["items"]
    return found


@each_harness
def test_a_session_from_start_to_end_as_the_harness_calls_it(harness: str, place: Place) -> None:
    place.deed("setup", harness)
    commands = place.commands(harness)
    assert commands.keys() == HARNESSES[harness].events.keys()

    def fire(event: str, **changed: Any) -> Said:
        return place.run("sh", "-c", commands[event], given=place.event(harness, event, **changed))

    said = fire("SessionStart")
    assert (said.code, said.err) == (0, b"")
    output = json.loads(said.out)
    assert output.keys() == {"hookSpecificOutput"}
    assert output["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    assert output["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    session = f"{harness}-0a1b-2c3d"
    assert session in output["hookSpecificOutput"]["additionalContext"]
    (open_now,) = place.data("session", "list", "--status", "open")["items"]
    assert (open_now["id"], open_now["author"]) == (session, harness)

    saving = [event for event, does in HARNESSES[harness].events.items() if does == "save"]
    # A second call without news does the same for every harness; the quick run shows it with the first one.
    repeats = 1 + (is_long_run or harness == next(iter(HARNESSES)))
    for event in saving[: len(saving) if repeats > 1 else 0]:
        assert fire(event) == SILENT
    assert snapshots(place) == []  # nothing was recorded
    for number, event in enumerate(saving, 1):
        place.deed("session", "finding", session, f"it is number {number}", "--as", harness)
        assert [fire(event) for _ in range(repeats)] == [SILENT] * repeats
        assert len(snapshots(place)) == number
    newest = snapshots(place)[0]
    assert (newest["author"], newest["session_id"]) == (harness, session)
    assert "it is number 1" in newest["context_summary"]
    assert place.data("session", "show", session)["status"] == "open"
    place.deed("session", "finding", session, "the last word", "--as", harness)
    assert [fire("SessionEnd") for _ in range(repeats)] == [SILENT] * repeats
    assert len(snapshots(place)) == len(saving) + 1
    assert place.data("session", "show", session)["status"] == "ended"
    assert place.log() == []


def test_a_hook_in_a_work_tree_of_git_finds_the_ledger_of_the_main_tree(place: Place) -> None:
    tree = work_tree(place.project, place.project.parent / "tree")
    said = place.hook("codex", place.event("codex", "SessionStart", cwd=str(tree)))
    assert b"codex-0a1b-2c3d" in said.out
    (tree / ".git").write_text("gitdir: /nowhere\n")
    assert place.hook("codex", place.event("codex", "SessionStart", cwd=str(tree))) == SILENT
    assert [one["status"] for one in place.data("session", "list")["items"]] == ["open"]
    assert place.log() == []


# All harnesses handle a source alike. So the quick run tries each source with one harness, the long run with all.
@pytest.mark.parametrize(
    ("harness", "source"),
    [
        (harness, source)
        for place, harness in enumerate(HARNESSES)
        for number, source in enumerate(("startup", "resume", "clear", "compact", "fork"))
        if is_long_run or number == 0 or number % len(HARNESSES) == place
    ],
)
def test_a_brief_comes_where_the_conversation_has_none(harness: str, source: str, place: Place) -> None:
    said = place.hook(harness, place.event(harness, "SessionStart", source=source))
    assert said.code == 0
    assert bool(said.out) == (source in {"startup", "clear", "compact"})
    assert place.data("session", "list")["total"] == 1
    assert place.log() == []


def test_a_session_that_was_ended_goes_on_in_the_next_one(place: Place) -> None:
    place.hook("codex", place.event("codex", "SessionStart"))
    place.deed("session", "end", "codex-0a1b-2c3d", "--as", "codex")
    place.hook("codex", place.event("codex", "SessionStart", source="resume"))
    place.hook("codex", place.event("codex", "SessionStart", source="compact"))
    newest, first = place.data("session", "list")["items"]
    assert (newest["id"], newest["status"], newest["resumes"]) == ("codex-0a1b-2c3d.2", "open", first["id"])


def test_claude_code_gets_the_variables_of_the_session(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "env file"
    file.write_text("export THEIRS=1\n")
    event = place.event("claude-code", "SessionStart", source="resume")
    assert place.hook("claude-code", event, CLAUDE_ENV_FILE=str(file)) == SILENT
    verb = f"{shlex.quote(sys.executable)} -m deedbook session finding 'by its variables'"
    done = place.run("bash", "-c", f". {shlex.quote(str(file))} && test $THEIRS = 1 && {verb}")
    assert done.code == 0, done
    assert place.data("session", "show", "claude-code-0a1b-2c3d")["counts"]["findings"] == 1


def test_shell_of_claude_code_finds_the_command(place: Place, tmp_path: Path) -> None:
    file, folder = tmp_path / "env", Path(sys.executable).parent
    event = place.event("claude-code", "SessionStart", source="resume")
    assert place.hook("claude-code", event, CLAUDE_ENV_FILE=str(file), PATH="/usr/bin:/bin") == SILENT
    assert file.read_text().count("PATH=") == 1
    found = place.run("env", "PATH=/usr/bin:/bin", "bash", "-c", f". {file} && command -v deed")
    assert found.out.decode().strip() == str(folder / "deed")
    file.unlink()
    assert place.hook("claude-code", event, CLAUDE_ENV_FILE=str(file), PATH=f"{folder}:/usr/bin:/bin") == SILENT
    assert "PATH=" not in file.read_text()


ODD_IDS = ["a/b", "..", "x" * 5000, "会话", "a b\n", "$(touch x)", "\ud800"]


def test_any_session_id_names_a_session_of_its_own() -> None:
    names = [session_name("gemini", one) for one in ODD_IDS]
    assert len(set(names)) == len(ODD_IDS)
    assert all(name is not None and re.fullmatch(r"gemini-[0-9a-f]{32}", name) for name in names)
    assert session_name("gemini", "0a1b-2c3d") == "gemini-0a1b-2c3d"
    assert [session_name("gemini", one) for one in (None, "", 5, ["a"])] == [None] * 4


def test_an_odd_session_id_is_found_again(place: Place) -> None:
    event = place.event("gemini", "SessionStart", session_id="会话/\ud800")
    assert place.hook("gemini", event).out
    assert place.hook("gemini", event).out
    assert place.data("session", "list")["total"] == 1


BAD_INPUT = {
    "empty": b"",
    "text": b"hello",
    "half": b'{"session_id": "a", ',
    "a list": b"[1]",
    "a number": b"1",
    "not UTF-8": b"\xff\xfe\x00",
    "nested": b'{"a":' * 100_000,
    "no event": b"{}",
    "an event nobody knows": b'{"hook_event_name": "WorldEnd"}',
    "an event that is none": b'{"hook_event_name": ["SessionStart"]}',
    "100 MB": b"",  # made by its test alone: otherwise every process of the tests would have it in memory
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_broken_input_is_logged_and_nothing_is_said(name: str, place: Place) -> None:
    content = BAD_INPUT[name]
    if name == "100 MB":
        content = b'{"hook_event_name": "SessionStart", "x": "' + b"x" * 100 * 1024**2 + b'"}'
    assert place.hook("claude-code", content) == SILENT
    (line,) = place.log()
    assert line["harness"] == "claude-code"
    assert line["code"] in {"INVALID_FORMAT", "USAGE", "TOO_LARGE"}


def test_unknown_harness_is_logged_with_the_near_one(place: Place) -> None:
    assert place.hook("claude", place.event("codex", "SessionStart")) == SILENT
    (line,) = place.log()
    assert line["message"] == "no hook of claude handles the event 'SessionStart': did you mean claude-code?"


@pytest.mark.parametrize("changed", [{"session_id": 5}, {"cwd": "a\0b"}, {"source": {}}], ids=str)
def test_fields_of_a_wrong_type_break_nothing(changed: dict[str, Any], place: Place) -> None:
    said = place.hook("codex", place.event("codex", "SessionStart", **changed))
    assert (said.code, said.err) == (0, b"")
    assert all(line["code"] != "UNEXPECTED" for line in place.log())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nobody"],
        ["codex", "--as"],
        ["codex", "--what", "x"],
        ["codex", "more"],
        ["codex", "--home", __file__],
        ["--as-of", "x"],
    ],
    ids=str,
)
def test_a_command_line_that_nobody_wrote_is_silent(words: list[str], place: Place) -> None:
    command = [DEED, "hook", *words]
    assert place.run(*command, given=place.event("codex", "SessionStart")) == SILENT


def test_without_a_ledger_a_hook_is_silent_and_leaves_no_trace(place: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    given = place.event("gemini", "SessionStart", cwd=str(elsewhere))
    assert place.hook("gemini", given) == SILENT
    assert list(elsewhere.iterdir()) == []
    assert place.log() == []


def test_a_locked_key_still_gets_its_brief(place: Place) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a passphrase\n")
    os.close(writing)
    add = ("agent", "add", "sealed", "--passphrase-fd", reading)
    assert run_deed(*add, cwd=place.project, pass_fds=[reading], timeout=60).returncode == 0
    os.close(reading)
    said = place.hook("claude-code", place.event("claude-code", "SessionStart"), "--as", "sealed")
    assert said.code == 0
    assert "What" in said.out.decode() or "Nothing waits for sealed" in said.out.decode()
    (line,) = place.log()
    assert line["code"] == "KEY_LOCKED"


def test_a_hook_signs_as_nobody_whom_setup_and_the_tools_refuse(place: Place) -> None:
    place.deed("agent", "add", "hu", "--role", "human", "--unprotected")
    before = place.data("log")["total"]
    said = place.hook("claude-code", place.event("claude-code", "SessionStart"), "--as", "hu")
    assert "You act as hu" in said.out.decode(), "the brief comes all the same"
    assert place.hook("claude-code", place.event("claude-code", "SessionEnd"), "--as", "hu") == SILENT
    assert place.data("log")["total"] == before
    assert [line["code"] for line in place.log()] == ["NOT_AUTHORIZED"]


def test_a_disk_that_takes_nothing_more_breaks_nothing(place: Place) -> None:
    place.hook("codex", place.event("codex", "SessionStart"))
    place.deed("session", "finding", "codex-0a1b-2c3d", "found", "--as", "codex")
    hook = shlex.join([DEED, "hook", "codex", "--as", "codex"])
    for event in ("SessionStart", "Stop"):
        # No file may be written at all: the error is EFBIG, as on a full disk ENOSPC.
        said = place.run("bash", "-c", f"ulimit -f 0; exec {hook}", given=place.event("codex", event, session_id="n"))
        assert (said.code, said.err) == (0, b"")
        assert bool(said.out) == (event == "SessionStart")
    assert place.deed("verify")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_breaks_nothing(place: Place) -> None:
    disk = place.project / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(disk)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["cp", "-a", "--sparse=always", str(place.ledger), str(disk)], check=True)
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/full", "bs=64k"], check=False, stderr=subprocess.DEVNULL)
        for event in ("SessionStart", "Stop", "SessionEnd"):
            said = place.hook("codex", place.event("codex", event, cwd=str(disk)))
            assert (said.code, said.err) == (0, b"")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_server_that_hangs_is_given_up_at_the_deadline(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"nats://127.0.0.1:{hanging.getsockname()[1]}"
        said = place.hook("claude-code", place.event("claude-code", "SessionStart"), "--server", url, **given_up)
    assert (said.code, said.err) == (0, b"")
    assert place.log()


def test_standard_input_that_is_always_ready_is_given_up(place: Place) -> None:
    said = place.run(
        "sh",
        "-c",
        f"exec {shlex.quote(DEED)} hook codex </dev/zero",
        **given_up,
    )
    assert said == (0, b"", b"")
    (line,) = place.log()
    assert line["code"] == "TOO_LARGE"


def test_a_hook_whose_folder_was_removed_gets_its_brief(place: Place) -> None:
    gone = place.project / "gone"
    gone.mkdir()
    hook = shlex.join([DEED, "hook", "codex", "--as", "codex"])
    given = place.event("codex", "SessionStart")
    said = place.run("sh", "-c", f"cd gone && rmdir ../gone && exec {hook}", given=given)
    assert (said.code, said.err, place.log()) == (0, b"", [])
    assert b"additionalContext" in said.out


def test_a_pipe_in_the_place_of_the_log_is_not_waited_for(place: Place) -> None:
    os.mkfifo(place.ledger / "hooks.log")
    assert place.hook("codex", b"{") == (0, b"", b"")


def test_standard_input_that_never_ends_is_given_up(place: Place) -> None:
    words = ["codex", "--as", "codex", "--home", str(place.ledger)]
    command, pipe = [DEED, "hook", *words], subprocess.PIPE
    environment = place.environment | given_up
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        child.stdin.write(place.event("codex", "SessionStart"))
        child.stdin.flush()
        assert child.wait(60) == 0
        assert child.stdout is not None
        assert child.stdout.read() == b""
    assert place.log()[0]["code"] == "TOO_LARGE"


def _sleep(_: Work) -> bytes:
    time.sleep(60)
    return b"too late"


def _die(_: Work) -> bytes:
    os.kill(os.getpid(), 9)
    return b""


def _fail(_: Work) -> bytes:
    raise SystemExit(2)


@pytest.mark.parametrize("respond", [_sleep, _die, _fail])
def test_work_that_hangs_dies_or_fails_says_nothing_and_is_logged(
    respond: Any, place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if respond is _sleep:
        monkeypatch.setattr("deedbook.consumers.interfaces.hooks.supervisor.deadline_s", 0.5)
    reading, writing = os.pipe()
    os.write(writing, place.event("codex", "Stop"))
    os.close(writing)
    with os.fdopen(reading, "rb") as content:
        monkeypatch.setattr("sys.stdin", content)
        supervise(Call("codex", "codex", place.ledger, None), respond)
    assert capfd.readouterr().out == ""
    (line,) = place.log()
    assert (line["event"], line["code"]) == ("Stop", "UNEXPECTED")


def test_the_log_of_hooks_stays_within_two_files(tmp_path: Path) -> None:
    trusted(tmp_path)
    for _ in range(2 * log_size_max_bytes // 400):
        log_failure(tmp_path, "codex", "Stop", "BUSY", "x" * 10_000)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"hooks.log", "hooks.log.1"}
    assert all(size <= log_size_max_bytes for size in sizes.values())


def test_hooks_at_the_same_time_open_one_session(place: Place) -> None:
    command, pipe = (
        [DEED, "hook", "codex", "--as", "codex"],
        subprocess.PIPE,
    )
    children = [
        subprocess.Popen(command, cwd=place.project, env=place.environment, stdin=pipe, stdout=pipe) for _ in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(place.event("codex", "SessionStart"))
        child.stdin.close()
    for child in children:
        assert child.stdout is not None
        child.stdout.read()
        child.stdout.close()
        assert child.wait(60) == 0
    assert place.data("session", "list")["total"] == 1
