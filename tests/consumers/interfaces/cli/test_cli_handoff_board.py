"""`deed handoff list` and its board: columns that fit the terminal, cards in cells, and the same for programs."""

from __future__ import annotations

import shlex
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
    deed("handoff", "create", "--id", name, "--to", to, "--title", f"修復 {name}", *PARTIES, *more)
    return name


def test_list_names_dependencies_in_a_column(deed: Deed, fresh: Fresh, carl: str) -> None:
    first = create(deed, fresh("dep"), carl, "--task", "one", "--task", "two")
    second = create(deed, fresh("dep"), carl, "--depends-on", f"{first}, ghost")
    rows = deed.data("handoff", "list", "--to", carl)["handoffs"]
    assert [one["id"] for one in rows] == [second, first]
    assert rows[0]["depends_on"] == [{"id": first, "status": "pending"}, {"id": "ghost", "status": None}]
    assert rows[1]["depends_on"] == []
    table = deed("handoff", "list", "--to", carl)
    assert table.splitlines()[0].split() == ["id", "status", "title", "why", "tasks", "depends", "on"]
    assert f"{first}, ghost (missing)" in table
    assert f"[pending → {carl}]" in table
    assert "0/2 tasks done" in table


@pytest.mark.served
def test_board_shows_each_state_with_its_cards(deed: Deed, fresh: Fresh, carl: str) -> None:
    first = create(deed, fresh("card"), carl, "--task", "one")
    second = create(deed, fresh("card"), carl, "--depends-on", first)
    gone = create(deed, fresh("card"), carl)
    deed("handoff", "approve", first, "--as", "rita", *deed.as_read(first))
    deed("handoff", "cancel", gone, "--reason", "no need", "--as", "a")
    columns = {one["status"]: one for one in deed.data("handoff", "list", "--board", "--to", carl)["columns"]}
    assert list(columns)[:5] == ["pending", "approved", "in_progress", "blocked", "completed"]
    assert [one["id"] for one in columns["pending"]["handoffs"]] == [second]
    assert columns["approved"]["handoffs"][0]["is_ready"] is True
    assert (columns["cancelled"]["total"], columns["cancelled"]["handoffs"]) == (1, [])
    text = deed("handoff", "list", "--board", "--to", carl)
    for wanted in ("pending (1)", "approved (1)", f"→ {carl} 0/1", "ready", f"waits for {first}", "cancelled 1"):
        assert wanted in text
    assert f"修復 {gone}" in deed("handoff", "list", "--board", "--to", carl, "--all")
    assert deed("handoff", "list", "--board", "--from", carl) == "(none)\n"


def test_board_says_what_is_left_out(deed: Deed, fresh: Fresh, carl: str) -> None:
    for _ in range(3):
        create(deed, fresh("many"), carl)
    assert "and 2 more" in deed("handoff", "list", "--board", "--to", carl, "--limit", 1)


@pytest.mark.parametrize("option", [["--status", "pending"], ["--ready"], ["--cursor", "3"]])
def test_board_refuses_what_only_a_list_can_do(deed: Deed, option: list[str]) -> None:
    deed.refuses("USAGE", "handoff", "list", "--board", *option)


def test_list_refuses_what_only_a_board_can_do(deed: Deed) -> None:
    deed.refuses("USAGE", "handoff", "list", "--all")
    deed.refuses("USAGE", "handoff", "list", "--limit", 501)


def test_next_page_of_a_list_keeps_its_filters(deed: Deed, fresh: Fresh, carl: str) -> None:
    names = [create(deed, fresh("page"), carl) for _ in range(3)]
    document = deed.document("handoff", "list", "--to", carl, "--limit", 2)
    second = deed.document(*shlex.split(document["next"])[1:])
    assert [one["id"] for one in second["data"]["handoffs"]] == names[:1]


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
