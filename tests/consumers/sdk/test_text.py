"""Text prepared for display."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.sdk.text import cut, sanitize_line, sanitize_text, shorten

MISLEADING = (
    "\x00\x07\x1b\x7f\x9b\u00ad\u061c\u200b\u200e\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\ud800\U000e0001"
)


@pytest.mark.parametrize("sign", MISLEADING)
def test_what_could_mislead_a_reader_is_marked(sign: str) -> None:
    assert sanitize_text(f"a{sign}\n\tb") == "a\ufffd\n\tb"
    assert sanitize_line(f"a{sign}b") in {"a\ufffdb", "a b"}


@given(st.text())
def test_one_line_is_one_line_and_changes_nothing_twice(text: str) -> None:
    for mark in ("\ufffd", " "):
        line = sanitize_line(text, mark)
        assert len(line.splitlines()) <= 1
        assert line == line.strip() == sanitize_line(line, mark) == sanitize_text(line)


@given(st.text(), st.integers(0, 60))
def test_no_shortened_text_is_longer_than_asked(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= limit
    assert len(cut(text, limit + 1)) <= limit + 1


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two three", 8, "one two…"),
        ("one two three", 7, "one…"),
        ("abcdefghij", 5, "abcd…"),
        ("完成事件匯流排", 4, "完成事…"),
        ("anything", 1, "…"),
        ("anything", 0, ""),
    ],
)
def test_text_is_shortened_at_a_word(text: str, limit: int, short: str) -> None:
    assert shorten(text, limit) == short


def test_text_is_cut_where_its_length_ends() -> None:
    assert cut("one two", 7) == "one two"
    assert cut("one two", 6) == "one t…"
