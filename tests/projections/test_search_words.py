"""Words of the search: every text can be found as it was written, in any script, by whole words and by parts."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.projections.search.queries import Term, excerpt_max_chars, excerpt_of, matches_in, terms_of
from deedbook.projections.search.words import features_of, forms_of, stem_of, words_of, words_with_positions

# Letters that case folding turns into two, combining marks in and out of order, half-width kana, single jamo, an
# ideograph newer than Python's Unicode tables, characters that join or separate words, and characters outside words.
TRICKY = (
    "aZ09_-.:*\"'()[]^+ \t\n\0éßİſΣςﬁ½Ⅷẛ\u0301\u0308\u0323\u0345登録録页ｶﾞﾊﾟがか\u3099ー々ア한\u1112\u1161\u11ab가\u11a8กิ่"
)
TRICKY += "हिन्दीعَرَبيཱི\u00ad\u200b\u200c\u200d\ufe0f\U000e0100\U000313504\U0001f600“”。、…"
texts = st.text() | st.text(alphabet=TRICKY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("JWT_SECRET", ["jwt", "secret"]),
        ("src/auth.py:42", ["src", "auth", "py", "42"]),
        ("2026-02-12-reactive-phase-2a", ["2026", "02", "12", "reactive", "phase", "2a"]),
        ("sha256:" + "ab" * 32, ["sha256", "ab" * 32]),
        ("登录超时", ["登", "录", "超", "时"]),
        ("JWT令牌v2", ["jwt", "令", "牌", "v2"]),
        ("ﾊﾟﾀｰﾝ々", ["パ", "タ", "ー", "ン", "々"]),
        ("로그인", ["로", "그", "인"]),
        ("\u1105\u1169그", ["로", "그"]),
        ("Straße ＡＢＣ ﬁx", ["strasse", "abc", "fix"]),
        ("cafe\u0301 हिन्दी", ["café", "हिन्दी"]),
        ("long\u00adword\u200bnext", ["longword", "next"]),
        ("葛\U000e0100城 a\ufe0fb", ["葛", "城", "ab"]),
        ("\U00031350a", ["\U00031350", "a"]),
        ("？！…\0 --", []),
    ],
)
def test_text_is_cut_into_words(text, words):
    assert words_of(text) == words


@given(texts)
def test_words_stand_where_they_are_said_to_stand(text):
    placed = list(words_with_positions(text))
    assert [one.word for one in placed] == words_of(text)
    assert all(0 <= one.start < one.end <= len(text) for one in placed)


@given(texts)
@example("\u0300\U000e0100\u0316")
@example("か\u200d\u3099")
def test_words_are_their_own_words(text):
    words = words_of(text)
    assert words_of(" ".join(words)) == words


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("pool leaks", [Term(("pool",), True, "pool"), Term(("leak",), True, "leaks")]),
        ('"pool leaks" hand*', [Term(("pool", "leaks"), False), Term(("hand",), True)]),
        ("“登录 页”*", [Term(("登", "录", "页"), True)]),
        ("登录 登录", [Term(("登", "录"), False)]),
        ('an open "quote', [Term(("open",), True, "open"), Term(("quot",), True, "quote")]),
        ('a OR -- b NOT "not"', [Term((word,), False) for word in ("b", "not")]),
        ("words:x* *y", [Term(("words", "x"), True), Term(("y",), False)]),
        ("sha256:" + "0a" * 6, [Term(("sha256", "0a" * 6), True)]),
        ("0a" * 6, [Term(("0a" * 6,), True)]),
        ("0a" * 32, [Term(("0a" * 32,), False)]),
        ('"what is it"', [Term(("what", "is", "it"), False)]),
        ("it*", [Term(("it",), True)]),
    ],
)
def test_a_question_is_made_of_words_phrases_and_beginnings(text, terms):
    assert terms_of(text) == terms


@pytest.mark.parametrize(
    "text", ["", " ", "*", '""', '"" * --', "？！", "\0", "\U0001f600", "the", "What is it?", "how do we"]
)
def test_a_question_without_a_word_that_says_something_is_refused(text):
    with pytest.raises(Refused) as refused:
        terms_of(text)
    assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("stem", "forms"),
    [
        ("expir", ["expire", "expires", "expired", "expiry", "expiration", "expiring"]),
        ("run", ["run", "runs", "running"]),
        ("organiz", ["organiz", "organize", "organization", "organizations"]),
        ("test", ["test", "tests", "testing", "tested"]),
    ],
)
def test_the_forms_of_a_word_have_one_stem_that_they_begin_with(stem, forms):
    assert {stem_of(form) for form in forms} == {stem}
    assert all(form.startswith(stem) for form in forms)


def test_a_question_is_asked_in_forms_and_pairs_and_without_the_words_of_every_text():
    keys = [form.key for form in forms_of("Why do tokens never expire? 登录页, JWT_SECRET v2")]
    assert keys == ["token", "nev", "expir", "登 录", "录 页", "jwt", "secret", "v2"]
    assert forms_of("what is that") == []
    assert {*features_of("The tokens expired: 登录页")} >= {"token", "expir", "登 录", "登", "录 页"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Upgrade to v1.2.3", ["upgrad", "1 2 3"]),
        ("numpy==1.2 (0.92), 登录1.2", ["nump", "1 2", "0 92", "登 录"]),
        ("on 2026-02-12 at 12:30", ["12 30", "2026 02 12"]),
        ("phase 2 of v4", ["phas", "2", "v4"]),
    ],
)
def test_a_number_of_several_parts_is_asked_for_whole(text, keys):
    assert sorted(form.key for form in forms_of(text)) == sorted(keys)


def test_a_text_has_the_beginnings_of_a_number_but_not_its_digits():
    assert features_of("Tag v1.2.3, not 1.2") == {"tag": 1, "not": 1, "v1": 1, "1 2": 2, "1 2 3": 1}


@given(texts, texts)
@example("x AND OR NOT NEAR(a b, 2) words : - {y} ^z", "NEAR")
@example('"' * 9 + "a", "a")
@example("a " * 5_000 + "b", "b")
@example(" ".join(f"w{number}" for number in range(512)), "w1")
@example("登" * 512, "登")
def test_every_question_is_an_expression_that_finds_the_text_it_is(text, other):
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE held USING fts5(words, content = '', tokenize = 'ascii')")
    db.execute("INSERT INTO held(rowid, words) VALUES (1, ?)", (" ".join(words_of(text)),))
    db.execute("INSERT INTO held(rowid, words) VALUES (2, ?)", (" ".join(words_of(f"{other} {text}")),))
    with contextlib.closing(db), contextlib.suppress(Refused):
        expression = " AND ".join(term.sql for term in terms_of(text))
        rows = db.execute("SELECT rowid FROM held WHERE held MATCH ?", (expression,)).fetchall()
        assert rows[:1] == [(1,)]


@given(texts, st.text(alphabet=TRICKY, max_size=300), texts)
def test_an_excerpt_is_short_and_part_of_the_text(before, middle, after):
    text = before * 40 + middle + after * 40
    for asked in (middle, before, "a"):
        try:
            terms = terms_of(asked)
        except Refused:
            continue
        excerpt = excerpt_of(text, terms)
        assert len(excerpt) <= excerpt_max_chars
        shown = excerpt.removeprefix("…").removesuffix("…")
        assert shown.strip("…") in " ".join(" · ".join(filter(None, map(str.strip, text.split("\n")))).split())


def test_an_excerpt_shows_the_first_match_and_is_cut_at_words():
    text = "word " * 100 + "the JWT_SECRET leaks in auth.py " + "after " * 100
    terms = terms_of("jwt_secret")
    excerpt = excerpt_of(text, terms)
    assert excerpt.startswith("…word word")
    assert excerpt.endswith(" after…")
    assert len(excerpt) > excerpt_max_chars * 0.9
    (span,) = matches_in(excerpt, terms)
    assert excerpt[slice(*span)] == "JWT_SECRET"


def test_an_excerpt_of_chinese_is_found_and_cut_at_characters():
    text = "前" * 500 + "登录页面" + "后" * 500
    excerpt = excerpt_of(text, terms_of("登录"))
    assert len(excerpt) == excerpt_max_chars
    (span,) = matches_in(excerpt, terms_of("登录"))
    assert excerpt[slice(*span)] == "登录"


def test_an_excerpt_of_a_word_without_end_begins_at_the_match():
    assert excerpt_of("x" * 900, terms_of("x*")) == "x" * 198 + "…"
    assert excerpt_of("one two\nthree", terms_of("three")) == "one two · three"
