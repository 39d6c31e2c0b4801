"""`baton handoff amend` and `supersede`: content changes before work begins, and needs a new approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Baton

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


def create(baton: Baton, name: str, *more: object) -> str:
    """Create a handoff from a to b that rita reviews, and return its id."""
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    baton("handoff", "create", "--id", name, "--title", "Fix it", *parties, *more)
    return name


@pytest.fixture
def imported(baton: Baton, fresh: Fresh, tmp_path: Path) -> str:
    """A handoff that a imported from a file."""
    name = fresh("imported")
    path = tmp_path / f"{name}.md"
    path.write_text(FILE)
    baton("handoff", "import", path, "--as", "a", "--reviewer", "rita")
    return name


@pytest.mark.served
def test_amended_handoff_needs_a_new_approval(baton: Baton, fresh: Fresh) -> None:
    name = create(baton, fresh("amended"), "--task", "one", "--criterion", "green")
    baton("handoff", "approve", name, "--as", "rita", *baton.as_read(name))
    old = baton.data("handoff", "show", name)["version"]
    said = baton.data(
        "handoff", "amend", name, "--title", "Fix all", "--add-task", "two", "--as", "a", "--reason", "more"
    )
    assert said["status"] == "pending"
    assert said["version"] != old
    shown = baton.data("handoff", "show", name)
    assert (shown["title"], [one["text"] for one in shown["tasks"]]) == ("Fix all", ["one", "two"])
    assert [one["text"] for one in shown["criteria"]] == ["green"]
    baton.refuses("NOT_APPROVED", "handoff", "claim", name, "--as", "b")
    baton.refuses("VERSION_MISMATCH", "handoff", "approve", name, "--version", old, "--as", "rita")
    baton("handoff", "approve", name, "--as", "rita", *baton.as_read(name))
    baton("handoff", "claim", name, "--as", "b")
    text = baton("handoff", "render", name)
    assert "amended: more" in text
    assert "- [ ] two" in text
    error = baton.refuses("TRANSITION_NOT_ALLOWED", "handoff", "amend", name, "--title", "Fix none", "--as", "a")
    assert "in_progress" in error["message"]


def test_ticks_are_taken_back(baton: Baton, fresh: Fresh) -> None:
    name = create(baton, fresh("ticked"), "--task", "one")
    baton("handoff", "approve", name, "--as", "rita", *baton.as_read(name))
    baton("handoff", "claim", name, "--as", "b")
    baton("handoff", "check", name, "--task", 1, "--as", "b")
    baton("handoff", "release", name, "--as", "b")
    baton("handoff", "amend", name, "--context", "look here", "--as", "a")
    assert [one["done"] for one in baton.data("handoff", "show", name)["tasks"]] == [False]
    assert "- [ ] one" in baton("handoff", "render", name)


def test_amending_keeps_all_other_text_of_a_file(baton: Baton, imported: str) -> None:
    baton("handoff", "log", imported, "looking", "--as", "rita")
    baton("handoff", "amend", imported, "--title", "Fix all", "--add-task", "three", "--as", "a", "--reason", "more")
    lines = baton("handoff", "render", imported).splitlines()
    wanted = FILE.replace("Fix it", "Fix all").replace("completed", "pending").replace("[x]", "[ ]")
    wanted = wanted.replace("- [ ] two", "- [ ] two\n- [ ] three")
    assert lines[: wanted.count("\n")] == wanted.splitlines()
    assert [one.split("] ")[1] for one in lines[wanted.count("\n") :]] == ["looking", "amended: more"]
    shown = baton.data("handoff", "show", imported)
    assert (shown["claimed_status"], shown["status"]) == (None, "pending")
    assert not any(one["done"] for one in shown["tasks"])


def test_log_stays_in_the_file_when_only_the_ledger_s_fields_change(baton: Baton, imported: str) -> None:
    baton("handoff", "approve", imported, "--as", "rita", *baton.as_read(imported), "--comment", "go")
    baton("handoff", "amend", imported, "--unlock-at", "verified", "--as", "a")
    log = baton("handoff", "render", imported).partition("## Log\n")[2].splitlines()
    assert [one.split("] ")[1] for one in log] == ["created", "approved: go", "amended"]


def test_every_field_can_be_amended(baton: Baton, fresh: Fresh, imported: str, tmp_path: Path) -> None:
    body = tmp_path / "body.txt"
    body.write_text("做這件事。\n\nAll of it.")
    other = create(baton, fresh("other"))
    for name in (imported, create(baton, fresh("plain"))):
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
        baton("handoff", "amend", name, *options, "--proposal", "p.md", "--answers", other, "--as", "a")
        shown = baton.data("handoff", "show", name)
        assert (shown["title"], shown["proposal"], shown["answers"]) == ("T", "p.md", other)
        assert (shown["unlock_at"], shown["context"], shown["task"]) == ("verified", "ctx", body.read_text())
        assert [one["id"] for one in shown["depends_on"]] == [other]
        text = baton("handoff", "render", name)
        for wanted in (f"Depends-on: {other}.md", "- [ ] t", "- [ ] c", "All of it.", "ctx", "Proposal: p.md"):
            assert wanted in text
        baton("handoff", "amend", name, "--depends-on", "(none)", "--as", "a")
        assert baton.data("handoff", "show", name)["depends_on"] == []


def test_only_the_sender_amends(baton: Baton, fresh: Fresh) -> None:
    name = create(baton, fresh("foreign"))
    for agent in ("b", "rita"):
        baton.refuses("NOT_AUTHORIZED", "handoff", "amend", name, "--title", "Mine", "--as", agent)
    baton.refuses("USAGE", "handoff", "amend", name, "--as", "a")
    baton.refuses("USAGE", "handoff", "amend", name, "--title", "Fix it", "--as", "a")
    baton.refuses("INVALID_FIELD", "handoff", "amend", name, "--title", "x" * 300, "--as", "a")
    baton.refuses("DEPENDENCY_CYCLE", "handoff", "amend", name, "--depends-on", name, "--as", "a")


def test_what_a_file_cannot_hold_is_refused(baton: Baton, imported: str) -> None:
    before = baton.written()
    error = baton.refuses("INVALID_FIELD", "handoff", "amend", imported, "--body", "```\nopen", "--as", "a")
    assert "task" in error["message"] or error["details"]
    assert baton.written() == before


def test_superseded_handoff_gives_way(baton: Baton, fresh: Fresh) -> None:
    old, new = create(baton, fresh("old")), create(baton, fresh("new"))
    baton.refuses("INVALID_FIELD", "handoff", "supersede", old, "--by", old, "--as", "a")
    baton.refuses("NOT_AUTHORIZED", "handoff", "supersede", old, "--by", new, "--as", "b")
    assert (
        baton.data("handoff", "supersede", old, "--by", f"{new}.md", "--as", "a", "--reason", "a better one")["status"]
        == "superseded"
    )
    shown = baton.data("handoff", "show", old)
    assert (shown["superseded_by"], shown["is_ready"]) == (new, False)
    text = baton("handoff", "render", old)
    assert "- Status: superseded" in text
    assert f"superseded by {new}: a better one" in text
    baton.refuses("TRANSITION_NOT_ALLOWED", "handoff", "amend", old, "--title", "Again", "--as", "a")
