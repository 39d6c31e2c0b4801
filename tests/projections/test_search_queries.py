"""Searching a real ledger: results, their order and their pages; no query text does harm."""

from __future__ import annotations

import sqlite3

import pytest

from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffLogged
from deedbook.ledger.events.session import (
    DeadEndLogged,
    DeadEndRetracted,
    FindingLogged,
    FindingRetracted,
    SessionStarted,
    UnknownLogged,
    UnknownResolved,
)
from deedbook.projections.answers.query import QueryContext
from deedbook.projections.search.queries import SearchText, excerpt_max_chars, families_max, find_text
from deedbook.projections.stores import sqlite
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS, views_for
from deedbook.projections.views.runner import Runner


@pytest.fixture
def written(ledger):
    """A function that lets an agent log findings in a session and returns their indexes."""

    def say(*findings, by="bob", name="s"):
        first = ledger.size + 1
        # Two equal findings would be one event. Only their impact differs, because figures are not searched.
        learned = [FindingLogged(finding=finding, impact=number / 100) for number, finding in enumerate(findings)]
        ledger.emit_all(by, f"session/{name}", SessionStarted(), *learned)
        return list(range(first, first + len(findings)))

    return say


def found(reader, text, **more):
    """Return the indexes of the events that contain all words, in order."""
    answer = reader.answer("search.find", {"text": text} | more)
    return [hit["event_index"] for hit in answer["items"] if answer["holds"] == "all"]


def digest_of(store):
    """Return the digest of each table of the search."""
    (view,) = (view for view in VIEWS if view.name == "search")
    with store.reading() as reading:
        return reading.table_digests(view)


def refusal(reader, text, **more):
    """Return the code with which a search is refused."""
    with pytest.raises(Refused) as refused:
        reader.answer("search.find", {"text": text} | more)
    return refused.value.code


def view_versions(reader):
    """Return the live views and their positions."""
    with reader.store.reading() as reading:
        return {version.view: version.position for version in reading.view_versions() if version.is_live}


@pytest.mark.parametrize("text", ["页", "登录", "登录页", "页面超时", "“登录页面”", "登录 超时", "ＪＷＴ 登录", "录*"])
def test_chinese_is_found_by_one_two_and_more_characters(written, reader, text):
    hit, _ = written("JWT令牌：登录页面超时", "登超面")
    assert found(reader, text) == [hit]


@pytest.mark.parametrize("text", ["ターン", "ﾀｰﾝ", "로그", "그인 페이지", "Straße", "STRASSE", "cafe\u0301", "हिन्दी"])
def test_other_scripts_are_found_in_any_of_their_forms(written, reader, text):
    (hit,) = written("パターン 로그인 페이지 STRASSE café हिन्दी")
    assert found(reader, text) == [hit]


@pytest.mark.parametrize(
    "text",
    [
        *("JWT_SECRET", "jwt_secret", "secret", "auth.py:42", "auth.py", "auth", "42", "src/auth.py"),
        *("2026-02-12-phase-2a", "phase-2a", "phase"),
        *("sha256:" + "ab" * 32, "ab" * 32, "ab" * 6, "sha256:" + "ab" * 6),
    ],
)
def test_identifiers_are_found_whole_and_by_part(written, reader, text):
    refs = "sha256:" + "ab" * 32
    hit, _ = written(f"JWT_SECRET in src/auth.py:42 of 2026-02-12-phase-2a, see {refs}", "nothing of it")
    assert found(reader, text) == [hit]


def test_all_words_must_match_phrases_as_phrases_and_beginnings_with_a_star(written, reader):
    first, second = written("the pool leaks handles", "handles of a pool")
    assert set(found(reader, "pool handles")) == {first, second}
    assert found(reader, '"leaks handles"') == [first]
    assert found(reader, '"handles leaks"') == []
    assert found(reader, "pool leaks nowhere") == []
    assert found(reader, "han") == []
    assert set(found(reader, "hand")) == {first, second}
    assert found(reader, '"leaks hand"*') == [first]


@pytest.mark.parametrize(
    ("said", "taken_back", "kind", "words"),
    [
        (FindingLogged("the pool leaks"), lambda id_: FindingRetracted(id_, "not it"), "finding.retracted", "not it"),
        (
            DeadEndLogged("restart the pool", "it leaks again"),
            lambda id_: DeadEndRetracted(id_, "it works"),
            "dead_end.retracted",
            "it works",
        ),
        (UnknownLogged("who leaks the pool"), lambda id_: UnknownResolved(id_, "bob"), "unknown.resolved", "bob"),
    ],
)
@pytest.mark.parametrize(("text", "holds"), [("pool leaks", "all"), ("pool leaks nowhere", "some")])
def test_what_was_taken_back_says_by_whom_and_why_and_nothing_else_does(
    ledger, reader, said, taken_back, kind, words, text, holds
):
    ledger.emit("bob", "session/s", SessionStarted())
    ledger.emit("bob", "session/t", SessionStarted())
    target = ledger.emit("bob", "session/s", said)
    others = [ledger.emit("bob", "session/s", FindingLogged("a pool that leaks handles")).index]
    others.append(ledger.emit("bob", "session/t", said).index)
    done = ledger.emit("bob", "session/s", taken_back(target.id))
    answer = reader.answer("search.find", {"text": text, "kinds": [kind.split(".")[0] + ".logged", "finding.logged"]})
    hits = {hit["event_index"]: hit for hit in answer["items"]}
    assert answer["holds"] == holds
    assert set(hits) == {target.index, *others}
    correction = {"kind": kind, "event_index": done.index, "author": "bob", "words": words}
    assert hits[target.index]["correction"] == correction | {"happened_ms": ledger.event(done.index).accepted_ms}
    assert not any(hits[index]["correction"] for index in others)


def test_a_phrase_is_not_found_across_two_fields(ledger, reader):
    ledger.hand_over("a", task="ends here", context="begins there")
    assert found(reader, '"ends here"') == [ledger.size - 1]
    assert found(reader, '"here begins"') == []


def test_the_best_match_comes_first_and_the_newest_among_equals(written, reader):
    long, first, second = written("pool " + "of something else " * 30, "the pool leaks", "the pool leaks")
    assert found(reader, "pool") == [second, first, long]


def test_a_hit_names_the_event_and_shows_some_of_it(ledger, written, reader):
    (index,) = written("word " * 200 + "the POOL leaks " + "word " * 200)
    answer = reader.answer("search.find", {"text": "pool"})
    event = ledger.event(index)
    (hit,) = answer["items"]
    assert (answer["total"], answer["next"], answer["holds"]) == (1, None, "all")
    ((first, last),), excerpt = hit.pop("matches"), hit.pop("excerpt")
    assert (excerpt[first:last], len(excerpt) <= excerpt_max_chars) == ("POOL", True)
    assert "the POOL leaks" in excerpt
    assert hit == dict.fromkeys(("score", "near", "correction")) | {
        "is_refuted": False,
        "event_index": index,
        "event_id": event.id,
        "kind": "finding.logged",
        "stream": "session/s",
        "author": "bob",
        "accepted_ms": event.accepted_ms,
        "type": "finding.logged",
        "agent": "bob",
        "happened_ms": event.accepted_ms,
        "title": None,
    }


def test_families_and_author_filter_before_the_limit(ledger, written, reader):
    by_bob = written(*["a pool"] * 5)
    (by_alice,) = written("a pool", by="alice", name="t")
    ledger.hand_over("pool")
    ledger.emit("alice", "handoff/pool", HandoffLogged(text="the pool again"))
    handoffs = {ledger.size - 2, ledger.size - 1}
    assert found(reader, "pool", author="bob", limit=2) == by_bob[:-3:-1]
    assert reader.answer("search.find", {"text": "pool", "author": "bob", "limit": 2})["total"] == 5
    assert set(found(reader, "pool", family=["handoff"])) == handoffs
    assert set(found(reader, "pool", family=["handoff", "session"], author="alice")) == {by_alice, *handoffs}
    assert found(reader, "pool", family=["tot"]) == []
    assert set(found(reader, "pool", family=[])) == {*by_bob, by_alice, *handoffs}


def test_any_form_of_a_word_is_found_and_the_form_that_was_asked_for_first(written, reader):
    expiry, expire, other = written("the expiry of tokens", "sessions never expire", "an expert")
    for text in ("expir", "expiration", "EXPIRED"):
        assert set(found(reader, text)) == {expiry, expire}
    assert found(reader, "expire")[0] == expire
    assert found(reader, '"expir"') == []
    assert found(reader, "expe") == [other]


def test_function_words_need_not_be_found_unless_they_are_quoted(written, reader):
    leaks, of_it = written("pool leaks handles", "a leak of the pool")
    answer = reader.answer("search.find", {"text": "What is a leak of that pool?"})
    assert (answer["holds"], {hit["event_index"] for hit in answer["items"]}) == ("all", {leaks, of_it})
    assert found(reader, 'leak "of the" pool') == [of_it]


def test_far_hits_are_of_many_streams(ledger, reader):
    tasks = [FindingLogged(finding=f"pool {number}") for number in range(8)]
    ledger.emit_all("bob", "session/many", SessionStarted(task="pool"), *tasks)
    for name in ("a", "b"):
        ledger.emit("bob", f"session/{name}", SessionStarted(task=f"The pool of {name} and some more words"))
    hits = reader.answer("search.find", {"text": "pool zebra"})["items"]
    assert ({hit["near"] for hit in hits}, len(hits)) == ({"far"}, 5)
    assert {hit["stream"] for hit in hits} == {"session/many", "session/a", "session/b"}
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)


def test_where_nothing_holds_all_words_the_nearest_is_the_answer_and_how_near(written, reader):
    both, one, _ = written("the pool leaks handles", "a pool of cars", "glossary")
    answer = reader.answer("search.find", {"text": "pool handles of the dishwasher"})
    assert (answer["holds"], answer["next"]) == ("some", None)
    assert [hit["event_index"] for hit in answer["items"]][:1] == [both]
    assert answer["items"][0]["near"] in {"near", "related"}
    assert all(hit["score"] <= answer["items"][0]["score"] for hit in answer["items"])
    far = reader.answer("search.find", {"text": "quantum zebra"})
    assert far["holds"] == "some"
    assert {hit["near"] for hit in far["items"]} == {"far"}
    paged = reader.answer("search.find", {"text": "pool, leaks, cars", "limit": 1})
    after = reader.answer("search.find", {"text": "pool, leaks, cars", "limit": 1, "after": paged["next"]})
    assert {page["items"][0]["event_index"] for page in (paged, after)} == {both, one}


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"w{number}" for number in range(2_000))[:10_240],
        "登" * 5_000,
        "the zebra of and",
        "ภาษาไทยยาว",
        "pool\0x zebra",
        '"zebra NEAR" (',
        "zebra* OR -x",
        "a\u0300\u0301 zebra",
        "🚀 zebra",
        "0a" * 6,
    ],
)
def test_no_question_goes_without_an_answer(written, reader, text):
    hits = written("the pool leaks", "页面", "ภาษา")
    answer = reader.answer("search.find", {"text": text})
    assert {hit["event_index"] for hit in answer["items"]} & set(hits)


def test_kinds_and_a_moment_filter_before_the_limit(ledger, written, reader):
    (finding,) = written("the pool")
    ledger.hand_over("pool")
    moment = ledger.clock.now_ms
    assert found(reader, "pool", kinds=["finding.logged"]) == [finding]
    assert found(reader, "pool", kinds=["handoff.created", "finding.logged"], author="bob") == [finding]
    assert found(reader, "pool", since=moment + 1) == []
    assert finding in found(reader, "pool", since=ledger.event(finding).accepted_ms)


def test_pages_hold_every_hit_once_whatever_is_appended_meanwhile(written, reader):
    hits = written(*["the pool"] * 7)
    seen, after, pages = [], None, 0
    while pages == 0 or after is not None:
        arguments = {"text": "pool", "limit": 3} | ({} if after is None else {"after": after})
        answer = reader.answer("search.find", arguments)
        assert answer["total"] == 7
        seen += [hit["event_index"] for hit in answer["items"]]
        after = answer["next"]
        pages += 1
        written("the pool", "the pool", name=f"later-{pages}")
    assert (seen, pages) == (hits[::-1], 3)
    assert reader.answer("search.find", {"text": "pool"})["total"] == 13


@pytest.mark.parametrize("after", [0, 1, 999_999, 2**53 - 1])
def test_a_cursor_of_nobodys_making_ends_the_pages(written, reader, after):
    written("the pool")
    answer = reader.answer("search.find", {"text": "pool", "after": after})
    assert (answer["items"], answer["next"]) == ([], None)


@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        ("", {}, "INVALID_FIELD"),
        ('"" * -- ？！', {}, "INVALID_FIELD"),
        ("\0", {}, "INVALID_FIELD"),
        (7, {}, "INVALID_FIELD"),
        ("x" * 10_241, {}, "INVALID_FIELD"),
        ("not\udcff text", {}, "INVALID_FORMAT"),
        ("x", {"limit": 0}, "INVALID_FIELD"),
        ("x", {"limit": 201}, "INVALID_FIELD"),
        ("x", {"after": -1}, "INVALID_FIELD"),
        ("x", {"after": "1"}, "INVALID_FIELD"),
        ("x", {"after": 2**53}, "INTEGER_OUT_OF_RANGE"),
        ("x", {"family": "handoff"}, "INVALID_FIELD"),
        ("x", {"family": ["recipe"]}, "INVALID_FIELD"),
        ("x", {"family": ["handoff"] * (families_max + 1)}, "INVALID_FIELD"),
        ("x", {"kinds": "handoff.created"}, "INVALID_FIELD"),
        ("x", {"since": "today"}, "INVALID_FIELD"),
        ("x", {"colour": "red"}, "UNKNOWN_FIELD"),
    ],
)
def test_a_wrong_question_is_refused_with_its_code(reader, text, more, code):
    assert refusal(reader, text, **more) == code


@pytest.mark.parametrize(
    "text",
    [
        *("pool AND", "NOT pool", "NEAR(pool leaks)", "words : pool", "-pool", "^pool", "pool)", "{pool}", '"pool'),
        *("pool\0x", "'; DROP TABLE search_texts; --", "pool*leaks", "**pool", '""pool""'),
        *("pool " * 2_000, "x" * 10_240),
    ],
)
def test_a_question_is_never_syntax(written, reader, text):
    (hit,) = written("the pool leaks")
    assert set(found(reader, text)) <= {hit}
    assert found(reader, "pool") == [hit]


def test_no_author_is_part_of_the_sql(written, reader):
    written("the pool")
    assert found(reader, "pool", author="' OR 1=1 --") == []


def test_text_with_a_nul_is_found_on_both_sides_of_it(written, reader):
    (hit,) = written("before\0after")
    assert (found(reader, "before"), found(reader, "after")) == ([hit], [hit])


def test_other_questions_leave_the_view_alone_and_search_brings_it_up_to_date(written, reader):
    written("the pool")
    assert reader.answer("handoffs.list")["total"] == 0
    assert "search" not in view_versions(reader)
    assert len(found(reader, "pool")) == 1
    at = view_versions(reader)["search"]
    written("the pool", name="t")
    reader.answer("handoffs.list")
    assert view_versions(reader)["search"] == at < view_versions(reader)["catalog"]
    assert len(found(reader, "pool")) == 2
    assert len(set(view_versions(reader).values())) == 1


def test_the_past_is_searched_as_it_was(ledger, written, reader):
    written("the pool")
    size = ledger.size
    written("the pool", name="t")
    assert reader.answer("search.find", {"text": "pool"}, size - 1)["total"] == 1


def test_a_rebuild_gives_the_same_answers_and_the_same_digest(ledger, reader):
    ledger.fill()
    texts = ["leak*", "登入", "step", "pool", "13 - 9", "b", "a.py:3"]
    before = [reader.answer("search.find", {"text": text}) for text in texts]
    digest = digest_of(reader.store)
    assert all(answer["total"] for answer in before)
    reader.rebuild(["search"])
    assert [reader.answer("search.find", {"text": text}) for text in texts] == before
    assert digest_of(reader.store) == digest


def test_the_digest_does_not_depend_on_the_batches(ledger, written, reader, open_store, tmp_path):
    for number in range(6):
        written(f"the pool {number} 登录", name=str(number))
        assert len(found(reader, "pool")) == number + 1
    whole = open_store(tmp_path / "whole.db")
    Runner(ledger.reads, whole, VIEWS).catch_up()
    assert digest_of(whole) == digest_of(reader.store)
    assert verify_views(ledger.reads, reader.store, VIEWS) == []


def test_verify_finds_an_index_that_is_out_of_step(ledger, written, reader):
    written("the pool leaks")
    found(reader, "pool")
    with sqlite3.connect(ledger.home.views) as db:
        db.execute("INSERT INTO search_words(rowid, words) VALUES (1, 'pool')")
    db.close()
    differences = verify_views(ledger.reads, reader.store, VIEWS)
    assert [(one.view, one.table) for one in differences] == [("search", "search_words")]
    reader.rebuild(["search"])
    assert verify_views(ledger.reads, reader.store, VIEWS) == []


def test_verify_does_not_make_a_view_nobody_asked_for(ledger, written, open_store):
    written("the pool")
    store = open_store()
    Runner(ledger.reads, store, views_for("")).catch_up()
    assert verify_views(ledger.reads, store, VIEWS) == []
    with store.reading() as reading:
        assert "search" not in {version.view for version in reading.view_versions()}


def test_a_damaged_index_is_refused_with_the_way_out(ledger, written, reader, open_store):
    written("the pool leaks")
    found(reader, "pool")
    with sqlite3.connect(ledger.home.views) as db:
        db.execute("UPDATE search_words_data SET block = x'ff' WHERE id > 10")
    db.close()
    with pytest.raises(Corrupted, match="deed project"), open_store().reading() as reading:
        reading.rows("SELECT rowid FROM search_words WHERE search_words MATCH 'pool'")


def test_an_sqlite_without_fts5_is_named(ledger, reader, monkeypatch):
    monkeypatch.setattr(sqlite, "FULL_TEXT", "fts_of_nobody")
    with pytest.raises(Unavailable, match="search needs FTS5, which the SQLite of this Python lacks") as unavailable:
        found(reader, "pool")
    assert unavailable.value.code == "STORE_UNAVAILABLE"
    assert reader.answer("handoffs.list")["total"] == 0


def test_other_questions_are_answered_while_the_view_is_made(ledger, written, reader):
    written("the pool")
    with reader._folding_all:  # while another search folds the log
        assert reader.answer("handoffs.list")["total"] == 0
    assert len(found(reader, "pool")) == 1


def test_what_the_catalog_is_ahead_of_search_is_not_counted_yet(ledger, written, reader):
    (hit,) = written("the pool")
    found(reader, "pool")
    written("the pool", name="t")
    reader.answer("handoffs.list")  # now the catalog is ahead of the search
    with reader.store.reading() as reading:
        answer = find_text(QueryContext(reading, 0), SearchText(text="pool"))
    assert ([one.event_index for one in answer.items], answer.total) == ([hit], 1)
