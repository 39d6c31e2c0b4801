"""`deed handoff list` and its board: columns that fit the terminal, cards in cells, and the same for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.interfaces.cli.commands.handoff_list import board_text
from deedbook.consumers.interfaces.cli.output import cut, width

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]

PARTIES = ("--as", "a", "--reviewer", "rita")


@pytest.fixture
def carl(deed: Deed, fresh: Fresh) -> str:
    """A receiver of this test's own."""
    name = fresh("carl")
    deed("agent", "add", name, "--as", "ada")
    return name


def create(deed: Deed, name: str, to: str, *more: object) -> str:
    """Create a handoff and return its id."""
    deed("handoff", "create", name, "--to", to, "--title", f"修復 {name}", *PARTIES, *more)
    return name


def card(status: str, title: str, **fields: Any) -> dict[str, Any]:
    """Return a handoff as the board's query answers it."""
    made = {
        "id": "h",
        "title": title,
        "status": status,
        "to": "bob",
        "tasks_done": 3,
        "tasks_total": 7,
        "is_ready": False,
        "claimed_status": None,
        "depends_on": [],
    }
    return made | fields


TITLE = "整合 TG 與 cron：把事件迴圈接上去 and a-very-long-word-that-has-no-end"
COLUMNS = [
    {"status": status, "total": 4, "handoffs": [card(status, TITLE)]}
    for status in ("pending", "approved", "in_progress", "blocked", "completed")
]


@pytest.mark.parametrize("cells", [20, 40, 80, 81, 120, 200, 300])
def test_no_line_is_wider_than_the_terminal(cells: int) -> None:
    lines = list(board_text(COLUMNS, cells))
    assert max(map(width, lines)) <= cells
    text = "\n".join(lines)
    assert text.count("3/7") == 5
    assert text.count("and 3 more") == 5
    is_side_by_side = any("pending (4)" in line and "completed (4)" in line for line in lines)
    assert is_side_by_side == (cells >= 80)


def test_columns_stand_under_each_other_in_cells() -> None:
    lines = [line for line in board_text(COLUMNS, 120) if "3/7" in line]
    (line,) = lines
    at = [width(line[:place]) for place in range(len(line)) if line[place] == "→"]
    assert at == [number * (22 + 2) for number in range(5)]


def test_what_waits_and_what_steers_a_terminal() -> None:
    waits = card(
        "approved", "\x1b[2J標題", depends_on=[{"id": "x", "status": None}, {"id": "y", "status": "completed"}]
    )
    (column,) = [{"status": "approved", "total": 1, "handoffs": [waits]}]
    text = "\n".join(board_text([column], 60))
    assert "waits for x (missing)" in text
    assert "y" not in text.replace("x (missing)", "")
    assert "\x1b" not in text


def test_text_is_cut_with_an_ellipsis() -> None:
    assert cut("迴圈迴圈", 8) == "迴圈迴圈"
    assert cut("迴圈迴圈", 7) == "迴圈迴…"
    assert cut("迴圈迴圈", 6) == "迴圈…"
