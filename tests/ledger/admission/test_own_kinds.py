"""Declared kinds at the gate: a kind declared in the same submission, edited records, erased events, a restart."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from wrong_declared import GOOD, KIND, SCHEMA, STREAM

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.declared import DeclaredData, KindDeclared
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.log.keys import DECLARED_KINDS_KEY, kind_key

if TYPE_CHECKING:
    from building import Ledger


def declaration(**changes: Any) -> Draft:
    """Return the declaration of the kind."""
    fields: dict[str, Any] = {"name": KIND, "stream": "x.deploy", "roles": ["agent"], "schema": SCHEMA}
    return Draft(stream=f"kind/{KIND}", data=KindDeclared(**(fields | changes)))


def event(stream: str = STREAM, **data: Any) -> Draft:
    """Return an event of the kind."""
    return Draft(kind=KIND, stream=stream, data=GOOD | data)


def test_declaration_and_its_first_event_are_one_submission(ledger: Ledger) -> None:
    both = ledger.sign(ROOT, declaration(roles=["admin"]), event())
    first, second = ledger.submit(both)
    assert (second.index, ledger.event(second.index).data["service"]) == (first.index + 1, "api")
    wrong = ledger.refusal_of(lambda: ledger.submit(ledger.sign(ROOT, event(version=8), event(version=0))))
    assert [(refused["position"], refused["code"]) for refused in wrong.details["events"]] == [(1, "INVALID_FIELD")]


def test_refusal_names_near_kinds_and_the_field(ledger: Ledger) -> None:
    ledger.submit(ledger.sign(ROOT, declaration()))
    near = Draft(kind="x.deploy.finish", stream=STREAM, data=GOOD)
    unknown = ledger.refusal_of(lambda: ledger.submit(ledger.sign("alice", near)))
    assert (unknown.code, KIND in unknown.message) == ("UNKNOWN_KIND", True)
    wrong = ledger.refusal_of(lambda: ledger.submit(ledger.sign("alice", event(hosts=["a", 7]))))
    assert (wrong.code, wrong.details["path"]) == ("INVALID_FIELD", "$.data.hosts[1]")


def test_edited_record_of_a_kind_stops_the_gate(ledger: Ledger) -> None:
    ledger.submit(ledger.sign(ROOT, declaration()))
    with ledger.log.snapshot() as snapshot:
        record, names = snapshot.record(kind_key(KIND)), snapshot.record(DECLARED_KINDS_KEY)
    assert record is not None
    assert names == (KIND,)
    with ledger.log.tables.writing() as txn:
        edited = encode_packed(replace(record, roles=("reviewer",)))
        txn.put(kind_key(KIND), edited, db=ledger.log.tables.state)
    with pytest.raises(Corrupted, match="a declared kind differs"):
        Gate(ledger.log, clock_ms=ledger.clock).submit(ledger.sign("rita", event()))


def test_another_gate_decides_by_the_stored_declaration(ledger: Ledger) -> None:
    ledger.submit(ledger.sign(ROOT, declaration()))
    other = Gate(ledger.log, clock_ms=ledger.clock)
    assert other.submit(ledger.sign("alice", event()))[0].index == ledger.head()[0] - 1
    assert ledger.refusal_of(partial(other.submit, ledger.sign("alice", event("x.other/1")))).code == "INVALID_FIELD"


def test_redaction_leaves_no_field_of_an_event_and_never_erases_a_declaration(ledger: Ledger) -> None:
    declared, published = (
        ledger.submit(ledger.sign(author, draft))[0] for author, draft in ((ROOT, declaration()), ("alice", event()))
    )
    ledger.redact(published.index)
    erased = ledger.event(published.index)
    assert (erased.data, erased.erased is not None) == (DeclaredData(fields={}), True)
    assert ledger.refusal_of(lambda: ledger.redact(declared.index)).code == "TRANSITION_NOT_ALLOWED"
    again = ledger.submit(ledger.sign("alice", event(service="web")))[0]
    assert ledger.event(again.index).data["service"] == "web"
