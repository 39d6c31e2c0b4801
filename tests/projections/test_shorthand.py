"""Shorthand expands to the original bytes for every graph, and is used only if it saves tokens."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.projections.briefs.sentences import expand
from deedbook.projections.briefs.shorthand import (
    BRACES,
    BRIEF,
    HEADS,
    LIMITS,
    SYMBOLS,
    expanded_max_chars,
    phrases_max,
    read_statements,
    shorten,
    with_symbol,
)
from deedbook.projections.briefs.text import one_line
from deedbook.projections.briefs.tokens import count_tokens

HOSTILE = [
    "if (a | b) { return ~c; }",
    "αβγ: the alpha of the beta",
    "{a|b} stands in the text of the graph",
    "x{a|b}y=xay, xby",
    "日志没有加密，保留 30 天；第二句话",
    "it isn't the user’s own key_id [src/a b.py:3]",
    "{|}",
    "=; =;",
]
LIKE = [f"The {noun} of region {number} grows after a while" for number in range(4) for noun in ("queue", "cache")]
REPEATED = [f"the gateway of the second region drops {noun} silently" for noun in ("calls", "logs", "keys", "mail")]
TEXTS = st.one_of(
    st.sampled_from([*HOSTILE, *LIKE, *REPEATED]),
    st.text(min_size=1, max_size=60).map(one_line).filter(bool),
    st.lists(st.sampled_from(["the", "log", "of", "{", "|", "}", ";", "=", "α", "[a.py:1]", "~"]), min_size=1).map(
        " ".join
    ),
)


@given(st.dictionaries(st.sampled_from(HEADS), st.lists(TEXTS, min_size=1, max_size=12), min_size=1))
def test_what_is_shortened_comes_back_byte_for_byte(statements: dict[str, list[str]]) -> None:
    # No statement looks like a heading, because ``own_line`` marks those that would.
    short = shorten(statements)
    back = {head: Counter(items) for head, items in read_statements(short.split("\n"))}
    assert back == {head: Counter(items) for head, items in statements.items()}
    assert short == shorten(statements)


@pytest.mark.parametrize("items", [LIKE, REPEATED, LIKE + REPEATED])
def test_statements_that_repeat_each_other_cost_less(items: list[str]) -> None:
    short = shorten({BRIEF: items})
    assert short.startswith("SHORT: ")
    assert count_tokens(short) < 0.8 * count_tokens(f"{BRIEF}: {'; '.join(items)}")
    assert all(item in expand(short) for item in items)


def test_statements_that_repeat_nothing_are_sent_as_they_are() -> None:
    assert shorten({BRIEF: ["one", "two and three"], LIMITS: ["four"]}) == "BRIEF: one; two and three\nLimits: four"


@pytest.mark.parametrize("mark", "{|}")
def test_braces_join_nothing_where_the_graph_uses_them_itself(mark: str) -> None:
    short = shorten({BRIEF: [*LIKE, f"a {mark} b"]})
    assert BRACES not in short
    assert all(item in expand(short) for item in LIKE)


def test_no_symbol_stands_for_a_phrase_that_anything_beside_it_has() -> None:
    short = shorten({BRIEF: REPEATED}, beside="α and β are angles")
    assert "α=" not in short
    assert "γ=the gateway of the second region drops" in short
    taken = shorten({BRIEF: [*REPEATED, SYMBOLS]})
    assert "=" not in taken.replace(BRACES, "")


def test_phrases_end_at_words_and_are_few() -> None:
    texts = [f"{first} {last}" for first in ("a catalogue of parts", "a cat of mine") for last in "abcdefgh"]
    entries = shorten({BRIEF: [*texts, *LIKE, *REPEATED]}).partition("\n")[0].split("; ")
    assert len(entries) <= phrases_max + 1
    assert not any(entry.endswith("=a cat") for entry in entries)


def test_evidence_stays_with_its_own_statement() -> None:
    items = [f"the gateway of the {side} region drops calls [conf/all.yaml:4]" for side in "abcdefghij"]
    # All symbols occur in ``beside``, so no phrase is abbreviated.
    short = shorten({BRIEF: items}, beside=SYMBOLS).partition("BRIEF: ")[2]
    assert short.count("{") == 1
    assert short.endswith("]}")


def test_only_whole_words_are_abbreviated() -> None:
    assert with_symbol("a cat in a catalogue", "a cat", "α") == "α in a catalogue"
    assert with_symbol("to seize a cat", "size a cat", "α") == "to seize a cat"
    assert with_symbol("banana cat", "a cat", "α") == "banana cat"


def test_the_notation_is_explained_in_few_tokens_and_only_where_it_is_used() -> None:
    assert count_tokens(f"SHORT: {BRACES}; ") <= 20
    assert BRACES in shorten({BRIEF: LIKE})
    assert "SHORT" not in shorten({BRIEF: ["one", "two"]})


def test_statement_with_a_semicolon_stands_on_its_own_line() -> None:
    statements = {BRIEF: ["one; two", "three"], LIMITS: ["four"]}
    assert shorten(statements) == "BRIEF:\none; two\nthree\nLimits: four"
    assert dict(read_statements(shorten(statements).split("\n"))) == statements


def test_text_that_would_grow_without_end_stays_as_it_is() -> None:
    bomb = f"SHORT: α={'boom ' * 2_000}\nBRIEF: {'α' * 10_000}"
    assert len(expand(bomb)) < expanded_max_chars
    braces = f"SHORT: {BRACES}\nBRIEF: {'long ' * 5_000}{{{'|' * 5_000}}}"
    assert len(expand(braces)) < expanded_max_chars


def test_text_without_shorthand_is_its_own_expansion() -> None:
    text = "CONTEXT: a\nREASONING BRIEF: b {c|d}\n\nα stands here. Limits are none: x"
    assert expand(text) == text


def test_heads_are_written_out_as_the_sections_they_are_short_for() -> None:
    short = "CONCLUSION: c\nAssumed: a; b\nBRIEF: d\nAlternatives: e\nLimits: f\nOther: g"
    assert expand(short) == (
        "CONCLUSION: c\nTOP ASSUMPTIONS: a\nb\nREASONING BRIEF: d\nAlternative considered: e\nLimitation: f\n"
        "Other steps:\ng"
    )
