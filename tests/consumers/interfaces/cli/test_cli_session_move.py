"""`deed session move`: another harness continues a session, and nothing is written before the plan was shown."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from credentials import GITHUB
from harness_sessions import CLAUDE_ID, REQUEST, claude_lines, codex_rows, write
from person_terminal import Terminal

from deedbook.consumers.importers.transcripts.messages import read_messages

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed

TO_CODEX = ("session", "move", "--from", "claude-code", "--to", "codex", "--as", "claude-code")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, of a user with the settings of three harnesses."""
    user, folder = tmp_path / "user", tmp_path / "project"
    for harness in (".claude", ".codex", ".gemini"):
        (user / harness).mkdir(parents=True)
    folder.mkdir()
    monkeypatch.setenv("HOME", str(user))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def team(alone: Deed, project: Path) -> Deed:
    """A ledger with the agents of two harnesses and a reviewer; Claude Code has a session of the project."""
    for agent in ("claude-code", "codex", "gemini"):
        alone("agent", "add", agent)
    alone("agent", "add", "rita", "--role", "human", "--role", "reviewer", "--unprotected")
    write(session_file(project), claude_lines(str(project)).rows)
    return alone


def session_file(project: Path) -> Path:
    folder = str(project).replace("/", "-").replace("_", "-").replace(".", "-")
    return project.parent / "user/.claude/projects" / folder / f"{CLAUDE_ID}.jsonl"


def files_of(project: Path) -> dict[str, bytes]:
    """Return the files of the user and of the project."""
    folders = (project, project.parent / "user")
    return {str(file): file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()}


def test_moved_session_is_handed_over_and_can_be_read_there(team: Deed, project: Path) -> None:
    team("session", "start", "s1", "--as", "claude-code", "--task", "Find the leak")
    team("session", "finding", "The last line has no line feed", "--as", "claude-code")
    moved = team.data(*TO_CODEX, "--yes")
    assert (moved["messages"], moved["of_messages"], moved["status"]) == (5, 5, "pending")
    path = project.parent / "user/.codex" / moved["to"]["file"].partition("/.codex/")[2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert moved["command"] == f"codex resume {moved['session']}"
    *said, last = read_messages(path, "codex").messages
    assert said == read_messages(session_file(project), "claude-code").messages
    assert "found: The last line has no line feed" in last.text

    handoff = team.data("handoff", "show", moved["id"])
    assert (handoff["from"], handoff["to"], handoff["reviewer"]) == ("claude-code", "codex", "rita")
    assert handoff["notes"]["found"] == ["The last line has no line feed"]
    assert handoff["task"].splitlines()[0] == last.text.splitlines()[0]
    assert handoff["title"] == f"Go on with: {REQUEST}"
    team("handoff", "approve", moved["id"], *team.as_read(moved["id"]), "--as", "rita")
    team("handoff", "claim", moved["id"], "--as", "codex")


def test_session_is_moved_again_only_if_something_is_new(team: Deed, project: Path) -> None:
    first = team.data(*TO_CODEX, "--yes")
    before, size = files_of(project), team.size()
    again = team(*TO_CODEX, "--yes")
    assert f"It was moved already: {first['id']} is pending." in again
    assert first["command"] in again
    assert (files_of(project), team.size()) == (before, size)

    lines = claude_lines(str(project))
    lines.add("user", "And the empty file?")
    write(session_file(project), lines.rows)
    second = team.data(*TO_CODEX, "--yes")
    assert second["id"] != first["id"]
    assert before.items() - files_of(project).items() == {
        (str(session_file(project)), before[str(session_file(project))])
    }


def test_file_that_a_crash_left_out_is_written_by_the_same_call(team: Deed) -> None:
    moved = team.data(*TO_CODEX, "--yes")
    path = team.home.__class__(moved["to"]["file"])
    content, size = path.read_bytes(), team.size()
    path.unlink()
    assert team.data(*TO_CODEX, "--yes")["id"] == moved["id"]
    assert path.read_bytes() == content
    assert team.size() == size


def test_nothing_is_written_before_somebody_agreed(team: Deed, project: Path) -> None:
    before, size = files_of(project), team.size()
    plan = team(*TO_CODEX, "--dry-run")
    assert plan.endswith("Nothing was signed or written.\n")
    assert "2 tool calls told as text (Bash 2)" in plan
    team.refuses("USAGE", *TO_CODEX)
    assert (files_of(project), team.size()) == (before, size)


@pytest.mark.parametrize(("typed", "is_moved"), [("y", True), ("n", False)])
def test_person_sees_the_plan_and_is_asked(team: Deed, project: Path, typed: str, is_moved: bool) -> None:
    terminal = Terminal(team.home, *TO_CODEX, cwd=project)
    shown = terminal.until("Move it?")
    assert "1 image: only text is moved" in shown
    assert not list((project.parent / "user/.codex").rglob("*.jsonl"))
    code, _ = terminal.answer(typed)
    assert (code == 0) is is_moved
    assert bool(list((project.parent / "user/.codex").rglob("*.jsonl"))) is is_moved
    assert bool(team.data("handoff", "list")["items"]) is is_moved


def test_no_secret_of_a_session_travels(team: Deed, project: Path) -> None:
    lines = claude_lines(str(project))
    lines.add("user", f"Take {GITHUB}, please.")
    call = {"type": "tool_use", "id": "t9", "name": "Bash", "input": {"command": f"curl -H 'token: {GITHUB}'"}}
    lines.add("assistant", [call])
    lines.add("user", [{"type": "tool_result", "tool_use_id": "t9", "content": f"GH_TOKEN={GITHUB}"}])
    write(session_file(project), lines.rows)
    for harness in ("codex", "gemini"):
        moved = team.data(*TO_CODEX[:-3], harness, *TO_CODEX[-2:], "--yes")
        assert "3 secrets redacted (GitHub token)" in moved["changed"]
        assert GITHUB[:12] not in team.home.__class__(moved["to"]["file"]).read_text()
        assert GITHUB[:12] not in json.dumps(team.data("handoff", "show", moved["id"]))


def test_work_in_progress_can_be_passed_on_with_the_printed_commands(team: Deed) -> None:
    team(
        "handoff", "create", "mend", "--as", "rita", "--to", "claude-code", "--title", "Mend", "--criterion", "it runs"
    )
    team("handoff", "claim", "mend", "--as", "claude-code")
    text = team(*TO_CODEX, "--yes")
    assert "mend is still claude-code's." in text
    commands = team.data(*TO_CODEX, "--dry-run")["pass_on"]["mend"]
    assert [command.split()[2] for command in commands] == ["release", "amend"]
    team("handoff", "release", "mend", "--as", "claude-code", "--reason", "moved to Codex CLI")
    team("handoff", "amend", "mend", "--as", "rita", "--to", "codex")
    team("handoff", "claim", "mend", "--as", "codex")


def test_only_records_of_a_topic_go_along(team: Deed) -> None:
    team("session", "start", "s1", "--as", "claude-code")
    for topic in ("parser", "pages"):
        team("session", "finding", f"about {topic}", "--topic", topic, "--as", "claude-code")
        team("session", "dead-end", f"try {topic}", "--why", "no", "--topic", topic, "--as", "claude-code")
    moved = team.data(*TO_CODEX, "--topic", "parser", "--yes")
    assert moved["left_out"][-1] == "2 records of the topic pages: not chosen"
    for shown in (
        json.dumps(team.data("handoff", "show", moved["id"])),
        team.home.__class__(moved["to"]["file"]).read_text(),
    ):
        assert "about parser" in shown
        assert "about pages" not in shown


def test_without_a_name_the_agent_of_the_harness_signs(team: Deed) -> None:
    moved = team.data(*TO_CODEX[:-2], "--yes")
    assert moved["from"]["agent"] == team.data("handoff", "show", moved["id"])["from"] == "claude-code"


def test_session_goes_the_other_way_by_its_id(team: Deed, project: Path) -> None:
    day = project.parent / "user/.codex/sessions/2026/11/29"
    write(day / "rollout-2026-11-29T10-00-00-01a22b9b-4f9e-7b43-9902-67a8b35a6532.jsonl", codex_rows(str(project)))
    words = ("session", "move", "--from", "codex", "--to", "claude-code", "--as", "codex", "--session", "01a22b9b")
    moved = team.data(*words, "--yes")
    path = session_file(project).with_name(f"{moved['session']}.jsonl")
    assert [message.role for message in read_messages(path, "claude-code").messages] == [
        *("user", "assistant", "assistant", "user")
    ]
    assert moved["command"] == f"claude --resume {moved['session']}"


def test_session_without_a_message_is_passed_over(team: Deed, project: Path) -> None:
    opened = write(session_file(project).with_name(f"{CLAUDE_ID[:-1]}f.jsonl"), [{"type": "mode", "mode": "normal"}])
    assert opened.stat().st_mtime_ns >= session_file(project).stat().st_mtime_ns
    assert team.data(*TO_CODEX, "--dry-run")["from"]["file"] == str(session_file(project))
    session_file(project).unlink()
    team.refuses("INVALID_FORMAT", *TO_CODEX, "--yes")


def test_prompt_replaces_no_file(team: Deed, project: Path) -> None:
    (project / "p.md").write_text("mine")
    team.refuses("FILE_EXISTS", *TO_CODEX, "--prompt", "p.md", "--yes")
    assert team.data("handoff", "list")["items"] == []
    moved = team.data(*TO_CODEX, "--prompt", "go on.md", "--yes")
    assert moved["session"] is None
    assert moved["command"] == f"codex 'Read {project}/go on.md and go on from there.'"
    assert (project / "go on.md").read_text().startswith("This session was moved from Claude Code")
    assert (project / "p.md").read_text() == "mine"


def test_errors_say_what_to_do(team: Deed, project: Path) -> None:
    assert "deed agent add" in team.refuses("NOT_FOUND", *TO_CODEX, "--receiver", "nobody", "--yes")["message"]
    team.refuses("USAGE", *TO_CODEX[:-2], "--as", "codex", "--yes")
    team.refuses("USAGE", *TO_CODEX[:-3], "claude-code", *TO_CODEX[-2:], "--yes")
    error = team.refuses("NOT_FOUND", *TO_CODEX, "--session", "ffff", "--yes")
    assert "--session FILE" in error["message"]
    (project / "noise.jsonl").write_text("\0{]\n")
    team.refuses("INVALID_FORMAT", *TO_CODEX, "--session", "noise.jsonl", "--yes")
    team.refuses("NOT_FOUND", *TO_CODEX, "--ledger-session", "nothing", "--yes")
    assert len(team.refuses("NOT_FOUND", *TO_CODEX, "--session", "x" * 5_000, "--yes")["message"]) < 400
    team("session", "start", "s1", "--as", "claude-code")
    team("session", "finding", "It leaks", "--topic", "parser", "--as", "claude-code")
    error = team.refuses("NOT_FOUND", *TO_CODEX, "--topic", "praser", "--yes")
    assert "parser" in error["message"]
    assert team.data("handoff", "list")["items"] == []


def test_records_of_any_length_fit_into_the_handoff(team: Deed) -> None:
    team("session", "start", "s1", "--as", "claude-code")
    for number in range(40):
        text = f"{number} {'长' * 1_000}"
        team("session", "finding", text, "--as", "claude-code")
        team("session", "unknown", text, "--as", "claude-code")
    moved = team.data(*TO_CODEX, "--yes")
    *_, last = read_messages(team.home.__class__(moved["to"]["file"]), "codex").messages
    assert "further lines: deed session show s1" in last.text


def test_path_that_is_no_text_is_printed_or_refused(team: Deed, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / os.fsdecode(b"\xff")
    folder.mkdir()
    file = folder / "s.jsonl"
    file.write_bytes(session_file(project).read_bytes())
    assert team.data(*TO_CODEX, "--session", file, "--dry-run")["from"]["file"].endswith("\ufffd/s.jsonl")
    monkeypatch.chdir(folder)
    team.refuses("INVALID_FORMAT", *TO_CODEX, "--session", "s.jsonl", "--yes")
