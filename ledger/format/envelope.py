"""The signed bytes, event ids, entries and submissions.

The signed bytes are DSSE's pre-authentication encoding (PAE) of the body under Deedbook's event type, or, for a batch,
the PAE of (size, RFC 6962 root over the events' PAEs) under the batch type: one signature, many events. The log stores
*entries*, hashes them into the tree, serves and replicates them. An entry with any other encoding is refused.

Source: DSSE protocol.md (PAE); RFC 6962 §2.1; the wire specification in ``proto/README.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from blake3 import blake3

from deedbook.ledger.errors import AS_A_BLOB, Refused
from deedbook.ledger.format.codec import (
    decode_base64,
    decode_packed,
    decode_strict,
    encode_base64,
    encode_packed,
    json_decoder,
    msgpack_decoder,
)
from deedbook.ledger.format.merkle import hash_size_bytes, leaf_hash, root_of, tree_size_max
from deedbook.ledger.limits import (
    batch_events_max,
    batch_size_max_bytes,
    clock_max_ms,
    entry_size_max_bytes,
    request_size_max_bytes,
)

EVENT_TYPE: Final = "application/vnd.deedbook.event.v1+json"
BATCH_TYPE: Final = "application/vnd.deedbook.batch.v1"
ENTRY_VERSION: Final = 1
ED25519: Final = 1

_EVENT_PREFIX: Final = f"DSSEv1 {len(EVENT_TYPE)} {EVENT_TYPE} ".encode()
_BATCH_PREFIX: Final = f"DSSEv1 {len(BATCH_TYPE)} {BATCH_TYPE} ".encode()


def pae(body: bytes) -> bytes:
    """Return the bytes that an event's own signature covers."""
    return b"%b%d %b" % (_EVENT_PREFIX, len(body), body)


def event_id(signed: bytes) -> str:
    """Return the id of the event whose PAE is ``signed``."""
    return "blake3:" + blake3(signed).hexdigest()


def batch_pae(signed: list[bytes]) -> bytes:
    """Return the bytes that the signature of a batch covers, from the PAEs of its events in order."""
    return batch_root_pae(len(signed), root_of([leaf_hash(event) for event in signed]))


def batch_root_pae(size: int, root: bytes) -> bytes:
    """Return the bytes that the signature of a batch covers, from its size and RFC 6962 root."""
    body = size.to_bytes(8, "big") + root
    return b"%b%d %b" % (_BATCH_PREFIX, len(body), body)


class BodyHead(msgspec.Struct, frozen=True):
    """The kind and the stream of a body, and its data as the author sent it."""

    kind: str
    stream: str
    data: msgspec.Raw


_head_decoder = json_decoder(BodyHead)


def head_of(body: bytes) -> BodyHead:
    """Return the head of an admitted body. Raises the exceptions of ``codec.UNREADABLE`` if it is damaged."""
    return _head_decoder.decode(body)


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One stored event: the author's bytes, key and signature, its position in its batch, the ledger's time and counts.

    ``batch_size`` 1: the signature covers the event's own PAE. ``accepted_ms`` (Unix) decreases along the log only at a
    ``ledger.clock_set`` (``lifecycle.clock``). ``stream_version`` counts the entries of the stream, and
    ``authority_version`` those of authority in the whole log, both up to and including this one: they show a reader of
    some entries which ones are missing.
    """

    version: int
    body: bytes
    key: bytes
    alg: int
    sig: bytes
    batch_index: int
    batch_size: int
    accepted_ms: int
    stream_version: int
    authority_version: int

    def encode(self) -> bytes:
        """Return the bytes of the entry as the log stores them."""
        return encode_packed(self)


_entry_decoder = msgpack_decoder(Entry)


def decode_entry(data: bytes) -> Entry:
    """Return the entry stored as ``data``.

    Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE`` when the bytes are not a minimally encoded entry;
    ``UNSUPPORTED_VERSION`` when newer software wrote it.
    """
    if len(data) > entry_size_max_bytes:
        raise Refused("TOO_LARGE", f"the entry has {len(data)} bytes, and the limit is {entry_size_max_bytes}")
    entry = decode_packed(data, _entry_decoder)
    if entry.version != ENTRY_VERSION or entry.alg != ED25519:
        message = f"this software cannot read entries of version {entry.version} and algorithm {entry.alg}: update it"
        raise Refused("UNSUPPORTED_VERSION", message, version=entry.version)
    if len(entry.key) != 32 or len(entry.sig) != 64:
        raise Refused("INVALID_FORMAT", "the entry's key or signature has the wrong length")
    if not 0 <= entry.batch_index < entry.batch_size <= batch_events_max or not 0 <= entry.accepted_ms <= clock_max_ms:
        raise Refused("INVALID_FORMAT", "the entry's batch position or time is out of range")
    if not (1 <= entry.stream_version <= tree_size_max and 1 <= entry.authority_version <= tree_size_max):
        raise Refused("INVALID_FORMAT", "the entry's stream version or authority version is out of range")
    return entry


def split_hashes(path: bytes) -> list[bytes]:
    """Return the hashes of a path that is sent as one byte string."""
    return [path[start : start + hash_size_bytes] for start in range(0, len(path), hash_size_bytes)]


class Submission(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """1 to 256 events, signed by one key and committed together or not at all.

    It has one signature for each body, or one for all of them (a batch signature over ``batch_pae``).
    """

    version: Literal[1]
    key: bytes
    sigs: tuple[bytes, ...]
    bodies: tuple[bytes, ...]

    @property
    def is_batch_signed(self) -> bool:
        """Whether one signature covers several events."""
        return len(self.sigs) == 1 and len(self.bodies) > 1

    def encode(self) -> bytes:
        """Return the bytes of the submission as they are sent over the bus."""
        return encode_packed(self)


@cache
def _submission_decoder() -> msgspec.msgpack.Decoder[Submission]:
    return msgpack_decoder(Submission)  # created late, because only a gate needs it


def decode_submission(data: bytes) -> Submission:
    """Return the submission in ``data``: Deedbook's msgpack form, a DSSE JSON envelope, or a JSON array of those.

    Raises Refused: ``INVALID_FORMAT``, ``TOO_LARGE`` and the strict JSON codes.
    """
    if len(data) > request_size_max_bytes:
        message = (
            f"a submission of {len(data)} bytes exceeds {request_size_max_bytes}: send fewer events, or {AS_A_BLOB}"
        )
        raise Refused("TOO_LARGE", message, size=len(data))
    if data[:1] in (b"{", b"["):
        return _from_dsse(data)
    return check_shape(decode_packed(data, _submission_decoder()))


def check_shape(submission: Submission) -> Submission:
    """Return ``submission`` if its counts and lengths are valid.

    Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE``.
    """
    count = len(submission.bodies)
    if count == 0:
        raise Refused("INVALID_FORMAT", "a submission must contain at least one event")
    if count > batch_events_max:
        message = f"the submission has {count} events, and the limit is {batch_events_max}: split it"
        raise Refused("TOO_LARGE", message, limit=batch_events_max)
    size = sum(map(len, submission.bodies))
    if size > batch_size_max_bytes:
        message = f"a submission of {size} bytes exceeds {batch_size_max_bytes}: send fewer events, or {AS_A_BLOB}"
        raise Refused("TOO_LARGE", message, size=size)
    if len(submission.sigs) not in (1, count):
        raise Refused("INVALID_FORMAT", "a submission must have one signature, or one for each event")
    if len(submission.key) != 32 or any(len(sig) != 64 for sig in submission.sigs):
        raise Refused("INVALID_FORMAT", "a key must have 32 bytes and a signature 64")
    return submission


class DsseSignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One signature of a DSSE envelope; ``keyid`` is ``ed25519:`` + the public key in hex."""

    keyid: Annotated[str, msgspec.Meta(pattern=r"^ed25519:[0-9a-f]{64}\Z")]
    sig: str


class DsseBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position of an event in its signed batch, and the RFC 6962 path to the batch root (base64)."""

    index: int
    size: int
    path: list[str]


class DsseEnvelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A DSSE JSON envelope (DSSE envelope.md) of one event.

    ``deedbook_batch`` is Deedbook's extension for an event signed within a batch.
    """

    payload_type: str
    payload: str
    signatures: list[DsseSignature]
    deedbook_batch: DsseBatch | None = None


@cache
def _dsse_decoder() -> msgspec.json.Decoder[DsseEnvelope | list[DsseEnvelope]]:
    return json_decoder(DsseEnvelope | list[DsseEnvelope])


def to_dsse(entry: Entry, path: list[bytes] | None = None) -> dict[str, Any]:
    """Return the event as a DSSE JSON envelope; a batch-signed one needs its ``path`` within the batch."""
    batch = None
    if entry.batch_size > 1:
        hashes = [encode_base64(sibling) for sibling in path or []]
        batch = DsseBatch(entry.batch_index, entry.batch_size, hashes)
    envelope = DsseEnvelope(
        payload_type=EVENT_TYPE,
        payload=encode_base64(entry.body),
        signatures=[DsseSignature("ed25519:" + entry.key.hex(), encode_base64(entry.sig))],
        deedbook_batch=batch,
    )
    plain: dict[str, Any] = msgspec.to_builtins(envelope)
    return plain


def _from_dsse(data: bytes) -> Submission:
    decoded = decode_strict(data, _dsse_decoder())
    envelopes = decoded if isinstance(decoded, list) else [decoded]
    bodies, sigs, keys = [], [], set()
    for envelope in envelopes:
        if envelope.payload_type != EVENT_TYPE:
            raise Refused("INVALID_FORMAT", f"the payload type must be {EVENT_TYPE}", found=envelope.payload_type)
        if envelope.deedbook_batch is not None:
            raise Refused("INVALID_FORMAT", "an event of a signed batch must be submitted with its whole batch")
        if len(envelope.signatures) != 1:
            raise Refused("INVALID_FORMAT", "an envelope must have exactly one signature")
        bodies.append(decode_base64(envelope.payload, "payload"))
        sigs.append(decode_base64(envelope.signatures[0].sig, "signature"))
        keys.add(bytes.fromhex(envelope.signatures[0].keyid.removeprefix("ed25519:")))
    if len(keys) > 1:
        raise Refused("INVALID_FORMAT", "one key must sign all events of a submission")
    return check_shape(Submission(1, keys.pop() if keys else b"", tuple(sigs), tuple(bodies)))
