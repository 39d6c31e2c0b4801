"""`deed handoff amend` and `supersede`: content changes before work begins, and needs a new approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

FILE: Final = """\
# Handoff: Fix it

## Meta
- Status: completed (2026-02-12)
- From: kuro
- To: b

## Notes first
kept, *as* they are

## Tasks
- [x] one
  with a note
- [ ] two

## Log
- 2026-02-12 [kuro] created
"""


def create(deed: Deed, name: str, *more: object) -> str:
    """Create a handoff from a to b that rita reviews, and return its id."""
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    deed("handoff", "create", name, "--title", "Fix it", *parties, *more)
    return name


@pytest.fixture
def imported(deed: Deed, fresh: Fresh, tmp_path: Path) -> str:
    """A handoff that a imported from a file."""
    name = fresh("imported")
    path = tmp_path / f"{name}.md"
    path.write_text(FILE)
    deed("handoff", "import", path, "--as", "a", "--reviewer", "rita")
    return name


def test_amending_keeps_all_other_text_of_a_file(deed: Deed, imported: str) -> None:
    deed("handoff", "log", imported, "looking", "--as", "rita")
    deed("handoff", "amend", imported, "--title", "Fix all", "--add-task", "three", "--as", "a", "--reason", "more")
    lines = deed("handoff", "render", imported).splitlines()
    wanted = FILE.replace("Fix it", "Fix all").replace("completed", "pending").replace("[x]", "[ ]")
    wanted = wanted.replace("- [ ] two", "- [ ] two\n- [ ] three")
    assert lines[: wanted.count("\n")] == wanted.splitlines()
    assert [one.split("] ")[1] for one in lines[wanted.count("\n") :]] == ["looking", "amended: more"]
    shown = deed.data("handoff", "show", imported)
    assert (shown["claimed_status"], shown["status"]) == (None, "pending")
    assert not any(one["done"] for one in shown["tasks"])


def test_log_stays_in_the_file_when_only_the_ledger_s_fields_change(deed: Deed, imported: str) -> None:
    deed("handoff", "approve", imported, "--as", "rita", *deed.as_read(imported), "--comment", "go")
    deed("handoff", "amend", imported, "--unlock-at", "verified", "--as", "a")
    log = deed("handoff", "render", imported).partition("## Log\n")[2].splitlines()
    said = [one.split("] ")[1].partition(" (version")[0] for one in log]
    assert said == ["created", "approved: go", "amended"]


def test_human_who_approves_an_import_by_amending_it_names_what_they_read(
    deed: Deed, fresh: Fresh, tmp_path: Path
) -> None:
    name = fresh("own")
    path = tmp_path / f"{name}.md"
    for line in ("gzip the old ones", "delete all of them"):
        path.write_text(FILE.replace("From: kuro", "From: rita\n- Reviewer: —").replace("two", line))
        deed("handoff", "import", path, "--as", "a")
        if line.startswith("gzip"):
            read = deed.as_read(name)
    amend = ("handoff", "amend", name, "--title", "Fix all", "--as", "rita")
    assert deed.refuses("USAGE", *amend)["details"]["field"] == "version"
    changed = deed.refuses("VERSION_MISMATCH", *amend, *read)["details"]["changed"]
    assert changed == ["tasks"]
    assert deed.data("handoff", "show", name)["status"] == "pending"
    deed(*amend, *deed.as_read(name))
    assert deed.data("handoff", "show", name)["status"] == "approved"


def test_every_field_can_be_amended(deed: Deed, fresh: Fresh, imported: str, tmp_path: Path) -> None:
    body = tmp_path / "body.txt"
    body.write_text("做這件事。\n\nAll of it.")
    other = create(deed, fresh("other"))
    for name in (imported, create(deed, fresh("plain"))):
        options: list[object] = [
            "--title",
            "T",
            "--to",
            "a" if name == imported else "b",
            "--task",
            "t",
            "--criterion",
            "c",
        ]
        options = [*options, "--depends-on", other, "--unlock-at", "verified", "--body", f"@{body}", "--context", "ctx"]
        deed("handoff", "amend", name, *options, "--proposal", "p.md", "--answers", other, "--as", "a")
        shown = deed.data("handoff", "show", name)
        assert (shown["title"], shown["proposal"], shown["answers"]) == ("T", "p.md", other)
        assert (shown["unlock_at"], shown["context"], shown["task"]) == ("verified", "ctx", body.read_text())
        assert [one["id"] for one in shown["depends_on"]] == [other]
        text = deed("handoff", "render", name)
        for wanted in (f"Depends-on: {other}.md", "- [ ] t", "- [ ] c", "All of it.", "ctx", "Proposal: p.md"):
            assert wanted in text
        deed("handoff", "amend", name, "--depends-on", "(none)", "--as", "a")
        assert deed.data("handoff", "show", name)["depends_on"] == []


def test_what_a_file_cannot_hold_is_refused(deed: Deed, imported: str) -> None:
    before = deed.written()
    error = deed.refuses("INVALID_FIELD", "handoff", "amend", imported, "--body", "```\nopen", "--as", "a")
    assert "task" in error["message"] or error["details"]
    assert deed.written() == before


def test_amendment_says_that_the_approval_has_ended_and_refuses_the_same_text_twice(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("ended"), "--criterion", "it works", "--task", "one")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    twice = deed.refuses("NOTHING_CHANGED", "handoff", "amend", name, "--add-criterion", "it works", "--as", "a")
    assert twice["message"] == f"criterion 1 of {name} says that already: leave it out"
    said = deed.run("handoff", "amend", name, "--criterion", "it is fast", "--as", "a")
    assert "; the approval of its earlier version has ended)" in said.out
    assert "warning: --criterion replaced the earlier ones; --add-criterion adds one" in said.err
    ended = "because the amendment by a ended the approval of the earlier version"
    assert ended in deed("handoff", "why", name)
    assert "has ended" not in deed("handoff", "amend", name, "--title", "Fix all", "--as", "a")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    assert ended not in deed("handoff", "why", name)


def test_refusal_names_the_operation_that_is_possible_instead(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("instead"))
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    error = deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "reject", name, "--reason", "no", "--as", "rita")
    assert f"its sender or reviewer can end it: `deed handoff cancel --reason … {name}`" in error["message"]
    deed("handoff", "claim", name, "--as", "b")
    error = deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "amend", name, "--to", "a", "--as", "a")
    assert f"`deed handoff release {name}`" in error["message"]
    deed("handoff", "cancel", name, "--reason", "enough", "--as", "rita")
    error = deed.refuses("SELF_APPROVAL", "handoff", "reject", name, "--reason", "no", "--as", "a")
    assert f"; and {name} is cancelled: rita cancelled it at " in error["message"]


def test_completion_with_open_tasks_is_refused_unless_it_says_so(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("tasks"), "--task", "one", "--task", "two", "--task", "three")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    assert "CRITERIA" not in deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "done", name, "--as", "b")["message"]
    deed("handoff", "start", name, "--as", "b")
    deed("handoff", "check", name, "--task", "2", "--as", "b")
    error = deed.refuses("USAGE", "handoff", "done", name, "--as", "b")
    assert error["message"].startswith(f"{name} has open tasks (1, 3): tick them, or complete it with --open-tasks\n")
    assert error["message"].endswith(f"next: deed handoff check --task 1,3 --as b {name}")
    assert deed.data("handoff", "show", name)["status"] == "in_progress"
    assert "it is open: task 1, 3" in deed.run("handoff", "done", name, "--open-tasks", "--as", "b").err
    assert "start for claim" in " ".join(deed("handoff", "--help").split())
