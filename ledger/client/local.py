"""The client of a ledger in a folder on this machine: LMDB, no server, no network. It raises what ``Client`` says."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.intent import check_intent
from deedbook.ledger.client.client import Progress
from deedbook.ledger.client.stream_reader import StreamReader, pinned_root
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import Submission, decode_entry
from deedbook.ledger.format.forms import NODE
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import WITNESSED_FILE
from deedbook.ledger.log.blobs import blob_not_found
from deedbook.ledger.log.expiry import read_references
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import Uploads
from deedbook.ledger.proof.checkpoint import (
    Checkpoint,
    StreamHeads,
    note_size_max_bytes,
    sign_checkpoint,
    sign_stream_heads,
    verify_checkpoint,
)
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.secrets.scanner import check_text
from deedbook.ledger.system.files import read_regular
from deedbook.ledger.trust.history import ConsistencyProof, StreamPage, StreamRequest, log_notice

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.admission.gate import Publish
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blobs import BlobPage, BlobView, Intent
    from deedbook.ledger.log.state import Snapshot
    from deedbook.ledger.proof.checkpoint import CheckpointKey

from deedbook.ledger.client.local_reader import LocalReader, OpenViews


class LocalClient(LocalReader):
    """A ``Client`` of a ledger in a folder; any number of processes may have one on the same folder.

    One that ``needs_witnesses``, as a node's that fails closed, hands out no proof that they have not cosigned.
    """

    def __init__(self, settings: Settings, *, log: Log | None = None, views: OpenViews | None = None) -> None:
        """Open the log, or share an open one; as ``LocalReader``."""
        config = settings.config
        is_own = log is None
        log = log or Log(settings.home, map_size=config.map_size_bytes, blobs_map_size=config.blobs_map_size_bytes)
        self.log = log
        self.needs_witnesses = False
        self.node = NODE  # The agent that the node is, in whose process this is.

        # What publishes before this client appends, where several nodes have the ledger.
        self.publish: Publish | None = None
        self._gate: Gate | None = None
        try:
            super().__init__(settings, log=log, views=views)
        except BaseException:
            if is_own:
                log.close()
            raise
        self._owns_log = is_own

    def submit(self, submission: Submission) -> list[Accepted]:
        with self._lock:
            if self._gate is None:
                for notice in self.trust_store.rivals(self.consistency):  # before it parts from them
                    log_notice(notice)
                self._gate = Gate(self.log, quota=self.settings.config.quota, publish=self.publish)
            return self._gate.submit(submission)

    def signed_consistency(self, old_size: int) -> ConsistencyProof:
        """Return what ``consistency`` does, with a signed checkpoint of that head, as it goes over the bus.

        Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            note = _signed(snapshot, self._checkpoint_key(snapshot))
            return replace(snapshot.consistency(old_size), checkpoint=note)

    def signed_stream(self, asked: StreamRequest) -> StreamPage:
        """Return the same with what the ledger's key signs of the head and the stream's end, as it goes over the bus.

        Raises Refused: as ``checkpoint``.
        """
        with self.log.snapshot() as snapshot:
            page = snapshot.stream_page(asked)
            if asked.size is not None:
                return page
            note = _signed(snapshot, self._checkpoint_key(snapshot))
            ends = self._ends(snapshot, snapshot.size, [asked.stream])
        return replace(page, consistency_proof=replace(page.consistency_proof, checkpoint=note), ends=ends)

    @cached_property
    def streams(self) -> StreamReader:
        file = None if self.settings.only_looks else self.trust_store.authority_file
        return StreamReader(self, file, is_pinned=pinned_root(self.settings.home, self.ledger) is not None)

    def agents(self) -> list[AgentRecord]:
        with self.log.snapshot() as snapshot:
            return snapshot.agents()

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry, under the last checkpoint that was witnessed, if that covers it.

        Raises Corrupted: ``NOT_WITNESSED``: it does not, and this node hands out no other.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            if index >= size:
                note, size = self._unwitnessed(snapshot), snapshot.size
            return Receipt(index, tuple(snapshot.inclusion_proof(index, size)), note)

    def checkpoint(self) -> str:
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            return note if size == snapshot.size else _signed(snapshot, self._checkpoint_key(snapshot))

    def published_checkpoint(self) -> str:
        """Return the checkpoint that outsiders may see: ``checkpoint`` or, where witnesses are demanded, their last.

        Raises Corrupted: ``NOT_WITNESSED``: there is none yet.
        """
        with self.log.snapshot() as snapshot:
            note, size = self._witnessed(snapshot)
            return note if size == snapshot.size or (size and self.needs_witnesses) else self._unwitnessed(snapshot)

    def _unwitnessed(self, snapshot: Snapshot) -> str:
        if self.needs_witnesses:
            message = "this is not witnessed yet, and this node hands out nothing else: ask again later"
            raise Corrupted("NOT_WITNESSED", message, size=snapshot.size)
        return _signed(snapshot, self._checkpoint_key(snapshot))

    def _witnessed(self, snapshot: Snapshot) -> tuple[str, int]:
        """Return the last checkpoint that was witnessed, and its size; 0 when there is none of this log."""
        with suppress(DeedbookError, UnicodeDecodeError):
            content = read_regular(self.settings.home / WITNESSED_FILE, size_max_bytes=note_size_max_bytes)
            if content is None:
                return "", 0
            note = content.decode()
            checkpoint = verify_checkpoint(note, self._checkpoint_key(snapshot).verifier)
            if snapshot.frontier(checkpoint.size).root() == checkpoint.root:
                return note, checkpoint.size
        return "", 0  # damaged, of a key that was replaced, or of a log that is no more: it counts for nothing

    def ends(self, size: int, streams: Collection[str]) -> str:
        with self.log.snapshot() as snapshot:
            return self._ends(snapshot, size, streams)

    def _ends(self, snapshot: Snapshot, size: int, streams: Collection[str]) -> str:
        root = snapshot.frontier(size).root().hex()
        authority = decode_entry(snapshot.entry(size - 1)).authority_version
        versions = {name: sum(index < size for index, _ in snapshot.stream_indexes(name)) for name in streams}
        return sign_stream_heads(StreamHeads(size, root, authority, versions), self._checkpoint_key(snapshot))

    def checkpoint_keys(self) -> tuple[str, ...]:
        """Return the keys (hex) that may sign checkpoints now."""
        with self.log.snapshot() as snapshot:
            return snapshot.checkpoint_keys()

    @cached_property
    def uploads(self) -> Uploads:
        """What writes blobs, within the quota of each author."""
        return Uploads(self.log.blobs, self.settings.config.quota, check_text)

    def check_intent(self, intent: Submission) -> Intent:
        """Return the intent of an upload, checked as an event of its author would be now."""
        with self.log.snapshot() as snapshot:
            return check_intent(intent, snapshot, now_ms())

    def put_blob(self, content: bytes, intent: Submission, progress: Progress = lambda _done, _total: None) -> str:
        ref = self.uploads.put(content, self.check_intent(intent)).ref
        progress(len(content), len(content))
        return ref

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        record = self.log.blobs.find(ref)
        if record is None:
            raise blob_not_found(ref)
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
        # What cannot be written (read-only media, a full map) can still be read, as it was when it could.
        with suppress(Unavailable):
            read_references(self.log)

    def get_blob(self, ref: str) -> bytes:
        return self.log.blobs.get(ref)

    def _checkpoint_key(self, snapshot: Snapshot) -> CheckpointKey:
        created = read_event(0, snapshot.entry(0)).data
        assert isinstance(created, LedgerCreated)  # noqa: S101 - entry 0 is nothing else
        return Home(self.settings.home).checkpoint_key(created.origin, snapshot.checkpoint_keys())


def now_ms() -> int:
    """Return the system's clock (Unix ms)."""
    return time.time_ns() // 1_000_000


def _signed(snapshot: Snapshot, key: CheckpointKey) -> str:
    return sign_checkpoint(Checkpoint(key.origin, snapshot.size, snapshot.root()), key)
