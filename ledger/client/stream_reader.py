"""Reads one stream for callers that act on it. The reader checks every signed entry itself and trusts no node.

``ledger/README.md`` says what a node must prove, what this check cannot detect, and which designs were refused. The
reader does not check what a rule reads from other streams (was a dependency done when the handoff was claimed?), nor
how often a session key was used. An audit replays these.

The reader checks each entry of authority once. It caches the result in this object, and in a file beside the trust
store for other processes. With the result it stores the head of the log that it had read. Before the reader uses the
result again, the node must prove that its log continues this head. Each record of authority is stored with the index
from which it is valid, so that an old entry is checked against the authority of its time. The object also caches the
streams that it read last, each with its head, and checks only newer entries when it reads them again.

If the body of a cached entry is erased later, it must not stay in a cache. After such a redaction, the reader deletes
the whole cache, with the file, and reads again. If a node then still sends the body, the error names the node.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from deedbook.ledger.admission.candidate import Candidate
from deedbook.ledger.admission.replay import Replay, read_entry
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import MemoryState
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.events.remnant import LACKS_FAMILY, digest_of
from deedbook.ledger.format.codec import UNREADABLE, encode_packed, read_msgpack
from deedbook.ledger.format.envelope import Entry, decode_entry, entry_leaf
from deedbook.ledger.format.merkle import verify_inclusion
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import resolved
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, KeyRecord
from deedbook.ledger.lifecycle.gate_state import GateState
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.redaction import Erasure, SignedErasure
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import CHECKPOINT_KEYS_KEY, GATE_STATE_KEY, agent_key, key_key, redaction_key
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
streams_cached_max_bytes: Final = 8 * 1024**2
_cached_overhead_bytes: Final = 4096
_FORMAT: Final = 6
_DIGEST_SIZE: Final = 32
_AUTHORITY_RECORDS: Final = frozenset({b"a", b"k", b"c", b"g", b"n", b"v", b"r", b"u", b"y"})
_ABSENT: Final = Erasure("", "")
# Every other stream that a rule reads is assumed to have this state, which blocks nothing.
_DONE: Final = StreamRecord(1, 0, HandoffState("", "", "", "verified", "", (), "completed", (), ()))


class IgnoredEntry(msgspec.Struct, frozen=True):
    """An entry of a stream that has no effect, because the rules refuse it. ``code`` and ``message`` say why."""

    index: int
    code: str
    message: str


class CheckedStream(msgspec.Struct, frozen=True):
    """A stream as of ``head``: (index, entry bytes) of its valid entries, in order, and the ignored entries.

    ``state`` is the state after the valid entries, or None if there are none. ``last_ms`` is the time (Unix ms) of the
    last entry of the log that ``head`` covers. ``ends`` is the signed note on the number of the stream's entries.
    """

    name: str
    entries: list[tuple[int, bytes]]
    ignored: list[IgnoredEntry]
    state: StreamState | None
    head: TrustedHead
    last_ms: int
    ends: str = ""


class _StoredAuthority(msgspec.Struct, array_like=True):
    """The content of the cache file of authority: the head, the index of each event, the versions of each record."""

    format: int
    ledger: str
    head: TrustedHead
    indexes: list[int]
    records: dict[bytes, list[tuple[int, bytes]]]


class Authority:
    """The checked authority: which keys could sign what, at any index checked so far."""

    def __init__(self, stored: _StoredAuthority) -> None:
        self.stored = stored

    @property
    def start(self) -> int:
        """The first index that was not checked yet."""
        return self.stored.indexes[-1] + 1 if self.stored.indexes else 0

    def count(self, index: int) -> int:
        """Return the number of events of authority before an index."""
        return bisect_left(self.stored.indexes, index)

    def record(self, key: keys.Key[R], index: int) -> R | None:
        """Return the record of a state key as it was before the entry at ``index``, or None."""
        versions = self.stored.records.get(key, ())
        count = bisect_left(versions, index, key=lambda version: version[0])
        return cast("R", decode_record(key, versions[count - 1][1])) if count else None

    def agent(self, name: str, index: int) -> AgentRecord | None:
        """Return the record of an agent as it was before the entry at ``index``, or None."""
        return self.record(agent_key(name), index)

    def key(self, public_key: str, index: int) -> KeyRecord | None:
        """Return the record of a signing key (hex) as it was before the entry at ``index``, or None."""
        return self.record(key_key(public_key), index)

    def gate_state(self, index: int) -> GateState:
        """Return the state of the gate as it was before the entry at ``index``."""
        return self.record(GATE_STATE_KEY, index) or GateState()

    def erasures(self, index: int) -> dict[int, SignedErasure]:
        """Return what redactions before the entry at ``index`` erased, by the index of the erased entry."""
        prefix, erasures = redaction_key(0)[:1], dict[int, SignedErasure]()
        for key in self.stored.records:
            if key[:1] == prefix:
                erased = int.from_bytes(key[1:], "big")
                record = self.record(redaction_key(erased), index)
                if record is not None and record.done is not None:
                    erasures[erased] = record.done
        return erasures

    def knows(self, index: int) -> bool:
        """Whether the entry at ``index`` is an event of authority that was checked."""
        position = self.count(index)
        return self.stored.indexes[position : position + 1] == [index]

    def add(self, index: int, records: dict[bytes, Any]) -> None:
        """Add the event at ``index``, and the records that it changed."""
        self.stored.indexes.append(index)
        for key, record in records.items():
            if key[:1] in _AUTHORITY_RECORDS:
                self.stored.records.setdefault(key, []).append((index, encode_packed(record)))


class StreamReader:
    """Reads and checks streams of one ledger, for callers that act on them. Threads may share it."""

    def __init__(
        self,
        client: LogReads,
        file: Path | None,
        source: Callable[[], str] = lambda: "the node",
        *,
        is_pinned: bool = False,
    ) -> None:
        """Store checked authority in ``file`` (None: only in memory). ``is_pinned``: the user pinned the root key.

        ``source`` returns the name of the node that answers now, for errors.
        """
        self.is_pinned = is_pinned
        self._source = source
        self._client = client
        self._file = file
        self._lock = threading.Lock()
        # Streams that were read to their end, each under a head that the head of ``authority`` continues.
        self._runs: dict[str, _Run] = {}
        self._cached_bytes = 0
        self._last: tuple[TrustedHead, ProvenEntry, Entry] | None = None
        # A cache for callers that fold streams. The callers limit its size.
        self.folds: dict[Any, Any] = {}
        self.authority = self._load()

    def read(self, stream: str, size: int | None = None) -> CheckedStream:
        """Return a stream as its signed entries prove it. It is empty when the stream has no entries.

        With ``size`` it is the stream in the first ``size`` entries of the log. The reader still checks it up to its
        present end, because only that end is signed and shows that the node withholds nothing.

        Raises Corrupted: ``VERIFICATION_FAILED``: the node's answer fails a check; ``HISTORY_CHANGED``. Unavailable:
        see ``Client``.
        """
        with self._lock:
            count = len(self.authority.stored.indexes)
            try:
                checked = self._read(stream, size)
            except DeedbookError:
                self.authority, self._runs, self._cached_bytes = self._load(), {}, 0  # drop unproven entries
                raise
            self.authority.stored.head = checked.head
            if len(self.authority.stored.indexes) != count:
                self._save()
            return checked if size is None else self._cut(checked, size)

    def gate_state(self) -> GateState:
        """Return the present state of the gate, as the signed entries of authority give it. Raises as ``read``."""
        head = self.read("ledger").head
        return self.authority.gate_state(head.size)

    def identity(self, name: str) -> tuple[AgentRecord | None, KeyRecord | None]:
        """Return the present records of an agent and of its identity key. Raises as ``read``."""
        size = self.read("ledger").head.size
        agent = self.authority.agent(name, size)
        return agent, self.authority.key(agent.key, size) if agent else None

    def check_not_erased(self, index: int) -> None:
        """Check that no redaction erased the body of an entry that was read with its body.

        Raises Corrupted: ``ERASED_BODY_SERVED``; and as ``read``.
        """
        erasure = self.authority.erasures(self.read("ledger").head.size).get(index)
        if erasure is not None:
            raise self._still_served(index, erasure)

    def _cut(self, checked: CheckedStream, size: int) -> CheckedStream:
        """Return a stream as of the first ``size`` entries, and check that the present log continues these."""
        page = self._client.stream(StreamRequest(checked.name, start=size, authority_start=size, size=size))
        head, last = page.consistency_proof.head, page.last
        consistency_proof = self._client.consistency(size, checked.head.size)
        if (
            consistency_proof.root != checked.head.root
            or head.size != size
            or not is_continued(head, consistency_proof)
        ):
            raise unproven(f"the log of {checked.head.size} entries does not continue the log of {size}", size=size)
        if last.index != size - 1 or not verify_inclusion(
            entry_leaf(last.data), last.index, size, last.path, bytes.fromhex(head.root)
        ):
            raise unproven(f"entry {last.index} is not the last of {size}", size=size)
        entries = [(index, data) for index, data in checked.entries if index < size]
        ignored = [entry for entry in checked.ignored if entry.index < size]
        last_ms = decode_entry(last.data).accepted_ms
        return replace(checked, entries=entries, ignored=ignored, head=head, last_ms=last_ms, ends="")

    def _read(self, stream: str, size: int | None) -> CheckedStream:
        authority, known = self.authority, self.authority.stored.head
        cached = self._runs.pop(stream, None) if size is None else None
        self._cached_bytes -= cached.size_bytes if cached else 0
        start = cached.head.size if cached else 0
        request = StreamRequest(stream, start=start, authority_start=authority.start, known_size=known.size)
        page = self._client.stream(request)
        if known.size and not is_continued(known, replace(page.consistency_proof, path=page.known_path)):
            # The stored authority belongs to an abandoned history, or to another copy.
            return self._read_again(stream, size)
        run = (
            cached.fork(page.consistency_proof)
            if cached
            else _Run(self._client.ledger, stream, authority, page.consistency_proof, size)
        )
        ends = page.ends
        while True:
            for proven in page.entries:
                run.add(proven)
            if page.next_index is None or not page.entries:  # the next page would be empty, too
                break
            start = page.next_index
            page = self._client.stream(
                replace(request, start=start, authority_start=start, size=page.consistency_proof.size)
            )
        last_ms = self._check_end(run, page.last)
        if (erased := run.check_erasures(request.authority_start)) is not None:
            if cached or request.authority_start:
                return self._read_again(stream, size)
            raise self._still_served(*erased)
        if vkeys := self._client.trust_store.checkpoint_keys:  # only readers on the bus have them
            # The checked authority says which keys may sign at this head: a removed node's key may not.
            keys = authority.record(CHECKPOINT_KEYS_KEY, run.head.size) or CheckpointKeys()
            run.check_length(ends, verifiers_of(parse_vkey(next(iter(vkeys)), NOTE_KEY)[0], keys.at(run.head.size)))
        if size is None:
            self._runs[stream] = run
            self._cached_bytes += run.size_bytes
        while self._cached_bytes > streams_cached_max_bytes:
            self._cached_bytes -= self._runs.pop(next(iter(self._runs))).size_bytes  # the one that was read longest ago
        return CheckedStream(stream, run.entries, run.ignored, run.state_at_size, run.head, last_ms, ends)

    def _check_end(self, run: _Run, last: ProvenEntry) -> int:
        """Check the end of a read, and return the time of the log's last entry, which is proven once for each head."""
        if self._last is None or self._last[:2] != (run.head, last):
            self._last = run.head, last, run.entry(last, may_lack_family=True)[0]  # any event can be the last one
        entry = self._last[2]
        run.check_end(last, entry)
        return entry.accepted_ms

    def _read_again(self, stream: str, size: int | None) -> CheckedStream:
        """Delete all caches, and read from entry 0 on."""
        self.authority, self._runs, self._cached_bytes = self._empty_authority(), {}, 0
        self.folds.clear()
        return self._read(stream, size)

    def _still_served(self, index: int, erasure: SignedErasure) -> Corrupted:
        message = f"{self._source()} still sends the body of entry {index}, which {erasure.by} erased with entry \
{erasure.index}. It is not shown. Read from another node, and tell the operator of this one"
        return Corrupted("ERASED_BODY_SERVED", message, index=index, redaction=erasure.index, source=self._source())

    def _empty_authority(self) -> Authority:
        return Authority(_StoredAuthority(_FORMAT, self._client.ledger, TrustedHead(0, ""), [], {}))

    def _load(self) -> Authority:
        """Return the authority in the file; an empty one when the file is missing or damaged."""
        try:
            content = self._file and read_regular(self._file, size_max_bytes=authority_file_max_bytes, is_own=True)
            digest, packed = (content or b"")[:_DIGEST_SIZE], (content or b"")[_DIGEST_SIZE:]
            if digest != sha256(packed).digest():  # otherwise a damaged bit here would look like an error of the ledger
                return self._empty_authority()
            stored = read_msgpack(packed, _StoredAuthority)
        except (DeedbookError, *UNREADABLE):
            return self._empty_authority()
        is_own = (stored.format, stored.ledger) == (_FORMAT, self._client.ledger)
        return Authority(stored) if is_own else self._empty_authority()

    def _save(self) -> None:
        """Replace the file. If we crash before that, the old file stays, and the next reader checks the rest again."""
        if self._file is None:
            return
        try:
            with replacing(self._file, is_durable=False) as file:
                packed = msgspec.msgpack.encode(self.authority.stored)
                file.write(sha256(packed).digest() + packed)
        except OSError:
            self._file = None  # ignore the error: the file only saves time


class _Run:
    """One read of a stream, checked entry by entry under one head."""

    def __init__(
        self, ledger: str, stream: str, authority: Authority, consistency_proof: ConsistencyProof, size: int | None
    ) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.ignored: list[IgnoredEntry] = []
        self.size_bytes = _cached_overhead_bytes
        self.state_at_size: StreamState | None = None  # the state in the first ``size`` entries of the log
        self._size = consistency_proof.size if size is None else size
        self.head = consistency_proof.head
        self.ledger = ledger
        self._stream = stream
        self._authority = authority
        self._record: StreamRecord | None = None
        self._ids: dict[str, tuple[str, int]] = {}
        self._remnants: dict[int, Erasure | None] = {}
        self._last = -1

    def fork(self, consistency_proof: ConsistencyProof) -> _Run:
        """Return a copy that continues under the head of ``consistency_proof``."""
        run = copy(self)
        run.entries, run.ignored, run._ids = [*self.entries], [*self.ignored], {**self._ids}  # noqa: SLF001 - its own class
        run._remnants = {**self._remnants}  # noqa: SLF001 - as above
        run.head, run._size = consistency_proof.head, consistency_proof.size  # noqa: SLF001 - as above
        return run

    def add(self, proven: ProvenEntry) -> None:
        """Check the next entry, and add it to the stream or to authority."""
        index = proven.index
        entry, candidate = self.entry(proven)
        body = candidate.body
        is_own, is_authority = body.stream == self._stream, body.kind in AUTHORITY_KINDS
        if index <= self._last or not (is_own or is_authority):
            raise unproven(f"entry {index} was not requested, or it is out of order", index=index)
        if not is_signed(entry, proven.batch_path):
            raise unproven(f"the signature of entry {index} is not valid", index=index)
        self._last = index
        self._remnants[index] = Erasure(candidate.id, digest_of(entry.body)) if candidate.remnant is not None else None
        replay = self._replay_before(index, entry, body.stream)
        replayed, state = replay.step(index, entry, candidate), replay.state
        if replayed.misplaced is not None:
            raise unproven(f"entry {index}: {replayed.misplaced.message}: an entry before it was left out", index=index)
        if index == 0 and replayed.refused is not None:
            raise unproven("the rules refuse its first entry", index=0)
        if index == 0 and state.ledger != self.ledger:
            # The rule of this kind checked that the ledger's id belongs to the root key that signed it.
            raise unproven(f"its first entry is of the ledger {body.ledger}, not of {self.ledger}", index=0)
        if is_authority and index >= self._authority.start:
            self._authority.add(index, state.records)
        if not is_own:
            return
        self._record = state.stream(body.stream)
        if replayed.refused is not None:
            self.ignored.append(IgnoredEntry(index, replayed.refused.code, replayed.refused.message))
            return
        if index < self._size:
            self.state_at_size = None if self._record is None else self._record.state
        self.entries.append((index, proven.data))
        self.size_bytes += len(proven.data)

    def _replay_before(self, index: int, entry: Entry, stream: str) -> Replay:
        """Return a replay with the state before one entry: authority as it was then, and the entry's own stream."""

        def other(key: keys.Key[Any]) -> Any:
            return _DONE if key[:1] == b"s" and key != own else self._authority.record(key, index)

        own, source = keys.stream_key(stream), MemoryState(other)
        source.ledger, source.authority_version = self.ledger if index else None, self._authority.count(index)
        replay, is_own = Replay(source), stream == self._stream
        # For another stream of authority, only the number of its entries is known.
        record = self._record if is_own else StreamRecord(entry.stream_version - 1, 0)
        if record is not None:
            replay.state.put(own, record)
        if is_own:
            replay.state.indexes = self._ids
        return replay

    def check_end(self, last: ProvenEntry, entry: Entry) -> None:
        """Check that all entries of authority up to the log's end were read; ``entry`` is its last, proven entry."""
        if last.index != self.head.size - 1:
            raise unproven(f"it sent entry {last.index} as the last of {self.head.size}", size=self.head.size)
        received = len(self._authority.stored.indexes)
        if entry.authority_version != received:
            raise unproven(f"it sent {received} of {entry.authority_version} entries of authority", size=self.head.size)

    def check_erasures(self, authority_start: int) -> tuple[int, SignedErasure] | None:
        """Check that a redaction names the remnant of each erased body.

        Return a redacted entry whose body is still here. That may also be an event of authority that was checked
        earlier, before ``authority_start``. Raises Corrupted: an entry lost its body without a redaction.
        """
        erasures = self._authority.erasures(self.head.size)
        for index, remnant in self._remnants.items():
            signed = erasures.get(index)
            if remnant is not None and (signed is None or replace(signed.erasure, blobs=(), versions=()) != remnant):
                raise unproven(
                    f"the body of entry {index} is missing, and no redaction names what is left", index=index
                )
        for index, signed in erasures.items():
            was_checked = index < authority_start <= signed.index and self._authority.knows(index)
            if was_checked or self._remnants.get(index, _ABSENT) is None:
                return index, signed
        return None

    def check_length(self, note: str, verifiers: list[CheckpointVerifier]) -> None:
        """Check that the stream has as many entries as a key of the ledger signed in ``note``."""
        try:
            ends = open_stream_heads(note, *verifiers)
        except DeedbookError as error:
            raise unproven(f"its key did not sign the length of {self._stream} ({error.message})") from error
        signed = ends.streams.get(self._stream)
        version = 0 if self._record is None else self._record.version
        if (ends.size, ends.root, signed) != (self.head.size, self.head.root, version):
            reason = f"it sent {version} of {signed} entries of {self._stream}, which its key signed"
            raise unproven(f"{reason} for a log of {ends.size} entries", size=ends.size, note=note)

    def entry(self, proven: ProvenEntry, *, may_lack_family: bool = False) -> tuple[Entry, Candidate]:
        """Return an entry that is proven under the head, and its candidate."""
        index, root = proven.index, bytes.fromhex(self.head.root)
        if not verify_inclusion(entry_leaf(proven.data), index, self.head.size, proven.path, root):
            raise unproven(f"entry {index} is not in the tree of the ledger's head", index=index)
        try:
            return read_entry(proven.data, may_lack_family=may_lack_family)
        except Refused as refusal:
            if refusal.code in LACKS_FAMILY:  # this reader lacks the family, so the entry is not at fault
                raise
            raise unproven(f"entry {index} cannot be read: {refusal.message}", index=index) from refusal


def pinned_root(home: Path, ledger: str) -> str | None:
    """Return the root fingerprint that this user pinned for a folder, or None.

    Without it, only the ledger itself names its root key. Raises Corrupted: ``VERIFICATION_FAILED`` when the pinned
    root is of another ledger.
    """
    try:
        record = trust.find_record(resolved(home))
    except DeedbookError:
        return None
    if record is None:
        return None
    if not trust.is_same_root(record.root, ledger):
        folder = trust.quoted_path(home)
        pinned = record.root[:root_digits_shown]
        message = f"the ledger {ledger} does not have the root that is pinned for {folder}, {pinned}…: \
ask its operator for the root fingerprint, and run `deed trust --root FINGERPRINT --home {folder}` if it is right"
        raise Corrupted("VERIFICATION_FAILED", message, ledger=ledger, root=record.root)
    # A shorter record holds only the id that the folder named when the user trusted it.
    return record.root if len(record.root) > len(ledger) else None


def unproven(reason: str, **details: Any) -> Corrupted:
    """Return the error for an answer of a ledger that fails a check. The caller shows and signs nothing of it."""
    message = f"the ledger sent an answer that fails a check: {reason}. Nothing of it was used: run `deed verify` \
beside the ledger to see what is wrong there"
    return Corrupted("VERIFICATION_FAILED", message, **details)
