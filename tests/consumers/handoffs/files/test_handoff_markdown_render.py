"""Progress is rendered into a file, and the parser distinguishes it from content that a person edited."""

from __future__ import annotations

import pytest
from handoff_texts import FIRST, PROPOSAL

from deedbook.consumers.handoffs.files.syntax.comparison import differences, with_progress_of
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import Progress, render
from deedbook.ledger.errors import Refused

META = "# Handoff: x\n\n## Meta\n- Status: pending\n- From: kuro\n- To: bob\n"
LINE = "- 2026-03-01 [bob] 開始"


def rendered(text: str, progress: Progress) -> str:
    return render(parse(text.encode()), progress).decode()


def lines_changed(before: bytes, after: bytes) -> list[tuple[str, str]]:
    pairs = zip(before.decode().splitlines(), after.decode().splitlines(), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]]


# Rendering


def test_progress_changes_a_word_ticks_and_the_end_of_the_log() -> None:
    written = render(parse(FIRST), Progress(status="in_progress", tasks={0: True}, criteria={2: True}, log=[LINE]))
    assert written.endswith(b"\n" + LINE.encode() + b"\n")
    assert lines_changed(FIRST, written.removesuffix(LINE.encode() + b"\n")) == [
        ("- Status: pending", "- Status: in_progress"),
        ("- [ ] 建立 src/event-bus.ts", "- [x] 建立 src/event-bus.ts"),
        ("- [ ] eventBus.emit / eventBus.on 基本流程可運作", "- [x] eventBus.emit / eventBus.on 基本流程可運作"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("approved（Alex 直接指定 P0）", "completed（Alex 直接指定 P0）"),
        ("  **Approved**, go ", "  **completed**, go "),
        ("—", "completed"),
        ("", "completed"),
        ("Completed, yes", "Completed, yes"),
    ],
)
def test_only_the_status_word_changes(before: str, after: str) -> None:
    text = META.replace("pending", before) + "\n## Task\n"
    assert rendered(text, Progress(status="completed")) == META.replace("pending", after) + "\n## Task\n"


def test_a_status_in_a_heading_changes_there() -> None:
    written = render(parse(PROPOSAL), Progress(status="verified"))
    assert lines_changed(PROPOSAL, written) == [
        ("## Status: completed (2026-02-12)", "## Status: verified (2026-02-12)")
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# Handoff: x\n\n## Meta\n* From: a\n* To: b\n\n## Task\n", "\n## Meta\n* Status: blocked\n* From: a\n"),
        ("# Handoff: x\n\nFrom: a\nTo: b\n\n## Task\n", "x\n\nStatus: blocked\nFrom: a\n"),
        ("# Proposal: x\n\ntext\n", "# Proposal: x\n\n## Meta\n- Status: blocked\n\ntext\n"),
        ("# Proposal: x\ntext\n", "# Proposal: x\n\n## Meta\n- Status: blocked\n\ntext\n"),
        ("# Proposal: x\n\n## Meta\n\n## TL;DR\n", "# Proposal: x\n\n## Meta\n- Status: blocked\n\n## TL;DR\n"),
        ("# Proposal: x", "# Proposal: x\n\n## Meta\n- Status: blocked\n"),
    ],
)
def test_a_missing_status_is_added_where_the_form_has_it(before: str, after: str) -> None:
    written = rendered(before, Progress(status="blocked"))
    assert after in written
    status = parse(written.encode()).status
    assert status
    assert status.word == "blocked"


@pytest.mark.parametrize(
    ("log", "after"),
    [
        ("## Log\n- 2026-02-12 [a] b\n", f"## Log\n- 2026-02-12 [a] b\n{LINE}\n"),
        ("## Log\n- 2026-02-12 [a] b", f"## Log\n- 2026-02-12 [a] b\n{LINE}"),
        ("## Log\n\n- 2026-02-12 [a] b\n\n\n## More\n", f"## Log\n\n- 2026-02-12 [a] b\n{LINE}\n\n\n## More\n"),
        ("## Log", f"## Log\n{LINE}"),
        ("## Log\n\n## More\n", f"## Log\n{LINE}\n\n## More\n"),
        ("## More\ntext", f"## More\ntext\n\n## Log\n{LINE}"),
        ("## More\ntext\n\n", f"## More\ntext\n\n## Log\n{LINE}\n"),
    ],
)
def test_log_lines_are_added_at_the_end_of_the_log(log: str, after: str) -> None:
    text = f"{META}\n{log}"
    assert rendered(text, Progress(log=[LINE])) == f"{META}\n{after}"
    back = parse(f"{META}\n{after}".encode())
    assert with_progress_of(back, parse(text.encode())) == text.encode()


def test_added_lines_end_like_their_neighbours() -> None:
    content = b"\xef\xbb\xbf" + FIRST.replace(b"\n", b"\r\n")
    written = render(parse(content), Progress(log=[LINE, LINE]))
    assert written == content + (LINE + "\r\n" + LINE + "\r\n").encode()


def test_a_log_text_stays_on_its_line() -> None:
    written = rendered(f"{META}\n## Log\n", Progress(log=["- 2026-03-01 [bob] a\r\n\r\n## Tasks\n- [ ] b\x00\tc"]))
    assert written == f"{META}\n## Log\n- 2026-03-01 [bob] a ## Tasks - [ ] b c\n"


@pytest.mark.parametrize(
    ("progress", "field"),
    [
        (Progress(tasks={7: True}), "task"),
        (Progress(tasks={-1: True}), "task"),
        (Progress(criteria={3: True}), "criterion"),
        (Progress(log=["done"]), "log"),
        (Progress(log=["- today [bob] x"]), "log"),
        (Progress(status="on hold\n- To: eve"), "status"),
        (Progress(status=""), "status"),
    ],
)
def test_progress_that_cannot_be_is_refused(progress: Progress, field: str) -> None:
    with pytest.raises(Refused) as refused:
        render(parse(FIRST), progress)
    assert (refused.value.code, refused.value.details["field"]) == ("INVALID_FIELD", field)


@pytest.mark.parametrize("end", ["## Log\n```\ncode\n", "## More\n<!-- open\n"])
def test_no_log_line_falls_into_a_block_that_is_left_open(end: str) -> None:
    file = parse(f"{META}\n{end}".encode())
    with pytest.raises(Refused) as refused:
        render(file, Progress(log=[LINE]))
    assert (refused.value.code, refused.value.details["line"]) == ("INVALID_FORMAT", file.open_line)
    assert render(file, Progress(status="blocked")) == f"{META}\n{end}".replace("pending", "blocked").encode()


# Comparing


def test_an_inserted_line_above_shifts_no_tick() -> None:
    base = parse(f"{META}\n## Tasks\n- [ ] a\n- [X] b\n- [ ] a\n".encode())
    edited = parse(f"{META}\n## Tasks\n- [x] new\n- [ ] a\n- [x] b\n- [x] a\n".encode())
    found = differences(base, edited)
    assert (found.tasks, found.is_content_changed, found.fields) == ({2: True}, True, ("tasks",))
    assert with_progress_of(edited, base) == f"{META}\n## Tasks\n- [ ] new\n- [ ] a\n- [X] b\n- [ ] a\n".encode()


def test_progress_of_a_person_is_no_change_of_content() -> None:
    edited = FIRST.replace(b"pending", b"In Progress").replace("- [ ] 寫".encode(), "- [X] 寫".encode())
    edited += b"\n* 2026-03-01 [amy] looked\nand more\n"
    found = differences(parse(FIRST), parse(edited))
    assert (found.status, found.tasks, found.criteria) == ("in_progress", {6: True}, {})
    assert [(one.author, one.text) for one in found.log] == [("amy", "looked"), (None, "and more")]
    assert not found.is_content_changed
    assert with_progress_of(parse(edited), parse(FIRST)) == FIRST


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ("# Handoff: Reactive", "# Handoff: Active", ("title",)),
        ("- From: kuro", "- From: eve", ("sender",)),
        ("- Depends-on: (none)", "- Depends-on: a.md", ("depends_on",)),
        ("- Status: pending\n", "", ()),
        ("- Status: pending", "- Status: pending, soon", ()),
        ("- [ ] 寫單元測試", "- [ ] 寫測試", ("tasks",)),
        ("## Context\n", "## Context\n\n", ()),
        ("- 2026-02-12 [kuro] 建立 handoff\n", "", ()),
        ("建立 handoff\n", "建立 handoff 了\n", ()),
        ("## Log\n", "## Log:\n", ()),
        ("參考", "參照", ("context",)),
    ],
)
def test_everything_else_is_content(old: str, new: str, fields: tuple[str, ...]) -> None:
    edited = parse(FIRST.decode().replace(old, new, 1).encode())
    found = differences(parse(FIRST), edited)
    assert found.is_content_changed
    assert found.fields == fields


def test_a_content_edit_is_told_apart_from_the_progress_beside_it() -> None:
    base = parse(render(parse(FIRST), Progress(status="in_progress", tasks={0: True}, log=[LINE])))
    text = base.content.decode().replace("in_progress", "completed").replace("- [ ] 匯出", "- [x] 匯出")
    edited = parse((text.replace("零外部依賴", "no dependency") + "- 2026-03-02 [bob] done\n").encode())
    found = differences(base, edited)
    assert (found.status, found.tasks, found.fields) == ("completed", {5: True}, ("context",))
    assert with_progress_of(edited, base) == base.content.decode().replace("零外部依賴", "no dependency").encode()
    assert with_progress_of(edited, parse(FIRST)) == FIRST.decode().replace("零外部依賴", "no dependency").encode()


def test_a_log_that_was_taken_away_comes_back() -> None:
    edited = parse(FIRST[: FIRST.index(b"\n## Log")])
    assert differences(parse(FIRST), edited).is_content_changed
    assert with_progress_of(edited, parse(FIRST)) == FIRST
