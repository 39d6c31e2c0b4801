"""Token counts come from one function; they are exact if possible, otherwise marked as estimates."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.projections.briefs.tokens import (
    CAUTIOUS_NAME,
    ESTIMATE_NAME,
    cautious_tokens,
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


TEXTS: Final = {
    "english": "The session pool is never closed when the handler raises an exception. ",
    "german": "Der Pool wird nie geschlossen, wenn die Funktion eine Ausnahme auslöst. ",
    "chinese": "会话池在登录处理程序引发异常时从不关闭，因此生产环境中的句柄会泄漏。",
    "japanese": "セッションはタイムアウトの後も閉じられません。",
    "korean": "세션풀은처리기가예외를일으키면절대로닫히지않습니다",
    "thai": "ระบบเซสชันไม่เคยปิดเมื่อเกิดข้อผิดพลาดในการเข้าสู่ระบบ",
    "russian": "Пул сессий никогда не закрывается, если обработчик вызывает ошибку. ",
    "arabic": "لا يتم إغلاق الجلسة أبدا عند حدوث خطأ ",
    "hindi": "सत्र कभी बंद नहीं होता है जब त्रुटि होती है ",
    "georgian": "სესიების აუზი არასოდეს იხურება. ",
    "emoji": "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈🤷🏽\u200d♀️",
    "url": "https://tracker.example.org/browse?query=a%20b%3D&page=7 ",
    "json": '{"a":[1,2,{"b":"\\u00e9"}],"c":null},',
    "code": "def f(x):\n\treturn {k: v for k, v in x.items()}\n",
    "digits": "0x7f3a2b10 18446744073709551615 c81d61b8-e6e2-44d7-b8eb-99d9d0bde37e ",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_cautious_estimate_is_below_neither_tokenizer_and_not_far_above(name: str) -> None:
    pytest.importorskip("rs_bpe")
    assert strictest().exact
    text = TEXTS[name] * 8
    assert count_tokens(text) <= most_tokens(text) <= cautious_tokens(text) <= 2.2 * most_tokens(text)


@given(st.text(alphabet=st.characters()))
def test_any_string_has_a_cautious_estimate(text: str) -> None:
    assert 1 <= cautious_tokens(text) <= 1 + 3 * len(text)


def test_without_the_tokenizer_the_cautious_estimate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    fallback = strictest.__wrapped__()
    assert (fallback.name, fallback.exact, fallback.count("a leak é")) == (CAUTIOUS_NAME, False, 4)
