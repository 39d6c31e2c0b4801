"""Replays stored entries with the rules of the gate: those of a whole log, or of a part of it.

A *part* has all entries of authority and those of some streams. The versions in the entries show gaps between them,
and the rules show which other streams they read. So a replay either confirms a part or names the missing entries. It
does not check facts that only the whole log shows: that an idempotency key was used once, how many events a session
key has signed on other streams, how large a batch is, and that the clock did not jump.

Pure: the caller reads the entries and vouches for their indexes in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deedbook.ledger.admission.check import Candidate
from deedbook.ledger.admission.clock import Clock
from deedbook.ledger.admission.decide import apply, check_set_alone, check_versions, count_refused, go_on_from
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.body import Body, Event, decode_body
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.envelope import Entry, decode_entry, event_id, pae
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.lifecycle.authority import compromised_at
from deedbook.ledger.limits import body_size_max_bytes
from deedbook.ledger.log.keys import stream_key
from deedbook.ledger.log.records import StreamRecord


class ReplayedEntry(msgspec.Struct, frozen=True):
    """The result of replaying one entry: its event if it counts, its rule's refusal, and an error in its versions."""

    event: Event | None
    refused: Refused | None
    misplaced: Refused | None


def decide_again(index: int, candidate: Candidate, entry: Entry, layer: Layer, now_ms: int) -> ReplayedEntry:
    """Decide the entry at ``index`` again on an empty ``layer``, and merge its changes into the layer below.

    A refused entry changes nothing but is counted, because it is in the log. A caller that replays many entries passes
    the same layer each time, because it caches reads (a new layer for each took a tenth of a replay).
    """
    event, refused, misplaced = None, None, None
    layer.size = index
    try:
        check_set_alone(candidate.data, entry.batch_size)
        event = apply(candidate, entry.key, layer, now_ms)
    except Refused as refusal:
        refused = refusal
        layer.forget()
        count_refused(candidate, layer, index)
    try:
        check_versions(entry, candidate.body.stream, layer)
    except Refused as refusal:
        misplaced = refusal
        go_on_from(entry, candidate.body.stream, layer)  # so a damaged entry is reported once, not for all after it
    layer.merge_down()
    return ReplayedEntry(event, refused, misplaced)


def read_entry(data: bytes) -> tuple[Entry, Candidate]:
    """Return an entry and the candidate that rules decide. Its signature is not verified.

    Raises Refused: the codes of its format and schema.
    """
    entry = decode_entry(data)
    return entry, read_candidate(entry)


def read_candidate(entry: Entry) -> Candidate:
    """Return the candidate in an entry. Raises Refused: ``TOO_LARGE``, and the codes of its schema."""
    if len(entry.body) > body_size_max_bytes:
        message = f"the body has {len(entry.body)} bytes, and the limit is {body_size_max_bytes}"
        raise Refused("TOO_LARGE", message)
    body, content = decode_body(entry.body)
    return Candidate(body, content, event_id(pae(entry.body)), entry.body)


class MissingEntries(msgspec.Struct, frozen=True):
    """Entries ``first`` to ``last`` (None: to the end) that a part lacks, of a stream or of authority (None).

    ``shown_by`` is the index of the entry that shows the gap. Refusals from index ``since`` on may be due to it.
    """

    stream: str | None
    first: int
    last: int | None
    shown_by: int
    since: int

    def __str__(self) -> str:
        end = "on" if self.last is None else f"to {self.last}"
        which = f"entry {self.first}" if self.first == self.last else f"entries {self.first} {end}"
        return f"{which} of {'authority' if self.stream is None else self.stream}"


class PartialReplay:
    """Replays a part of a log. Feed it the entries in the order of their indexes, then call ``finish``.

    ``events`` are the events that count, and ``state`` the state after them. Three dicts are by index: ``refused`` are
    the errors; ``doubtful`` are refusals after a gap, which may be their reason; ``compromised_signatures`` are
    the entries that report the signing key as compromised. ``missing`` is known after ``finish``.
    """

    def __init__(self) -> None:
        self._nothing = _EmptyBase()
        self.state = Layer(self._nothing)
        self._layer = Layer(self.state)
        self.events: list[Event] = []
        self.created: LedgerCreated | None = None
        self.authority: list[tuple[int, str, EventData]] = []
        self.kinds: Counter[str] = Counter()
        self.refused: dict[int, Refused] = {}
        self.doubtful: dict[int, Refused] = {}
        self.notes: dict[int, Refused] = {}
        self.missing: list[MissingEntries] = []
        self.compromised_signatures: dict[int, int] = {}
        self._streams: set[str] = set()
        self._batches: dict[bytes, tuple[int, int]] = {}
        self._clock = Clock(self._refuse, self._note)

    def feed(self, index: int, data: bytes, batch_path: Sequence[bytes] = (), *, is_verified: bool = False) -> None:
        """Replay the next entry. ``is_verified``: the caller has verified its signature."""
        try:
            entry, candidate = read_entry(data)
        except Refused as refusal:
            self.refused.setdefault(index, refusal)
            return
        if not (is_verified or is_signed(entry, batch_path)):
            self._refuse(index, "SIGNATURE_INVALID", "its signature is not valid")
            return
        body, content = candidate.body, candidate.data
        self.kinds[body.kind] += 1
        if index == 0 and isinstance(content, LedgerCreated):
            self.created = content
        if entry.batch_size > 1:
            position = (index - entry.batch_index, entry.accepted_ms)
            if self._batches.setdefault(entry.sig, position) != position:
                message = "its time or its position differs from those of its batch"
                self._refuse(index, "VERIFICATION_FAILED", message)
        self._clock.check(index, entry.accepted_ms, content)
        self._find_gaps(index, body, entry)
        if body.kind in AUTHORITY_KINDS:
            self.authority.append((index, body.author, content))
        else:
            self._streams.add(body.stream)
        self._nothing.index = index
        replayed = decide_again(index, candidate, entry, self._layer, self._clock.now)
        if replayed.event is not None:
            self.events.append(replayed.event)
        if replayed.misplaced is not None:
            self.refused.setdefault(index, replayed.misplaced)
        if replayed.refused is not None:
            self.doubtful[index] = replayed.refused

    def finish(self, stream_versions: Mapping[str, int] | None = None, authority: int = 0, size: int = 0) -> None:
        """Complete the replay after the last entry.

        ``stream_versions`` are the versions of the streams, and ``authority`` the version of authority, in a log of
        ``size`` entries: entries up to these are missing, too. Without them, missing entries at the end are not found.
        """
        self._clock.end()
        for stream, index in self._nothing.streams_read.items():
            if self.state.stream(stream) is None:
                self.missing.append(MissingEntries(stream, 1, None, index, index))
        if stream_versions is not None:
            counts: dict[str | None, int] = {None: authority}
            counts.update((name, version) for name, version in stream_versions.items())
            self._compare_versions(counts, size)
        self.missing.sort(key=lambda gap: (gap.shown_by, gap.stream or ""))
        unsure_since = min((gap.since for gap in self.missing), default=None)
        for index in [index for index in self.doubtful if unsure_since is None or index < unsure_since]:
            self.refused.setdefault(index, self.doubtful.pop(index))
        for event in self.events:
            reported_by = compromised_at(self.state.key, event.key, event.index)
            if reported_by is not None:
                self.compromised_signatures[event.index] = reported_by

    def _refuse(self, index: int, code: str, message: str) -> None:
        self.refused.setdefault(index, Refused(code, message))

    def _note(self, index: int, code: str, message: str) -> None:
        self.notes.setdefault(index, Refused(code, message))

    def _find_gaps(self, index: int, body: Body, entry: Entry) -> None:
        """Note missing entries before this one, and count them, so that the later versions fit again."""
        record = self.state.stream(body.stream)
        if entry.stream_version > (0 if record is None else record.version) + 1:
            self._miss(body.stream, entry.stream_version - 1, index)
            counted = msgspec.structs.replace(record or StreamRecord(0, -1), version=entry.stream_version - 1)
            self._layer.put(stream_key(body.stream), counted)
        authority_version = entry.authority_version - (body.kind in AUTHORITY_KINDS)
        if authority_version > self.state.authority_version:
            self._miss(None, authority_version, index)
            self._layer.authority_version = authority_version
        self._layer.merge_down()

    def _compare_versions(self, signed: Mapping[str | None, int], size: int) -> None:
        for stream in sorted({*signed, *self._streams}, key=str):
            version, last_index = self._end_of(stream)
            stated = signed.get(stream, 0)
            if version > stated:
                message = f"{stream or 'authority'} has {version} entries, and the ledger's signed note counts {stated}"
                self._refuse(last_index, "VERIFICATION_FAILED", message)
            elif version < stated:
                self._miss(stream, stated, size)

    def _miss(self, stream: str | None, last: int, shown_by: int) -> None:
        version, last_index = self._end_of(stream)
        self.missing.append(MissingEntries(stream, version + 1, last, shown_by, last_index + 1))

    def _end_of(self, stream: str | None) -> tuple[int, int]:
        """Return the version and the last index of a stream, or of authority (None), as far as it was fed."""
        if stream is None:
            return self.state.authority_version, self.authority[-1][0] if self.authority else -1
        record = self.state.stream(stream)
        return (0, -1) if record is None else (record.version, record.last_index)


class _EmptyBase(Base):
    """The empty base of a part. It notes which streams were read, and at which index first."""

    def __init__(self) -> None:
        super().__init__()
        self.index = 0
        self.streams_read: dict[str, int] = {}

    def record(self, key: bytes) -> Any:
        if key[:1] == b"s":
            self.streams_read.setdefault(key[1:].decode(), self.index)
