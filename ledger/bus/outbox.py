"""The log as messages: what the publisher sends, and how a receiver gets the entry back from one.

Payload = the body, byte for byte, so any NATS tool can read it. Short headers hold the rest of the entry, and for an
event of a signed batch its path: a follower rebuilds the entry's exact bytes, a subscriber verifies the signature
from the message alone. Headers have one form: what differs from ``headers_of`` is refused. Two of them, the index and
the accepted time, are the ledger's word and not the author's, so no signature covers them: they are the leaf that the
log's tree covers, and who must rely on them compares the entry with a receipt or reads it by index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.bus.publisher import OutboundMessage
from ledger.bus.subjects import event_subject
from ledger.codec import decode_base64, decode_decimal, encode_base64
from ledger.envelope import ED25519, ENTRY_VERSION, Entry, batch_root_pae, decode_entry, event_id, pae
from ledger.errors import Corrupted, Refused, message_of
from ledger.identity import verify
from ledger.limits import batch_size_max_bytes
from ledger.merkle import inclusion_proof, leaf_hash, node_hash, subtrees_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.log.log import Log
    from ledger.log.read import Snapshot

INDEX: Final = "Baton-Index"
ID: Final = "Baton-Id"
KEY: Final = "Baton-Key"
SIGNATURE: Final = "Baton-Sig"
ACCEPTED: Final = "Baton-Accepted"
BATCH: Final = "Baton-Batch"
PATH: Final = "Baton-Path"
_PUBLISHED: Final = "Baton-"


class _Address(msgspec.Struct):
    """What of a body is in its subject."""

    kind: str
    stream: str


_address = msgspec.json.Decoder(_Address)


class Outbox:
    """Reads one log as messages, from any index on."""

    def __init__(self, log: Log, ledger: str) -> None:
        """Read ``log`` of ``ledger``."""
        self._log = log
        self._ledger = ledger

    def read(self, after_index: int, limit: int) -> list[OutboundMessage]:
        """Return at most ``limit`` messages after ``after_index``, in order."""
        with self._log.snapshot() as snapshot:
            start = after_index + 1
            raw = snapshot.entries(start, limit=limit, size_max_bytes=2 * batch_size_max_bytes)
            return self._messages(snapshot, start, raw)

    def _messages(self, snapshot: Snapshot, start: int, raw: list[bytes]) -> list[OutboundMessage]:
        messages: list[OutboundMessage] = []
        batch_start, paths = -1, list[list[bytes]]()
        for index, data in enumerate(raw, start):
            entry = decode_entry(data)
            if entry.batch_size > 1 and index - entry.batch_index != batch_start:
                batch_start = index - entry.batch_index
                paths = _paths(snapshot, batch_start, entry.batch_size)
            path = paths[entry.batch_index] if entry.batch_size > 1 else []
            messages.append(self._message(index, data, entry, path))
        return messages

    def _message(self, index: int, data: bytes, entry: Entry, path: list[bytes]) -> OutboundMessage:
        address = _address.decode(entry.body)
        return OutboundMessage(
            index=index,
            subject=event_subject(self._ledger, address.kind, address.stream),
            payload=entry.body,
            headers=headers_of(index, entry, path),
            leaf_hash=leaf_hash(data),
            unit_left=entry.batch_size - 1 - entry.batch_index,
        )


def headers_of(index: int, entry: Entry, path: list[bytes]) -> dict[str, str]:
    """Return the headers under which an entry's body is published."""
    headers = {
        INDEX: str(index),
        ID: event_id(pae(entry.body)),
        KEY: entry.key.hex(),
        SIGNATURE: encode_base64(entry.sig),
        ACCEPTED: str(entry.accepted_ms),
    }
    if entry.batch_size > 1:
        headers[BATCH] = f"{entry.batch_index}/{entry.batch_size}"
        headers[PATH] = ",".join(map(encode_base64, path))
    return headers


def entry_of(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry]:
    """Return the index and entry that a message holds, its signature verified from the message alone.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when headers are missing or in another form, or the signature does not fit.
    """
    try:
        index, entry, path = _read(payload, headers)
    except (KeyError, ValueError, OverflowError, Refused) as error:
        message = f"the message's headers do not make an entry: {message_of(error)}"
        raise Corrupted("VERIFICATION_FAILED", message) from error
    published = {name: value for name, value in headers.items() if name.startswith(_PUBLISHED)}
    if published != headers_of(index, entry, path):
        raise Corrupted("VERIFICATION_FAILED", "the message's headers are not those of its entry", index=index)
    signed = pae(payload)
    if entry.batch_size > 1:
        root = _batch_root(leaf_hash(signed), entry.batch_index, entry.batch_size, path)
        signed = batch_root_pae(entry.batch_size, root)
    if not verify(entry.key, signed, entry.sig):
        raise Corrupted("VERIFICATION_FAILED", f"the message of entry {index} is not what was signed", index=index)
    return index, entry


def _read(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry, list[bytes]]:
    batch_index, _, batch_size = headers.get(BATCH, "0/1").partition("/")
    path = [decode_base64(one, PATH) for one in headers.get(PATH, "").split(",") if one]
    entry = Entry(
        version=ENTRY_VERSION,
        body=payload,
        key=bytes.fromhex(headers[KEY]),
        alg=ED25519,
        sig=decode_base64(headers[SIGNATURE], SIGNATURE),
        batch_index=decode_decimal(batch_index, BATCH),
        batch_size=decode_decimal(batch_size, BATCH),
        accepted_ms=decode_decimal(headers[ACCEPTED], ACCEPTED),
    )
    # Read back as any stored entry is: every length and range is checked where it is for all of them.
    return decode_decimal(headers[INDEX], INDEX), decode_entry(entry.encode()), path


def _paths(snapshot: Snapshot, start: int, size: int) -> list[list[bytes]]:
    raw = snapshot.entries(start, limit=size, size_max_bytes=2 * batch_size_max_bytes)
    if len(raw) != size:
        raise Corrupted("CORRUPTED", f"the signed batch that begins at entry {start} is not whole", index=start)
    read = subtrees_of([leaf_hash(pae(decode_entry(data).body)) for data in raw])
    return [inclusion_proof(position, size, read) for position in range(size)]


def _batch_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that a path leads to (RFC 9162 §2.1.3.2, without knowing the root beforehand)."""
    node, last, root = index, size - 1, leaf
    for sibling in path:
        if node & 1 or node == last:
            root = node_hash(sibling, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        node, last = node >> 1, last >> 1
    return root
