"""An entry as a message of the log stream, and back.

A message's payload is the body, byte for byte, so any NATS tool can read it. Short headers hold the rest of the entry,
and for an event of a signed batch its path: a receiver rebuilds the entry's exact bytes and verifies the signature from
the message alone. Headers have one form. The index, the accepted time and the two versions are the ledger's word and
not the author's, so no signature covers them: they are the leaf that the log's tree covers, and who must rely on them
compares the entry with a receipt or reads it by index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deedbook.ledger.errors import Corrupted, Refused, message_of
from deedbook.ledger.format.codec import decode_base64, decode_decimal, encode_base64
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry, decode_entry, event_id, pae
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
# Of a request that uploads a blob: which one, and the number of the chunk, or that it is the signed intent.
BLOB_HEADER: Final = "Deedbook-Blob"
CHUNK_HEADER: Final = "Deedbook-Chunk"
INTENT: Final = "intent"


def headers_of(index: int, entry: Entry, path: list[bytes]) -> dict[str, str]:
    """Return the headers under which an entry's body is published."""
    headers = {
        INDEX: str(index),
        ID: event_id(pae(entry.body)),
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
    """Return the index and entry that a message holds, its signature verified from the message alone.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when headers are missing or in another form, or the signature does not fit.
    """
    index, entry = entry_in(payload, headers)
    try:
        decode_entry(entry.encode())  # every length and range is checked where it is for all entries
        path = [decode_base64(one, PATH) for one in headers.get(PATH, "").split(",") if one]
    except Refused as refusal:
        raise _unfit(refusal) from refusal
    published = {name: value for name, value in headers.items() if name.startswith("Deedbook-")}
    if published != headers_of(index, entry, path):
        raise Corrupted("VERIFICATION_FAILED", "the message's headers are not those of its entry", index=index)
    if not is_signed(entry, path):
        raise Corrupted("VERIFICATION_FAILED", f"the message of entry {index} is not what was signed", index=index)
    return index, entry


def entry_in(payload: bytes, headers: Mapping[str, str]) -> tuple[int, Entry]:
    """Return what a message says: for who reads the entry, and verifies its batch, as any other. Raises as that."""
    try:
        return _read(payload, headers)
    except (KeyError, ValueError, OverflowError, Refused) as error:
        raise _unfit(error) from error


def _unfit(error: Exception) -> Corrupted:
    return Corrupted("VERIFICATION_FAILED", f"the message's headers do not make an entry: {message_of(error)}")


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
