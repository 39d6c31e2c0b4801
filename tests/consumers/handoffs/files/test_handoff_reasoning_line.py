"""The line `Reasoning:` of a file: whole refs come back byte for byte, and any other text in it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handoff_texts import new
from syncing import NEW

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files.mapping import content_of_file
from deedbook.consumers.handoffs.files.syntax.comparison import revise
from deedbook.consumers.handoffs.files.syntax.marks import with_marks, without_marks
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import Progress, render
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.handoff import reasoning_refs_max

if TYPE_CHECKING:
    from syncing import SyncedFolder

ONE, OTHER = (f"sha256:{digit * 64}" for digit in "12")
LINE = f"- Reasoning: {ONE}, {OTHER}"
FILE = new(reasoning_refs=[ONE, OTHER])


def with_line(line: str) -> bytes:
    return FILE.replace(LINE.encode(), line.encode())


def test_a_new_file_has_it_last_in_its_meta_block() -> None:
    assert f"- Depends-on: (none)\n{LINE}\n\n## Task" in FILE.decode()
    assert parse(FILE).reasoning_refs == (ONE, OTHER)
    assert b"Reasoning" not in new()


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "line",
    [
        LINE,
        f"* **Reasoning:** `{ONE}`、<{OTHER}>",
        f"Reasoning：{ONE}，{OTHER}",
        f"- 推理: {ONE}\n  {OTHER}",
        f"- Reasoning:\n  - {ONE}\n  - {OTHER}\n  - {ONE}",
    ],
)
def test_it_comes_back_byte_for_byte(line: str, ending: bytes, mark: bytes) -> None:
    content = mark + with_line(line).replace(b"\n", ending)
    file = parse(content)
    assert file.reasoning_refs == (ONE, OTHER)
    assert not [problem for problem in file.problems if "Reasoning" in problem.text]
    assert render(file, Progress()) == content == revise(file, {"reasoning_refs": [ONE, OTHER]})
    assert render(file, Progress(status="approved")) == content.replace(b"Status: pending", b"Status: approved")


@pytest.mark.parametrize(
    ("line", "refs", "problems"),
    [
        ("- Reasoning: (none)", (), []),
        ("- Reasoning:", (), []),
        ("- Reasoning: r1", (), ["Reasoning names 'r1', which is not a whole ref (sha256:…): it does not count"]),
        (f"- Reasoning: {ONE[:30]}, {ONE}", (ONE,), [f"Reasoning names '{ONE[:30]}', which is not a whole ref"]),
        (f"- Reasoning: {ONE.upper()}", (), ["Reasoning names"]),
        (f"- Reasoning: {ONE}x; {OTHER}", (), ["Reasoning names"]),
        ("- Reasoning: \x1b[2J ignore all, <script>, ../../etc/passwd", (), ["Reasoning names"] * 3),
        (f"{LINE}\n- Reasoning: {OTHER}", (ONE, OTHER), ["Reasoning is on line 9 and again on line 10"]),
    ],
)
def test_what_is_no_ref_counts_for_nothing_and_is_named(line: str, refs: tuple[str, ...], problems: list[str]) -> None:
    file = parse(with_line(line))
    assert file.reasoning_refs == refs
    said = [problem.text for problem in file.problems if "Reasoning" in problem.text]
    assert [text[: len(start)] for text, start in zip(said, problems, strict=True)] == problems
    assert render(file, Progress()) == with_line(line)


def test_of_ten_thousand_refs_the_first_count() -> None:
    line = "- Reasoning: " + ", ".join(f"sha256:{number:064x}" for number in range(10_000))
    content = content_of_file(parse(with_line(line)), template=None, agents=AgentNames())
    assert content.reasoning_refs == [f"sha256:{number:064x}" for number in range(reasoning_refs_max)]
    assert parse(with_line(line)).problems[0].text == "Reasoning names 10000 refs: only the first 8 count"


def test_an_amendment_writes_and_takes_away_the_line_alone() -> None:
    bare = with_line("").replace(b"(none)\n\n\n", b"(none)\n\n")
    added = revise(parse(bare), {"reasoning_refs": [ONE]})
    assert added.decode() == bare.decode().replace("(none)\n", f"(none)\n- Reasoning: {ONE}\n")
    assert revise(parse(added), {"reasoning_refs": []}) == added.replace(ONE.encode(), b"(none)")


def test_who_hands_a_file_over_signs_its_reasoning_and_who_edits_it_amends(folder: SyncedFolder) -> None:
    alice = folder.hand("alice")
    folder.file().write_text(NEW.replace("- To: bob", f"- To: bob\n- Reasoning: {ONE}"))
    alice.reconcile()
    assert folder.shown()["reasoning_refs"] == [ONE]
    folder.edit((ONE, f"{ONE}, {OTHER}"))
    assert alice.reconcile() == ["signed: handoff.amended"]
    assert folder.shown()["reasoning_refs"] == [ONE, OTHER]
    folder.edit((f"- Reasoning: {ONE}, {OTHER}\n", ""))
    alice.reconcile()
    assert folder.shown()["reasoning_refs"] == []
    folder.assert_in_step(alice, folder.hand("bob"))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("line", "marked"),
    [
        (LINE, f"{LINE} ← refuted: one; other"),
        (f"* **Reasoning:** `{ONE}`", f"* **Reasoning:** `{ONE}` ← refuted: one"),
        (
            f"- Reasoning:\n  - {ONE}\n  - {OTHER}",
            f"- Reasoning:\n  - {ONE} ← refuted: one\n  - {OTHER} ← refuted: other",
        ),
    ],
)
def test_a_mark_is_no_part_of_the_line(line: str, marked: str, ending: str) -> None:
    content = with_line(line).replace(b"\n", ending.encode())
    written = with_marks(content, {ONE: "one", OTHER: "other"}, {})
    assert written == with_line(marked).replace(b"\n", ending.encode())
    assert without_marks(written) == content
    assert parse(written).reasoning_refs == parse(content).reasoning_refs
    assert not [problem for problem in parse(written).problems if "Reasoning" in problem.text]


def test_a_text_that_looks_like_a_mark_elsewhere_is_content() -> None:
    quoted = FILE.replace(b"## Task\n", f"## Task\n{ONE} ← refuted: quoted\n".encode())
    assert without_marks(quoted) == quoted


def test_a_refuted_reasoning_is_marked_in_every_pass_and_is_no_edit(folder: SyncedFolder) -> None:
    steps = [reasoning.Step(1, "assumption", "Logs are not encrypted"), reasoning.Step(2, "inference", "It is leaked")]
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningStarted(task="Is it leaked?"))
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningExtended(steps=steps, dependencies={2: [1]}))
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningConcluded(conclusion="It is leaked"))
    ref = folder.answer("reasoning.show", {"id": "leak"})["ref"]
    alice = folder.hand("alice")
    folder.file().write_text(NEW.replace("- To: bob", f"- To: bob\n- Reasoning: {ref}"))
    alice.reconcile()
    refuting = reasoning.AssumptionSettled(step=1, holds=False, how="encrypted since May")
    entry = folder.ledger.emit("bob", "reasoning/leak", refuting).index
    mark = (
        f"- Reasoning: {ref} ← refuted: {ref[7:19]} rests on an assumption (step 1) that bob refuted (entry {entry})\n"
    )
    assert alice.reconcile() == ["written: h.md"]
    assert mark in folder.text()
    assert alice.reconcile() == []
    folder.edit(("Make it warm.", "Make it hot."))
    assert alice.reconcile() == ["signed: handoff.amended"]
    assert mark in folder.text()
    assert folder.shown()["reasoning_refs"] == [ref]
    folder.edit((f" rests on an assumption (step 1) that bob refuted (entry {entry})", " is fine"))
    assert alice.reconcile() == ["written: h.md"]
    assert mark in folder.text()
    folder.ledger.emit("bob", "reasoning/leak", reasoning.AssumptionSettled(step=1, holds=True, how="not all of them"))
    assert alice.reconcile() == ["written: h.md"]
    assert f"- Reasoning: {ref}\n" in folder.text()
    folder.assert_in_step(alice, folder.hand("bob"))
