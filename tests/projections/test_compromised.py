"""Every answer marks events that a compromised key signed. The mark is computed when a view is read, not in a fold."""

from __future__ import annotations

from building import key_named

from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.projections.agents.compromised import compromised_names, compromised_sentences
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import QUERIES, VIEWS

# Arguments for which each query finds something in the ledger of ``fill``.
ASKED = {
    "handoffs.list": {},
    "handoffs.board": {"all": True},
    "handoffs.show": {"id": "b"},
    "handoffs.why": {"id": "b"},
    "handoffs.graph": {"all": True},
    "handoffs.facts": {"id": "b"},
    "handoffs.versions": {"id": "b"},
    "handoffs.around": {"id": "b"},
    "catalog.lanes": {},
    "knowledge.graph": {},
    "sessions.list": {},
    "sessions.show": {"id": "s1"},
    "reasoning.list": {},
    "reasoning.show": {"id": "r1"},
    "reports.list": {},
    "search.find": {"text": "login"},
    "catalog.find": {},
    "catalog.why": {"id": "9"},
    "catalog.show": {"id": "9"},
    "reports.sessions": {},
    "tot.list": {},
    "tot.show": {"id": "tot-2026"},
    "tot.tree": {"id": "tot-2026"},
    "tot.prove": {"id": "tot-2026"},
    "snapshots.list": {},
    "reviews.list": {},
    "handoffs.next": {},
}


def compromise(ledger, name, since, key=None):
    public = (key or ledger.keys[name]).public.hex()
    return ledger.emit("root", f"agent/{name}", KeyCompromised(key=public, since=since)).index


def test_no_digest_changes_but_that_of_the_keys(ledger, reader):
    ledger.fill()
    reader.catch_up()

    def digests():
        with reader.store.reading() as reading:
            return {view.name: reading.table_digests(view) for view in VIEWS}

    before = digests()
    compromise(ledger, "bob", 0)
    reader.catch_up()
    changed = {name for name, tables in digests().items() if tables != before[name]}
    assert changed <= {"agents", "catalog"}
    assert verify_views(ledger.reads, reader.store, VIEWS) == []


def test_every_answer_bears_the_mark(ledger, reader):
    ledger.fill()
    assert {query for query in ASKED if compromised_names(reader.answer(query, ASKED[query]))} == set()
    said = set()
    for agent in ledger.reads.agents():
        if agent.name not in {"root", "node"}:
            said.add(ledger.emit("root", f"agent/{agent.name}", KeyCompromised(key=agent.key, since=0)).index)
    marks = {query: set(compromised_names(reader.answer(query, ASKED[query])).values()) for query in ASKED}
    assert {query: found for query, found in marks.items() if not found or not found <= said} == {}


def test_reasonings_of_related_work_bear_the_mark(ledger, reader):
    ledger.fill()
    related = {"task": reader.answer("reasoning.show", {"id": "r1"})["task"]}
    authors = {one["author"] for one in reader.answer("search.related", related)["reasonings"]}
    assert authors
    said = {compromise(ledger, author, 0) for author in authors}
    assert {one["compromised"] for one in reader.answer("search.related", related)["reasonings"]} <= said


def test_what_was_signed_before_is_not_compromised_and_what_came_after_is(ledger, reader):
    ledger.emit("bob", "session/s1", SessionStarted())
    since = ledger.emit("bob", "session/s1", FindingLogged(finding="the thief's")).index
    said = compromise(ledger, "bob", since)
    events = {one["event_index"]: one.get("compromised") for one in reader.answer("catalog.find")["items"]}
    assert events[since] == said
    assert {index for index, mark in events.items() if mark is not None} == {since}
    assert reader.answer("sessions.show", {"id": "s1"})["compromised"] == said


def test_session_keys_delegated_by_the_thief_are_compromised_and_honest_ones_are_not(ledger, reader):
    honest = ledger.delegate("bob", key_named("honest"))
    thief = ledger.delegate("bob", key_named("thief"))
    stolen_at = ledger.size - 1
    for name, key in (("s1", honest), ("s2", thief)):
        ledger.emit("bob", f"session/{name}", SessionStarted(), key=key)
    said = compromise(ledger, "bob", stolen_at)
    marks = {one["id"]: one.get("compromised") for one in reader.answer("sessions.list")["items"]}
    assert marks == {"s1": None, "s2": said}
    assert {one["since"] for one in reader.answer("agents.compromised")["items"]} == {stolen_at}


def test_past_is_marked_by_what_is_known_now(ledger, reader):
    ledger.emit("bob", "session/s1", SessionStarted())
    size = ledger.size
    said = compromise(ledger, "bob", 0)
    assert "compromised" in reader.answer("sessions.show", {"id": "s1"})
    assert reader.answer("sessions.show", {"id": "s1"}, size - 1)["compromised"] == said


def test_words_name_the_places_and_count_the_rest():
    rows = [{"event_index": number, "compromised": 99} for number in range(12)]
    (words,) = compromised_sentences({"events": rows})
    assert words.startswith("COMPROMISED SIGNATURE: entry 0, entry 1, ")
    assert "and 2 more" in words
    assert "entry 99" in words


def test_tested_queries_exist():
    assert ASKED.keys() <= set(QUERIES)
