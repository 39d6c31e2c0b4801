"""The client of a ledger in a folder on this machine: LMDB, no server, no network. ``Client`` documents its calls."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.intent import check_intent
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.client import Progress, open_content
from deedbook.ledger.client.local_streams import streams_of
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import Submission, decode_entry
from deedbook.ledger.format.forms import NODE
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import WITNESSED_FILE
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log.expiry import read_references
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import Uploads
from deedbook.ledger.proof.checkpoint import (
    Checkpoint,
    StreamHeads,
    note_size_max_bytes,
    sign_address,
    sign_checkpoint,
    sign_stream_heads,
    verify_checkpoint,
)
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.secrets.scanner import check_text
from deedbook.ledger.system.files import read_chunks, read_regular
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest, log_notice

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.admission.order import Order
    from deedbook.ledger.client.stream_reader import StreamReader
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blob_table import Intent
    from deedbook.ledger.log.blobs import BlobPage, BlobView
    from deedbook.ledger.log.state import Snapshot
    from deedbook.ledger.proof.checkpoint import CheckpointKey

from deedbook.ledger.client.local_reader import LocalReader, OpenViews


class LocalClient(LocalReader):
    """A ``Client`` of a ledger in a folder. Any number of processes may open the same folder.

    With ``needs_witnesses`` it returns only receipts that witnesses cosigned. A node with ``fail = "closed"`` sets it.
    """

    def __init__(self, settings: Settings, *, log: Log | None = None, views: OpenViews | None = None) -> None:
        """Open the log, or share an open ``log``. Raises as ``LocalReader``."""
        config = settings.config
        owns_log = log is None
        log = log or Log(settings.home, map_size=config.map_size_bytes, blobs_size_max=config.blobs_size_max_bytes)
        self.log = log
        self.needs_witnesses = False
        self.node = NODE  # The agent of the node in whose process this client runs.

        # With several nodes, the stream that orders entries before this client appends them.
        self.order: Order | None = None
        self._gate: Gate | None = None
        try:
            super().__init__(settings, log=log, views=views)
        except BaseException:
            if owns_log:
                log.close()
            raise
        self._owns_log = owns_log

    def submit(self, submission: Submission) -> list[Accepted]:
        with self._lock:
            if self._gate is None:
                # Warn now, before this write makes the copies of the log differ.
                for notice in self.trust_store.rivals(self.consistency):
                    log_notice(notice)
                self._gate = Gate(self.log, quota=self.settings.config.quota, order=self.order)
            accepted = self._gate.submit(submission)
            is_unfinished = self._gate.is_unfinished
        if is_unfinished:  # an earlier redaction was interrupted; if another process is finishing it, leave it to that
            try:
                self.finish_erasures(waits=False)
            except (Unavailable, Corrupted) as error:  # no reason to fail: the submission is in the log
                log_notice(f"texts that were erased are still in the log's file, {error.message}")
        return accepted

    def finish_erasures(self, progress: Progress = lambda _done, _total: None, *, waits: bool = True) -> None:
        """Rewrite the log's file, if it still holds an erased body (``admission.rewriter``)."""
        finish_erasures(self.log, progress, waits=waits)

    def signed_consistency(self, old_size: int) -> ConsistencyProof:
        """Return the answer of ``consistency`` with a signed checkpoint of its head, for a reader on the bus.

        Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            note = _sign_head(snapshot, self._checkpoint_key(snapshot))
            return replace(snapshot.consistency(old_size), checkpoint=note)

    def signed_stream(self, request: StreamRequest) -> StreamPage:
        """Return the page of ``stream`` with a signed checkpoint and the signed length of the stream, for the bus.

        With ``request.size`` nothing is signed. Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            page = snapshot.stream_page(request)
            if request.size is not None:
                return page
            note = _sign_head(snapshot, self._checkpoint_key(snapshot))
            ends = self._sign_ends(snapshot, snapshot.size, [request.stream])
        return replace(page, consistency_proof=replace(page.consistency_proof, checkpoint=note), ends=ends)

    @cached_property
    def streams(self) -> StreamReader:
        return streams_of(self)

    def agents(self) -> list[AgentRecord]:
        with self.log.snapshot() as snapshot:
            return snapshot.agents()

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry, under the last witnessed checkpoint if that includes the entry.

        Raises Corrupted: ``NOT_WITNESSED``: it does not, and this client needs witnesses.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._find_witnessed(snapshot)
            if index >= size:
                note, size = self._sign_unwitnessed(snapshot), snapshot.size
            return Receipt(index, tuple(snapshot.inclusion_proof(index, size)), note)

    def checkpoint(self) -> str:
        with self.log.snapshot() as snapshot:
            note, size = self._find_witnessed(snapshot)
            return note if size == snapshot.size else _sign_head(snapshot, self._checkpoint_key(snapshot))

    def published_checkpoint(self) -> str:
        """Return the checkpoint for outsiders. If this client needs witnesses, it is the last witnessed one.

        Raises Corrupted: ``NOT_WITNESSED``: there is none yet.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._find_witnessed(snapshot)
            if size == snapshot.size or (size and self.needs_witnesses):
                return note
            return self._sign_unwitnessed(snapshot)

    def _sign_unwitnessed(self, snapshot: Snapshot) -> str:
        if self.needs_witnesses:
            message = "this is not witnessed yet, and this node returns only what witnesses cosigned: try again later"
            raise Corrupted("NOT_WITNESSED", message, size=snapshot.size)
        return _sign_head(snapshot, self._checkpoint_key(snapshot))

    def _find_witnessed(self, snapshot: Snapshot) -> tuple[str, int]:
        """Return the last witnessed checkpoint and its size; an empty note and 0 when there is none of this log."""
        with suppress(DeedbookError, UnicodeDecodeError):
            content = read_regular(self.settings.home / WITNESSED_FILE, size_max_bytes=note_size_max_bytes)
            if content is None:
                return "", 0
            note = content.decode()
            checkpoint = verify_checkpoint(note, self._checkpoint_key(snapshot).verifier)
            if snapshot.frontier(checkpoint.size).root() == checkpoint.root:
                return note, checkpoint.size
        return "", 0  # the file is damaged, signed by a replaced key, or of a history that was abandoned: ignore it

    def sign_address(self, url: str) -> str:
        """Return the signed note of the address of the node in whose process this client runs. Raises as ``prove``."""
        with self.log.snapshot() as snapshot:
            return sign_address(url, self._checkpoint_key(snapshot))

    def ends(self, size: int, streams: Collection[str]) -> str:
        with self.log.snapshot() as snapshot:
            return self._sign_ends(snapshot, size, streams)

    def _sign_ends(self, snapshot: Snapshot, size: int, streams: Collection[str]) -> str:
        root = snapshot.frontier(size).root().hex()
        authority = decode_entry(snapshot.entry(size - 1)).authority_version
        versions = {name: sum(index < size for index, _ in snapshot.stream_indexes(name)) for name in streams}
        return sign_stream_heads(StreamHeads(size, root, authority, versions), self._checkpoint_key(snapshot))

    def checkpoint_keys(self) -> tuple[str, ...]:
        """Return the public keys (hex) that may sign checkpoints now."""
        with self.log.snapshot() as snapshot:
            return snapshot.checkpoint_keys()

    @cached_property
    def uploads(self) -> Uploads:
        """The writer of blobs. It enforces the quota of each author."""
        return Uploads(self.log.blobs, self.settings.config.quota, check_text)

    def check_intent(self, intent: Submission) -> Intent:
        """Check the signed intent of an upload like any event of its author, and return it."""
        with self.log.snapshot() as snapshot:
            return check_intent(intent, snapshot, now_ms())

    def put_blob(
        self, content: bytes | BinaryIO, intent: Submission, progress: Progress = lambda _done, _total: None
    ) -> str:
        file, size = open_content(content)
        ref = self.uploads.put(read_chunks(file, blob_chunk_bytes), self.check_intent(intent)).ref
        progress(size, size)
        return ref

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        record = self.log.blobs.read_record(ref)
        if not 0 <= number < max(record.chunk_count, 1):
            raise Refused("NOT_FOUND", f"blob {ref} has no chunk {number}", size=record.size)
        return record.size, self.log.blobs.chunk(record, number) if record.size else b""

    def stat_blob(self, ref: str) -> BlobView:
        self._read_references()
        return self.log.blobs.stat(ref)

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        self._read_references()
        return self.log.blobs.page(after, limit=limit, author=author, unreferenced=unreferenced)

    def _read_references(self) -> None:
        # On read-only media or in a full map this cannot be written. Then only the references that were stored before
        # are valid.
        with suppress(Unavailable):
            read_references(self.log)

    def blob_chunks(self, ref: str) -> Iterator[bytes]:
        return self.log.blobs.chunks(self.log.blobs.read_record(ref))

    def get_blob(self, ref: str) -> bytes:
        return self.log.blobs.get(ref)

    def _checkpoint_key(self, snapshot: Snapshot) -> CheckpointKey:
        """Return the key that signs checkpoints. Refuse if the log contradicts the trust store."""
        if self.disagreement is not None:
            raise self.disagreement
        created = read_event(0, snapshot.entry(0)).data
        assert isinstance(created, LedgerCreated)  # noqa: S101 - entry 0 is nothing else
        return Home(self.settings.home).checkpoint_key(created.origin, snapshot.checkpoint_keys())


def now_ms() -> int:
    """Return the time of the system clock (Unix ms)."""
    return time.time_ns() // 1_000_000


def _sign_head(snapshot: Snapshot, key: CheckpointKey) -> str:
    return sign_checkpoint(Checkpoint(key.origin, snapshot.size, snapshot.root()), key)
