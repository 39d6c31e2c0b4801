r"""The table of small handoffs: read row by row, nothing lost."""

from __future__ import annotations

import msgspec
import pytest
from handoff_texts import FIRST, PROPOSAL
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.consumers.handoffs.files.syntax.active_table import (
    ActiveTable,
    is_active_table,
    missing_columns,
    parse_table,
    row_id,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffId

HEAD = """# Active Handoffs

輕量級任務追蹤。

| From | To | Task | Status | Created | Done |
|------|----|------|--------|---------|------|
"""
ROWS = (
    "| amy | bob | 加 hook（tsc --noEmit） | done | 02-14 | 02-15 |",
    "| github | bob | #5 feat: 智能 — 迴路 | needs-triage, see #7 | 02-21 | — |",
    "| github | bot | PR #9 fix(x): a \\| b | review-pending | 05-06 | - |",
    "| github | bot | use `a | b` here | merged | 2026-05-06 | 05-06 |",
)
TABLE = HEAD + "\n".join(ROWS) + "\n"


def read(text: str) -> ActiveTable:
    return parse_table(text.encode())


def test_rows_have_their_cells_as_written() -> None:
    table = read(TABLE)
    assert [(row.line, row.sender, row.to, row.task) for row in table.rows] == [
        (7, "amy", "bob", "加 hook（tsc --noEmit）"),
        (8, "github", "bob", "#5 feat: 智能 — 迴路"),
        (9, "github", "bot", "PR #9 fix(x): a | b"),
        (10, "github", "bot", "use `a | b` here"),
    ]
    assert [(row.status, row.status_rest, row.created, row.done) for row in table.rows] == [
        ("done", "", "02-14", "02-15"),
        ("needs-triage", ", see #7", "02-21", None),
        ("review-pending", "", "05-06", None),
        ("merged", "", "2026-05-06", "05-06"),
    ]
    assert table.problems == ()


def test_columns_may_stand_in_any_order_and_rows_without_outer_pipes() -> None:
    text = "Status | **Task** | Prio | to | from\n--|--|--|--|--\nopen (x) | Fix | 1 | bob | amy\n|| Fix |||amy\n"
    table = read(text)
    assert [(row.sender, row.to, row.task, row.status, row.created) for row in table.rows] == [
        ("amy", "bob", "Fix", "open", None),
        ("amy", "", "Fix", "", None),
    ]
    assert table.rows[0].status_rest == " (x)"


@pytest.mark.parametrize(
    ("cell", "status", "rest"),
    [
        ("open `a|b` \\| c", "open", " `a|b` | c"),
        ("—", "", ""),
        ("??", "", ""),
        ("?? soon, now", "soon", ", now"),
        ("**open** ok", "open", "** ok"),
        ("needs-triage", "needs-triage", ""),
    ],
)
def test_a_status_is_the_first_word_of_its_cell(cell: str, status: str, rest: str) -> None:
    (row,) = read(f"{HEAD}| amy | bob | x |{cell}| 02-14 | - |\n").rows
    assert (row.status, row.status_rest) == (status, rest)


def test_malformed_rows_are_named_and_kept() -> None:
    text = (
        TABLE
        + "| amy | bob | too few | done |\n| amy | bob | too | many | cells | a | b |\n| | bob | x | — | 02-14 | |\n"
    )
    table = read(text)
    assert [(problem.line, problem.text) for problem in table.problems] == [
        (11, "this row has 4 cells where the header has 6; it is not read"),
        (12, "this row has 7 cells where the header has 6; it is not read"),
        (13, "this row has no From"),
        (13, "this row has no Status"),
    ]
    assert len(table.rows) == len(ROWS) + 1
    assert table.content == text.encode()


def test_rows_that_were_appended_below_the_table_are_read() -> None:
    text = (
        TABLE
        + "\n"
        + ROWS[1].replace("#5", "#6")
        + "\n\n## Notes\n\n| other | table |\n|--|--|\n| 1 | 2 |\n\n```\n"
        + ROWS[0]
        + "\n```\n"
    )
    table = read(text)
    assert [row.line for row in table.rows] == [7, 8, 9, 10, 12]
    assert [problem.line for problem in table.problems] == [12]


def test_the_same_row_twice_is_named_and_has_one_id() -> None:
    table = read(
        TABLE + ROWS[0].replace("amy", " Amy ").replace("done", "open") + "\n" + ROWS[0].replace("02-14", "02-13")
    )
    assert [problem.text for problem in table.problems] == ["this row repeats line 7; both stay"]
    ids = [row_id(row) for row in table.rows]
    assert (ids[4] == ids[0], ids[5] == ids[0], len(set(ids))) == (True, False, 5)


def test_ids_name_the_day_and_the_task() -> None:
    ids = [row_id(row) for row in read(TABLE).rows]
    assert [one[:-9] for one in ids] == [
        "active-02-14-加-hook-tsc-noemit",
        "active-02-21-5-feat-智能-迴路",
        "active-05-06-pr-9-fix-x-a-b",
        "active-2026-05-06-use-a-b-here",
    ]
    assert ids[0] == "active-02-14-加-hook-tsc-noemit-806cb86c"


def test_garbled_text_marks_and_line_endings_are_kept_and_named() -> None:
    content = b"\xef\xbb\xbf" + TABLE.replace("智能", "æ™ºèƒ½").replace("\n", "\r\n").encode()
    table = parse_table(content)
    assert [problem.line for problem in table.problems] == [1, 8]
    assert table.content == content


@pytest.mark.parametrize(
    "content", [FIRST, PROPOSAL, b"", b"\xff", b"# Handoff: x\n\n" + TABLE.encode(), b"x" * 2 * 1024**2]
)
def test_other_files_are_no_active_table(content: bytes) -> None:
    assert not is_active_table(content)
    assert is_active_table(TABLE.encode())


@pytest.mark.parametrize(("content", "code"), [(FIRST, "INVALID_FORMAT"), (b"x" * 2 * 1024**2, "TOO_LARGE")])
def test_a_file_without_such_a_table_is_refused(content: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_table(content)
    assert (refused.value.code, refused.value.details["line"]) == (code, 1)


cells = st.text(st.sampled_from("ab任# `\\|—-./:\t"), max_size=20)


@settings(deadline=None)
@given(
    st.lists(st.lists(cells, min_size=4, max_size=8).map("|".join), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_rows_are_kept_or_named(rows: list[str], ending: str) -> None:
    content = (HEAD + "".join(f"|{row}|\n" for row in rows)).replace("\n", ending).encode()
    table = parse_table(content)
    assert table.content == content
    for row in table.rows:
        assert len(msgspec.convert(row_id(row), HandoffId)) <= 100
    assert len(table.rows) + len({problem.line for problem in table.problems if "cells where" in problem.text}) == len(
        rows
    )


def test_other_names_of_columns_count_where_the_name_itself_is_absent() -> None:
    table = read("| Title | From | Assignee | Status |\n|--|--|--|--|\n| Fix | amy | bob | open |\n")
    assert [(row.task, row.to) for row in table.rows] == [("Fix", "bob")]
    table = read("| Task | Description | From | To | Status |\n|--|--|--|--|--|\n| Fix | long | amy | bob | open |\n")
    assert [row.task for row in table.rows] == ["Fix"]


def test_row_with_an_id_is_the_same_with_another_title_and_another_in_another_file() -> None:
    text = "| ID | Task | From | To | Status |\n|--|--|--|--|--|\n| T-1 | {} | amy | bob | open |\n"
    first, changed = (read(text.format(title)).rows[0] for title in ("Fix", "Fix all"))
    assert row_id(first, "notes.md") == row_id(changed, "notes.md")
    assert row_id(first, "notes.md").startswith("active-t-1-")
    assert row_id(first, "notes.md") != row_id(first, "todo.md")


@pytest.mark.parametrize(
    ("header", "lacking"),
    [
        ("ID | Task | Owner | Status | Due", "its table on line 1 lacks the column From: "),
        ("Title | Owner", "its table on line 1 lacks the column From and Status: "),
        ("Name | Price", ""),
    ],
)
def test_table_that_may_be_meant_names_the_columns_that_it_lacks(header: str, lacking: str) -> None:
    text = f"| {header} |\n{'|--' * (header.count('|') + 1)}|\n"
    assert missing_columns(text.encode()).startswith(lacking)
    assert bool(missing_columns(text.encode())) == bool(lacking)
