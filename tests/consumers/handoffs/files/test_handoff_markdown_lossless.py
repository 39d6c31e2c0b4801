"""Unchanged parts of a file keep their bytes. Changes are recognised, and can be reversed."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from faults import times
from handoff_texts import FIRST, PROPOSAL, SECOND, documents
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deedbook.consumers.handoffs.files.syntax.active_table import is_active_table, parse_table
from deedbook.consumers.handoffs.files.syntax.comparison import differences, revise, with_progress_of
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import Progress, render
from deedbook.ledger.errors import Refused

CASES = Path(__file__).parents[5] / "shared" / "cases" / "handoffs"


def check_refusal(refusal: Refused, content: bytes) -> None:
    """A refusal has the one code, and names a line that the file has."""
    assert refusal.code == "INVALID_FORMAT"
    assert 1 <= refusal.details["line"] <= 1 + len(re.findall(rb"\r\n|\r|\n", content))


def read(content: bytes) -> HandoffFile:
    """Read a document, or let hypothesis draw another if it is none."""
    try:
        return parse(content)
    except Refused as refusal:
        check_refusal(refusal, content)
        assume(False)
        raise


@pytest.mark.parametrize("content", [FIRST, SECOND, PROPOSAL])
def test_the_examples_of_the_protocol_come_back_byte_for_byte(content: bytes) -> None:
    file = parse(content)
    assert render(file, Progress()) == file.content == content
    assert revise(file, {}) == content
    assert file.problems == ()


@pytest.mark.skipif(not CASES.is_dir(), reason="the real cases are not on this machine")
def test_real_files_come_back_byte_for_byte() -> None:
    read_files = 0
    for path in CASES.glob("*.md"):
        content = path.read_bytes()
        if is_active_table(content):
            assert parse_table(content).content == content
        else:
            assert render(parse(content), Progress()) == content
        read_files += 1
    assert read_files


@settings(deadline=None)
@given(documents())
def test_every_file_that_is_read_comes_back(content: bytes) -> None:
    file = read(content)
    assert render(file, Progress()) == content
    assert revise(file, {}) == content
    assert with_progress_of(file, file) == content
    assert differences(file, file) == differences(parse(content), file)
    assert not differences(file, file).is_content_changed


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: ("# Proposal: x\n" + text).encode())))
def test_bytes_of_any_kind_are_read_or_refused(content: bytes) -> None:
    assert render(read(content), Progress()) == content


@settings(deadline=None)
@given(documents(has_boxes=True), st.data())
def test_one_tick_changes_one_line(content: bytes, data: st.DataObject) -> None:
    file = read(content)
    assume(file.tasks or file.criteria)
    name = data.draw(st.sampled_from([name for name in ("tasks", "criteria") if getattr(file, name)]))
    boxes = getattr(file, name)
    position = data.draw(st.integers(0, len(boxes) - 1))
    progress = Progress(**{name: {position: not boxes[position].is_checked}})
    before, after = file.lines, parse(render(file, progress)).lines
    changed = [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    assert changed == [boxes[position].line - 1]
    assert len(before[changed[0]]) == len(after[changed[0]])


@st.composite
def progress_of(draw: st.DrawFn, file: HandoffFile) -> Progress:
    """Draw progress that differs from that in the file."""
    ticks = [
        {at: not box.is_checked for at, box in enumerate(boxes) if draw(st.booleans())}
        for boxes in (file.tasks, file.criteria)
    ]
    words = [word for word in ("approved", "in_progress", "completed") if not file.status or word != file.status.word]
    status = draw(st.sampled_from([None, *words]))
    lines = st.sampled_from(["", "2026-03-01 [amy] met: 12 passed", "2026-03-01 [rita] waived: `<!-- not` #here"])
    drawn = {at: draw(lines) for at in range(len(file.criteria)) if draw(st.booleans())}
    evidence = {at: text for at, text in drawn.items() if text != file.criteria[at].evidence}
    log = draw(
        st.lists(
            st.sampled_from(["- 2026-03-01 [amy] 完成", "- 2026-03-02 [amy] a\nb", "- 2026-03-03 [z]"]), max_size=3
        )
    )
    return Progress(status=status, tasks=ticks[0], criteria=ticks[1], evidence=evidence, log=log)


def added_lines(progress: Progress) -> list[str]:
    return [line.replace("\n", " ") for line in progress.log]


@settings(max_examples=times(30, 40), deadline=None)
@given(documents(), st.data())
def test_progress_is_found_again_and_taken_back(content: bytes, data: st.DataObject) -> None:
    file = read(content)
    progress = data.draw(progress_of(file))
    try:
        written = render(file, progress)
    except Refused as refusal:
        check_refusal(refusal, content)
        assume(False)
    after = parse(written)
    found = differences(file, after)
    assert (found.status, found.is_content_changed, found.fields) == (progress.status, False, ())
    texts = {name: [box.text for box in getattr(file, name)] for name in ("tasks", "criteria")}
    assume(all(len(set(one)) == len(one) for one in texts.values()))  # equal texts are matched in order: tested below
    assert (found.tasks, found.criteria, found.evidence) == (progress.tasks, progress.criteria, progress.evidence)
    shown = [f"- {line.day} [{line.author}] {line.text}".rstrip() for line in found.log]
    assert sorted(shown) == sorted(added_lines(progress))
    assert with_progress_of(after, file) == content
    assert render(after, progress_without_log(progress)) == written


def progress_without_log(progress: Progress) -> Progress:
    return msgspec.structs.replace(progress, log=())


@settings(deadline=None)
@given(documents(), st.sampled_from(["\n\n## More\ntext\n", "more"]))
def test_other_text_is_a_change_of_content(content: bytes, more: str) -> None:
    file = read(content)
    try:
        after = parse(content + more.encode())
    except Refused:
        assume(False)
    assume([line.text for line in after.log] == [line.text for line in file.log])  # else the log has changed
    found = differences(file, after)
    if found.status is None and not found.tasks and not found.criteria:
        assert found.is_content_changed
        assert with_progress_of(after, file) != content
