"""The log stream in use, and the blobs of entries, which the nodes of one ledger keep in JetStream beside the log.

The chunks of a blob are messages of a stream; the last message on a subject counts. A node writes the first chunk last.
So a blob with a first chunk is whole, unless a node wrote wrong content. A node that publishes an entry first corrects
the chunks of the blobs that it refers to. If a blob was erased, a message in place of its first chunk says so, for
nodes that later read an entry that refers to the blob.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import BinaryIO, Final

import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RawStreamMsg, StorageType, StreamConfig

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.publisher import WRONG_LAST_SEQUENCE
from deedbook.ledger.bus.stream import Generation, stated, stream_info
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.format.codec import decode_decimal
from deedbook.ledger.log.blobs import Blobs, check_blob
from deedbook.ledger.system.files import read_chunks

_CHUNKS: Final = "Deedbook-Chunks"
_ERASED: Final = "Deedbook-Erased"
answer_wait_s: Final = 1.0
"""The wait for an answer before the node asks again: servers drop requests while they elect a leader."""

_sent_at_once: Final = 8


async def stream_in_use(client: Client, ledger: str) -> Generation | None:
    """Return the log stream in use; None when there is none. Raises Unavailable: ``BUS_UNAVAILABLE``."""
    manager = client.jetstream(timeout=answer_wait_s)
    try:
        with bus_errors("looking for the log stream"):
            name = await manager.find_stream_name_by_subject(subjects.event_pattern(ledger))
        number = int(name.rpartition("_")[2])
        info = await stream_info(client, Generation(ledger, number), answer_wait_s)
    except Unavailable as error:
        if error.code != "BUS_DEGRADED":
            raise
        return None
    return stated(Generation(ledger, number, max(info.state.first_seq, 1)), info)


class BlobStream:
    """The blobs that entries of one ledger refer to, for nodes that do not have them yet."""

    def __init__(self, client: Callable[[], Client], ledger: str, replicas: int) -> None:
        self._client = client
        self._ledger = ledger
        self._replicas = replicas
        self._whole: set[str] = set()

    async def put(self, ref: str, blobs: Blobs) -> None:
        """Put a blob of ``blobs`` into the stream. Raises Unavailable: ``BUS_UNAVAILABLE``: the stream may lack it."""
        if ref in self._whole or (record := blobs.find(ref)) is None:
            return
        await self._make()
        count = max(record.chunk_count, 1)
        first = await asyncio.to_thread(blobs.chunk, record, 0) if record.size else b""
        with bus_errors(f"publishing blob {ref}"):
            if not _is_chunk(await self._find(ref, 0), first, count):
                for begin in range(1, count, _sent_at_once):
                    numbers = range(begin, min(begin + _sent_at_once, count))
                    chunks = [await asyncio.to_thread(blobs.chunk, record, number) for number in numbers]
                    await asyncio.gather(
                        *(self._put(ref, number, chunk, count) for number, chunk in zip(numbers, chunks, strict=True))
                    )
                await self._put(ref, 0, first, count)
        self._whole.add(ref)

    async def erase(self, refs: Collection[str]) -> None:
        """Remove these blobs from the stream, and mark them as erased in it.

        If the stream holds one of them, the whole stream is deleted, because servers keep the content of a deleted
        message in other files, too (``bus.stream``). The caller then puts the other blobs again. Raises Unavailable:
        ``BUS_UNAVAILABLE``.
        """
        if not refs:
            return
        await self._make()
        with bus_errors("erasing blobs"):
            firsts = [await self._find(ref, 0) for ref in sorted(refs)]
            if any(first is not None and not _says_erased(first) for first in firsts):
                manager = self._client().jetstream(timeout=limits.request_timeout_s)
                await manager.delete_stream(subjects.blob_stream_name(self._ledger))
                # If we crash here, other nodes wait for the other blobs until this is called again.
                await self._make()
                firsts = [None] * len(firsts)
            for ref, first in zip(sorted(refs), firsts, strict=True):
                if first is None:
                    subject = subjects.blob_subject(self._ledger, ref, 0)
                    await self._client().jetstream().publish(subject, b"", headers={_ERASED: "1"})
        self._whole |= {*refs}

    async def is_erased(self, ref: str) -> bool:
        """Return whether the stream says that a blob was erased. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        with bus_errors(f"reading blob {ref}"):
            first = await self._find(ref, 0)
        return first is not None and _says_erased(first)

    def forget(self) -> None:
        """Forget which blobs the stream holds: it may be another stream now."""
        self._whole.clear()

    async def get(self, ref: str, file: BinaryIO) -> None:
        """Write a blob to an empty file.

        Raises Unavailable: ``BUS_UNAVAILABLE``: the stream lacks it or holds wrong content. That is no damage of the
        log stream. Entries that refer to the blob wait until a node that has it writes it.
        """
        try:
            with bus_errors(f"reading blob {ref}"):
                await self._read(ref, file)
            await asyncio.to_thread(check_blob, ref, read_chunks(file, limits.blob_chunk_bytes))
        except DeedbookError as error:
            raise Unavailable(
                "BUS_UNAVAILABLE", f"blob {ref} is not available yet: {error.message}", ref=ref
            ) from error

    async def _read(self, ref: str, file: BinaryIO) -> None:
        first = await self._get(ref, 0)
        file.write(first.data or b"")
        count = decode_decimal((first.headers or {}).get(_CHUNKS, "1"), _CHUNKS)
        for begin in range(1, count, _sent_at_once):
            if file.tell() > limits.blob_size_max_bytes:
                break  # no blob is that large
            numbers = range(begin, min(begin + _sent_at_once, count))
            messages = await asyncio.gather(*(self._get(ref, number) for number in numbers))
            file.writelines(message.data or b"" for message in messages)

    async def _get(self, ref: str, number: int) -> RawStreamMsg:
        manager = self._client().jetstream(timeout=limits.request_timeout_s)
        subject = subjects.blob_subject(self._ledger, ref, number)
        return await manager.get_msg(subjects.blob_stream_name(self._ledger), subject=subject)

    async def _find(self, ref: str, number: int) -> RawStreamMsg | None:
        try:
            return await self._get(ref, number)
        except nats.js.errors.NotFoundError:
            return None

    async def _put(self, ref: str, number: int, chunk: bytes, count: int) -> None:
        manager = self._client().jetstream(timeout=limits.request_timeout_s)
        for _ in range(limits.retry_attempts_max):
            stored = await self._find(ref, number)
            if _is_chunk(stored, chunk, count):
                return
            last = stored.seq if stored else 0
            headers = {_CHUNKS: str(count), "Nats-Expected-Last-Subject-Sequence": str(last)}
            try:
                await manager.publish(subjects.blob_subject(self._ledger, ref, number), chunk, headers=headers)
            except nats.js.errors.APIError as error:
                if error.err_code not in WRONG_LAST_SEQUENCE:
                    raise
            else:
                return
        raise Unavailable("BUS_UNAVAILABLE", f"another node writes wrong content as chunk {number} of blob {ref}")

    async def _make(self) -> None:
        manager = self._client().jetstream(timeout=limits.request_timeout_s)
        name = subjects.blob_stream_name(self._ledger)
        with bus_errors(f"making stream {name}"):
            try:
                await manager.stream_info(name)
            except nats.js.errors.NotFoundError:
                config = StreamConfig(
                    name=name,
                    subjects=[subjects.blob_subject(self._ledger, "", ">")],
                    storage=StorageType.FILE,
                    discard=DiscardPolicy.NEW,
                    num_replicas=self._replicas,
                    deny_delete=True,
                    deny_purge=True,
                )
                await manager.add_stream(config)


def _says_erased(stored: RawStreamMsg) -> bool:
    return _ERASED in (stored.headers or {})


def _is_chunk(stored: RawStreamMsg | None, chunk: bytes, count: int) -> bool:
    """Whether a message holds this chunk of a blob of ``count`` chunks."""
    return stored is not None and (stored.data or b"", (stored.headers or {}).get(_CHUNKS)) == (chunk, str(count))
