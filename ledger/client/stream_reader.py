"""Reading to act: one stream from its signed entries, checked by the reader, whoever handed them over.

What is demanded of whoever hands them over, what this cannot see, and what was refused, ``ledger/README.md`` says. What
a rule asks of other streams (was a dependency done when it was claimed?) and how often a session key was used are not
asked again here: that an audit replays.

Authority is checked once and kept: within a process by this object, and between them in a file beside the reader's
memory, bound to a head that the log must go on from. Each record is kept with the indexes since which it holds, so that
an old entry is judged by what was true then. The streams that were read last are kept in this object, too, as of that
head: who looks again checks what came since.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from deedbook.ledger.admission.check import Candidate
from deedbook.ledger.admission.replay import decide_again, read_entry
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.codec import UNREADABLE, encode_packed
from deedbook.ledger.format.envelope import Entry, decode_entry
from deedbook.ledger.format.merkle import leaf_hash, verify_inclusion
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import resolved
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, KeyRecord
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import CHECKPOINT_KEYS_KEY, agent_key, key_key
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.log.records import StreamRecord, StreamState
from deedbook.ledger.proof.checkpoint import NOTE_KEY, CheckpointVerifier, open_stream_heads, parse_vkey, verifiers_of
from deedbook.ledger.system.files import read_regular, replacing
from deedbook.ledger.trust.history import (
    ConsistencyProof,
    ProvenEntry,
    StreamRequest,
    TrustedHead,
    is_continued,
    root_digits_shown,
)

R = TypeVar("R")
authority_file_max_bytes: Final = 64 * 1024**2
streams_kept_max_bytes: Final = 32 * 1024**2
_kept_overhead_bytes: Final = 4096
_FORMAT: Final = 2
_DIGEST_SIZE: Final = 32
_AUTHORITY_RECORDS: Final = frozenset({b"a", b"k", b"c", b"n", b"v", b"t"})
# What a rule finds where it asks for another stream: one that stands in nobody's way.
_DONE: Final = StreamRecord(1, 0, HandoffState("", "", "", "verified", "", (), "completed", (), ()))


class IgnoredEntry(msgspec.Struct, frozen=True):
    """An entry that stands in the stream and counts for nothing, because no rule admits it."""

    index: int
    code: str
    message: str


class CheckedStream(msgspec.Struct, frozen=True):
    """A stream as of a head: (index, entry bytes) of its events that count, in order, and those that do not.

    ``state`` is where its events leave it, None where it has none; ``last_ms`` is the time of the head's last entry,
    and ``ends`` the signed note on how many the stream has.
    """

    name: str
    entries: list[tuple[int, bytes]]
    ignored: list[IgnoredEntry]
    state: StreamState | None
    head: TrustedHead
    last_ms: int
    ends: str = ""


class _Kept(msgspec.Struct, array_like=True):
    """The file of checked authority, after its digest: under which head, each event's index, every record's history."""

    format: int
    ledger: str
    head: TrustedHead
    indexes: list[int]
    records: dict[bytes, list[tuple[int, bytes]]]


class Authority:
    """Who could sign what, at any index that was checked so far."""

    def __init__(self, kept: _Kept) -> None:
        self.kept = kept

    @property
    def start(self) -> int:
        """The index from which on nothing is known yet."""
        return self.kept.indexes[-1] + 1 if self.kept.indexes else 0

    def count(self, index: int) -> int:
        """Return how many events of authority lie before an index."""
        return bisect_left(self.kept.indexes, index)

    def record(self, key: keys.Key[R], index: int) -> R | None:
        """Return the record under a state key as it was before the entry at ``index``, or None."""
        versions = self.kept.records.get(key, ())
        place = bisect_left(versions, index, key=lambda version: version[0])
        return cast("R", decode_record(key, versions[place - 1][1])) if place else None

    def agent(self, name: str, index: int) -> AgentRecord | None:
        """Return the record of an agent, as ``record``."""
        return self.record(agent_key(name), index)

    def key(self, public_key: str, index: int) -> KeyRecord | None:
        """Return the record of a signing key (hex), as ``record``."""
        return self.record(key_key(public_key), index)

    def take(self, index: int, records: dict[bytes, Any]) -> None:
        """Count one more event, which left these records."""
        self.kept.indexes.append(index)
        for key, record in records.items():
            if key[:1] in _AUTHORITY_RECORDS:
                self.kept.records.setdefault(key, []).append((index, encode_packed(record)))


class Before(Base):
    """The state before one entry: authority as it was then, and what was folded of its own stream."""

    def __init__(
        self, authority: Authority, size: int, ledger: str | None, own: tuple[str, int, Any, dict[str, int]]
    ) -> None:
        super().__init__()
        self.size, self.ledger, self.authority_version = size, ledger, authority.count(size)
        self._authority, (self._stream, self._version, self._life, self._ids) = authority, own

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None."""
        if key[:1] != b"s":
            return self._authority.record(key, self.size)
        if key[1:].decode() != self._stream:
            return _DONE
        return StreamRecord(self._version, 0, self._life) if self._version else None

    def index_of(self, _stream: str, event_id: str) -> int | None:
        """Return the index of an event of the stream, or None."""
        return self._ids.get(event_id)


class StreamReader:
    """Reads streams of one ledger to act on them; threads may share it."""

    def __init__(self, client: LogReads, file: Path | None, *, is_pinned: bool = False) -> None:
        """Keep checked authority in ``file`` (None: in this object alone); ``is_pinned``: the root key is known."""
        self.is_pinned = is_pinned
        self._client = client
        self._file = file
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}  # what was read to its end, each under a head that the kept one goes on from
        self.folds: dict[Any, Any] = {}  # what whoever shares this reader made of streams, for them to keep and bound
        self.authority = self._loaded()

    def read(self, stream: str, size: int | None = None) -> CheckedStream:
        """Return a stream as its signed entries give it; one without entries is empty.

        With ``size`` it is the stream in the log of so many entries: read and checked up to its present end all the
        same, because only of that is it proven that nothing is withheld.

        Raises Corrupted: ``VERIFICATION_FAILED``: what was handed over does not prove itself; ``HISTORY_CHANGED``.
        Unavailable: as ``Client.entries``.
        """
        with self._lock:
            before = len(self.authority.kept.indexes)
            try:
                checked = self._read(stream, size)
            except DeedbookError:
                self.authority, self._runs = self._loaded(), {}  # they may hold what was not proven to the end
                raise
            self.authority.kept.head = checked.head
            if len(self.authority.kept.indexes) != before:
                self._keep()
            return checked if size is None else self._before(checked, size)

    def _before(self, checked: CheckedStream, size: int) -> CheckedStream:
        """Return a stream as it was when the log had ``size`` entries, of which the log of now is proven to go on."""
        page = self._client.stream(StreamRequest(checked.name, start=size, authority_start=size, size=size))
        then, last = page.consistency_proof.head, page.last
        consistency_proof = self._client.consistency(size, checked.head.size)
        if (
            consistency_proof.root != checked.head.root
            or then.size != size
            or not is_continued(then, consistency_proof)
        ):
            raise unproven(f"the log of {checked.head.size} entries does not go on from the one of {size}", size=size)
        if last.index != size - 1 or not verify_inclusion(
            leaf_hash(last.data), last.index, size, last.path, bytes.fromhex(then.root)
        ):
            raise unproven(f"entry {last.index} is not the last of {size}", size=size)
        entries = [(index, data) for index, data in checked.entries if index < size]
        ignored = [one for one in checked.ignored if one.index < size]
        last_ms = decode_entry(last.data).accepted_ms
        return replace(checked, entries=entries, ignored=ignored, head=then, last_ms=last_ms, ends="")

    def _read(self, stream: str, size: int | None) -> CheckedStream:
        authority, known = self.authority, self.authority.kept.head
        before = self._runs.pop(stream, None) if size is None else None
        start = before.head.size if before else 0
        asked = StreamRequest(stream, start=start, authority_start=authority.start, known_size=known.size)
        page = self._client.stream(asked)
        if known.size and not is_continued(known, replace(page.consistency_proof, path=page.known_path)):
            # What was kept is of a past that was given up, or of another copy: begin with entry 0.
            self.authority, self._runs = self._nobody(), {}
            return self._read(stream, size)
        run = (
            before.on(page.consistency_proof)
            if before
            else _Run(self._client.ledger, stream, authority, page.consistency_proof, size)
        )
        ends = page.ends
        while True:
            for proven in page.entries:
                run.take(proven)
            if page.next_index is None or not page.entries:  # whoever hands over nothing more is asked no more
                break
            start = page.next_index
            page = self._client.stream(
                replace(asked, start=start, authority_start=start, size=page.consistency_proof.size)
            )
        last_ms = run.end(page.last)
        if learnt := self._client.trust_store.checkpoint_keys:  # whoever reads over the bus has learnt them
            # Which of them count at this head, what was checked says: a node that was removed since is none of them.
            keys = authority.record(CHECKPOINT_KEYS_KEY, run.head.size) or CheckpointKeys()
            run.compare(ends, verifiers_of(parse_vkey(next(iter(learnt)), NOTE_KEY)[0], keys.at(run.head.size)))
        if size is None:
            self._runs[stream] = run
        while sum(one.kept_bytes for one in self._runs.values()) > streams_kept_max_bytes:
            del self._runs[next(iter(self._runs))]  # what was read longest ago
        return CheckedStream(stream, run.entries, run.ignored, run.then, run.head, last_ms, ends)

    def _nobody(self) -> Authority:
        return Authority(_Kept(_FORMAT, self._client.ledger, TrustedHead(0, ""), [], {}))

    def _loaded(self) -> Authority:
        """Return what the file keeps; nothing when it is not there, or not as it was written."""
        try:
            content = self._file and read_regular(self._file, size_max_bytes=authority_file_max_bytes, is_own=True)
            digest, packed = (content or b"")[:_DIGEST_SIZE], (content or b"")[_DIGEST_SIZE:]
            if digest != sha256(packed).digest():  # else the ledger would be blamed for one damaged bit in it
                return self._nobody()
            kept = msgspec.msgpack.decode(packed, type=_Kept)
        except (DeedbookError, *UNREADABLE):
            return self._nobody()
        return Authority(kept) if (kept.format, kept.ledger) == (_FORMAT, self._client.ledger) else self._nobody()

    def _keep(self) -> None:
        """Write the file; if we crash before it is replaced, the older one counts, and only the rest is checked."""
        if self._file is None:
            return
        try:
            with replacing(self._file, is_durable=False) as file:
                packed = msgspec.msgpack.encode(self.authority.kept)
                file.write(sha256(packed).digest() + packed)
        except OSError:
            self._file = None  # it saves time, and nothing rests on it


class _Run:
    """One reading of a stream under one head."""

    def __init__(
        self, ledger: str, stream: str, authority: Authority, consistency_proof: ConsistencyProof, size: int | None
    ) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.ignored: list[IgnoredEntry] = []
        self.kept_bytes = _kept_overhead_bytes
        self.state: StreamState | None = None
        self.then: StreamState | None = None  # as it was in the log of ``size`` entries
        self._size = consistency_proof.size if size is None else size
        self.head = consistency_proof.head
        self.ledger = ledger
        self._stream = stream
        self._authority = authority
        self._version = 0
        self._ids: dict[str, int] = {}
        self._last = -1

    def on(self, consistency_proof: ConsistencyProof) -> _Run:
        """Return the reading that goes on with what the log has since; this one stays as it is."""
        run = copy(self)
        run.entries, run.ignored, run._ids = [*self.entries], [*self.ignored], {**self._ids}  # noqa: SLF001 - its own
        run.head, run._size = consistency_proof.head, consistency_proof.size  # noqa: SLF001 - as above
        return run

    def take(self, proven: ProvenEntry) -> None:
        index = proven.index
        entry, candidate = self._entry(proven)
        body = candidate.body
        is_own, is_authority = body.stream == self._stream, body.kind in AUTHORITY_KINDS
        if index <= self._last or not (is_own or is_authority):
            raise unproven(f"entry {index} was not asked for", index=index)
        if not is_signed(entry, proven.batch_path):
            raise unproven(f"the signature of entry {index} does not fit", index=index)
        self._last = index
        counted = (self._version, self.state, self._ids) if is_own else (entry.stream_version - 1, None, {})
        own = body.stream, *counted
        state = Layer(Before(self._authority, index, self.ledger if index else None, own))
        judged = decide_again(index, candidate, entry, Layer(state), entry.accepted_ms)
        if judged.misplaced is not None:
            raise unproven(f"entry {index}: {judged.misplaced.message}: one before it was left out", index=index)
        if index == 0 and (judged.event is None or state.ledger != self.ledger):
            # The rule has compared the id that it names with the root key that signed it.
            raise unproven(f"its first entry is that of the ledger {body.ledger}, not of {self.ledger}", index=0)
        if is_authority and index >= self._authority.start:
            self._authority.take(index, state.records)
        if not is_own:
            return
        self._version += 1
        if judged.refused is not None:
            self.ignored.append(IgnoredEntry(index, judged.refused.code, judged.refused.message))
            return
        record = state.stream(body.stream)
        self.state = None if record is None else record.state
        self.then = self.state if index < self._size else self.then
        self._ids[candidate.id] = index
        self.entries.append((index, proven.data))
        self.kept_bytes += len(proven.data)

    def end(self, last: ProvenEntry) -> int:
        """Compare how much authority was read with how much there is at the log's end; return the last entry's time."""
        entry, _ = self._entry(last)
        there_are = entry.authority_version if last.index == self.head.size - 1 else -1
        read = len(self._authority.kept.indexes)
        if there_are != read:
            raise unproven(f"{read} of {there_are} entries of authority were handed over", size=self.head.size)
        return entry.accepted_ms

    def compare(self, note: str, verifiers: list[CheckpointVerifier]) -> None:
        """Compare how much of the stream was read with how much a key of the ledger has signed for."""
        try:
            ends = open_stream_heads(note, *verifiers)
        except DeedbookError as error:
            raise unproven(f"its key has not signed where {self._stream} ends ({error.message})") from error
        signed = ends.streams.get(self._stream)
        if (ends.size, ends.root, signed) != (self.head.size, self.head.root, self._version):
            what = f"{self._version} of {signed} entries of {self._stream} were handed over"
            raise unproven(f"{what}, by what its key has signed of {ends.size} entries", size=ends.size, note=note)

    def _entry(self, proven: ProvenEntry) -> tuple[Entry, Candidate]:
        index, root = proven.index, bytes.fromhex(self.head.root)
        if not verify_inclusion(leaf_hash(proven.data), index, self.head.size, proven.path, root):
            raise unproven(f"entry {index} is not in the tree of the ledger's head", index=index)
        try:
            return read_entry(proven.data)
        except Refused as refusal:
            raise unproven(f"entry {index} cannot be read: {refusal.message}", index=index) from refusal


def pinned_root(home: Path, ledger: str) -> str | None:
    """Return the fingerprint that this user pinned for the ledger in, or behind, a folder; else it vouches for itself.

    Raises Corrupted: ``VERIFICATION_FAILED`` when another root was pinned there.
    """
    try:
        record = trust.find_record(resolved(home))
    except DeedbookError:
        return None
    if record is None:
        return None
    if not trust.is_same_root(record.root, ledger):
        given = trust.quoted_path(home)
        pinned = record.root[:root_digits_shown]
        message = f"the ledger {ledger} is not the one whose root is pinned for {given}, {pinned}…: \
ask whoever runs it for its root fingerprint, and say `deed trust --root FINGERPRINT --home {given}` if it is right"
        raise Corrupted("VERIFICATION_FAILED", message, ledger=ledger, root=record.root)
    return record.root if len(record.root) > len(ledger) else None  # a shorter one: what the folder said at first


def unproven(what: str, **details: Any) -> Corrupted:
    """Return the error for what a node handed over and does not prove itself: nothing is shown, nothing signed."""
    message = f"what the ledger hands over does not prove itself: {what}. Nothing of it is believed: `deed verify` \
beside the ledger says what is wrong there"
    return Corrupted("VERIFICATION_FAILED", message, **details)
