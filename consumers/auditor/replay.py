"""Replays a log: checks the canonical form of every entry, every signature, and the rules that the gate applied.

A replay does not stop at a problem. An entry that cannot be decoded is missing from the state. Rule violations after it
are therefore notes, not problems: otherwise honest entries would be blamed. A refused event does not change the
replayed state, as at the gate. Checks that need more than the log (secret patterns) are not replayed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from deedbook.consumers.auditor.cache import CachedReplay
from deedbook.consumers.auditor.report import ReplayOutcome
from deedbook.consumers.auditor.signatures import Batches, Signatures
from deedbook.ledger.admission.candidate import Candidate
from deedbook.ledger.admission.clock import Clock
from deedbook.ledger.admission.replay import Replay, read_candidate, read_entry, refusal_text, unconfirmed_refusal
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import MemoryState
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import EntryRedacted, KeyCompromised
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, decode_entry, entry_leaf, is_remnant, split_entry
from deedbook.ledger.format.merkle import EMPTY_ROOT, Frontier, leaf_hash
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log import keys

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import Findings

_ID_BYTES: Final = 32


class LogReplay(Replay):
    """One pass over a log. Feed it all entries in order, then call ``finish``.

    ``roots_at`` are the tree sizes for which ``roots`` is filled. ``observe`` is called with the index and the decoded
    body of every entry that can be decoded. ``size`` is the number of entries so far; ``frontier`` is the frontier of
    their tree, None after an entry that could not be read. ``memory`` is the state after the last call of ``feed``.
    ``blobs`` has the blobs that entries need, each with the index of the first such entry.
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
        self.memory = MemoryState()
        self._times = Clock(findings.problem, findings.note)
        super().__init__(self.memory, self._times)
        self.roots = {0: EMPTY_ROOT}
        self.lost_from: int | None = None
        self.blobs: dict[str, int] = {}
        self._findings = findings
        self._verified_before = 0
        self._signatures = Signatures(findings, expected_events)
        self._batches = Batches(findings, self._signatures)
        self.frontier: Frontier | None = Frontier.empty()
        self._roots_at = frozenset(roots_at)
        self._observe = observe
        self._version = 0
        self._erased_since: dict[int, tuple[Entry, Candidate]] = {}
        self.size = 0

    @property
    def outcome(self) -> ReplayOutcome:
        """The data of a report; complete after ``finish``."""
        root = None if self.frontier is None else self.frontier.root()
        suspects = [*self.compromised()]
        return ReplayOutcome(self, self.size, root, self.roots, self.lost_from, self.verified, suspects)

    @property
    def verified(self) -> int:
        """The number of events whose signature was verified; complete after ``finish``."""
        return self._verified_before + self._signatures.verified

    @property
    def clock_ms(self) -> int:
        """The time of the last entry."""
        return self._times.now

    def needed_blobs(self) -> dict[str, int]:
        """Return the blobs that entries need, each with the index of the first such entry, without erased ones."""
        erased = erased_blobs(self.redactions().values())
        return {ref: index for ref, index in self.blobs.items() if ref not in erased}

    def feed(self, entries: Sequence[bytes | None], *, damaged: Collection[int] = ()) -> None:
        """Replay the next entries; an entry is None if it could not be read (the caller reports it)."""
        leaves: list[bytes] = []
        for index, data in enumerate(entries, self.size):
            if data is None:
                self._lose(index)
                self.frontier = None
            else:
                leaves.append(self._replay(index, data, has_time=index not in damaged))
        self.memory.take(self.state)
        self.start_layers()
        self._extend_tree(leaves, len(entries))

    def to_cache(self) -> CachedReplay | None:
        """Wait for all signatures; return the state from which the next audit resumes.

        None if there is a problem, or a family that this audit could not check.
        """
        self._signatures.wait()
        mark, findings, frontier, memory = self._times.mark(), self._findings, self.frontier, self.memory
        is_whole, open_at = len(memory.indexes) == self.size, self._batches.open_at
        if (
            mark is None
            or frontier is None
            or self.ledger is None
            or findings.problems_total
            or self.unread
            or not is_whole
        ):
            return None
        return CachedReplay(
            ledger=self.ledger,
            size=self.size,
            root=frontier.root(),
            version=self._version,
            authority_version=memory.authority_version,
            authority=[index for index, _, _ in self.authority],
            batch_at=self.size if open_at is None else open_at,
            clock=mark,
            kinds=self.kinds,
            verified=self.verified,
            notes=findings.notes,
            notes_total=findings.notes_total,
            records=memory.packed,
            ids=b"".join(memory.indexes),
            streams=memory.streams.tobytes(),
            signed_by={key: indexes.tobytes() for key, indexes in self.signed_by.items()},
            blobs=self.blobs,
        )

    def rehash(self, entries: Sequence[bytes]) -> None:
        """Add the next entries to the tree only, because an earlier audit verified them; ``resume`` follows.

        The tree holds the commitment of an erased entry, so erased entries must be passed, too.
        """
        for index, data in enumerate(entries, self.size):
            parts = split_entry(data)
            if parts is not None and is_remnant(parts[0]):
                self._note_erased(index, data)
        self._extend_tree([entry_leaf(data) for data in entries], len(entries))

    def resume(self, cached: CachedReplay, reread: Mapping[int, bytes]) -> None:
        """Continue after entries whose rehashed root matched; ``reread`` has those of ``cached.reread_indexes``."""
        for index in cached.authority:
            entry = decode_entry(reread[index])
            try:
                stored = read_stored(entry.body)
            except Refused:
                continue  # ``rehash`` has reported it
            self.count(index, stored.body, stored.data)
            if isinstance(stored.data, EntryRedacted):
                self.redacted_ms[index] = entry.accepted_ms
        for index in range(cached.batch_at, cached.size):
            entry = decode_entry(reread[index])
            self._batches.add(index, entry, entry.commitment)
        memory, self.kinds = self.memory, Counter(cached.kinds)
        memory.ledger, memory.authority_version = cached.ledger, cached.authority_version
        memory.packed = cached.records
        for index, at in enumerate(range(0, len(cached.ids), _ID_BYTES)):
            memory.indexes[cached.ids[at : at + _ID_BYTES]] = index
        memory.streams = array("Q", cached.streams)
        self.start_layers()
        self.signed_by = {key: array("Q", indexes) for key, indexes in cached.signed_by.items()}
        for index, (entry, candidate) in self._erased_since.items():
            self._check_same(index, entry, candidate, is_of_authority=index in cached.authority)
            self.find_erased(index, entry, candidate)
        self._times.go_on(cached.clock, cached.size - 1)
        self._version, self._verified_before, self.blobs = cached.version, cached.verified, cached.blobs
        self._findings.notes, self._findings.notes_total = [*cached.notes], cached.notes_total

    def _note_erased(self, index: int, data: bytes) -> None:
        try:
            entry, candidate = read_entry(data, may_lack_family=True)
        except Refused as refusal:
            self._findings.problem(index, refusal.code, refusal.message)
            return
        if candidate.remnant is not None:
            self._erased_since[index] = (entry, candidate)

    def _check_same(self, index: int, entry: Entry, candidate: Candidate, *, is_of_authority: bool) -> None:
        """Report a remnant with another event than an earlier audit verified; a full replay would report it, too."""
        body, key = candidate.body, self.state.key(entry.key.hex())
        is_same = self.memory.index_of(body.stream, candidate.id) == index
        is_same = is_same and (body.kind in AUTHORITY_KINDS) == is_of_authority
        if not is_same or key is None or key.agent != body.author:
            message = "its remnant is of another event than the one that an earlier audit verified"
            self._findings.problem(index, "VERIFICATION_FAILED", message)

    def finish(self) -> None:
        """Wait for all signatures; then the report is complete."""
        self._batches.end()
        self._times.end()
        self._signatures.close()
        for index in self.unconfirmed():
            refusal = unconfirmed_refusal(index)
            self._report(index, refusal.code, refusal.message)
        if self.lost_from is not None:
            message = f"entry {self.lost_from} is lost: rule violations after it are only notes"
            self._findings.note(self.lost_from, "VERIFICATION_FAILED", message)

    def stop(self) -> None:
        """Stop the workers after an error."""
        self._signatures.stop()

    def _extend_tree(self, leaves: list[bytes], count: int) -> None:
        """Add the next ``count`` entries to the tree; there are fewer ``leaves`` if some are lost."""
        start, self.size = self.size, self.size + count
        if self.frontier is not None:
            for wanted in sorted(size for size in self._roots_at if start < size <= self.size):
                self.roots[wanted] = self.frontier.extend(leaves[: wanted - start]).root()
            self.frontier = self.frontier.extend(leaves)

    def _lose(self, index: int) -> None:
        self._batches.lose(index)
        self.lost_from = index if self.lost_from is None else self.lost_from

    def _replay(self, index: int, data: bytes, *, has_time: bool) -> bytes:
        """Replay an entry and return its leaf hash, as ``envelope.entry_leaf`` computes it."""
        try:
            entry = decode_entry(data)
        except Refused as refusal:
            self._findings.problem(index, refusal.code, refusal.message)
            self._lose(index)
            return leaf_hash(data)
        commitment = entry.commitment
        if entry.version < self._version:
            self._findings.problem(index, "UNSUPPORTED_VERSION", "it has a lower version than the entry before it")
        self._version = entry.version
        self._batches.add(index, entry, commitment)
        try:
            candidate = read_candidate(entry, commitment, may_lack_family=True)
        except Refused as refusal:
            self._findings.problem(index, refusal.code, refusal.message)
            self.lost_from = index if self.lost_from is None else self.lost_from
            if has_time:
                self._times.check(index, entry.accepted_ms)
        else:
            self._decide(index, candidate, entry, has_time=has_time)
        return entry.leaf(commitment)

    def _decide(self, index: int, candidate: Candidate, entry: Entry, *, has_time: bool) -> None:
        body, memory = candidate.body, self.memory
        for cause in body.causes:
            if cause.startswith("event:") and not memory.knows(cause):
                self._findings.note(index, "NOT_FOUND", f"it names the cause {cause}, which is not an earlier entry")
        replayed = self.step(index, entry, candidate, has_time=has_time)
        if replayed.refused is not None:
            refusal = replayed.refused
            self._report(index, refusal.code, refusal_text(refusal, candidate))
            memory.packed[keys.skipped_key(index)] = encode_packed(refusal.code)
        elif isinstance(candidate.data, KeyCompromised):
            since = candidate.data.since
            message = f"a key of {body.stream} is compromised: its signatures since entry {since} cannot be trusted"
            self._findings.note(index, "KEY_REVOKED", message)
        if replayed.misplaced is not None:
            self._report(index, replayed.misplaced.code, replayed.misplaced.message)
        memory.remember(candidate.commitment, body.stream, index)
        for ref in blobs_of(candidate.data, candidate.raw):
            self.blobs.setdefault(ref, index)
        if self._observe is not None:
            self._observe(index, candidate)

    def _report(self, index: int, code: str, message: str) -> None:
        """Report a rule violation; only as a note if an earlier entry is lost."""
        (self._findings.problem if self.lost_from is None else self._findings.note)(index, code, message)
