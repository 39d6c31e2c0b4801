"""Replays stored entries with the rules of the gate: those of a whole log, or of a part of it.

``Replay.step`` decides each stored entry for every caller: a follower, a reader that acts on entries, the audit of a
part or of a whole log. The gate decides new entries with the same ``decide.apply``. The callers read the entries,
verify their signatures in the way that suits their source, and report.

A *part* has all entries of authority and those of some streams. The versions in the entries show gaps between them, and
the rules show which other streams they read. So a replay either confirms a part or names the missing entries. It does
not check facts that only the whole log shows: that an idempotency key was used once, how many events a session key has
signed on other streams, how large a batch is, and that the clock did not jump.

Pure: the caller reads the entries and guarantees their indexes in the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from deedbook.ledger.admission.candidate import Candidate
from deedbook.ledger.admission.clock import Clock
from deedbook.ledger.admission.decide import apply, check_alone, check_versions, count_refused, go_on_from
from deedbook.ledger.admission.rules import AUTHORITY_KINDS, rule_of
from deedbook.ledger.admission.state import Base, Layer, MemoryState
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.events.authority import EntryRedacted, LedgerCreated
from deedbook.ledger.events.body import Body
from deedbook.ledger.events.fields import EventData, UnreadData
from deedbook.ledger.events.remnant import LACKS_FAMILY, digest_of, read_stored
from deedbook.ledger.format.envelope import Entry, decode_entry, event_id, is_remnant
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.lifecycle.authority import compromised_at
from deedbook.ledger.lifecycle.redaction import Erasure, FoundRemnant, RedactionRecord, SignedErasure, names
from deedbook.ledger.limits import body_size_max_bytes, remnant_size_max_bytes
from deedbook.ledger.log.keys import redaction_key, stream_key
from deedbook.ledger.log.records import StreamRecord


class ReplayedEntry(msgspec.Struct, frozen=True):
    """The result of replaying one entry: its rule's refusal (None: it counts), and an error in its versions."""

    refused: Refused | None
    misplaced: Refused | None


class Replay:
    """Decides stored entries again, in the order of their indexes.

    ``source`` holds the state before the first of them. ``state`` is a layer above ``source`` with their changes. The
    other attributes are of the replayed entries: ``kinds`` counts them, and ``unread`` those of families without a
    usable package; ``created`` and ``ledger`` are of entry 0, and ``authority`` has the index, author and data of each
    event of authority. ``erased`` has the remnants by index, and ``redacted_ms`` the time of each ``entry.redacted``.
    With a ``clock``, times are compared, and a rule sees the clock's time; without one, the caller compares them.
    """

    def __init__(self, source: Base, clock: Clock | None = None) -> None:
        self._source = source
        self.start_layers()
        self._clock = clock
        self.kinds: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.created: LedgerCreated | None = None
        self.ledger: str | None = None
        self.authority: list[tuple[int, str, EventData]] = []
        self.signed_by: dict[bytes, array[int]] = {}
        self.erased: dict[int, FoundRemnant] = {}
        self.redacted_ms: dict[int, int] = {}

    def start_layers(self) -> None:
        """Begin an empty ``state``, after the source has taken over the last one."""
        self.state = Layer(self._source)
        # One layer is used for all entries, because it caches reads: a new layer for each took a tenth of a replay.
        self._layer = Layer(self.state)

    def step(self, index: int, entry: Entry, candidate: Candidate, *, has_time: bool = True) -> ReplayedEntry:
        """Decide the next entry again, and add its changes to ``state``.

        A refused entry changes nothing but is counted, because it is in the log. ``has_time`` is False if the entry is
        damaged, so that its time means nothing.
        """
        self.count(index, candidate.body, candidate.data)
        now_ms = entry.accepted_ms
        if self._clock is not None:
            if has_time:
                self._clock.check(index, now_ms, candidate.data)
            now_ms = self._clock.now
        layer, stream = self._layer, candidate.body.stream
        refused, misplaced = None, None
        layer.size = index
        try:
            check_alone(candidate.data, entry.batch_size)
            versions = apply(candidate, entry.key, layer, now_ms)
        except Refused as refusal:
            refused = refusal
            layer.forget()
            versions = count_refused(candidate, layer, index)
        try:
            check_versions(entry, stream, versions)
        except Refused as refusal:
            misplaced = refusal
            # so that a damaged entry is reported once, and not again for every later entry
            go_on_from(entry, stream, layer)
        if candidate.remnant is not None:
            self.find_erased(index, entry, candidate)
        if isinstance(candidate.data, EntryRedacted):
            self.redacted_ms[index] = entry.accepted_ms
        layer.merge_down()
        if refused is None:
            self.signed_by.setdefault(entry.key, array("Q")).append(index)
        return ReplayedEntry(refused, misplaced)

    def find_erased(self, index: int, entry: Entry, candidate: Candidate) -> None:
        """Note an entry whose body is erased: a later entry must name its remnant."""
        found = FoundRemnant(Erasure(candidate.id, digest_of(entry.body)), candidate.body.kind in AUTHORITY_KINDS)
        self.erased[index] = found
        record = self.state.record(redaction_key(index))
        # In a resumed audit, an event before its start may already have named this remnant.
        if record is None or record.done is None or not names(record.done, found):
            self._layer.put(redaction_key(index), replace(record or RedactionRecord(), found=found))
            self._layer.merge_down()

    def redactions(self) -> dict[int, RedactionRecord]:
        """Return the known redactions, by the index of the erased entry."""
        letter = redaction_key(0)[:1]
        records = self._source.records_of(letter) | self.state.records_of(letter)
        return {int.from_bytes(key[1:], "big"): record for key, record in sorted(records.items())}

    def kept(self) -> dict[int, SignedErasure]:
        """Return the redactions whose entries still have their bodies in this copy, by the index of the entry."""
        records = self.redactions().items()
        done = {index: record.done for index, record in records if record.done is not None and index not in self.erased}
        return {index: signed for index, signed in done.items() if self.is_accepted(index)}

    def is_accepted(self, index: int) -> bool:
        """Return whether the entry was replayed, and its rule accepted it."""
        found = ((bisect_left(indexes, index), indexes) for indexes in self.signed_by.values())
        return any(at < len(indexes) and indexes[at] == index for at, indexes in found)

    def unconfirmed(self) -> list[int]:
        """Return the indexes of the erased entries that no redaction names."""
        return [index for index, record in self.redactions().items() if record.found is not None]

    def count(self, index: int, body: Body, data: EventData) -> None:
        """Count an entry; ``step`` calls this."""
        self.kinds[body.kind] += 1
        if isinstance(data, UnreadData):
            self.unread[body.stream.partition("/")[0]] += 1
        if index == 0:
            self.ledger = body.ledger
            self.created = data if isinstance(data, LedgerCreated) else None
        if body.kind in AUTHORITY_KINDS:
            self.authority.append((index, body.author, data))

    def compromised(self) -> dict[int, int]:
        """Return the index of each compromised signature, in order, with that of the entry that reports its key."""
        key_of, compromised = self.state.key, dict[int, int]()
        for key, indexes in self.signed_by.items():
            # A key is compromised from some index on. So if its last signature is not compromised, none is.
            if compromised_at(key_of, key.hex(), indexes[-1]) is not None:
                reports = ((index, compromised_at(key_of, key.hex(), index)) for index in indexes)
                compromised |= {index: report for index, report in reports if report is not None}
        return dict(sorted(compromised.items()))


def unconfirmed_refusal(index: int) -> Refused:
    """Return the error for an erased entry that no redaction names."""
    message = f"the body of entry {index} is missing, and no later entry.redacted names its remnant"
    return Refused("VERIFICATION_FAILED", message, index=index)


def refusal_text(refusal: Refused, candidate: Candidate) -> str:
    """Return why an event is refused, with its kind, author and stream, for readers of the whole log."""
    body = candidate.body
    return f"{body.kind} by {body.author} on {body.stream}: {refusal.message}"


def read_entry(data: bytes, *, may_lack_family: bool = False) -> tuple[Entry, Candidate]:
    """Return an entry and the candidate that rules decide, as ``read_candidate``. Its signature is not verified.

    Raises Refused: the codes of its format and schema.
    """
    entry = decode_entry(data)
    return entry, read_candidate(entry, may_lack_family=may_lack_family)


def read_candidate(entry: Entry, commitment: bytes | None = None, *, may_lack_family: bool = False) -> Candidate:
    """Return the candidate in an entry. A caller that knows its ``commitment`` passes it, to save hashing the body.

    With ``may_lack_family``, an event whose family has no usable package is a candidate, too, with ``UnreadData``.

    Raises Refused: ``TOO_LARGE``, and the codes of its schema.
    """
    limit = remnant_size_max_bytes if is_remnant(entry.body) else body_size_max_bytes
    if len(entry.body) > limit:
        raise Refused("TOO_LARGE", f"the body has {len(entry.body)} bytes, and the limit is {limit}")
    stored = read_stored(entry.body, may_lack_family=may_lack_family)
    may_lack_rules = may_lack_family and stored.body.kind not in CORE_KINDS
    data = UnreadData() if may_lack_rules and _lacks_rules(stored.body.kind) else stored.data
    commitment = commitment or entry.commitment
    return Candidate(stored.body, data, commitment, event_id(commitment), stored.raw, remnant=stored.remnant)


def _lacks_rules(kind: str) -> bool:
    """Return whether the package of a kind's family is installed, but its rules cannot be used."""
    try:
        rule_of(kind)
    except Refused as refusal:
        if refusal.code in LACKS_FAMILY:
            return True
        raise
    return False


class MissingEntries(msgspec.Struct, frozen=True):
    """Entries of ``stream`` (None: of authority) that a part lacks.

    They are the entries with the versions ``first`` to ``last`` (None: to the end). ``shown_by`` is the index of the
    entry that shows the gap. Refusals from index ``since`` on may be due to it.
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


class PartialReplay(Replay):
    """Replays a part of a log. Feed it the entries in the order of their indexes, then call ``finish``.

    Two dicts map an index to the refusals of that entry: ``refused`` has definite errors; ``doubtful`` has refusals
    after a gap, whose missing entries may be the reason. ``missing`` is known after ``finish``.
    """

    def __init__(self) -> None:
        self.refused: defaultdict[int, list[Refused]] = defaultdict(list)
        self.notes: defaultdict[int, list[Refused]] = defaultdict(list)
        self._times = Clock(self._refuse, self._note)
        super().__init__(MemoryState(self._note_missing), self._times)
        self.doubtful: defaultdict[int, list[Refused]] = defaultdict(list)
        self.missing: list[MissingEntries] = []
        self._streams: set[str] = set()
        self._batches: dict[bytes, tuple[int, int]] = {}
        self._index = 0
        self._streams_read: dict[str, int] = {}

    def feed(self, index: int, data: bytes, batch_path: Sequence[bytes] = (), *, is_verified: bool = False) -> None:
        """Replay the next entry. ``is_verified``: the caller has verified its signature."""
        try:
            entry, candidate = read_entry(data, may_lack_family=True)
        except Refused as refusal:
            self.refused[index].append(refusal)
            return
        if not (is_verified or is_signed(entry, batch_path)):
            self._refuse(index, "SIGNATURE_INVALID", "its signature is not valid")
            return
        if entry.batch_size > 1:
            position = (index - entry.batch_index, entry.accepted_ms)
            if self._batches.setdefault(entry.sig, position) != position:
                message = "its time or its position differs from those of its batch"
                self._refuse(index, "VERIFICATION_FAILED", message)
        self._index = index
        if candidate.body.kind not in AUTHORITY_KINDS:
            self._streams.add(candidate.body.stream)
        self._count_gaps(index, candidate.body, entry)
        replayed = self.step(index, entry, candidate)
        if replayed.misplaced is not None:
            self.refused[index].append(replayed.misplaced)
        if replayed.refused is not None:
            code, message = replayed.refused.code, refusal_text(replayed.refused, candidate)
            self.doubtful[index].append(Refused(code, message))

    def finish(self, stream_versions: Mapping[str, int] | None = None, authority: int = 0, size: int = 0) -> None:
        """Complete the replay after the last entry.

        ``stream_versions`` are the signed versions of the streams, and ``authority`` that of authority, in a log of
        ``size`` entries. If the part has fewer entries, its last ones are missing. Without these versions, missing
        entries at the end are not found.
        """
        self._times.end()
        for stream, index in self._streams_read.items():
            if self.state.stream(stream) is None:
                self.missing.append(MissingEntries(stream, 1, None, index, index))
        if stream_versions is not None:
            self._compare_versions(dict[str | None, int](stream_versions) | {None: authority}, size)
        self.missing.sort(key=lambda gap: (gap.shown_by, gap.stream or ""))
        unsure_since = min((gap.since for gap in self.missing), default=None)
        for index in [index for index in self.doubtful if unsure_since is None or index < unsure_since]:
            self.refused[index] += self.doubtful.pop(index)
        is_authority_whole = all(gap.stream is not None for gap in self.missing)
        for index in self.unconfirmed():
            (self.refused if is_authority_whole else self.doubtful)[index].append(unconfirmed_refusal(index))

    def _refuse(self, index: int, code: str, message: str) -> None:
        self.refused[index].append(Refused(code, message))

    def _note(self, index: int, code: str, message: str) -> None:
        self.notes[index].append(Refused(code, message))

    def _note_missing(self, key: bytes) -> None:
        """Note a stream that the rules read and that has no entry so far, with the index of the first read."""
        if key[:1] == b"s":
            self._streams_read.setdefault(key[1:].decode(), self._index)

    def _count_gaps(self, index: int, body: Body, entry: Entry) -> None:
        """Note missing entries before this one, and count them, so that the later versions fit again."""
        record = self.state.stream(body.stream)
        if entry.stream_version > (0 if record is None else record.version) + 1:
            self._miss(body.stream, entry.stream_version - 1, index)
            counted = replace(record or StreamRecord(0, -1), version=entry.stream_version - 1)
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
