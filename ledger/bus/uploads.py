"""Blobs that arrive over the bus in chunks, until they are whole and stored.

Chunks of one blob come in order from one agent; chunk 0 starts anew. What is unfinished lies in memory, so its number
and size are limited, and the oldest gives way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from ledger import limits
from ledger.errors import Refused
from ledger.log.blobs import check_blob

if TYPE_CHECKING:
    from ledger.local import LocalClient

uploads_max: Final = 4


class Uploads:
    """The unfinished blobs of one node."""

    def __init__(self, client: LocalClient) -> None:
        """Store what is whole through ``client``."""
        self._client = client
        self._unfinished: dict[tuple[str, str], bytearray] = {}
        self._lock = threading.Lock()

    def take(self, agent: str, ref: str, number: str, chunk: bytes) -> dict[str, Any]:
        """Take one chunk; ``number`` is ``N/COUNT``. Answers ``{"received": bytes}``, and ``"ref"`` once stored.

        Raises:
            Refused: ``INVALID_FIELD`` for a chunk out of order, ``TOO_LARGE``.
            Corrupted: ``VERIFICATION_FAILED`` when the whole is not what ``ref`` says.
        """
        position, _, count = number.partition("/")
        if not (position.isdecimal() and count.isdecimal() and int(position) < int(count)):
            raise Refused("INVALID_FIELD", f"{number!r} is no chunk number of the form N/COUNT", path="Baton-Chunk")
        with self._lock:
            content = self._add(agent, ref, int(position), chunk)
            if int(position) + 1 < int(count):
                return {"received": len(content)}
            del self._unfinished[agent, ref]
        whole = bytes(content)
        check_blob(ref, whole)
        return {"received": len(whole), "ref": self._client.put_blob(whole)}

    def _add(self, agent: str, ref: str, position: int, chunk: bytes) -> bytearray:
        key = (agent, ref)
        if position == 0:
            self._unfinished.pop(key, None)
            while len(self._unfinished) >= uploads_max:
                self._unfinished.pop(next(iter(self._unfinished)))
            self._unfinished[key] = bytearray()
        content = self._unfinished.get(key)
        if content is None or len(content) != position * limits.blob_chunk_bytes:
            self._unfinished.pop(key, None)
            raise Refused("INVALID_FIELD", f"chunk {position} of {ref} does not follow: start again at 0", ref=ref)
        if len(content) + len(chunk) > limits.blob_size_max_bytes:
            del self._unfinished[key]
            raise Refused("TOO_LARGE", f"a blob has at most {limits.blob_size_max_bytes} bytes", ref=ref)
        content += chunk
        return content
