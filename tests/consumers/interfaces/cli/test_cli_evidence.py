"""Evidence from its signature to its reader, in a git repository: refused, warned of, moved, changed, and restored."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed

SOURCE = "def login(user):\n    token = make(user)\n    return token\n"
SEEN = ("reasoning", "step", "r", "--type", "observation", "--as", "a")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git work tree that the verbs run in."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/auth.py").write_text(SOURCE, "utf-8")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path


@pytest.fixture
def reasoned(alone: Deed, project: Path) -> Deed:
    """A ledger with a's reasoning r, all three of whose references hold, and the reviewer b."""
    assert project.exists()
    alone("agent", "add", "a", "--role", "agent")
    alone("agent", "add", "b", "--role", "reviewer", "--unprotected")
    alone("reasoning", "start", "r", "--task", "Why do they never end?", "--domain", "operations", "--as", "a")
    for reference in ("src/auth.py:2:token = make(user)", "src/auth.py:3", "src/auth.py:1-2"):
        alone(*SEEN, f"It stands at {reference}", "--evidence", reference)
    alone("reasoning", "conclude", "r", "Give them an end", "--as", "a")
    return alone


def test_every_change_reaches_the_ledger_and_every_reader(reasoned: Deed, project: Path) -> None:
    file = project / "src/auth.py"
    quiet = ("--vector", "uncertainty=0.1", "--vector", "impact=0.1")
    seen = []
    for text in (SOURCE, SOURCE.replace("user)", "user, 60)"), SOURCE, SOURCE.replace("user)", "user, 60)"), SOURCE):
        file.write_text(text, "utf-8")
        code = reasoned.run("reasoning", "validate", "r", "--as", "b").code
        said = reasoned.run("reasoning", "validate", "r", "--as", "b")
        assert f"not published: same as entry {reasoned.size() - 1}" in said.err
        received = reasoned.data("snapshot", "receive", "r", *quiet)
        shown = [reasoned.data("reasoning", verb, "r")["verdict"]["text"] for verb in ("show", "brief", "fetch")]
        assert {one.rpartition(" by b ")[0] for one in shown} == {received["verdict"]["text"].rpartition(" by b ")[0]}
        assert f"evidence: {shown[0].partition(' by b ')[0]}" in reasoned("reasoning", "show", "r")
        seen.append((code, shown[0].partition(",")[0], received["gate"]["gate"], received["action"]))
    fine, wrong = (0, "3 of 3 stand", "passed", "act"), (6, "0 of 3 stand", "failed", "human_review_required")
    wrong = (6, "1 of 3 stand", *wrong[2:])
    assert seen == [fine, wrong, fine, wrong, fine]
    reports = reasoned.data("reasoning", "validations", "r")
    assert [one["passed"] for one in reports["items"]] == [True, False, True, False, True]
    first = reasoned("reasoning", "validations", "r", "--limit", "2")
    assert "EVIDENCE_LINE_CHANGED: Evidence line changed: src/auth.py:2" in first
    assert "5 in all; continue with: deed reasoning validations r --limit 2 --after" in first


def test_text_that_moved_is_a_note_and_what_nobody_looked_up_no_failure(
    reasoned: Deed, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src/auth.py").write_text("import os\n" + SOURCE, "utf-8")
    said = reasoned.run("reasoning", "validate", "r")
    assert (said.code, said.err.count("still true")) == (0, 3)
    assert "note, step 2: src/auth.py:3: Moved to line 4, still true" in said.err
    (project / "src/auth.py").write_text(SOURCE.replace("return", "yield"), "utf-8")
    assert "The line is not what its author cited" in reasoned.run("reasoning", "validate", "r").err
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert "r passes: nothing was looked up of 3 references" in reasoned("reasoning", "validate", "r", "--as", "b")
    verdict = reasoned.data("reasoning", "show", "r")["verdict"]
    assert (verdict["outcome"], verdict["text"].partition(" by")[0]) == (
        "unchecked",
        "nothing was looked up of 3 references, tried",
    )
    reasoned.refuses("USAGE", "reasoning", "validate", "r", "--commit", "HEAD")


def test_evidence_that_is_not_there_is_warned_of_and_what_is_is_hashed(reasoned: Deed, project: Path) -> None:
    (project / "a b:c.txt").write_text("x\n", "utf-8")
    (project / "link.py").symlink_to("src/auth.py")
    (project / "nul.bin").write_bytes(b"a\0b")
    warned = {
        "src/auth.py:400": "no such line (The file has 3 lines)",
        "src/nothing.py:1": "gone (The file does not exist)",
        "auth.py:1": "gone (The file does not exist: did you mean src/auth.py?)",
        "src/auth.txt:1": "gone (The file does not exist: did you mean src/auth.py?)",
        "abcdef1:src/auth.py:1": "gone (The file does not exist, "
        "and neither does the commit abcdef1 in this repository: did you mean src/auth.py?)",
        "link.py:1": "symlink (Links are not followed)",
        "nul.bin:1": "unreadable (The file is not UTF-8 text)",
        "handoff/none": "gone (This ledger does not have it)",
        "a b:c.txt:1": "",
        "https://example.org/a:5": "",
        "reasoning/r": "",
    }
    references = [word for reference in warned for word in ("--evidence", reference)]
    done: list[str] = reasoned.data(*SEEN, "All of them", *references)["warnings"]
    way_on = "; every validation checks again: correct the file, or "
    way_on += "`deed reasoning retract r --step 4 --reason TEXT`, and record it again"
    told = [one.partition(" of step 4: ")[2] for one in done if one.startswith("evidence ")]
    assert told == [note + way_on for note in warned.values() if note]
    step: dict[str, Any] = reasoned.data("reasoning", "fetch", "r")["memory"]["steps"][3]
    digests = dict(zip(warned, step["evidence_digests"], strict=True))
    assert {name for name, digest in digests.items() if digest == "missing"} == {
        name for name in warned if warned[name]
    }
    assert [name for name, digest in digests.items() if digest not in ("missing", "")] == ["a b:c.txt:1"]
    wanted = "warning: evidence 'src/gone.py:1' of step 5: gone (The file does not exist)"
    assert wanted in reasoned.run(*SEEN, "Gone", "--evidence", "src/gone.py:1").err


def test_evidence_of_a_statement_that_was_replaced_is_not_checked(reasoned: Deed, project: Path) -> None:
    settling = ("reasoning", "settle", "r", "--refuted", "--how", "It grows", "--as", "a", "--step", 4, "--evidence")
    reasoned("reasoning", "assume", "r", "It does not grow", "--as", "a")
    said = reasoned.run(*settling, "src/usage.log:1").err
    assert "correct the file, or settle it again: of each agent, the newest statement counts" in said
    validate = ("reasoning", "validate", "r", "--tree", project)
    assert reasoned.run(*validate).code == 6
    reasoned(*settling, "src/auth.py:1")
    assert reasoned.run(*validate).err.count("EVIDENCE") == 0


def test_only_an_assumption_is_settled(reasoned: Deed, project: Path) -> None:
    settling = ("reasoning", "settle", "r", "--holds", "--how", "It is so", "--as", "a", "--step")
    reasoned.refuses("USAGE", *settling, "1")
    reasoned("reasoning", "assume", "r", "Logs are kept", "--as", "a")
    reasoned(*SEEN, "Seen", "--assuming", "The clock is right")
    for number in ("4", "5"):
        reasoned(*settling, number)
    doubted = '[{"step": 1, "type": "inference", "content": "x", "needs_validation": true}]'
    (project / "g.json").write_text(f'{{"task": "t", "conclusion": "c", "steps": {doubted}}}', "utf-8")
    reasoned("reasoning", "record", "g", project / "g.json", "--as", "a")
    reasoned("reasoning", "settle", "g", "--refuted", "--how", "It is so", "--as", "a", "--step", "1")


def test_a_file_of_graphs_is_recorded_with_warnings(reasoned: Deed, project: Path) -> None:
    steps = '[{"step": 1, "type": "observation", "content": "x", "evidence": ["as everybody knows"]}]'
    (project / "g.json").write_text(f'{{"task": "t", "conclusion": "c", "steps": {steps}}}', "utf-8")
    recorded = reasoned.data("reasoning", "record", "g", project / "g.json", "--as", "a")
    assert [one.partition(" of step 1: ")[2][:9] for one in recorded["warnings"]] == ["malformed"]
