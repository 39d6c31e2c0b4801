"""The gate over a log: groups of submissions in one write transaction, decided first, written after.

Derived tables are not believed: whoever may write to the folder may edit a record behind the gate's back. Each record
is held against its entries when a gate reads it from disk for the first time, and again when it is another one than it
knows: a handoff or review by its machine over its stream; an agent, its keys and its invitation by the rules of
authority over the streams ``agent/NAME`` and ``ledger`` (what other authors were allowed then, ``deed verify``
replays); a term by the last that says so; an idempotency key by the entry that it names.

Left out for their length: the events of sessions, reasonings and searches, in which nobody approves anything, and how
often a session key was used. An edit that fits in several tables passes here; ``deed fsck`` finds it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from deedbook.ledger.admission.authority import OF_KIND
from deedbook.ledger.admission.check import Checked, check, refusal_of
from deedbook.ledger.admission.decide import Accepted, decide, idempotency_digest
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import TermStarted
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.body import Body, Event, decode_body, make_event
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, Submission, decode_entry, event_id, pae
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.home.quota import EXEMPT, Quota, Spent, spend
from deedbook.ledger.lifecycle import handoff, review
from deedbook.ledger.lifecycle.authority import (
    CHECKPOINT_KEYS,
    INVITATION_KEYS,
    AgentRecord,
    InvitationRecord,
    KeyRecord,
    Term,
)
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import agent_key, idempotency_key
from deedbook.ledger.log.log import Log, Pending
from deedbook.ledger.log.records import StreamRecord
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.log.tables import FORMAT, Head

proven_max: Final = 50_000
_MACHINES: Final[dict[str, Callable[[Any, Event], Any]]] = {"handoff": handoff.transition, "review": review.transition}


Publish: TypeAlias = Callable[[int, list[bytes]], None]


class Refold:
    """What one process has held against the entries; used by one thread at a time."""

    def __init__(self) -> None:
        self._proven: dict[bytes, Any] = {}

    def learn(self, records: dict[bytes, Any]) -> None:
        """Take over records that this process itself decided from proven ones."""
        if len(self._proven) > proven_max:
            self._proven = {}
        self._proven |= records

    def check(self, snapshot: Snapshot, key: bytes, record: Any) -> None:
        """Hold a record that was read from disk, or found missing, against the entries that give it.

        Raises Corrupted: they give another one.
        """
        if record is not None and self._proven.get(key) == record:
            return
        match key[:1]:
            case b"s":
                self._check_stream(snapshot, key, record)
            case keys.TERM_KEY:
                if record != _last_term(snapshot):
                    raise _unlike("the term")
            case b"a" | b"k" | b"v" if record is not None:
                self._check_agent(snapshot, key, record)
            case b"i" if record is not None:
                _check_idempotency(snapshot, key, record.index, record.digest)
            case _:  # an open set: what is not derived from one stream, and what is missing and grants nothing
                return
        if record is not None:
            self.learn({key: record})

    def _check_stream(self, snapshot: Snapshot, key: bytes, record: StreamRecord | None) -> None:
        stream = key[1:].decode()
        if record is None:
            if any(True for _ in snapshot.stream_indexes(stream)):
                raise _unlike(stream)
            return
        machine = _MACHINES.get(stream.partition("/")[0])
        if machine is None:
            return
        life = None
        indexes = snapshot.stream_indexes(stream)
        for event in _events(snapshot, stream, indexes):
            with contextlib.suppress(Refused):  # it stands in the log all the same, and changes nothing
                life = machine(life, event)
        if not indexes or StreamRecord(len(indexes), indexes[-1][0], life) != record:
            raise _unlike(stream)

    def _check_agent(self, snapshot: Snapshot, key: bytes, record: AgentRecord | KeyRecord | InvitationRecord) -> None:
        name = record.agent if isinstance(record, KeyRecord) else record.name
        if name in {CHECKPOINT_KEYS, INVITATION_KEYS} and isinstance(record, KeyRecord):
            naming, _, _ = _read(snapshot, min(record.since_index, snapshot.size - 1))
            name = naming.name
        if _unused(folded_agent(snapshot, name).get(key)) != _unused(record):
            raise _unlike(f"a key of {name}" if isinstance(record, KeyRecord) else f"agent {name}")


def folded_agent(snapshot: Snapshot, name: str) -> dict[bytes, Any]:
    """Return the records that the events of one agent, and those of the ledger, give."""
    layer = Layer(_Others(name))
    events = sorted((*_events(snapshot, "ledger"), *_events(snapshot, f"agent/{name}")), key=lambda event: event.index)
    for event in events:
        attempt = Layer(layer)
        attempt.size = event.index
        try:
            OF_KIND[event.kind](event, attempt, None)
        except Refused:
            continue
        attempt.merge_down()
    return layer.records


class _Others(Base):
    """A ``Base`` in which whoever the fold is not about was allowed to do what he did."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._own = agent_key(name)

    def record(self, key: bytes) -> Any:
        if key[:1] != b"a" or key == self._own:
            return None
        return AgentRecord(key[1:].decode(), "", frozenset({"admin"}))


def _last_term(snapshot: Snapshot) -> Term | None:
    terms = [event for event in _events(snapshot, "ledger") if isinstance(event.data, TermStarted)]
    return Term(terms[-1].data.term, terms[-1].data.node, terms[-1].index) if terms else None


def _events(snapshot: Snapshot, stream: str, indexes: list[tuple[int, bytes]] | None = None) -> Iterator[Event]:
    for version, (index, digest) in enumerate(snapshot.stream_indexes(stream) if indexes is None else indexes, 1):
        event, body, entry = _read(snapshot, index)
        if body.stream != stream or event.id != f"blake3:{digest.hex()}" or entry.stream_version != version:
            raise _unlike(stream)
        if not snapshot.is_skipped(index):
            yield event


def _read(snapshot: Snapshot, index: int) -> tuple[Event, Body, Entry]:
    try:
        entry = decode_entry(snapshot.entry(index))
        body, content = decode_body(entry.body)
    except Refused as error:
        raise Corrupted("CORRUPTED", f"entry {index} cannot be read: {error.message}", index=index) from error
    identity = event_id(pae(entry.body))
    event = make_event(body, content, index=index, event_id=identity, key=entry.key, accepted_ms=entry.accepted_ms)
    return event, body, entry


def _check_idempotency(snapshot: Snapshot, key: bytes, index: int, digest: bytes) -> None:
    if index < snapshot.size:
        _, body, entry = _read(snapshot, index)
        is_key = body.idem is not None and idempotency_key(body.author, body.idem) == key
        if is_key and idempotency_digest(entry.body) == digest:
            return
    raise _unlike("an idempotency key")


def _unused(record: Any) -> Any:
    return msgspec.structs.replace(record, used=0) if isinstance(record, KeyRecord) else record


def _unlike(what: str) -> Corrupted:
    message = f"the stored record of {what} is not what its entries give: it was edited; run `deed fsck --repair`"
    return Corrupted("CORRUPTED", message, record=what)


def check_head(snapshot: Snapshot) -> None:
    """Hold the time and the count that the head gives for the last entry against that entry.

    Raises Corrupted: the head says others.
    """
    head = snapshot.head
    if head is None:
        return
    last = decode_entry(snapshot.entry(head.size - 1))
    if (last.accepted_ms, last.authority_version) != (head.accepted_ms, head.authority_version):
        raise _unlike("the ledger's head")


records_cached_max = 50_000


class Gate:
    """Admits submissions to one log; used by one thread at a time."""

    def __init__(
        self,
        log: Log,
        *,
        clock_ms: Callable[[], int] | None = None,
        quota: Quota | None = None,
        publish: Publish | None = None,
    ) -> None:
        """Guard ``log``; ``clock_ms`` gives Unix milliseconds (default: the system's clock).

        ``quota`` is what one agent may append; with it, too, the blobs that an event needs must be here. Without it
        (a ledger that is being made, a recovery) neither is asked. ``publish(start, entries)`` publishes what was
        decided before it is appended, where several nodes have the ledger; whatever it raises, nothing is appended.
        """
        self._log = log
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._quota = quota
        self._publish = publish
        self._cache: dict[bytes, Any] = {}
        self._cached_size = -1
        self._refold = Refold()

    def submit(self, submission: Submission) -> list[Accepted]:
        """Admit one submission; when this returns, it is on disk.

        Raises Refused: it was not admitted, and nothing of it is in the log. Unavailable: the store could not be
        written; nothing of it is in the log. Corrupted: a record that it depends on is not what its entries give.
        """
        answer = self.admit([check(submission)])[0]
        if isinstance(answer, DeedbookError):
            raise answer
        return answer

    def admit(self, group: Sequence[Checked]) -> list[list[Accepted] | DeedbookError]:
        """Admit a group of checked submissions in one commit; the answers are in the group's order."""
        try:
            with self._log.writing() as (txn, snapshot):
                if self._publish is None:
                    check_is_alone(snapshot)
                base = Transaction(snapshot, self._usable_cache(snapshot), self._refold)
                layer = Layer(base)
                pending, system_ms = Pending(), self._clock_ms()
                answers = [self._decide(checked, layer, system_ms, pending, base) for checked in group]
                if not pending.entries or layer.now_ms is None:
                    if self._publish is not None and any(isinstance(answer, Refused) for answer in answers):
                        # Who was stopped may lead no more, and not know what was accepted since: it refuses nothing.
                        self._publish(snapshot.size, [])
                    return answers
                pending.accepted_ms = layer.now_ms
                pending.state = {key: encode_packed(record) for key, record in layer.records.items()}
                pending.authority_version = layer.authority_version
                if self._publish is not None:
                    self._publish(snapshot.size, pending.entries)
                    # If we crash here, the stream is ahead of the log, which follows it at the next start. Nobody was
                    # answered, and whoever submits again gets the answer of the first time.
                new_head, _ = self._log.appender.append(txn, snapshot.head or first_head(layer.ledger), pending)
            # If we crash before this line, nothing of the group is in the log and nobody was told otherwise. After it,
            # whoever had no answer submits again, and gets the first one.
        except BaseException:
            self._cached_size = -1
            raise
        self._cache |= layer.records
        self._cached_size = new_head.size
        self._refold.learn(layer.records)
        return answers

    def _decide(
        self, checked: Checked, layer: Layer, system_ms: int, pending: Pending, base: Transaction
    ) -> list[Accepted] | DeedbookError:
        try:
            decided = decide(checked, layer, system_ms, self._ask_last if self._quota else None)
        except (Refused, Unavailable, Corrupted) as refusal:
            # A quota that is spent, no look at blobs, a record that was edited: that is of this submission alone.
            return refusal
        if not decided.entries:
            return [base.first_answer(one.index, pending) for one in decided.accepted]
        pending.entries += decided.entries
        pending.id_keys += [keys.id_key(event.stream, event.id) for event in decided.events]
        return decided.accepted

    def _ask_last(self, checked: Checked, layer: Layer, accepted_ms: int) -> None:
        """Ask what no replay asks: are the blobs that the events need here, and is this within the author's quota?

        Blobs are dropped under the write lock that is held here (``ledger.log.expiry``): what is found now stays.
        """
        assert self._quota is not None  # noqa: S101 - else nobody asks
        author = checked.candidates[0].body.author
        if author not in EXEMPT:
            key = keys.quota_key(author)
            spent: Spent = layer.record(key) or Spent()
            size = sum(len(candidate.raw) for candidate in checked.candidates)
            events = len(checked.candidates)
            layer.records[key] = spend(spent, self._quota, author=author, events=events, size=size, now_ms=accepted_ms)
        refusals = {
            position: Refused("NOT_FOUND", f"there is no blob {ref}: store it first (`deed blob put`)", ref=ref)
            for position, candidate in enumerate(checked.candidates)
            for ref in blobs_of(candidate.data)
            if self._log.blobs.find(ref) is None
        }
        if refusals:
            raise refusal_of(refusals, len(checked.candidates))

    def _usable_cache(self, snapshot: Snapshot) -> dict[bytes, Any]:
        if self._cached_size != snapshot.size or len(self._cache) > records_cached_max:
            check_head(snapshot)
            self._cache = {}
            self._cached_size = snapshot.size
        return self._cache


class Transaction(Base):
    """The base of all layers: the log within one write transaction, behind the cache."""

    def __init__(self, snapshot: Snapshot, cache: dict[bytes, Any], refold: Refold | None = None) -> None:
        """Read from ``snapshot`` what ``cache`` does not hold yet, and let ``refold`` hold it against its entries."""
        super().__init__()
        self._refold = refold or Refold()
        self._snapshot = snapshot
        self._cache = cache
        self._glanced: dict[bytes, Any] = {}
        if (head := snapshot.head) is not None:
            self.size, self.ledger, self.now_ms = head.size, head.ledger, head.accepted_ms
            self.authority_version = head.authority_version

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None."""
        record = self._cache.get(key)
        if record is None:
            record = self.glance(key)
            self._refold.check(self._snapshot, key, record)
            if record is not None:
                self._cache[key] = record
        return record

    def glance(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None, as it is stored."""
        record = self._cache.get(key) or self._glanced.get(key)
        if record is None:
            record = self._glanced[key] = self._snapshot.record(key)
        return record

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        return self._snapshot.index_of(stream, event_id)

    def key_at(self, index: int) -> bytes:
        """Return the key that signed the entry at ``index``."""
        return decode_entry(self._snapshot.entry(index)).key

    def first_answer(self, index: int, pending: Pending) -> Accepted:
        """Return what was answered when the event at ``index`` was first accepted, perhaps in this very group."""
        data = self._snapshot.entry(index) if index < self.size else pending.entries[index - self.size]
        entry = decode_entry(data)
        return Accepted(index, event_id(pae(entry.body)), entry.accepted_ms, is_repeat=True)


def check_is_alone(snapshot: Snapshot) -> None:
    """Refuse to append to a log that is one of several nodes', naming where its leader was heard.

    Raises Unavailable: ``NOT_LEADER``.
    """
    shared = snapshot.record(keys.SHARED_KEY)
    if shared is None:
        return
    where = f"`--server {shared.url}` reaches {shared.leader}" if shared.url else "no leader was heard of yet"
    message = f"several nodes have this ledger, and its leader alone writes: {where}"
    raise Unavailable("NOT_LEADER", message, leader=shared.leader, url=shared.url)


def state_of(snapshot: Snapshot) -> Layer:
    """Return the state that rules decide on, as one moment of the log has it: for what is checked and not appended."""
    return Layer(Transaction(snapshot, {}))


def first_head(ledger: str | None) -> Head:
    """Return the head that entry 0 of a ledger is appended to."""
    if ledger is None:
        raise Corrupted("CORRUPTED", "entries were decided for a log without a first entry")
    return Head(FORMAT, ledger, 0, Frontier.empty().to_bytes(), 0, 0)
