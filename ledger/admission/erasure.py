"""Erases bodies: the gate's checks before it admits a redaction, and the remnant of the entry.

The transaction that appends ``entry.redacted`` also replaces the erased entry by its remnant, so a log never has only
one of these changes. The file still holds the body in pages that LMDB freed, and records of states may hold its texts.
So the log is marked until its file is rewritten (``admission.rewriter``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from deedbook.ledger.admission.replay import unconfirmed_refusal
from deedbook.ledger.admission.rules import AUTHORITY_KINDS, load_rules
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import Redaction
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import digest_of, remnant_of, sets_content
from deedbook.ledger.format.envelope import Entry, decode_entry, is_remnant
from deedbook.ledger.lifecycle import handoff
from deedbook.ledger.lifecycle import snapshot as snapshot_machine
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.machine import FamilyState, StateMachine, Transition
from deedbook.ledger.log.expiry import find_refs
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.packages import family_of

_DECIDERS: Final[dict[str, StateMachine[Any]]] = {
    "handoff": handoff.MACHINE,
    "snapshot": snapshot_machine.MACHINE,
}
"""The core's streams whose rules or states compare texts. In all other streams, texts decide nothing."""
StreamEntries: TypeAlias = Callable[[str], Iterable[tuple[int, bytes]]]


class ErasedEntry(msgspec.Struct, frozen=True):
    """An entry without its body, ready to be stored.

    ``blobs`` are all ``blake3:`` refs in the body: the event may need such a blob, or only cite it as evidence.
    """

    index: int
    entry: Entry
    event: Event
    blobs: list[str]

    @property
    def event_left(self) -> Event:
        """The event without its texts."""
        return read_event(self.index, self.entry)

    @property
    def remnant(self) -> str:
        """The digest of its remnant."""
        return digest_of(self.entry.body)


def erase(index: int, data: bytes, read_stream: StreamEntries) -> ErasedEntry:
    """Return the entry ``data``, which has this ``index``, with a remnant in place of its body.

    ``read_stream`` returns the entries of a stream with their indexes. Raises Refused: ``NOTHING_CHANGED`` if it is
    already erased or has no text; ``TRANSITION_NOT_ALLOWED`` if its texts decide whether later entries are valid.
    """
    entry = decode_entry(data)
    if is_remnant(entry.body):
        raise Refused("NOTHING_CHANGED", f"the body of entry {index} is already erased", index=index)
    event = read_event(index, entry)
    is_compared = rules_with_texts(event.stream) is not None
    stream = [read_event(at, other) for at, other in read_stream(event.stream)] if is_compared else []
    version = _state_after(stream, event).version if sets_content(event.data) else None
    erased = replace(entry, body=remnant_of(entry, version))
    changed = [read_event(index, erased) if other.index == index else other for other in stream]
    if _outcomes(event.stream, stream) != _outcomes(event.stream, changed):
        message = f"entry {index} ({event.kind}) cannot be erased: the rules compare later entries with its texts"
        raise Refused("TRANSITION_NOT_ALLOWED", message, index=index, kind=event.kind)
    return ErasedEntry(index, erased, event, [ref for ref in find_refs(data) if ref.startswith("blake3:")])


def erase_as_named(snapshot: Snapshot, event: Event[Redaction]) -> ErasedEntry:
    """Find the entry that a redaction names, and return it with a remnant in place of its body.

    Raises Refused: as ``erase``; ``INVALID_FIELD`` if the redaction does not fit the entry; ``NOT_AUTHORIZED`` if the
    entry is one of authority and the redaction is not by root.
    """
    data = event.data
    erased = erase(data.entry, snapshot.entry(data.entry), snapshot.stream_entries)
    if erased.event.id != data.event:
        message = f"entry {data.entry} is event {erased.event.id}, not {data.event}"
        raise Refused("INVALID_FIELD", message, path="$.data.event")
    if erased.remnant != data.remnant:
        message = f"what would be left of entry {data.entry} has the digest {erased.remnant}: sign this one"
        raise Refused("INVALID_FIELD", message, path="$.data.remnant")
    if not set(data.blobs) <= set(erased.blobs):
        raise Refused("INVALID_FIELD", f"entry {data.entry} names no such blob", path="$.data.blobs")
    if event.author != ROOT and erased.event.kind in AUTHORITY_KINDS:
        message = f"only {ROOT} may erase an entry of authority: add `--as {ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=event.author)
    return erased


def check_confirmed(snapshot: Snapshot) -> None:
    """Check that each entry without a body is named by a redaction.

    Raises Corrupted: ``VERIFICATION_FAILED``: the copied log lost a body in another way, or the copy ended before the
    redaction.
    """
    for index, record in snapshot.redactions().items():
        if record.found is not None:
            refusal = unconfirmed_refusal(index)
            raise Corrupted(refusal.code, refusal.message, index=index)


def erased_count(snapshot: Snapshot) -> int:
    """Return how many bodies the redactions of a log erased. It never decreases."""
    return sum(record.done is not None for record in snapshot.redactions().values())


def _outcomes(stream: str, events: list[Event]) -> list[Any]:
    """Return which events of a stream are valid, and the state after them without texts and digests of texts."""
    if (rules := rules_with_texts(stream)) is None:
        return []
    counted: list[Any] = []
    state: Any = None
    for event in events:
        with suppress(Refused):
            state = rules.decide(state, event)
            counted.append(event.index)
    match state:
        case handoff.HandoffState():
            return [*counted, replace(state, reason="")]
        case FamilyState() if isinstance(rules, Transition):
            return [*counted, rules.kept(rules.unpack(state))]
        case _:  # the state of a snapshot holds no texts
            return [*counted, state]


def rules_with_texts(stream: str) -> StateMachine[Any] | Transition[Any] | None:
    """Return the rules of a stream if texts of its events may affect them or its state, else None."""
    name = stream.partition("/")[0]
    return _DECIDERS.get(name) or (None if (family := family_of(name)) is None else load_rules(family))


def _state_after(stream: list[Event], event: Event) -> handoff.HandoffState:
    """Return the state of a handoff after an event that sets its content."""
    state: handoff.HandoffState | None = None
    for earlier in stream:
        if earlier.index <= event.index:
            with suppress(Refused):
                state = handoff.MACHINE.decide(state, earlier)
    if state is None:
        raise Corrupted("CORRUPTED", f"{event.stream} has no valid entry: run `deed fsck`")
    return state
