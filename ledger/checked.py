"""Reading to act: one stream from its signed entries, checked by the reader, whoever handed them over.

A view's row is the word of the machine that folded it. Whoever approves, claims or acts on a brief reads the entries
behind it instead, and those of authority, and believes of a node no more than they prove:

- each entry stands under one head, which goes on from the one this reader trusts (``Client.stream``);
- each signature fits, and its key was its author's there, as the events of authority say from entry 0 on, whose root
  key the ledger's id is the hash of;
- nothing is left out of the middle of the stream, nor of authority up to that head: entries carry both counts;
- each event follows by the rules that the gate decided by. One that does not counts for nothing, here as in every fold.

What a reader cannot see: entries of the stream after the last one that it is shown. So every answer says as of which
head it is. What a rule asks of other streams (was a dependency done when it was claimed?) and how often a session key
was used are not asked again here; that is what an audit replays.

Authority is checked once and kept: within a process by this object, and between them in a file beside the reader's
memory, bound to a head that the log must go on from. Each record is kept with the indexes since which it holds, so that
an old entry is judged by what was true then. Refused: reading the streams of those agents alone that appear, of which
nobody could tell whether their last event was left out.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ledger import trust
from ledger.admission.check import Candidate
from ledger.admission.decide import apply
from ledger.admission.rules import AUTHORITY_KINDS
from ledger.admission.state import Layer
from ledger.client import Client
from ledger.codec import encode_packed
from ledger.config import resolved
from ledger.envelope import Entry, batch_root_pae, decode_entry, event_id, pae
from ledger.errors import BatonError, Corrupted, Refused
from ledger.events.body import decode_body
from ledger.files import read_own, replacing
from ledger.history import Growth, Proven, StreamPage, Trusted, is_continued, root_digits_shown
from ledger.identity import verify
from ledger.lifecycle.authority import AgentRecord, KeyRecord
from ledger.lifecycle.handoff import HandoffState
from ledger.log.tables import StreamRecord, StreamState, agent_key, decode_record, key_key
from ledger.merkle import leaf_hash, root_of_path, verify_inclusion

authority_file_max_bytes: Final = 64 * 1024**2
_FORMAT: Final = 1
_AUTHORITY_RECORDS: Final = frozenset({b"a", b"k", b"c", b"n"})
# What a rule finds where it asks for another stream: one that stands in nobody's way.
_DONE: Final = StreamRecord(1, 0, HandoffState("", "", "", "verified", "", (), "completed", (), ()))


class Ignored(msgspec.Struct, frozen=True):
    """An entry that stands in the stream and counts for nothing, because no rule admits it."""

    index: int
    code: str
    message: str


class CheckedStream(msgspec.Struct, frozen=True):
    """A stream as of a head: (index, entry bytes) of its events that count, in order, and those that do not.

    ``state`` is where its events leave it, None where it has none.
    """

    name: str
    entries: list[tuple[int, bytes]]
    ignored: list[Ignored]
    state: StreamState | None
    head: Trusted


class _Kept(msgspec.Struct, array_like=True):
    """The file of checked authority: under which head, the index of each of its events, every record's history."""

    format: int
    ledger: str
    head: Trusted
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

    def record(self, key: bytes, index: int) -> Any:
        """Return the record under a state key as it was before the entry at ``index``, or None."""
        versions = self.kept.records.get(key, ())
        place = bisect_left(versions, index, key=lambda version: version[0])
        return decode_record(key, versions[place - 1][1]) if place else None

    def agent(self, name: str, index: int) -> AgentRecord | None:
        """Return the record of an agent, as ``record``."""
        record: AgentRecord | None = self.record(agent_key(name), index)
        return record

    def key(self, public_key: str, index: int) -> KeyRecord | None:
        """Return the record of a signing key (hex), as ``record``."""
        record: KeyRecord | None = self.record(key_key(public_key), index)
        return record

    def take(self, index: int, records: dict[bytes, Any]) -> None:
        """Count one more event, which left these records."""
        self.kept.indexes.append(index)
        for key, record in records.items():
            if key[:1] in _AUTHORITY_RECORDS:
                self.kept.records.setdefault(key, []).append((index, encode_packed(record)))


class Before(NamedTuple):
    """The state before one entry (a ``Base``): authority as it was then, and what was folded of its own stream."""

    authority: Authority
    size: int
    ledger: str | None
    stream: str
    version: int
    life: Any
    ids: dict[str, int]
    now_ms: int | None = None

    @property
    def authority_version(self) -> int:
        """The number of events of authority before it."""
        return self.authority.count(self.size)

    def record(self, key: bytes) -> Any:
        """Return the record under a state key, or None."""
        if key[:1] != b"s":
            return self.authority.record(key, self.size)
        if key[1:].decode() != self.stream:
            return _DONE
        return StreamRecord(self.version, 0, self.life) if self.version else None

    def index_of(self, _stream: str, event_id: str) -> int | None:
        """Return the index of an event of the stream, or None."""
        return self.ids.get(event_id)

    def key_at(self, index: int) -> bytes:
        """Never asked: no rule asks who signed an entry."""
        raise KeyError(index)


class StreamReader:
    """Reads streams of one ledger to act on them; threads may share it."""

    def __init__(self, client: Client, file: Path | None, *, is_pinned: bool = False) -> None:
        """Keep checked authority in ``file`` (None: in this object alone); ``is_pinned``: the root key is known."""
        self.is_pinned = is_pinned
        self._client = client
        self._file = file
        self._lock = threading.Lock()
        self.authority = self._loaded()

    def read(self, stream: str) -> CheckedStream:
        """Return a stream as its signed entries give it; one without entries is empty.

        Raises:
            Corrupted: ``VERIFICATION_FAILED``: what was handed over does not prove itself; ``HISTORY_CHANGED``.
            Unavailable: as ``Client.entries``.
        """
        with self._lock:
            before = len(self.authority.kept.indexes)
            try:
                checked = self._read(stream)
            except BatonError:
                self.authority = self._nobody()  # it may hold what was not proven to the end
                raise
            self.authority.kept.head = checked.head
            if len(self.authority.kept.indexes) != before:
                self._keep()
            return checked

    def _read(self, stream: str) -> CheckedStream:
        authority = self.authority
        known = authority.kept.head
        page = self._client.stream(stream, authority_start=authority.start, known_size=known.size)
        if known.size and not is_continued(known, msgspec.structs.replace(page.growth, path=page.known_path)):
            # What was kept is of a past that was given up, or of another copy: begin with entry 0.
            self.authority = self._nobody()
            return self._read(stream)
        run = _Run(self._client.ledger, stream, authority, page.growth)
        while True:
            for proven in page.entries:
                run.take(proven)
            if page.next_index is None:
                break
            page = self._next_page(stream, page, authority.start)
        run.end(page.last)
        return CheckedStream(stream, run.entries, run.ignored, run.state, page.growth.head)

    def _next_page(self, stream: str, page: StreamPage, authority_start: int) -> StreamPage:
        start = page.next_index or 0
        following = self._client.stream(stream, start=start, authority_start=authority_start, size=page.growth.size)
        moves_on = following.next_index is None or following.next_index > start
        if following.growth.root != page.growth.root or not following.entries or not moves_on:
            raise unproven("its pages are not of one log", size=page.growth.size)
        return following

    def _nobody(self) -> Authority:
        return Authority(_Kept(_FORMAT, self._client.ledger, Trusted(0, ""), [], {}))

    def _loaded(self) -> Authority:
        """Return what the file keeps; nothing when it is not there, or not as it was written."""
        try:
            content = None if self._file is None else read_own(self._file, size_max_bytes=authority_file_max_bytes)
            kept = msgspec.msgpack.decode(content or b"", type=_Kept)
        except (BatonError, msgspec.MsgspecError):
            return self._nobody()
        return Authority(kept) if (kept.format, kept.ledger) == (_FORMAT, self._client.ledger) else self._nobody()

    def _keep(self) -> None:
        """Write the file; if we crash before it is replaced, the older one counts, and only the rest is checked."""
        if self._file is None:
            return
        try:
            with replacing(self._file, is_durable=False) as file:
                file.write(msgspec.msgpack.encode(self.authority.kept))
        except OSError:
            self._file = None  # it saves time, and nothing rests on it


class _Run:
    """One reading of a stream under one head."""

    def __init__(self, ledger: str, stream: str, authority: Authority, growth: Growth) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.ignored: list[Ignored] = []
        self._ledger = ledger
        self._stream = stream
        self._authority = authority
        self._size = growth.size
        self._root = bytes.fromhex(growth.root)
        self._version = 0
        self.state: StreamState | None = None
        self._ids: dict[str, int] = {}
        self._last = -1

    def take(self, proven: Proven) -> None:
        """Check the next entry, and decide on it."""
        index = proven.index
        entry = self._entry(proven)
        try:
            body, data = decode_body(entry.body)
        except Refused as refusal:
            raise unproven(f"entry {index} cannot be read: {refusal.message}", index=index) from refusal
        is_own, is_authority = body.stream == self._stream, body.kind in AUTHORITY_KINDS
        if index <= self._last or not (is_own or is_authority):
            raise unproven(f"entry {index} was not asked for", index=index)
        if not _is_signed(entry, proven.batch_path):
            raise unproven(f"the signature of entry {index} does not fit", index=index)
        self._check_counts(index, entry, is_own=is_own, is_authority=is_authority)
        self._last = index
        self._decide(index, proven.data, entry, Candidate(body, data, event_id(pae(entry.body)), entry.body))

    def end(self, last: Proven) -> None:
        """Compare how much authority was read with how much there is at the end of the log."""
        there_are = self._entry(last).authority_version if last.index == self._size - 1 else -1
        if there_are != len(self._authority.kept.indexes):
            read = len(self._authority.kept.indexes)
            raise unproven(f"{read} of {there_are} entries of authority were handed over", size=self._size)

    def _entry(self, proven: Proven) -> Entry:
        """Return an entry that stands under the head."""
        index = proven.index
        if not verify_inclusion(leaf_hash(proven.data), index, self._size, proven.path, self._root):
            raise unproven(f"entry {index} is not in the tree of the ledger's head", index=index)
        try:
            return decode_entry(proven.data)
        except Refused as refusal:
            raise unproven(f"entry {index} cannot be read: {refusal.message}", index=index) from refusal

    def _check_counts(self, index: int, entry: Entry, *, is_own: bool, is_authority: bool) -> None:
        if entry.authority_version != self._authority.count(index) + is_authority:
            raise unproven(f"an entry of authority before entry {index} was left out", index=index)
        if not is_own:
            return
        self._version += 1
        if entry.stream_version != self._version:
            message = f"entry {index} is number {entry.stream_version} of {self._stream}, not {self._version}"
            raise unproven(f"{message}: one before it was left out", index=index)

    def _decide(self, index: int, raw: bytes, entry: Entry, candidate: Candidate) -> None:
        body = candidate.body
        is_own = body.stream == self._stream
        ledger = self._ledger if index else None
        life, ids = (self.state, self._ids) if is_own else (None, {})
        layer = Layer(Before(self._authority, index, ledger, body.stream, entry.stream_version - 1, life, ids))
        try:
            event = apply(candidate, entry.key, layer, entry.accepted_ms)
        except Refused as refusal:
            if index == 0:
                raise unproven(f"entry 0 is none: {refusal.message}", index=0) from refusal
            if is_own:
                self.ignored.append(Ignored(index, refusal.code, refusal.message))
            layer.records.clear()
        else:
            if is_own:
                record = layer.stream(body.stream)
                self.state = None if record is None else record.state
                self._ids[event.id] = index
                self.entries.append((index, raw))
        if index == 0 and layer.ledger != self._ledger:
            # The rule has compared the id that it names with the root key that signed it.
            raise unproven(f"its first entry is that of the ledger {body.ledger}, not of {self._ledger}", index=0)
        if body.kind in AUTHORITY_KINDS and index >= self._authority.start:
            self._authority.take(index, layer.records)


def _is_signed(entry: Entry, batch_path: list[bytes]) -> bool:
    signed = pae(entry.body)
    if entry.batch_size == 1:
        return verify(entry.key, signed, entry.sig)
    root = root_of_path(leaf_hash(signed), entry.batch_index, entry.batch_size, batch_path)
    return root is not None and verify(entry.key, batch_root_pae(entry.batch_size, root), entry.sig)


def is_root_pinned(home: Path, ledger: str) -> bool:
    """Whether this user knows the root key of the ledger in, or behind, a folder: else it vouches for itself.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when another root was pinned there.
    """
    try:
        record = trust.find_record(resolved(home))
    except BatonError:
        return False
    if record is None:
        return False
    if not trust.is_same_root(record.root, ledger):
        given = trust.shown(home)
        pinned = record.root[:root_digits_shown]
        message = f"the ledger {ledger} is not the one whose root is pinned for {given}, {pinned}…: \
ask whoever runs it for its root fingerprint, and say `baton trust --root FINGERPRINT --home {given}` if it is right"
        raise Corrupted("VERIFICATION_FAILED", message, ledger=ledger, root=record.root)
    return len(record.root) > len(ledger)  # a shorter one is what the folder itself said at its first use


def unproven(what: str, **details: Any) -> Corrupted:
    """Return the error for what a node handed over and does not prove itself: nothing is shown, nothing signed."""
    message = f"what the ledger hands over does not prove itself: {what}. Nothing of it is believed: `baton verify` \
beside the ledger says what is wrong there"
    return Corrupted("VERIFICATION_FAILED", message, **details)
