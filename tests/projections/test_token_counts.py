"""Token counts: one function, exact where possible, marked where not."""

from __future__ import annotations

import sys
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.projections.briefs.tokens import (
    _MERGED,
    ESTIMATE_NAME,
    bound_tokens,
    count_tokens,
    estimate_tokens,
    most_tokens,
    strictest,
    tokenizer,
)


def test_exact_counts_are_those_of_o200k() -> None:
    pytest.importorskip("rs_bpe")
    assert (tokenizer().name, tokenizer().exact) == ("o200k_base", True)
    assert count_tokens("hello world 你好") == 4
    assert not count_tokens("")


def test_without_the_tokenizer_counts_are_marked_as_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    fallback = tokenizer.__wrapped__()
    assert (fallback.name, fallback.exact) == (ESTIMATE_NAME, False)
    assert fallback.count("abcde") == 2


def test_estimate_rounds_up_a_quarter_of_the_bytes() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "你好")] == [0, 1, 1, 2, 2]


@given(st.text(alphabet=st.characters()))
def test_any_string_can_be_counted(text: str) -> None:
    assert count_tokens(text + "\ud800") >= 1
    assert estimate_tokens(text + "\ud800") >= 1


@given(st.text() | st.text('abcdefqjxz vwk.,{}"A9é漢', max_size=200))
def test_the_bound_is_below_neither_tokenizer(text: str) -> None:
    pytest.importorskip("rs_bpe")
    assert strictest().exact
    assert count_tokens(text) <= most_tokens(text) <= bound_tokens(text)


def test_small_letters_that_the_bound_takes_for_one_token_are_one_in_both() -> None:
    openai = pytest.importorskip("rs_bpe.bpe").openai
    letters = [one + other for one in f" {ascii_lowercase}" for other in ascii_lowercase]
    for count in (openai.cl100k_base().count, openai.o200k_base().count):
        assert [pair for pair in letters if count(pair) > 1 and _MERGED.fullmatch(pair)] == []
    assert len(letters) - sum(_MERGED.fullmatch(pair) is not None for pair in letters) == 54


def test_without_the_tokenizer_the_bound_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    fallback = strictest.__wrapped__()
    assert (fallback.name, fallback.exact, fallback.count("a leak é")) == ("bound", False, 1 + 4 + 1 + 2)
