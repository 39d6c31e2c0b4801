"""Replays a log: checks the canonical form of every entry, every signature, and the rules that the gate applied.

A replay does not stop at a problem. An entry that cannot be decoded is missing from the state. Rule violations after it
are therefore notes, not problems: otherwise honest entries would be blamed. A refused event does not change the
replayed state, as at the gate. Checks that need more than the log (secret patterns) are not replayed.

The state stays small over millions of events: a record is stored as the log's own bytes and decoded only in a cache of
bounded size, an id takes 32 bytes, and its stream 8. (As objects and text they took some 600 bytes an event.)
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from deedbook.consumers.auditor.cache import CachedReplay
from deedbook.consumers.auditor.report import ReplayOutcome
from deedbook.consumers.auditor.signatures import Batches, Signatures
from deedbook.ledger.admission.check import Candidate
from deedbook.ledger.admission.clock import Clock
from deedbook.ledger.admission.replay import decide_again, read_candidate
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyCompromised, LedgerCreated
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, decode_entry, pae
from deedbook.ledger.format.merkle import Frontier, leaf_hash
from deedbook.ledger.lifecycle.authority import CheckpointKeys, compromised_at
from deedbook.ledger.log import keys
from deedbook.ledger.log.record_codec import decode_record

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import Findings
    from deedbook.ledger.events.body import Body
    from deedbook.ledger.events.fields import EventData

records_decoded_max: Final = 50_000
_ID_BYTES: Final = 32


class Replay:
    """One pass over a log. Feed it all entries in order, then call ``finish``.

    ``roots_at`` are the tree sizes for which ``roots`` is filled. ``observe`` is called with the index and the decoded
    body of every entry that can be decoded. ``size`` is the number of entries so far; ``frontier`` is the frontier of
    their tree, None after an entry that could not be read.
    """

    def __init__(
        self,
        findings: Findings,
        expected_events: int,
        *,
        roots_at: Collection[int] = (),
        observe: Callable[[int, Candidate], None] | None = None,
    ) -> None:
        """Report into ``findings``; ``expected_events`` decides whether worker processes verify signatures."""
        self.state = PackedState()
        self.kinds: Counter[str] = Counter()
        self.created: LedgerCreated | None = None
        self.ledger: str | None = None
        self.authority: list[tuple[int, str, EventData]] = []
        self.roots: dict[int, bytes] = {}
        self.lost_from: int | None = None
        self.compromised_signatures: list[int] = []
        self._signed_by: dict[bytes, array[int]] = {}
        self._findings = findings
        self._verified_before = 0
        self._signatures = Signatures(findings, expected_events)
        self._batches = Batches(findings)
        self._clock = Clock(findings.problem, findings.note)
        self.frontier: Frontier | None = Frontier.empty()
        self._roots_at = frozenset(roots_at)
        self._observe = observe
        self._version = 0
        self.size = 0
        self._mark_root()

    @property
    def outcome(self) -> ReplayOutcome:
        """The data of a report; complete after ``finish``."""
        return ReplayOutcome(
            size=self.size,
            roots=self.roots,
            frontier=self.frontier,
            kinds=self.kinds,
            created=self.created,
            ledger=self.ledger,
            authority=self.authority,
            checkpoint_keys=self.checkpoint_keys,
            lost_from=self.lost_from,
            verified=self.verified,
            compromised_signatures=self.compromised_signatures,
        )

    @property
    def verified(self) -> int:
        """The number of events whose signature was verified; complete after ``finish``."""
        return self._verified_before + self._signatures.verified + self._batches.verified

    @property
    def checkpoint_keys(self) -> CheckpointKeys:
        """The keys that may sign checkpoints, according to the accepted events."""
        return Layer(self.state).checkpoint_keys()

    @property
    def clock_ms(self) -> int:
        """The time of the last entry."""
        return self._clock.now

    def feed(self, entries: Sequence[bytes | None], *, damaged: Collection[int] = ()) -> None:
        """Replay the next entries; None stands for an entry that could not be read (the caller reports it)."""
        chunk = Layer(self.state)
        layer = Layer(chunk)
        leaves: list[bytes] = []
        for index, data in enumerate(entries, self.size):
            if data is None:
                self._lose(index)
                self.frontier = None
            else:
                leaves.append(leaf_hash(data))
                self._replay(index, data, layer, is_damaged=index in damaged)
            chunk.size = index + 1
        self.state.take(chunk)
        self._extend_tree(leaves)
        self.size += len(entries)
        self._mark_root()

    def to_cache(self) -> CachedReplay | None:
        """Wait for all signatures; return the state from which the next audit resumes, None if there is a problem."""
        self._signatures.wait()
        mark, findings, frontier = self._clock.mark(), self._findings, self.frontier
        is_whole, open_at = len(self.state.indexes) == self.size, self._batches.open_at
        if mark is None or frontier is None or self.ledger is None or findings.problems_total or not is_whole:
            return None
        return CachedReplay(
            ledger=self.ledger,
            size=self.size,
            root=frontier.root(),
            version=self._version,
            authority_version=self.state.authority_version,
            authority=[index for index, _, _ in self.authority],
            batch_at=self.size if open_at is None else open_at,
            clock=mark,
            kinds=self.kinds,
            verified=self.verified,
            notes=findings.notes,
            notes_total=findings.notes_total,
            records=self.state.packed,
            ids=b"".join(self.state.indexes),
            streams=self.state.streams.tobytes(),
            signed_by={key: indexes.tobytes() for key, indexes in self._signed_by.items()},
        )

    def rehash(self, entries: Sequence[bytes]) -> None:
        """Add the next entries to the tree only, because an earlier audit verified them; ``resume`` follows."""
        self._extend_tree([leaf_hash(data) for data in entries])
        self.size += len(entries)
        self._mark_root()

    def resume(self, cached: CachedReplay, reread: Mapping[int, bytes]) -> None:
        """Continue after entries whose rehashed root matched; ``reread`` has those of ``cached.reread_indexes``."""
        for index in cached.authority:
            self._count(index, *decode_body(decode_entry(reread[index]).body))
        for index in range(cached.batch_at, cached.size):
            entry = decode_entry(reread[index])
            self._batches.add(index, entry, pae(entry.body))
        state, self.kinds = self.state, Counter(cached.kinds)
        state.size, state.ledger, state.authority_version = cached.size, cached.ledger, cached.authority_version
        state.packed = cached.records
        for index, at in enumerate(range(0, len(cached.ids), _ID_BYTES)):
            state.indexes[cached.ids[at : at + _ID_BYTES]] = index
        state.streams = array("Q", cached.streams)
        self._signed_by = {key: array("Q", indexes) for key, indexes in cached.signed_by.items()}
        self._clock.go_on(cached.clock, cached.size - 1)
        self._version, self._verified_before = cached.version, cached.verified
        self._findings.notes, self._findings.notes_total = [*cached.notes], cached.notes_total

    def finish(self) -> None:
        """Wait for all signatures; then the report is complete."""
        self._batches.end()
        self._clock.end()
        self._signatures.close()
        self.compromised_signatures = sorted(self._compromised_signatures())
        if self.lost_from is not None:
            message = f"entry {self.lost_from} is lost: rule violations after it are only notes"
            self._findings.note(self.lost_from, "VERIFICATION_FAILED", message)

    def _compromised_signatures(self) -> Iterator[int]:
        state = Layer(self.state)
        for key, indexes in self._signed_by.items():
            # A key in doubt is in doubt from some index on, so the last one tells whether to look at the others.
            if compromised_at(state.key, key.hex(), indexes[-1]) is not None:
                yield from (index for index in indexes if compromised_at(state.key, key.hex(), index) is not None)

    def stop(self) -> None:
        """Stop the workers after an error."""
        self._signatures.stop()

    def _extend_tree(self, leaves: list[bytes]) -> None:
        start = self.size
        for wanted in sorted(size for size in self._roots_at if start < size < start + len(leaves)):
            if self.frontier is not None:
                self.roots[wanted] = self.frontier.extend(leaves[: wanted - start]).root()
        if self.frontier is not None:
            self.frontier = self.frontier.extend(leaves)

    def _mark_root(self) -> None:
        if self.frontier is not None and self.size in self._roots_at:
            self.roots[self.size] = self.frontier.root()

    def _lose(self, index: int) -> None:
        self._batches.lose(index)
        self.lost_from = index if self.lost_from is None else self.lost_from

    def _replay(self, index: int, data: bytes, layer: Layer, *, is_damaged: bool) -> None:
        try:
            entry = decode_entry(data)
        except Refused as refusal:
            self._findings.problem(index, refusal.code, refusal.message)
            self._lose(index)
            return
        if entry.version < self._version:
            self._findings.problem(index, "UNSUPPORTED_VERSION", "it has a lower version than the entry before it")
        self._version = entry.version
        signed = pae(entry.body)
        if entry.batch_size > 1:
            self._batches.add(index, entry, signed)
        else:
            self._batches.end()
            self._signatures.add(index, entry.key, signed, entry.sig)
        try:
            candidate = read_candidate(entry)
        except Refused as refusal:
            self._findings.problem(index, refusal.code, refusal.message)
            self.lost_from = index if self.lost_from is None else self.lost_from
            if not is_damaged:
                self._clock.check(index, entry.accepted_ms)
            return
        if not is_damaged:
            self._clock.check(index, entry.accepted_ms, candidate.data)
        self._decide(index, candidate, entry, layer)

    def _decide(self, index: int, candidate: Candidate, entry: Entry, layer: Layer) -> None:
        body = candidate.body
        self._count(index, body, candidate.data)
        for cause in body.causes:
            if cause.startswith("blake3:") and not self.state.knows(cause):
                self._findings.note(index, "NOT_FOUND", f"it names the cause {cause}, which is not an earlier entry")
        decision = decide_again(index, candidate, entry, layer, self._clock.now)
        if decision.refused is not None:
            refusal = decision.refused
            self._report(index, refusal.code, f"{body.kind} on {body.stream}: {refusal.message}")
            self.state.packed[keys.skipped_key(index)] = encode_packed(refusal.code)
        elif isinstance(candidate.data, KeyCompromised):
            since = candidate.data.since
            message = f"a key of {body.stream} is compromised: its signatures since entry {since} cannot be trusted"
            self._findings.note(index, "KEY_REVOKED", message)
        if decision.event is not None:
            self._signed_by.setdefault(entry.key, array("Q")).append(index)
        if decision.misplaced is not None:
            self._report(index, decision.misplaced.code, decision.misplaced.message)
        self.state.remember(candidate.id, body.stream, index)
        if self._observe is not None:
            self._observe(index, candidate)

    def _count(self, index: int, body: Body, data: EventData) -> None:
        self.kinds[body.kind] += 1
        if index == 0:
            self.ledger = body.ledger
            self.created = data if isinstance(data, LedgerCreated) else None
        if body.kind in AUTHORITY_KINDS:
            self.authority.append((index, body.author, data))

    def _report(self, index: int, code: str, message: str) -> None:
        """Report a rule violation; only as a note if an earlier entry is lost."""
        (self._findings.problem if self.lost_from is None else self._findings.note)(index, code, message)


class PackedState(Base):
    """The state after a replay, as packed bytes.

    ``indexes`` are the indexes of events by id; ``streams`` are the digests of the events' streams by index, 0 for an
    entry that could not be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packed: dict[bytes, bytes] = {}
        self.indexes: dict[bytes, int] = {}
        self.streams: array[int] = array("Q")
        self._decoded: dict[bytes, Any] = {}

    def record(self, key: bytes) -> Any:
        """Return the record under a state key, or None."""
        record = self._decoded.get(key)
        if record is None and (data := self.packed.get(key)) is not None:
            record = self._decoded[key] = decode_record(key, data)
        return record

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        index = self.indexes.get(bytes.fromhex(event_id[7:]))
        return index if index is not None and self.streams[index] == _short_digest(stream) else None

    def take(self, layer: Layer) -> None:
        """Take over the records of ``layer``; ids are recorded one by one with ``remember``."""
        for key, record in layer.records.items():
            self.packed[key] = encode_packed(record)
        if len(self._decoded) > records_decoded_max:
            self._decoded = {}
        self._decoded |= layer.records
        self.size = layer.size
        self.ledger = layer.ledger
        self.authority_version = layer.authority_version

    def remember(self, event_id: str, stream: str, index: int) -> None:
        """Record the id and the stream of the event at ``index``; the first index of an id counts."""
        self.indexes.setdefault(bytes.fromhex(event_id[7:]), index)
        self.streams.extend([0] * (index - len(self.streams)))
        self.streams.append(_short_digest(stream))

    def knows(self, ref: str) -> bool:
        """Return whether ``ref`` is the id of an event seen so far."""
        return bytes.fromhex(ref[7:]) in self.indexes


def _short_digest(stream: str) -> int:
    return int.from_bytes(keys.stream_digest(stream)[:8], "big")
