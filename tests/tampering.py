"""Ledgers for tests of audits, and ways to damage or forge them without the gate."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from building import Ledger
from faults import chances, times

from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import (
    ED25519,
    ENTRY_VERSION,
    Entry,
    commitment_to,
    decode_entry,
    entry_leaf,
    event_id,
    signed_bytes,
)
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, CheckpointKeys
from deedbook.ledger.log import keys
from deedbook.ledger.log import tables as layout
from deedbook.ledger.log.log import PendingEntries

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.consumers.auditor.report import AuditReport

SESSION: Final = "session/audited"


def fill(ledger: Ledger, *, singles: int = 20, batch: int = 12) -> None:
    """Add a verified handoff, a session of single events, one batch, and a blob that an event refers to."""
    ledger.finish("first", verify=True, criteria=["it is checked"])
    ledger.emit("alice", SESSION, SessionStarted(task="audit"))
    for number in range(singles):
        ledger.clock.advance(1)
        ledger.emit("alice", SESSION, finding(number))
    drafts = [Draft(stream=SESSION, data=finding(number)) for number in range(batch)]
    ledger.clock.advance(1)
    ledger.submit(ledger.sign("alice", *drafts))
    ref = ledger.put_blob("alice", b"a file that is too large for an entry" * 4000)
    ledger.clock.advance(1)
    ledger.emit("bob", "session/bob", SessionStarted(task="look at a blob", resumes=ref))


def finding(number: int) -> FindingLogged:
    """Return a finding whose length depends on its number."""
    return FindingLogged(finding=f"finding {number}: " + "the pages lie " * (number % 7), impact=0.25)


def entries_of(ledger: Ledger) -> list[bytes]:
    """Return all entries."""
    with ledger.log.snapshot() as snapshot:
        return [snapshot.entry(index) for index in range(snapshot.size)]


def forged(ledger: Ledger, author: str, stream: str, data: object, *, key: str | None = None, kind: str = "") -> bytes:
    """Return an entry as a gate without rules would store it, signed with the key named ``key`` or the author's."""
    draft = Draft(stream=stream, data=data, kind=kind)  # type: ignore[arg-type]
    body = ledger.body_of(author, draft)
    signer = ledger.keys[key or author]
    with ledger.log.snapshot() as snapshot:
        assert snapshot.head is not None
        versions = (len(snapshot.stream_indexes(stream)) + 1, snapshot.head.authority_version)
    sig = signer.sign(signed_bytes([commitment_to(body)]))
    return Entry(ENTRY_VERSION, body, signer.public, ED25519, sig, 0, 1, ledger.clock.now_ms, *versions).encode()


def changed(data: bytes, **fields: object) -> bytes:
    """Return an entry with some fields replaced."""
    return msgspec.structs.replace(decode_entry(data), **fields).encode()


def append_behind_the_gate(ledger: Ledger, *entries: bytes) -> int:
    """Append entries as a gate without rules would, with versions, tree, ids and head; return the first index."""
    with ledger.log.writing() as (txn, snapshot):
        assert snapshot.head is not None
        versions: Counter[str] = Counter()
        pending = PendingEntries(
            accepted_ms=snapshot.head.accepted_ms, authority_version=snapshot.head.authority_version
        )
        for data in entries:
            entry = decode_entry(data)
            stream = entry.body.split(b'"stream":"')[-1].split(b'"')[0].decode()
            pending.authority_version += entry.body.split(b'"kind":"')[-1].split(b'"')[0].decode() in AUTHORITY_KINDS
            versions[stream] += 1
            number = len(snapshot.stream_indexes(stream)) + versions[stream]
            pending.entries.append(changed(data, stream_version=number, authority_version=pending.authority_version))
            pending.leaves.append(entry_leaf(pending.entries[-1]))
            pending.id_keys.append(keys.id_key(stream, event_id(entry.commitment)))
            pending.accepted_ms = max(pending.accepted_ms, entry.accepted_ms)
        first = snapshot.size
        ledger.log.appender.append(txn, snapshot.head, pending)
    return first


def overwrite(ledger: Ledger, entries: dict[int, bytes | None]) -> None:
    """Replace the bytes of some entries, or remove them; the tree and other tables stay unchanged."""
    with ledger.log.tables.writing() as txn:
        for index, data in entries.items():
            key = keys.index_key(index)
            if data is None:
                txn.delete(key, db=ledger.log.tables.entries)
            else:
                txn.put(key, data, db=ledger.log.tables.entries)


def rebuilt(ledger: Ledger, folder: Path, entries: list[bytes]) -> Ledger:
    """Return a ledger with a new log of exactly these entries and their tree, without the state of a replay."""
    made = Ledger.__new__(Ledger)
    vars(made).update(vars(ledger))
    made.home = type(ledger.home)(folder)
    (folder / "log").mkdir(parents=True)
    made.log = type(ledger.log)(folder, map_size=64 * 1024**2, create=True)
    first = layout.Head(layout.FORMAT, ledger.id, 0, b"", 0, 0)
    with made.log.tables.writing() as txn:
        signs = CheckpointKeys().named(0, NODE, ledger.keys[CHECKPOINT].public.hex())  # an export needs this record
        state = {keys.CHECKPOINT_KEYS_KEY: encode_packed(signs)}
        last = decode_entry(entries[-1])
        times = {"accepted_ms": last.accepted_ms, "authority_version": last.authority_version}
        pending = PendingEntries(entries, [entry_leaf(data) for data in entries], [], state, **times)
        made.log.appender.append(txn, first, pending)
    made.write_keys()
    return made


@contextlib.contextmanager
def flipped(path: Path, positions: list[int], mask: int) -> Iterator[None]:
    """Flip the bits of ``mask`` in the bytes at ``positions`` of a file, within a ``with`` block."""
    _flip(path, positions, mask)
    try:
        yield
    finally:
        _flip(path, positions, mask)


def places_of(path: Path, content: bytes) -> list[int]:
    """Return all positions of ``content`` in a file, including those in old page copies that LMDB leaves there."""
    data = path.read_bytes()
    found = []
    place = data.find(content)
    while place >= 0:
        found.append(place)
        place = data.find(content, place + 1)
    return found


def samples(name: str, count: int, *, slow: int = 0) -> list[random.Random]:
    """Return a random generator with a fixed seed for each sample, so that a failed sample can be repeated.

    A test that starts processes for each sample takes only ``slow`` samples, unless more faults are requested.
    """
    return chances(name, times(slow or count, count))


def named(report: AuditReport) -> set[int]:
    """Return the indexes that a report names."""
    return {one.index for one in report.problems if one.index is not None}


def codes_at(report: AuditReport, index: int) -> set[str]:
    """Return the codes of the problems at one index."""
    return {one.code for one in report.problems if one.index == index}


def _flip(path: Path, positions: list[int], mask: int) -> None:
    with path.open("r+b") as file:
        for position in positions:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes((byte ^ mask,)))


def packed(value: object) -> bytes:
    """Return a value as the state table stores it."""
    return encode_packed(value)
