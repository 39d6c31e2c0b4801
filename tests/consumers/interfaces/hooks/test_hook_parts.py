"""A block is inserted into a user's text, recognised and removed, without any record of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.hooks.parts import MARKDOWN, TOML, Block, State

PAGE = Block(MARKDOWN, "## Ours\n\ntext\n", "(by a test)")
TABLE = Block(TOML, '[ours]\nx = "y"\n', "(by a test)")
LINES = st.lists(st.sampled_from(["# Theirs", "text", "", "  ", "<!-- theirs -->", "<!-- ours? -->", "# theirs"]))
TEXTS = st.builds(
    lambda mark, lines, newline, last: mark + newline.join([*lines, last]),
    st.sampled_from(["", "\ufeff"]),
    LINES,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "# no line end", "\t"]),
)


@given(TEXTS)
def test_any_text_is_the_same_again_without_a_record(text: str) -> None:
    there = PAGE.insert(text)
    assert there.startswith(text)
    assert PAGE.state(there, None) is State.INSTALLED
    assert PAGE.remove(there, "") == text


@given(TEXTS, st.sampled_from(["# Above\n", "above\n\n"]))
def test_what_a_person_puts_above_changes_nothing_below(text: str, above: str) -> None:
    mark, rest = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    there = mark + above + PAGE.insert(text).removeprefix("\ufeff")
    assert PAGE.state(there, None) is State.INSTALLED
    if rest:  # without a rest the block was alone, and nobody knows who wrote the line ends before it
        assert PAGE.remove(there, "") == mark + above + rest


@pytest.mark.parametrize("text", ["", "\ufeff", "a = 1", "\ufeffa = 1\r\n", "[theirs]\n", "\n"])
def test_a_table_is_known_again_and_goes(text: str) -> None:
    there = TABLE.insert(text)
    assert TABLE.state(there, None) is State.INSTALLED
    assert TABLE.remove(there, "") == text


def test_what_a_person_puts_below_stays_a_line_of_its_own() -> None:
    assert PAGE.remove(PAGE.insert("theirs") + "below\n", "") == "theirs\nbelow\n"
    assert PAGE.remove(PAGE.insert("theirs\n") + "below\n", "") == "theirs\nbelow\n"
