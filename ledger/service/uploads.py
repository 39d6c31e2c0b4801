"""Blobs that arrive over the bus: a signed intent first, then its chunks in order.

An answer says how many bytes the ledger has. The agent continues from there, also after a lost answer or a restart of
the node. No part of an upload is kept in memory: unfinished uploads are on disk, and count against the agent's quota.
"""

from __future__ import annotations

import re
from typing import Any, Final

from deedbook.ledger.admission.intent import check_again
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER, INTENT
from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.envelope import decode_submission
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.log.uploads import UploadProgress

_NUMBER: Final = re.compile(r"[0-9]{1,5}")
_REF: Final = re.compile(REF_PATTERN)


def take(client: LocalClient, agent: str, ref: str, number: str, payload: bytes) -> dict[str, Any]:
    """Accept the intent of an upload (``number`` is ``intent``) or a chunk; the bus authenticated ``agent``.

    Returns ``{"received": stored bytes}``, and ``"ref"`` once the blob is stored. Raises Refused: ``INVALID_FIELD`` for
    a malformed ref or number; ``AUTHOR_MISMATCH`` for another agent's intent; as ``check_intent``, ``Uploads.begin``
    and ``Uploads.add``. Corrupted: ``VERIFICATION_FAILED`` when the content does not have the hash in ``ref``.
    """
    if _REF.match(ref) is None or not ref.startswith("blake3:"):
        raise Refused("INVALID_FIELD", "a blob's id must be blake3: and 64 hex digits", path=BLOB_HEADER)
    if number == INTENT:
        return _answer(_begin(client, agent, ref, payload))
    if _NUMBER.fullmatch(number) is None:
        raise Refused("INVALID_FIELD", f"this header must be the chunk's number or {INTENT}", path=CHUNK_HEADER)
    digest = bytes.fromhex(ref.partition(":")[2])
    intent = client.log.blobs.intent(agent, digest)
    if intent is not None:
        with client.log.snapshot() as snapshot:
            check_again(intent, snapshot, now_ms())
    return _answer(client.uploads.add(agent, digest, int(number), payload))


def _begin(client: LocalClient, agent: str, ref: str, payload: bytes) -> UploadProgress:
    intent = client.check_intent(decode_submission(payload))
    if intent.author != agent:
        raise Refused(
            "AUTHOR_MISMATCH", f"{agent} sent an intent signed by {intent.author}: sign your own", owner=agent
        )
    if intent.ref != ref:
        raise Refused("INVALID_FIELD", f"the intent is for {intent.ref}: send it under that id", path=BLOB_HEADER)
    return client.uploads.begin(intent)


def _answer(progress: UploadProgress) -> dict[str, Any]:
    return {"received": progress.received} | ({} if progress.ref is None else {"ref": progress.ref})
