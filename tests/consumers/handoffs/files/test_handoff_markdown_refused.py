"""Handoff files as bytes: the parser names each oddity, and refuses a file that it cannot read."""

from __future__ import annotations

import pytest
from handoff_texts import FIRST

from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import file_size_max_bytes, problems_max
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.ledger.errors import Refused

META = "# Handoff: x\n\n## Meta\n- Status: pending\n- From: kuro\n- To: bob\n"


def read(text: str) -> HandoffFile:
    return parse(text.encode())


def shown(file: HandoffFile) -> list[tuple[int, str]]:
    return [(problem.line, problem.text) for problem in file.problems]


def refusal_of(content: bytes) -> Refused:
    with pytest.raises(Refused) as refused:
        parse(content)
    return refused.value


# Text as such


def test_line_endings_and_the_mark_in_front_do_not_change_what_is_read() -> None:
    plain, other = parse(FIRST), parse(b"\xef\xbb\xbf" + FIRST.replace(b"\n", b"\r\n"))
    assert (plain.title, plain.task, plain.depends_on) == (other.title, other.task, other.depends_on)
    assert [one.text for one in plain.tasks] == [one.text for one in other.tasks]
    assert shown(other) == [(1, "the file begins with a byte order mark (BOM); it stays")]


def test_mixed_line_endings_are_named() -> None:
    file = read(f"{META}\n## Task\nx\r\ny\r\n")
    assert shown(file) == [(9, r"mixed line endings: '\r\n' here, '\n' on line 1; each stays")]
    assert file.task == "x\ny"


@pytest.mark.parametrize("text", ["\ufffd", "Ã©tÃ©", "ä»»å‹™", "â€”", "ðŸ˜€", "å»ºç«\x8b"])
def test_garbled_characters_are_named(text: str) -> None:
    assert [line for line, _ in shown(read(f"{META}\n## Task\nx {text} y\n"))] == [9]


@pytest.mark.parametrize("text", ["été", "CAFÉ» “x” — 任務 😀", "São Paulo", "ÄÖÜß €5", "Ærø"])
def test_good_text_is_not_called_garbled(text: str) -> None:
    assert read(f"{META}\n## Task\n{text}\n").problems == ()


def test_problems_have_a_limit_and_say_how_many_more_there_are() -> None:
    file = read(f"{META}\n## Log\n" + "- x\n" * 250)
    assert len(file.problems) == problems_max
    assert file.problems[-1].text.endswith(f"(and {250 - problems_max} more problems after it)")


# Refused


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "no title"),
        (b"\xef\xbb\xbf", 1, "no title"),
        (b"Hello\n\n## Meta\n", 3, "begin it with"),
        (b"# Handoff:\n\n## Meta\n", 1, "is empty"),
        (b"# Read me\n\n## Log\n- x\n", 1, "neither a handoff nor a proposal"),
        (b"# Handoff: x\n\n## Task\ny\n", 4, "no Meta block"),
        (b"# Handoff: x\n", 1, "no Meta block"),
        (META.encode(), 6, "half written"),
        (META.encode()[:-3], 6, "half written"),
        (b"# Handoff: x\nFrom: a\nTo: b\n", 3, "half written"),
        (b"# Proposal: x\n\n## TL;DR\ny\n\n## Meta\n- Status: appr", 7, "half written"),
        (FIRST[: FIRST.index("。".encode()) + 1], 13, "inside a character"),
        (FIRST.decode().encode("big5", "replace"), 1, "save it as UTF-8"),
        (META.encode("utf-16-le"), 1, "NUL"),
        (META.encode() + b"\n## Task\n\x00\n", 9, "NUL"),
        (b"# Handoff: x\n```\n\n" + META.encode() + b"\n## Task\n", 2, "hides '## Meta' on line 6"),
        (META.encode() + b"\n## Task\n<!--\n\n## Tasks\n- [ ] a\n", 9, "hides '## Tasks' on line 11"),
        (b"```\n" + FIRST, 1, "close the block that line 1 opens"),
    ],
)
def test_what_cannot_be_read_as_a_handoff_is_refused_with_its_line(content: bytes, line: int, words: str) -> None:
    refusal = refusal_of(content)
    assert (refusal.code, refusal.details["line"]) == ("INVALID_FORMAT", line)
    assert words in refusal.message


def test_every_cut_before_the_end_of_the_meta_block_is_refused() -> None:
    end = FIRST.index(b"\n## Task\n") + 1
    for length in range(end):
        assert refusal_of(FIRST[:length]).code == "INVALID_FORMAT"


def test_a_file_of_two_megabytes_is_refused() -> None:
    assert refusal_of(FIRST + b"x" * 2 * 1024**2).code == "TOO_LARGE"
    assert parse(FIRST + b"x" * (file_size_max_bytes - len(FIRST)))


def test_a_fence_that_swallows_nothing_is_only_named() -> None:
    file = read(f"{META}\n## Context\n```\ncode\n")
    assert (shown(file), file.context) == (
        [(9, "this block is never closed, so it extends to the end of the file")],
        "```\ncode",
    )


@pytest.mark.parametrize(
    "body", ["> " * 3000 + "x", "- " * 3000 + "x", "".join("  " * at + "- [ ] a\n" for at in range(300)), "[" * 9000]
)
def test_deep_nesting_is_read_or_named_without_running_out_of_stack(body: str) -> None:
    file = read(f"{META}\n## Tasks\n{body}\n")
    assert file.content.endswith(body.encode() + b"\n")
    assert len(file.tasks) < 300
    assert bool(file.tasks) == bool(file.problems)
