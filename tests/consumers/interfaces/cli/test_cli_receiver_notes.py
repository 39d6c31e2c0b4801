"""Notes for the receiver: the sender writes them, or copies them from their session; the receiver sees them first."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from person_terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

PARTIES = ("--to", "b", "--reviewer", "rita", "--title", "Expire tokens", "--as", "a")
NO_SESSION = ("--session", "none")


def created(deed: Deed, name: str, *options: str) -> str:
    deed("handoff", "create", name, *PARTIES, *options)
    return name


def test_what_was_kept_is_shown_with_the_command_that_fetches_it(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("print(1)")
    ref = deed.data("blob", "put", tmp_path / "probe.py", "--as", "a")["ref"]
    absent = f"probe.py kept: blake3:{'0f' * 32}"
    deed.refuses("NOT_FOUND", "handoff", "create", fresh("absent"), *PARTIES, "--artifact", absent)
    spoken, here = "x kept: y; rm -rf ~", str(tmp_path / "probe.py")
    artifacts = [word for text in (f"old.py kept: {ref}", here, spoken) for word in ("--artifact", text)]
    shown = deed("handoff", "show", created(deed, fresh("kept"), *artifacts, *NO_SESSION))
    assert f"\n  artifact: old.py: `deed blob get {ref}`\n" in shown
    assert f"\n  artifact: {here}: `deed blob get {ref}`\n" in shown, "the content of a file is stored"
    assert f"\n  artifact: {spoken}\n" in shown, "what a sender wrote is no command of ours"


def claimed(deed: Deed, name: str, *options: str) -> str:
    created(deed, name, "--criterion", "it works", *NO_SESSION, *options)
    deed("handoff", "approve", name, *deed.as_read(name), "--as", "rita")
    deed("handoff", "claim", name, "--as", "b")
    return name


def test_what_is_in_no_commit_is_named_when_the_work_is_completed(
    deed: Deed, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=tmp_path, check=True)

    monkeypatch.chdir(tmp_path)
    files = [tmp_path / name for name in ("kept.py", "a b.py", "new.py")]
    git("init", "-q")
    for file in files[:2]:
        file.write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "one")
    touches = [word for text in ("kept.py:3", "a b.py", "new.py", "gone.py", "x" * 300) for word in ("--touches", text)]
    name = claimed(deed, fresh("commit"), *touches)
    deed("handoff", "check", name, "--all", "--evidence", "1 passed", "--as", "b")
    for file in files[1:]:
        file.write_text("2\n")
    said = (
        "not committed here: {}: commit first, or the reviewer verifies other content; or store them with the result "
        "when you complete it: `deed handoff complete --as b --summary 'it works' {} --keep {}`"
    )
    done = deed.data("handoff", "complete", name, "--summary", "it works", "--as", "b")
    assert done["warnings"] == [said.format("a b.py, new.py", "--artifact 'a b.py' --artifact new.py", name)]
    other = claimed(deed, fresh("commit"), *touches)
    deed("handoff", "check", other, "--all", "--evidence", "1 passed", "--as", "b")
    (tmp_path / "out.txt").write_text("1")
    named = ("--artifact", "out.txt", "--artifact", "kept.py", "--artifact", "commit 1a2b")
    done = deed.data("handoff", "complete", other, *named, "--summary", "it works", "--as", "b")
    added = "--artifact out.txt --artifact kept.py --artifact 'commit 1a2b'"
    assert done["warnings"] == [said.format("out.txt", added, other)]


def test_files_changed_since_the_claim_are_named_before_anything_is_signed(
    alone: Deed, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("project")

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=folder, check=True)

    git("init", "-q")
    for name in ("old.py", "sub/tracked.py", "committed.py", ".gitignore"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("out/\n")
    git("add", ".")
    git("commit", "-qm", "one")
    (folder / "older.txt").touch()
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "human")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    time.sleep(0.05)  # file times come from the kernel's last clock tick, so the claim must be a tick after older.txt
    name = claimed(alone, "h")
    alone("handoff", "check", name, "--all", "--as", "b")
    for changed in ("sub/tracked.py", "sub/new.py", "committed.py", "out/log", f"{name}.md", f"{name}.deed.json"):
        (folder / changed).parent.mkdir(exist_ok=True)
        (folder / changed).write_text("changed")
    git("commit", "-qm", "two", "committed.py")
    said = "not committed here: {}new.py, {}tracked.py: commit first"
    terminal = Terminal(alone.home, "handoff", "complete", name, "--as", "b", cwd=folder)
    assert said.format("sub/", "sub/") in terminal.until("Complete it anyway?")
    assert terminal.answer("n")[0] == 130
    assert alone.data("handoff", "show", name)["status"] == "in_progress"
    monkeypatch.chdir(folder / "sub")
    completed = alone.run("handoff", "complete", name, "--as", "b")
    assert completed.code == 0, "no script is stopped"
    assert completed.err.startswith(f"warning: {said.format('', '')}")
    assert completed.err.count("not committed") == 1


def test_create_says_which_records_of_the_session_are_signed_with_it(alone: Deed) -> None:
    for name in ("kuro", "ben"):
        alone("agent", "add", name)
    alone("session", "start", "s1", "--as", "kuro", "--task", "Find the leak")
    alone("session", "dead-end", "Clear it on a timer", "--why", "it fills again", "--as", "kuro")
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    words = ("--as", "kuro", "--to", "ben", "--reviewer", "rita", "--title", "T", "--criterion", "c")
    said = alone("handoff", "create", "h1", *words)
    assert "signed with it, from your session (leave it out with --session none):" in said
    assert "  tried: Clear it on a timer: it fills again" in said
    assert "from your session" not in alone("handoff", "create", "h2", *words, "--session", "none")
    assert alone.data("handoff", "create", "h3", *words)["of_session"] == {
        "tried": ["Clear it on a timer: it fills again"]
    }


ENTRIES = """finding: in general
topic: sql
finding: It drops comments
  evidence: src/sql.py:3
dead-end: A regex
  why: strings nest
  tried: no
tool: pytest tests/sql
topic: row-url
dead-end: Quoting
  why: twice
  tried: yes
unknown: Who reads it?
finding: The suite needs a network
  topic: suite
"""
ROW_URL = {"tried": ["Quoting: twice"], "not_known": ["Who reads it?"]}
SQL = {
    "found": ["It drops comments (src/sql.py:3)"],
    "argued": ["A regex: strings nest"],
    "tested_by": ["pytest tests/sql"],
}
SUITE = {"found": ["The suite needs a network"]}


@pytest.fixture
def giver(alone: Deed, tmp_path: Path) -> Deed:
    """Return a ledger in which kuro's open session has records of three topics."""
    for name in ("kuro", "ben"):
        alone("agent", "add", name)
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    alone("session", "start", "s1", "--as", "kuro")
    (tmp_path / "entries").write_text(ENTRIES)
    alone("session", "record", tmp_path / "entries", "--as", "kuro")
    return alone


@pytest.mark.parametrize(
    ("options", "notes", "left_out"),
    [
        (("sql",), SQL, {"": 1, "row-url": 2, "suite": 1}),
        (("any", "--topic", "row-url", "--topic", "suite"), ROW_URL | SUITE, {"": 1, "sql": 3}),
        (("any", "--topic", "all"), {"found": ["in general", *SQL["found"], *SUITE["found"]]}, None),
        (("any", "--session", "none"), {}, None),
    ],
)
def test_handoff_takes_along_the_records_of_its_topic(
    giver: Deed, options: tuple[str, ...], notes: dict[str, list[str]], left_out: dict[str, int] | None
) -> None:
    made = giver.data(
        "handoff", "create", *options, "--as", "kuro", "--to", "ben", "--reviewer", "rita", "--title", "T"
    )
    of_session = made.get("of_session", {})
    assert {kind: of_session.get(kind) for kind in notes} == notes
    assert made.get("left_out") == left_out


def test_handoff_says_its_topic_or_is_refused_before_it_is_signed(giver: Deed) -> None:
    words = ("handoff", "create", "any", "--as", "kuro", "--to", "ben", "--reviewer", "rita", "--title", "T")
    error = giver.refuses("USAGE", *words)
    assert "row-url: 1 not known, 1 tried; sql: 1 found, 1 argued, 1 tested by" in error["message"]
    assert "--topic NAME" in error["message"]
    giver.refuses("NOT_FOUND", "handoff", "show", "any")
    assert "did you mean row-url?" in giver.refuses("NOT_FOUND", *words, "--topic", "row_url")["message"]
    giver.refuses("USAGE", *words, "--topic", "sql", "--session", "none")
    giver("reasoning", "start", "row-url", "--task", "T", "--as", "kuro")
    giver("reasoning", "step", "row-url", "It quotes", "--as", "kuro")
    assert giver.data(*words, "--reasoning", "row-url")["of_session"] == ROW_URL


def test_session_of_several_reasonings_without_topics_is_asked_about(giver: Deed, tmp_path: Path) -> None:
    steps = (f"reasoning: {name}\n  task: T\nstep: It is {name}\n" for name in ("one", "two"))
    (tmp_path / "entries").write_text("".join(["dead-end: A timer\n  why: slow\n", *steps]))
    giver("session", "start", "s2", "--as", "ben")
    giver("session", "record", "s2", tmp_path / "entries", "--as", "ben")
    words = ("handoff", "create", "any", "--as", "ben", "--to", "kuro", "--reviewer", "rita", "--title", "T")
    error = giver.refuses("USAGE", *words, "--reasoning", "one")
    assert "2 reasonings, but no topics (1 tried)" in error["message"]
    both = giver.data(*words, "--reasoning", "one", "--reasoning", "two")
    assert both["of_session"] == {"tried": ["A timer: slow"]}
    words = (*words[:2], "other", *words[3:])
    assert giver.data(*words, "--reasoning", "one", "--topic", "all")["of_session"] == both["of_session"]


def test_one_criterion_or_task_is_edited(deed: Deed, fresh: Fresh) -> None:
    name = created(
        deed, fresh("edit"), "--criterion", "one", "--criterion", "two tests pass", "--task", "t", *NO_SESSION
    )
    said = deed(
        "handoff", "amend", name, "--edit-criterion", "2", "two new tests pass", "--add-criterion", "three", "--as", "a"
    )
    assert "criteria was 'two tests pass' and is 'two new tests pass'" in said
    deed("handoff", "amend", name, "--edit-task", "1", "other", "--as", "a")
    shown = deed.data("handoff", "show", name)
    assert [row["text"] for row in shown["criteria"]] == ["one", "two new tests pass", "three"]
    assert [row["text"] for row in shown["tasks"]] == ["other"]
    deed.refuses("INVALID_FIELD", "handoff", "amend", name, "--edit-criterion", "4", "x", "--as", "a")


def test_dead_end_that_a_handoff_tells_is_told_to_its_receiver_once(giver: Deed) -> None:
    words = ("--as", "kuro", "--to", "ben", "--reviewer", "rita", "--title", "Quoting of row addresses")
    giver("handoff", "create", "row-url", *words)
    giver("handoff", "approve", "row-url", *giver.as_read("row-url"), "--as", "rita")
    start = ("session", "start", "--task", "Quoting of row addresses")
    assert giver.data(*start, "--as", "ben")["dead_ends"] == []
    assert "Quoting: twice" not in giver("prime", "--task", "Quoting of row addresses", "--as", "ben")
    assert [row["approach"] for row in giver.data(*start, "--as", "kuro")["dead_ends"]] == ["Quoting"]


FILE = """# Handoff: Piped

## Meta
- To: B

## Task
Do it.

## Acceptance Criteria
- [ ] it works

## Receiver Notes
- Trap: two configs

## Deployment
Carefully.
"""


def test_handoff_is_created_from_a_file_whose_every_line_is_part_of_its_version(
    deed: Deed, fresh: Fresh, tmp_path: Path
) -> None:
    name, file = fresh("piped"), tmp_path / "h.md"
    file.write_text(FILE)
    words = ("handoff", "create", name, "--file", file, "--as", "a", *NO_SESSION)
    plan = deed.data(*words, "--reviewer", "rita", "--dry-run")
    assert "- Trap: two configs" in plan["file"]
    assert plan["warnings"][0].startswith("line 15: only the file has the section 'Deployment': read are Task, Tasks,")
    deed.refuses("NOT_FOUND", "handoff", "show", name)
    deed(*words, "--reviewer", "rita", "--title", "Other")
    shown = deed.data("handoff", "show", name)
    assert (shown["title"], shown["to"], shown["task"]) == ("Other", "b", "Do it.")
    assert shown["notes"]["traps"] == ["two configs"]
    assert "Carefully." in shown["only_in_file"]


HALF_DONE = """# Handoff: Half done
- To: b
## Body
Do it.
## Tasks
- [x] write the parser
  in src/p.py, uncommitted
- [ ] write the docs
- [X] with parts
  - [ ] one part
## Acceptance Criteria
- [ ] docs say it
"""


@pytest.mark.parametrize("notes", ["", "## Receiver Notes\n- Trap: two configs\n", "## Log\n"])
def test_ticked_tasks_of_a_new_handoff_tell_the_receiver_what_is_done(
    deed: Deed, fresh: Fresh, tmp_path: Path, notes: str
) -> None:
    name, file = fresh("half"), tmp_path / "h.md"
    file.write_text(HALF_DONE + notes)
    deed("handoff", "create", name, "--file", file, "--as", "a", "--reviewer", "rita", *NO_SESSION)
    shown = deed.data("handoff", "show", name)
    assert shown["task"] == "Do it."
    assert [task["text"] for task in shown["tasks"]] == ["write the docs", "one part"]
    assert not any(task["done"] for task in shown["tasks"])
    assert shown["notes"]["done"] == ["write the parser in src/p.py, uncommitted", "with parts"]
    assert shown["notes"]["traps"] == ["two configs"] * ("Trap" in notes)
    assert shown["only_in_file"] == []


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("[ ]", "[x]", "USAGE", "what was met or decided already"),
        ("- To: B", "- To: B\n- Status: approved", "USAGE", "what was met or decided already"),
        ("- To: B", "- To: B\n- From: rita", "USAGE", "the file is from rita: sign it with --as rita"),
        ("- To: B", "- From: a", "USAGE", "a handoff needs --to"),
        ("- To: B", "- To: nobody-here", "INVALID_FIELD", "line 4"),
        ("- [ ] it works", "- it works", "INVALID_FIELD", "line 10: Acceptance Criteria has list items without"),
        ("- Trap:", "- Snare:", "INVALID_FIELD", "line 13: this line of Receiver Notes is none of"),
    ],
)
def test_file_that_is_no_new_handoff_of_its_author_is_refused(
    deed: Deed, fresh: Fresh, tmp_path: Path, old: str, new: str, code: str, said: str
) -> None:
    file = tmp_path / "h.md"
    file.write_text(FILE.replace(old, new))
    name = fresh("refused")
    error = deed.refuses(code, "handoff", "create", name, "--file", file, "--as", "a", "--reviewer", "rita")
    assert said in error["message"]
    deed.refuses("NOT_FOUND", "handoff", "show", name)
