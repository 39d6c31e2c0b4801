"""Records of other tools by their form: the kinds that they may map to, their stream, and unmapped records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bad_inputs import body

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData

REF = "sha256:" + "1" * 64
FILE = RecordImported(
    original=REF,
    source="memory/handoffs/h.md",
    format="handoff/v2",
    mapped_kind="handoff.created",
    mapped={"title": "t", "to": "bob", "tasks": ["a", "b"], "criteria": ["c", "d"]},
    claims={"status": "done"},
)
UNMAPPED = RecordImported(original=REF, source="notes.txt", format="unknown", reason="no handoff")


def refusal(ledger: Ledger, author: str, data: EventData, *, stream: str = "handoff/h") -> str:
    """Return the code with which an event is refused; the log must stay unchanged."""
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data)).code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mapped_kind": "handoff.dreamt"}, "INVALID_FIELD"),
        ({"mapped_kind": "handoff.approved"}, "INVALID_FIELD"),
        ({"mapped_kind": "session.ended"}, "INVALID_FIELD"),
        ({"mapped_kind": "session.started"}, "UNKNOWN_FIELD"),
        ({"mapped_kind": None}, "INVALID_FIELD"),  # a record that maps to no kind must be empty, and in record/…
        ({"mapped": {"title": "t", "mood": "good"}}, "UNKNOWN_FIELD"),
        ({"mapped": {"title": "t", "status": "verified"}}, "UNKNOWN_FIELD"),
        ({"mapped": {}}, "INVALID_FIELD"),
        ({"mapped": {"title": ""}}, "INVALID_FIELD"),
        ({"mapped": {"title": "t", "depends_on": ["../h"]}}, "INVALID_FIELD"),
        ({"mapped": {"title": "t", "to": "Kuro + Alex"}}, "INVALID_FIELD"),
        ({"claims": {"verified": True}}, "UNKNOWN_FIELD"),
        ({"claims": {"tasks": [2]}}, "INVALID_FIELD"),
        ({"claims": {"criteria": [0, 2]}}, "INVALID_FIELD"),
        ({"claims": {"tasks": [-1]}}, "INVALID_FIELD"),
        ({"claims": {"tasks": [100_001]}}, "INVALID_FIELD"),
        ({"claims": {"tasks": ["0"]}}, "INVALID_FIELD"),
        ({"original": "the file"}, "INVALID_FIELD"),
        ({"mood": "good"}, "UNKNOWN_FIELD"),
    ],
)
def test_record_that_cannot_be_read_as_what_it_maps_to_is_refused(
    ledger: Ledger, change: dict[str, Any], code: str
) -> None:
    data = {name: getattr(FILE, name) for name in FILE.__struct_fields__} | change
    before = ledger.head()
    with pytest.raises(Refused) as caught:
        ledger.emit("alice", "handoff/h", data, kind="record.imported")
    assert caught.value.code == code
    assert ledger.head() == before


@pytest.mark.parametrize("number", [b"1152921504606846976", b"-1152921504606846976", b"9007199254740992"])
@pytest.mark.parametrize("where", ["mapped", "claims"])
def test_integer_beyond_the_range_is_refused_inside_what_has_no_type_yet(
    ledger: Ledger, number: bytes, where: str
) -> None:
    inside = {"mapped": b'{"title":"t"}', "claims": b"{}"} | {where: b'{"size":%b}' % number}
    text = b'{"claims":%b,"format":"f","mapped":%b,"mapped_kind":"handoff.created","original":"%b","source":"s"}' % (
        inside["claims"],
        inside["mapped"],
        REF.encode(),
    )
    for data in (text, text.replace(b'"size":', b'"size" : ')):
        with pytest.raises(Refused) as caught:
            ledger.submit(ledger.sign_bytes("alice", body(ledger, data, kind="record.imported", stream="handoff/h")))
        assert caught.value.code == "INTEGER_OUT_OF_RANGE"


@pytest.mark.parametrize("stream", ["record/h", "session/h", "reasoning/h", "handoff/../h", "handoff", "ledger"])
def test_record_stands_on_the_stream_of_what_it_maps_to(ledger: Ledger, stream: str) -> None:
    assert refusal(ledger, "alice", FILE, stream=stream) == "INVALID_FIELD"


@pytest.mark.parametrize("stream", ["handoff/h", "session/h", "record"])
def test_record_that_is_kept_aside_stands_on_a_stream_of_its_own(ledger: Ledger, stream: str) -> None:
    assert refusal(ledger, "alice", UNMAPPED, stream=stream) == "INVALID_FIELD"
    ledger.emit("alice", "record/1", UNMAPPED)
    ledger.clock.advance(1)
    assert refusal(ledger, "alice", UNMAPPED, stream="record/1") == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("field", ["mapped", "claims"])
def test_record_that_is_kept_aside_maps_to_nothing(ledger: Ledger, field: str) -> None:
    aside = {"original": REF, "source": "x", "format": "f", field: {"title": "t"}}
    with pytest.raises(Refused) as caught:
        ledger.emit("alice", "record/1", aside, kind="record.imported")
    assert caught.value.code == "INVALID_FIELD"
