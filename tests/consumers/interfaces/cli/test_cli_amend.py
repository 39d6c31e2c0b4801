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
    deed("handoff", "create", "--id", name, "--title", "Fix it", *parties, *more)
    return name


@pytest.fixture
def imported(deed: Deed, fresh: Fresh, tmp_path: Path) -> str:
    """A handoff that a imported from a file."""
    name = fresh("imported")
    path = tmp_path / f"{name}.md"
    path.write_text(FILE)
    deed("handoff", "import", path, "--as", "a", "--reviewer", "rita")
    return name


@pytest.mark.served
def test_amended_handoff_needs_a_new_approval(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("amended"), "--task", "one", "--criterion", "green")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    old = deed.data("handoff", "show", name)["version"]
    said = deed.data(
        "handoff", "amend", name, "--title", "Fix all", "--add-task", "two", "--as", "a", "--reason", "more"
    )
    assert said["status"] == "pending"
    assert said["version"] != old
    shown = deed.data("handoff", "show", name)
    assert (shown["title"], [one["text"] for one in shown["tasks"]]) == ("Fix all", ["one", "two"])
    assert [one["text"] for one in shown["criteria"]] == ["green"]
    deed.refuses("NOT_APPROVED", "handoff", "claim", name, "--as", "b")
    deed.refuses("VERSION_MISMATCH", "handoff", "approve", name, "--version", old, "--as", "rita")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    text = deed("handoff", "render", name)
    assert "amended: more" in text
    assert "- [ ] two" in text
    error = deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "amend", name, "--title", "Fix none", "--as", "a")
    assert "in progress" in error["message"]


def test_ticks_are_taken_back(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("ticked"), "--task", "one")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "check", name, "--task", 1, "--as", "b")
    deed("handoff", "release", name, "--as", "b")
    deed("handoff", "amend", name, "--context", "look here", "--as", "a")
    assert [one["done"] for one in deed.data("handoff", "show", name)["tasks"]] == [False]
    assert "- [ ] one" in deed("handoff", "render", name)


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
    assert [one.split("] ")[1] for one in log] == ["created", "approved: go", "amended"]


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


def test_only_the_sender_amends(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("foreign"))
    for agent in ("b", "rita"):
        deed.refuses("NOT_AUTHORIZED", "handoff", "amend", name, "--title", "Mine", "--as", agent)
    deed.refuses("USAGE", "handoff", "amend", name, "--as", "a")
    deed.refuses("USAGE", "handoff", "amend", name, "--title", "Fix it", "--as", "a")
    deed.refuses("INVALID_FIELD", "handoff", "amend", name, "--title", "x" * 300, "--as", "a")
    deed.refuses("DEPENDENCY_CYCLE", "handoff", "amend", name, "--depends-on", name, "--as", "a")


def test_what_a_file_cannot_hold_is_refused(deed: Deed, imported: str) -> None:
    before = deed.written()
    error = deed.refuses("INVALID_FIELD", "handoff", "amend", imported, "--body", "```\nopen", "--as", "a")
    assert "task" in error["message"] or error["details"]
    assert deed.written() == before


def test_superseded_handoff_gives_way(deed: Deed, fresh: Fresh) -> None:
    old, new = create(deed, fresh("old")), create(deed, fresh("new"))
    deed.refuses("INVALID_FIELD", "handoff", "supersede", old, "--by", old, "--as", "a")
    deed.refuses("NOT_AUTHORIZED", "handoff", "supersede", old, "--by", new, "--as", "b")
    assert (
        deed.data("handoff", "supersede", old, "--by", f"{new}.md", "--as", "a", "--reason", "a better one")["status"]
        == "superseded"
    )
    shown = deed.data("handoff", "show", old)
    assert (shown["superseded_by"], shown["is_ready"]) == (new, False)
    text = deed("handoff", "render", old)
    assert "- Status: superseded" in text
    assert f"superseded by {new}: a better one" in text
    deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "amend", old, "--title", "Again", "--as", "a")
