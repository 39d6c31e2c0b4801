"""The baselines of rows: the ``eventsourcing`` library on SQLite, LMDB itself, and libsodium's rate of verification.

The library saves the same content, as the JSON that its transcoder makes of the same values: unsigned, unhashed, with
no rule but its own version check, in one fresh aggregate for each batch. Its aggregates are built beforehand, so only
``Application.save`` is timed: the time until the events are on disk. SQLite has the library's own settings: WAL,
``synchronous`` at its default FULL, which syncs once a commit.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from nacl import bindings

from deedbook.ledger.format.envelope import commitment_to, signed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deedbook.ledger.format.envelope import Submission

CORES = len(os.sched_getaffinity(0))


class Stream(Aggregate):
    """An aggregate whose events hold the bodies of a stream."""

    @event("Started")
    def __init__(self, body: dict[str, Any]) -> None:
        self.count = 1

    @event("Recorded")
    def record(self, body: dict[str, Any]) -> None:
        """Record one more event."""
        self.count += 1


def open_rival(path: Path) -> Application:
    """Open the library on a SQLite file."""
    return Application(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)})


def open_lmdb(path: Path) -> lmdb.Environment:
    """Open an LMDB environment of its own that commits as the log's does."""
    return lmdb.open(str(path), map_size=2**30, sync=True, metasync=True, writemap=False)


def put(environment: lmdb.Environment, number: int, at: int, entry: bytes) -> None:
    """Commit one entry under its own key; keys grow as indexes do."""
    with environment.begin(write=True) as transaction:
        transaction.put(number.to_bytes(8, "big") + at.to_bytes(8, "big"), entry, append=True)


def aggregate_of(bodies: Sequence[bytes]) -> Stream:
    """Return a fresh aggregate with one event for each body, not yet saved."""
    first, *rest = (msgspec.json.decode(body) for body in bodies)
    stream = Stream(first)
    for body in rest:
        stream.record(body)
    return stream


def signed_of(submission: Submission) -> tuple[bytes, bytes]:
    """Return the arguments of libsodium's verification: (signature + message, key)."""
    commitments = [commitment_to(body) for body in submission.bodies]
    return submission.sig + signed_bytes(commitments), submission.key


def verify_all(signed: Sequence[tuple[bytes, bytes]], threads: int = 1) -> None:
    """Verify signatures through PyNaCl's bindings, in ``threads`` threads: libsodium releases the interpreter lock."""
    if threads == 1:
        _verify(signed)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_verify, [signed[start::threads] for start in range(threads)]))


def _verify(signed: Sequence[tuple[bytes, bytes]]) -> None:
    check = bindings.crypto_sign_open
    for message, key in signed:
        check(message, key)
