"""What a follower or a subscriber makes of a published message: the entry, verified from the message alone."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.bus.publisher import ACCEPTED, BATCH, INDEX, KEY, PATH, SIGNATURE, headers_of
from ledger.codec import decode_base64, decode_decimal
from ledger.envelope import ED25519, ENTRY_VERSION, Entry, batch_root_pae, decode_entry, pae
from ledger.errors import Corrupted, Refused, message_of
from ledger.identity import verify
from ledger.merkle import leaf_hash, node_hash


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
    published = {name: value for name, value in headers.items() if name.startswith("Baton-")}
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
