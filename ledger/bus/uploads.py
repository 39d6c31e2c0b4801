"""Blobs that arrive over the bus in chunks, until they are whole and stored.

What is unfinished lies in memory, so there are limits: one blob an agent, a few in all, each of a blob's size. An
answer says how many bytes are held, and whoever sends goes on from there, also after a lost answer or a restart of the
node; a blob that is stored already is answered as if its last chunk had come.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger import limits
from ledger.errors import Refused, Unavailable
from ledger.events.fields import REF_PATTERN
from ledger.log.blobs import check_blob

if TYPE_CHECKING:
    from ledger.local import LocalClient

BLOB_HEADER: Final = "Baton-Blob"
CHUNK_HEADER: Final = "Baton-Chunk"

uploads_max: Final = 4
idle_max_s: Final = 5.0
"""After so long without a chunk an upload gives way to another: shorter than a client goes on trying."""

_NUMBER: Final = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")
_REF: Final = re.compile(REF_PATTERN)


class _Upload(msgspec.Struct):
    ref: str
    content: bytearray
    touched_s: float


class Uploads:
    """The unfinished blobs of one node; threads may share it."""

    def __init__(self, client: LocalClient, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Store what is whole through ``client``; ``clock_s`` tells how long an upload was idle."""
        self._client = client
        self._clock_s = clock_s
        self._unfinished: dict[str, _Upload] = {}
        self._lock = threading.Lock()

    def take(self, agent: str, ref: str, number: str, chunk: bytes) -> dict[str, Any]:
        """Take one chunk; ``number`` is ``N/COUNT``. Answers ``{"received": bytes held}``, and ``"ref"`` once stored.

        Raises:
            Refused: ``INVALID_FIELD`` for a malformed ref or number, ``TOO_LARGE``, ``SECRET_DETECTED``.
            Unavailable: ``BUSY`` while this agent sends another blob, or too many agents send one.
            Corrupted: ``VERIFICATION_FAILED`` when the whole is not what ``ref`` says.
        """
        position, count = _checked(ref, number, chunk)
        stored = self._client.log.blobs.find(ref)
        if stored is not None:
            return {"received": stored.size, "ref": stored.ref}
        with self._lock:
            content = self._add(agent, ref, position, chunk)
            if content is None or position + 1 < count:
                return {"received": self._held(agent, ref)}
            del self._unfinished[agent]
        whole = bytes(content)
        check_blob(ref, whole)
        return {"received": len(whole), "ref": self._client.put_blob(whole)}

    def _add(self, agent: str, ref: str, position: int, chunk: bytes) -> bytearray | None:
        """Return the content with the chunk at its end; None when that is not where the chunk belongs."""
        if position * limits.blob_chunk_bytes != self._held(agent, ref):
            return None
        upload = self._unfinished.get(agent)
        if upload is None or upload.ref != ref:
            self._make_room(agent)
            upload = self._unfinished[agent] = _Upload(ref, bytearray(), 0.0)
        upload.content += chunk
        upload.touched_s = self._clock_s()
        return upload.content

    def _held(self, agent: str, ref: str) -> int:
        upload = self._unfinished.get(agent)
        return len(upload.content) if upload is not None and upload.ref == ref else 0

    def _make_room(self, agent: str) -> None:
        """Give up an idle upload, of this agent or else the oldest, if there must be room."""
        if agent not in self._unfinished:
            if len(self._unfinished) < uploads_max:
                return
            agent = min(self._unfinished, key=lambda one: self._unfinished[one].touched_s)
        if self._clock_s() - self._unfinished[agent].touched_s < idle_max_s:
            raise Unavailable("BUSY", "other blobs are being sent at this moment: try again")
        del self._unfinished[agent]


def _checked(ref: str, number: str, chunk: bytes) -> tuple[int, int]:
    if _REF.match(ref) is None:
        raise Refused("INVALID_FIELD", f"{ref[:80]!r} is not the ref of a blob", path=BLOB_HEADER)
    match = _NUMBER.fullmatch(number)
    position, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if position >= count:
        raise Refused("INVALID_FIELD", f"{number[:80]!r} is no chunk number of the form N/COUNT", path=CHUNK_HEADER)
    if len(chunk) > limits.blob_chunk_bytes or count > -(-limits.blob_size_max_bytes // limits.blob_chunk_bytes):
        message = f"a blob has at most {limits.blob_size_max_bytes} bytes, in chunks of {limits.blob_chunk_bytes}"
        raise Refused("TOO_LARGE", message, ref=ref)
    if position + 1 < count and len(chunk) != limits.blob_chunk_bytes:
        raise Refused("INVALID_FIELD", f"only the last chunk is shorter than {limits.blob_chunk_bytes} bytes", ref=ref)
    return position, count
