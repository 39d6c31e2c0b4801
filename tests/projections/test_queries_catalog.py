"""Queries about events and refs, on a real ledger."""

from __future__ import annotations

import hashlib

import pytest
from view_ledger import ViewLedger

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry


def code_of(reader, query, **arguments):
    """Return the refusal of a query."""
    with pytest.raises(Refused) as refused:
        reader.answer(query, arguments)
    return refused.value


def test_an_event_is_found_by_index_id_body_digest_and_beginnings(ledger: ViewLedger, reader):
    ledger.fill()
    entry = ledger.reads.entry(7)
    digest = hashlib.sha256(decode_entry(entry).body).hexdigest()
    event_id = ledger.event(7).id
    asked = ["7", event_id, f"sha256:{digest}", digest[:12], event_id[:19], event_id.removeprefix("event:")[:12]]
    for ref in asked:
        shown = reader.answer("catalog.show", {"id": ref})
        assert (shown["event_index"], shown["id"], shown["size"]) == (7, event_id, len(entry))
        assert reader.answer("resolve", {"id": ref})["event_index"] == 7


@pytest.mark.parametrize("ref", ["999999", "event:" + "0" * 64, "abc", "0" * 12, "99999999999999999999", ""])
def test_what_leads_nowhere_is_not_found(ledger, reader, ref):
    assert code_of(reader, "catalog.show", id=ref).code == "NOT_FOUND"
    assert code_of(reader, "resolve", id=ref).code == "NOT_FOUND"


def test_a_beginning_of_eleven_digits_is_not_enough(ledger, reader):
    digits = ledger.event(1).id.removeprefix("event:")
    assert code_of(reader, "catalog.show", id=digits[:11]).code == "NOT_FOUND"


def test_an_ambiguous_beginning_lists_its_candidates(ledger, reader):
    reader.catch_up()
    first, second = "event:" + "ab" * 6 + "1" * 52, "event:" + "ab" * 6 + "2" * 52
    with reader.store.writing() as writing:  # real ids do not have such long common beginnings
        writing.rows("UPDATE events SET id = ? WHERE event_index = 1 RETURNING id", (first,))
        writing.rows("UPDATE events SET id = ? WHERE event_index = 2 RETURNING id", (second,))
    for query in ("catalog.show", "resolve"):
        refused = code_of(reader, query, id="ab" * 6)
        assert refused.code == "REF_AMBIGUOUS"
        assert sorted(refused.details["candidates"]) == [first, second]


def test_find_filters_before_the_limit_and_counts_all(ledger, reader):
    ledger.emit_all("bob", "session/s", SessionStarted(), *(FindingLogged(finding=f"f{n}") for n in range(9)))
    ledger.emit_all("alice", "session/t", SessionStarted(), FindingLogged(finding="other"))
    page = reader.answer("catalog.find", {"kind": "finding.logged", "author": "bob", "limit": 4})
    assert (len(page["items"]), page["total"]) == (4, 9)
    found = list(page["items"])
    while page["next"] is not None:
        asked = {"kind": "finding.logged", "author": "bob", "limit": 4, "after": page["next"]}
        page = reader.answer("catalog.find", asked)
        found += page["items"]
    assert [event["stream_version"] for event in found] == list(range(2, 11))
    assert reader.answer("catalog.find", {"stream": "session/t"})["total"] == 2


def test_resolve_tells_streams_versions_and_steps_apart(ledger, reader):
    ledger.fill()
    shown = reader.answer("reasoning.show", {"id": "r1"})
    second = shown["versions"][1]
    assert reader.answer("resolve", {"id": "handoff/a"})["type"] == "stream"
    assert reader.answer("resolve", {"id": "a.md"})["stream"] == "handoff/a"
    found = reader.answer("resolve", {"id": second["ref"][7:19]})
    assert (found["type"], found["version"], found["event_index"]) == ("reasoning", 2, second["event_index"])
    step = reader.answer("resolve", {"id": f"{shown['ref']}#1"})
    assert (step["type"], step["step"], step["event_index"]) == ("step", 1, second["event_index"])
    # Step 2 was added after that version.
    assert code_of(reader, "resolve", id=f"{second['ref']}#2").code == "NOT_FOUND"


def test_a_bare_name_of_two_streams_is_ambiguous(ledger, reader):
    ledger.hand_over("same")
    ledger.emit("bob", "session/same", SessionStarted())
    assert code_of(reader, "resolve", id="same").details["candidates"] == ["handoff/same", "session/same"]
