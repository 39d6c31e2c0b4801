"""The gate over a log: it decides a group of submissions and writes them in one transaction.

The gate does not trust cached records, because anybody who can write to the folder can edit them. It verifies a record
against the log the first time it reads it from disk, and again whenever the record has changed. The state machine
recomputes a handoff, decision, question or review from its stream. An agent, its keys and its invitation are recomputed
from the streams ``agent/NAME`` and ``ledger`` (``deed verify`` replays the permissions of the authors). An idempotency
key is compared with the entry that it names.

The events of sessions, reasonings and searches, and the number of uses of a session key, are not verified, because they
are long and approve nothing. A consistent edit of several tables passes here; ``deed fsck`` detects it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from deedbook.ledger import limits
from deedbook.ledger.admission.candidate import CheckedSubmission, refusal_of
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.decide import Accepted, decide, idempotency_digest
from deedbook.ledger.admission.erasure import check_confirmed, erase_as_named, rules_with_texts
from deedbook.ledger.admission.order import Order, OvertakenError
from deedbook.ledger.admission.rules import AUTHORITY_KINDS, MACHINES
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import EntryRedacted, Redaction
from deedbook.ledger.events.blob import blobs_of, sealed_in
from deedbook.ledger.events.body import Event, make_event
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffAmended
from deedbook.ledger.events.remnant import digest_of, read_stored
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, Submission, decode_entry, event_id, head_of, is_remnant, read_remnant
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.home.quota import EXEMPT, Quota, QuotaUsage, spend
from deedbook.ledger.lifecycle import redaction
from deedbook.ledger.lifecycle.authority import AgentRecord, AgentRecords, InvitationRecord, KeyRecord
from deedbook.ledger.lifecycle.declared import KindRecord, record_of
from deedbook.ledger.lifecycle.machine import StateMachine, Transition
from deedbook.ledger.lifecycle.redaction import Erasure, FoundRemnant, RedactionRecord
from deedbook.ledger.lifecycle.subject import sealed_too_late
from deedbook.ledger.log import keys
from deedbook.ledger.log.keys import idempotency_key
from deedbook.ledger.log.log import Log, PendingEntries
from deedbook.ledger.log.records import StreamRecord
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.log.tables import FORMAT, Head

proven_max: Final = 50_000
_VERIFIED: Final = frozenset({"decision", "handoff", "question", "review"})
"""The families whose records are recomputed from their streams."""
AuthorityRecord: TypeAlias = AgentRecord | KeyRecord | InvitationRecord


class RecordVerifier:
    """Verifies records against the entries, and remembers the verified ones. One thread at a time uses it."""

    def __init__(self) -> None:
        self._proven: dict[bytes, Any] = {}

    def learn(self, records: dict[bytes, Any]) -> None:
        """Remember records as verified: this process computed them from verified ones."""
        if len(self._proven) > proven_max:
            self._proven = {}
        self._proven |= records

    def check(self, snapshot: Snapshot, key: bytes, record: Any) -> Any:
        """Compare ``record``, as stored on disk (None: missing), with the entries; return the record that they give.

        Raises Corrupted: they differ. While the log must be rewritten, a stored record may differ: it may still hold
        erased texts.
        """
        if record is not None and self._proven.get(key) == record:
            return record
        match key[:1]:
            case b"s":
                record = self._check_stream(snapshot, key, record)
            case b"a" | b"k" | b"v" if record is not None:
                record = self._check_agent(snapshot, key, record)
            case b"r" | b"y" if record is not None:
                is_redaction = key[:1] == b"r"
                proven = _redaction_of(snapshot, key) if is_redaction else _declared_kind(snapshot, key)
                if record != proven:
                    raise _differs("a redaction" if is_redaction else "a declared kind")
            case b"i" if record is not None:
                _check_idempotency(snapshot, key, record.index, record.digest)
            case _:  # no check: a missing record grants nothing, and other records do not derive from one stream
                return record
        if record is not None:
            self.learn({key: record})
        return record

    def _check_stream(self, snapshot: Snapshot, key: bytes, record: StreamRecord | None) -> StreamRecord | None:
        stream = key[1:].decode()
        if record is None:
            if any(True for _ in snapshot.stream_indexes(stream)):
                raise _differs(stream)
            return None
        family = stream.partition("/")[0]
        machine: StateMachine[Any] | Transition[Any] | None
        if family in _VERIFIED:
            machine = MACHINES[family]
        else:  # until the log is rewritten, the record may hold erased texts, and rules may compare them
            machine = rules_with_texts(stream) if snapshot.needs_rewriting() else None
        if machine is None:
            return record
        state = None
        indexes = snapshot.stream_indexes(stream)
        for event in _events(snapshot, stream, indexes):
            with contextlib.suppress(Refused):  # a refused entry is in the log, and changes nothing
                state = machine.decide(state, event)
        proven = StreamRecord(len(indexes), indexes[-1][0], state) if indexes else None
        if proven != record and not (proven is not None and snapshot.needs_rewriting()):
            raise _differs(stream)
        return proven

    def _check_agent(self, snapshot: Snapshot, key: bytes, record: AuthorityRecord) -> AuthorityRecord:
        name = record.agent if isinstance(record, KeyRecord) else record.name
        records = AgentRecords(name)
        streams = (_events(snapshot, "ledger"), _events(snapshot, f"agent/{name}"))
        for event in sorted(chain(*streams), key=lambda event: event.index):
            records.apply(event)
        proven: AuthorityRecord | None
        match record:
            case KeyRecord():
                found = records.key(key[1:].hex())
                proven = None if found is None else replace(found, used=record.used)
            case AgentRecord():
                proven = records.agent(key[1:].decode())
            case InvitationRecord():
                proven = records.invitation(key[1:].decode())
        if proven is None or (proven != record and not snapshot.needs_rewriting()):
            raise _differs(f"a key of {name}" if isinstance(record, KeyRecord) else f"agent {name}")
        return proven


def _declared_kind(snapshot: Snapshot, key: bytes) -> KindRecord | None:
    events = (event for event in _events(snapshot, f"kind/{key[1:].decode()}") if isinstance(event.data, KindDeclared))
    return next((record_of(event) for event in events), None)


def _redaction_of(snapshot: Snapshot, key: bytes) -> RedactionRecord | None:
    record: RedactionRecord | None = None
    index = int.from_bytes(key[1:], "big")
    if index < snapshot.size and is_remnant(body := decode_entry(snapshot.entry(index)).body):
        is_of_authority = head_of(body).kind in AUTHORITY_KINDS
        found = FoundRemnant(Erasure(read_remnant(body).redacted, digest_of(body)), is_of_authority)
        record = RedactionRecord(found=found)
    for event in _events(snapshot, "ledger"):
        if isinstance(event.data, Redaction) and event.data.entry == index:
            record = redaction.after(record, event)
    return record


def _events(snapshot: Snapshot, stream: str, indexes: list[tuple[int, bytes]] | None = None) -> Iterator[Event]:
    for version, (index, digest) in enumerate(snapshot.stream_indexes(stream) if indexes is None else indexes, 1):
        event, entry = _read(snapshot, index)
        if event.stream != stream or event.id != event_id(digest) or entry.stream_version != version:
            raise _differs(stream)
        if not snapshot.is_skipped(index):
            yield event


def _read(snapshot: Snapshot, index: int) -> tuple[Event, Entry]:
    try:
        entry = decode_entry(snapshot.entry(index))
        return read_event(index, entry), entry
    except Refused as error:
        message = f"entry {index} cannot be read ({error.message}): run `deed fsck`"
        raise Corrupted("CORRUPTED", message, index=index) from error


def _check_idempotency(snapshot: Snapshot, key: bytes, index: int, digest: bytes) -> None:
    if index < snapshot.size:
        event, entry = _read(snapshot, index)
        is_key = event.idem is not None and idempotency_key(event.author, event.idem) == key
        is_stale = is_remnant(entry.body) and snapshot.needs_rewriting()
        if is_key and (is_stale or idempotency_digest(read_stored(entry.body).raw) == digest):
            return
    raise _differs("an idempotency key")


def _differs(what: str) -> Corrupted:
    message = f"the stored record of {what} differs from its entries: somebody edited it. Run `deed fsck --repair`"
    return Corrupted("CORRUPTED", message, record=what)


def check_head(snapshot: Snapshot) -> None:
    """Compare the head's time and authority version with those of the last entry.

    Raises Corrupted: they differ, or an entry lost its body without a redaction.
    """
    head = snapshot.head
    if head is None:
        return
    last = decode_entry(snapshot.entry(head.size - 1))
    if (last.accepted_ms, last.authority_version) != (head.accepted_ms, head.authority_version):
        raise _differs("the ledger's head")
    check_confirmed(snapshot)


records_cached_max = 50_000


class Gate:
    """Admits submissions to one log. One thread at a time uses it.

    ``is_unfinished``: the last group found a log whose file has to be rewritten, and did not itself redact entries.
    """

    def __init__(
        self,
        log: Log,
        *,
        clock_ms: Callable[[], int] | None = None,
        quota: Quota | None = None,
        order: Order | None = None,
    ) -> None:
        """Guard ``log``. ``clock_ms`` returns Unix milliseconds (default: the system's clock).

        ``quota`` limits what one agent may append, and the gate then also requires the blobs that an event needs.
        Without it (creation, recovery) it checks neither. With several nodes, ``order`` publishes the decided entries
        before they are appended.
        """
        self._log = log
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._quota = quota
        self._order = order
        self._cache: dict[bytes, Any] = {}
        self._glanced: dict[bytes, Any] = {}
        self._cached_size = -1
        self._mark: bytes | None = None
        self.is_unfinished = False
        self._verifier = RecordVerifier()

    def submit(self, submission: Submission) -> list[Accepted]:
        """Admit one submission. If this returns, the submission is on disk; if it raises, none of it is in the log.

        Raises Refused: it was not admitted. Unavailable: the store could not be written. Corrupted: a record that it
        depends on differs from its entries.
        """
        answer = self.admit([check(submission)])[0]
        if isinstance(answer, DeedbookError):
            raise answer
        return answer

    def admit(self, group: Sequence[CheckedSubmission]) -> list[list[Accepted] | DeedbookError]:
        """Admit a group of checked submissions in one commit, and return the answers in the same order.

        If other nodes were faster, catch up and decide again. Raises Unavailable: ``BUSY``: other nodes were faster
        each time.
        """
        if self._order is None:
            return self._admit(group)
        for attempt in range(1, limits.publish_attempts_max + 1):
            try:
                return self._admit(group)
            except OvertakenError:
                self._order.catch_up(attempt)
        message = f"other nodes were faster {limits.publish_attempts_max} times, and nothing was recorded: try again"
        raise Unavailable("BUSY", message)

    def _admit(self, group: Sequence[CheckedSubmission]) -> list[list[Accepted] | DeedbookError]:
        try:
            with self._log.writing() as (txn, snapshot):
                if self._order is None:
                    check_is_alone(snapshot)
                base = Transaction(snapshot, self._usable_cache(snapshot), self._verifier, self._glanced)
                self.is_unfinished = self._mark is not None and not _are_redactions(group)
                layer = Layer(base)
                pending, system_ms = PendingEntries(), self._clock_ms()
                answers = [self._decide(checked, layer, system_ms, pending, base) for checked in group]
                if not pending.entries or layer.now_ms is None:
                    if self._order is not None and any(isinstance(answer, Refused) for answer in answers):
                        # This log may lack the latest entries of other nodes, which may allow the submission.
                        self._order.publish(snapshot.size, [])
                    return answers
                pending.accepted_ms = layer.now_ms
                pending.state = {key: encode_packed(record) for key, record in layer.records.items()}
                pending.authority_version = layer.authority_version
                if self._order is not None:
                    self._order.publish(snapshot.size, pending.entries)
                    # If we crash here, the stream is ahead of the log, which catches up at the next start. Nobody got
                    # an answer, and a caller that submits again gets the first answer.
                new_head = self._log.appender.append(txn, snapshot.head or first_head(layer.ledger), pending)
            # If we crash before this line, nothing of the group is in the log and nobody got an answer. After it, a
            # caller without an answer submits again, and gets the first answer.
        except BaseException:
            self._cached_size = -1
            raise
        if not pending.erased:  # else the records may hold erased texts
            self._cache |= layer.records
            self._cached_size = new_head.size
            self._verifier.learn(layer.records)
        return answers

    def _decide(
        self, checked: CheckedSubmission, layer: Layer, system_ms: int, pending: PendingEntries, base: Transaction
    ) -> list[Accepted] | DeedbookError:
        try:
            decided = decide(checked, layer, system_ms, partial(self._final_check, base))
        except (Refused, Unavailable, Corrupted) as refusal:
            # A spent quota, unreadable blobs or an edited record concern this submission only.
            return refusal
        if not decided.entries:
            return [base.first_answer(repeat.index, pending) for repeat in decided.accepted]
        pending.entries += decided.entries
        pending.leaves += decided.leaves
        pending.id_keys += [keys.id_key(candidate.body.stream, candidate.id) for candidate in checked.candidates]
        pending.erased |= base.erased
        return decided.accepted

    def _final_check(self, base: Transaction, checked: CheckedSubmission, layer: Layer, accepted_ms: int) -> None:
        """Make the checks that a replay does not make.

        It checks that a redaction fits its entry, that the author's quota suffices, that the needed blobs are here, and
        that no new content is sealed for an erased subject.

        Nobody can delete these blobs before the commit: that needs the write lock, which is held here
        (``ledger.log.expiry``).
        """
        if self._quota is not None:
            self._check_quota(self._quota, checked, layer, accepted_ms)
        # This is the last check, because the next commit erases the entry that it puts into ``base``: no later check
        # may refuse the submission.
        base.check_redactions(checked, accepted_ms)

    def _check_quota(self, quota: Quota, checked: CheckedSubmission, layer: Layer, accepted_ms: int) -> None:
        author = checked.candidates[0].body.author
        if author not in EXEMPT:
            key = keys.quota_key(author)
            spent: QuotaUsage = layer.record(key) or QuotaUsage()
            size = sum(len(candidate.raw) for candidate in checked.candidates)
            events = len(checked.candidates)
            layer.records[key] = spend(spent, quota, author=author, events=events, size=size, now_ms=accepted_ms)
        refusals = {
            position: Refused("NOT_FOUND", f"there is no blob {ref}: store it first with `deed blob put`", ref=ref)
            for position, candidate in enumerate(checked.candidates)
            for ref in blobs_of(candidate.data, candidate.raw)
            if self._log.blobs.find(ref) is None
        }
        refusals |= {
            position: sealed_too_late(reference.subject)
            for position, candidate in enumerate(checked.candidates)
            for reference in sealed_in(candidate.data)
            if not isinstance(candidate.data, HandoffAmended)  # an amendment may keep content that was sealed before
            and (record := layer.stream(f"subject/{reference.subject}")) is not None
            and record.state is not None
        }
        if refusals:
            raise refusal_of(refusals, len(checked.candidates))

    def _usable_cache(self, snapshot: Snapshot) -> dict[bytes, Any]:
        mark = snapshot.rewrite_mark()  # rewriting replaces records, and adds no entry
        if mark != self._mark:  # records that were verified before may hold erased texts
            self._verifier, self._cached_size, self._mark = RecordVerifier(), -1, mark
        if self._cached_size != snapshot.size or len(self._cache) + len(self._glanced) > records_cached_max:
            check_head(snapshot)
            self._cache, self._glanced = {}, {}
            self._cached_size = snapshot.size
        return self._cache


def _are_redactions(group: Sequence[CheckedSubmission]) -> bool:
    return all(isinstance(checked.candidates[0].data, Redaction) for checked in group)


class Transaction(Base):
    """The base of all layers: the cache, and behind it the log within one transaction."""

    def __init__(
        self,
        snapshot: Snapshot,
        cache: dict[bytes, Any],
        verifier: RecordVerifier | None = None,
        glanced: dict[bytes, Any] | None = None,
    ) -> None:
        """Read records missing in ``cache`` from ``snapshot``, and let ``verifier`` verify them.

        ``glanced`` are records of the same log that were read without verification. Newer ones are in ``cache``.
        """
        super().__init__()
        self._verifier = verifier or RecordVerifier()
        self._snapshot = snapshot
        self.erased: dict[int, bytes] = {}
        self._cache = cache
        self._glanced = {} if glanced is None else glanced
        if (head := snapshot.head) is not None:
            self.size, self.ledger, self.now_ms = head.size, head.ledger, head.accepted_ms
            self.authority_version = head.authority_version

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None."""
        record = self._cache.get(key)
        if record is None:
            record = self._verifier.check(self._snapshot, key, self.glance(key))
            if record is not None:
                self._cache[key] = record
        return record

    def glance(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None, as it is stored and perhaps not verified."""
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

    def check_redactions(self, checked: CheckedSubmission, accepted_ms: int) -> None:
        """Check a redaction against the entry that it names, and keep this entry without its body in ``erased``.

        Raises Refused: as ``erase_as_named``.
        """
        for candidate in checked.candidates:
            if isinstance(candidate.data, Redaction):
                event = make_event(
                    candidate.body,
                    candidate.data,
                    index=self.size,
                    event_id=candidate.id,
                    key=checked.submission.key,
                    accepted_ms=accepted_ms,
                )
                erased = erase_as_named(self._snapshot, event)
                if isinstance(candidate.data, EntryRedacted):
                    self.erased[erased.index] = erased.entry.encode()

    def first_answer(self, index: int, pending: PendingEntries) -> Accepted:
        """Return the answer that the first submission of the event at ``index`` got, perhaps in this group."""
        data = self._snapshot.entry(index) if index < self.size else pending.entries[index - self.size]
        entry = decode_entry(data)
        return Accepted(index, event_id(entry.commitment), entry.accepted_ms, is_repeat=True)


def check_is_alone(snapshot: Snapshot) -> None:
    """Refuse to append directly to a log that several nodes share, and name the address of its node.

    Raises Unavailable: ``SHARED_LOG``.
    """
    shared = snapshot.record(keys.SHARED_KEY)
    if shared is None:
        return
    message = f"several nodes share this ledger, and a running node writes to it: use `--server {shared.url}`"
    raise Unavailable("SHARED_LOG", message, node=shared.node, url=shared.url)


def state_of(snapshot: Snapshot) -> Layer:
    """Return the state that rules decide on, in one snapshot of the log. It is for checks that append nothing."""
    return Layer(Transaction(snapshot, {}))


def first_head(ledger: str | None) -> Head:
    """Return the head before entry 0 of a ledger."""
    if ledger is None:
        raise Corrupted("CORRUPTED", "the log lost its first entry: run `deed fsck`")
    return Head(FORMAT, ledger, 0, Frontier.empty().to_bytes(), 0, 0)
