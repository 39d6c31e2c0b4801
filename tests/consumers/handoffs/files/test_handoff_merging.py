"""A file that somebody edits takes in the ledger's news, and keeps every edit."""

from __future__ import annotations

import pytest
from syncing import NEW

from deedbook.consumers.handoffs.files.syntax.comparison import (
    are_in_conflict,
    is_one_tick,
    is_text_changed,
    looks_outdated,
    merge,
)
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.parser import parse

LINE = "- 2026-02-13 [bob] went on\n"
EDITED = NEW.replace("Make it warm.", "Make it hot.")


def file(*changes: tuple[str, str], text: str = NEW) -> HandoffFile:
    """Return the file with text replaced."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text.encode())


LOOK = ("- [ ] look", "- [x] look")
FIX = ("- [ ] fix", "- [x] fix")
STATUS = ("Status: pending", "Status: approved")
WARM = ("Make it warm.", "Make it hot.")
COLD = ("Make it warm.", "Make it cold.")


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        ([WARM], [LOOK], [WARM, LOOK]),
        ([WARM], [STATUS], [WARM, STATUS]),
        ([LOOK], [FIX], [LOOK, FIX]),
        ([LOOK], [WARM], [LOOK, WARM]),
        ([LOOK], [LOOK], [LOOK]),
        ([STATUS], [LOOK, FIX], [STATUS, LOOK, FIX]),
        ([STATUS, WARM], [], [STATUS, WARM]),
        ([], [STATUS, WARM], [STATUS, WARM]),
    ],
)
def test_both_keep_what_is_theirs(
    ours: list[tuple[str, str]], theirs: list[tuple[str, str]], both: list[tuple[str, str]]
) -> None:
    edited, ledger = file(*ours), file(*theirs)
    assert merge(base=file(), edited=edited, ledger=ledger) == file(*both).content
    assert not are_in_conflict(base=file(), edited=edited, ledger=ledger)


def test_log_line_of_the_ledger_stands_once_though_it_was_written_by_hand() -> None:
    edited, ledger = file(text=EDITED + LINE), file(text=NEW + LINE + LINE)
    assert merge(base=file(), edited=edited, ledger=ledger).decode() == EDITED + LINE + LINE


def test_tick_follows_its_box() -> None:
    moved = file(("- [ ] look", "- [ ] think\n- [ ] look"))
    merged = merge(base=file(), edited=file(LOOK), ledger=moved).decode()
    assert "- [ ] think\n- [x] look\n- [ ] fix" in merged
    merged = merge(base=file(), edited=moved, ledger=file(FIX)).decode()
    assert "- [ ] think\n- [ ] look\n- [x] fix" in merged


def test_different_texts_are_in_conflict_and_equal_ones_are_not() -> None:
    assert are_in_conflict(base=file(), edited=file(WARM), ledger=file(COLD))
    assert not are_in_conflict(base=file(), edited=file(WARM), ledger=file(WARM))
    assert not are_in_conflict(base=file(), edited=file(WARM), ledger=file())


def test_log_line_taken_out_is_no_change_of_the_text() -> None:
    without = file(("- 2026-02-12 [alice] created\n", ""))
    assert not is_text_changed(file(), without)
    assert is_text_changed(file(), file(WARM))


def test_file_without_lines_of_the_log_is_outdated_unless_it_only_adds() -> None:
    base = file(LOOK, text=NEW + LINE)
    assert looks_outdated(base=base, edited=file())
    assert looks_outdated(base=base, edited=file(LOOK, STATUS))
    assert looks_outdated(base=base, edited=file(LOOK, WARM))
    assert not looks_outdated(base=base, edited=file(LOOK, FIX))
    assert not looks_outdated(base=base, edited=file(text=NEW + LINE))


def test_one_tick_is_told_from_more() -> None:
    assert is_one_tick(file(), file(LOOK))
    assert is_one_tick(file(LOOK), file())
    assert not is_one_tick(file(), file())
    assert not is_one_tick(file(), file(LOOK, FIX))
    assert not is_one_tick(file(), file(LOOK, STATUS))
    assert not is_one_tick(file(), file(LOOK, WARM))
