"""An entry as a message of the log stream, and back.

A message's payload is the body, byte for byte, so any NATS tool can read it. Short headers hold the rest of the entry
and, for an event of a signed batch, its path. A receiver rebuilds the entry's exact bytes and verifies the signature
from the message alone. It accepts headers in one exact form only. The ledger, not the author, sets the index, the
accepted time and the two versions, so no signature covers them. The leaf in the log's tree covers them: a receiver that
must rely on them compares the entry with a receipt, or reads it by index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deedbook.ledger.errors import Corrupted, Refused, message_of
from deedbook.ledger.format.codec import decode_base64, decode_decimal, encode_base64
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry, decode_entry, event_id
from deedbook.ledger.format.signatures import is_signed

INDEX: Final = "Deedbook-Index"
ID: Final = "Deedbook-Id"
KEY: Final = "Deedbook-Key"
SIGNATURE: Final = "Deedbook-Sig"
ACCEPTED: Final = "Deedbook-Accepted"
STREAM_VERSION: Final = "Deedbook-Stream-Version"
AUTHORITY_VERSION: Final = "Deedbook-Authority-Version"
BATCH: Final = "Deedbook-Batch"
PATH: Final = "Deedbook-Path"
# The headers of a request that uploads a blob: its ref, and the chunk's number or, for the signed intent, ``intent``.
BLOB_HEADER: Final = "Deedbook-Blob"
CHUNK_HEADER: Final = "Deedbook-Chunk"
INTENT: Final = "intent"
# The header of a read: the size of the log that the caller knows. A node with a shorter log waits until it has this
# size.
KNOWN_SIZE_HEADER: Final = "Deedbook-Known-Size"


def headers_of(index: int, entry: Entry, path: list[bytes]) -> dict[str, str]:
    """Return the headers under which an entry's body is published."""
    headers = {
        INDEX: str(index),
        ID: event_id(entry.commitment),
        KEY: entry.key.hex(),
        SIGNATURE: encode_base64(entry.sig),
        ACCEPTED: str(entry.accepted_ms),
        STREAM_VERSION: str(entry.stream_version),
        AUTHORITY_VERSION: str(entry.authority_version),
    }
    if entry.batch_size > 1:
        headers[BATCH] = f"{entry.batch_index}/{entry.batch_size}"
        headers[PATH] = ",".join(map(encode_base64, path))
    return headers


def entry_of(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry]:
    """Return the index and entry in a message, after verifying the signature from the message alone.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when headers are missing or in another form, or the signature is not valid.
    """
    index, entry = entry_in(payload, headers)
    try:
        decode_entry(entry.encode())  # checks every length and range, as for all entries
        path = [decode_base64(sibling, PATH) for sibling in headers.get(PATH, "").split(",") if sibling]
    except Refused as refusal:
        raise _invalid_message(refusal) from refusal
    published = {name: value for name, value in headers.items() if name.startswith("Deedbook-")}
    if published != headers_of(index, entry, path):
        raise Corrupted("VERIFICATION_FAILED", "the message's headers are not those of its entry", index=index)
    if not is_signed(entry, path):
        raise Corrupted(
            "VERIFICATION_FAILED", f"the bus message of entry {index} has an invalid signature", index=index
        )
    return index, entry


def entry_in(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry]:
    """Return the index and entry in a message without verifying them, for callers that do.

    Raises Corrupted: ``VERIFICATION_FAILED``, if headers are missing or malformed.
    """
    try:
        return _read(payload, headers)
    except (KeyError, ValueError, OverflowError, Refused) as error:
        raise _invalid_message(error) from error


def _invalid_message(error: Exception) -> Corrupted:
    return Corrupted("VERIFICATION_FAILED", f"the message's headers do not form an entry: {message_of(error)}")


def _read(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry]:
    batch_index, _, batch_size = headers.get(BATCH, "0/1").partition("/")
    entry = Entry(
        version=ENTRY_VERSION,
        body=payload,
        key=bytes.fromhex(headers[KEY]),
        alg=ED25519,
        sig=decode_base64(headers[SIGNATURE], SIGNATURE),
        batch_index=decode_decimal(batch_index, BATCH),
        batch_size=decode_decimal(batch_size, BATCH),
        accepted_ms=decode_decimal(headers[ACCEPTED], ACCEPTED),
        stream_version=decode_decimal(headers[STREAM_VERSION], STREAM_VERSION),
        authority_version=decode_decimal(headers[AUTHORITY_VERSION], AUTHORITY_VERSION),
    )
    return decode_decimal(headers[INDEX], INDEX), entry
