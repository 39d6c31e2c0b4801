"""Token counts: one function, exact where possible, marked where not."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.briefs.tokens import ESTIMATE_NAME, count_tokens, estimate_tokens, tokenizer


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
