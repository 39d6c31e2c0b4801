"""Sealed content at the gate: the blobs that it needs, erased subjects, and kinds that may keep old references."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from view_ledger import ViewLedger

from deedbook.ledger.bundle.program import schemas
from deedbook.ledger.bundle.standalone import form
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.blob import SEALABLE_FIELDS, blobs_of
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCreated, ReceiverNotes
from deedbook.ledger.events.session import DeadEndLogged, FindingLogged, SessionStarted, UnknownLogged
from deedbook.ledger.events.subject import SubjectErased

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.events.fields import EventData

TABLES = SimpleNamespace(**json.loads(schemas()))
REF, OTHER = "blake3:" + "ab" * 32, "blake3:" + "cd" * 32


def reference(ref: str, position: int = 0, subject: str = "carol") -> str:
    return f"sealed:{subject}:{ref}/{position}"


@pytest.mark.parametrize(
    ("data", "refs"),
    [
        (FindingLogged(finding=reference(REF), evidence=[reference(REF, 1), "a.py:1"]), [REF]),
        (FindingLogged(finding=f"see {reference(REF)}"), []),
        (FindingLogged(finding="x", evidence=[reference(OTHER), reference(REF)]), [OTHER, REF]),
        (UnknownLogged(unknown=reference(REF)), [REF]),
        (DeadEndLogged(approach=reference(REF), why_failed=reference(OTHER)), [REF, OTHER]),
        (HandoffCreated(title=reference(REF), to="bob"), []),
        (HandoffCreated(title="x", to="bob", task=reference(REF), criteria=[reference(OTHER)]), [REF, OTHER]),
        (HandoffAmended(title="x", to="bob", notes=ReceiverNotes(traps=[reference(REF)])), [REF]),
        (HandoffCreated(title="x", to="bob", notes=ReceiverNotes(artifacts=[reference(REF)])), []),
    ],
)
def test_both_verifiers_know_which_sealed_blobs_an_event_needs(data: EventData, refs: list[str]) -> None:
    assert blobs_of(data) == refs
    plain, raw = msgspec.to_builtins(data), msgspec.json.encode(data)
    assert form.blobs_in(TABLES, KIND_OF[type(data)], plain, raw) == refs


def test_sealable_fields_exist() -> None:
    for kind, paths in SEALABLE_FIELDS.items():
        for path in paths:
            here: Any = msgspec.inspect.type_info(kind)
            for name in path:
                (field,) = [field for field in here.fields if field.name == name]
                here = field.type


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with ViewLedger(tmp_path / "ledger") as ledger:
        ledger.emit("alice", "session/s", SessionStarted(task="x"))
        yield ledger


def emit(ledger: ViewLedger, author: str, stream: str, data: EventData) -> None:
    """Submit an event through a client, as agents do, so that the gate makes also the checks that a replay omits."""
    ledger.reads.submit(ledger.sign(author, Draft(stream=stream, data=data)))


def test_an_event_with_a_sealed_text_needs_its_blob(ledger: ViewLedger) -> None:
    with pytest.raises(Refused, match="NOT_FOUND: there is no blob"):
        emit(ledger, "alice", "session/s", FindingLogged(finding=reference(REF)))
    ref = ledger.put_blob("alice", b"any bytes: the gate cannot read them")
    emit(ledger, "alice", "session/s", FindingLogged(finding=reference(ref)))


def test_nothing_more_is_sealed_for_an_erased_subject(ledger: ViewLedger) -> None:
    ref = ledger.put_blob("alice", b"any bytes")
    content: dict[str, Any] = {"title": "x", "to": "bob", "reviewer": "rita", "criteria": ["y"]}
    emit(ledger, "alice", "handoff/h", HandoffCreated(**content, task=reference(ref)))
    emit(ledger, "root", "subject/carol", SubjectErased(reason="She asked for it."))
    with pytest.raises(Refused, match="SUBJECT_ERASED"):
        emit(ledger, "alice", "session/s", FindingLogged(finding=reference(ref)))
    with pytest.raises(Refused, match="SUBJECT_ERASED"):
        emit(ledger, "alice", "handoff/i", HandoffCreated(**content, context=reference(ref)))
    emit(ledger, "alice", "session/s", FindingLogged(finding=reference(ref, subject="dave")))
    emit(ledger, "alice", "handoff/h", HandoffAmended(**content, task=reference(ref), context="the rest"))


def test_a_refused_erasure_erases_nothing(ledger: ViewLedger) -> None:
    ref = ledger.put_blob("alice", b"any bytes")
    with pytest.raises(Refused, match="NOT_AUTHORIZED"):
        emit(ledger, "alice", "subject/carol", SubjectErased(reason="I want to."))
    emit(ledger, "alice", "session/s", FindingLogged(finding=reference(ref)))
