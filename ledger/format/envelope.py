"""Commitments, signed bytes, event ids, entries and submissions.

The *commitment* to an event is the RFC 6962 leaf hash of the body's PAE, DSSE's pre-authentication encoding. It is the
event's id. A signature covers the events of one submission, one or more: the PAE of their number and the RFC 6962 root
over their commitments. The log stores *entries*. Its tree hashes each entry in its *bare form*, which holds the
commitment in place of the body: signatures, receipts and checkpoints stay valid without the body. An entry with any
other encoding is refused.

If the body was erased, an entry holds a *remnant* in its place: the id, and the body without its texts
(``events.remnant``). Its bare form is still the same.

Source: DSSE protocol.md (PAE); RFC 6962 §2.1; the wire specification in ``proto/README.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import AS_A_BLOB, Refused, newer_version
from deedbook.ledger.format.codec import (
    decode_base64,
    decode_packed,
    decode_strict,
    encode_base64,
    encode_packed,
    json_decoder,
    msgpack_decoder,
)
from deedbook.ledger.format.merkle import hash_size_bytes, leaf_hash, root_of, root_of_path, tree_size_max
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


_REMNANT_PREFIX: Final = b'{"redacted":"event:'
_REMNANT: Final = re.compile(
    rb'(?s)\{"redacted":"(event:[0-9a-f]{64})"(?:,"version":"(sha256:[0-9a-f]{64})")?,"body":(\{.*\})\}'
)


class Remnant(msgspec.Struct, frozen=True):
    """The rest of an erased body, which an entry holds in its place: the event's id, and the body without its texts.

    ``version`` is the version of the handoff that the erased body set, which cannot be computed without its texts.
    """

    redacted: str
    version: str | None
    body: bytes

    def encode(self) -> bytes:
        """Return its bytes. They begin as no body can, because a body has no such field."""
        version = b"" if self.version is None else b',"version":"%b"' % self.version.encode()
        return b'{"redacted":"%b"%b,"body":%b}' % (self.redacted.encode(), version, self.body)


def is_remnant(stored: bytes) -> bool:
    """Return whether the bytes at the position of an entry's body are a remnant."""
    return stored.startswith(_REMNANT_PREFIX)


def read_remnant(stored: bytes) -> Remnant:
    """Return the remnant in ``stored``. Raises Refused: ``INVALID_FORMAT`` if it is encoded in another way."""
    match = _REMNANT.fullmatch(stored)
    if match is None:
        raise Refused("INVALID_FORMAT", "the remnant of an erased body is not in its one encoding")
    redacted, version, body = match.groups()
    return Remnant(redacted.decode(), None if version is None else version.decode(), body)


def pae(body: bytes) -> bytes:
    """Return the PAE of a body."""
    return b"%b%d %b" % (_EVENT_PREFIX, len(body), body)


def commitment_to(body: bytes) -> bytes:
    """Return the 32 bytes that represent a body in its signature, its id and the tree."""
    return leaf_hash(pae(body))


def commitment_in(stored: bytes) -> bytes:
    """Return the commitment to a body, or the one in its remnant.

    Raises Refused: ``INVALID_FORMAT`` for a remnant in another encoding.
    """
    if is_remnant(stored):
        return bytes.fromhex(read_remnant(stored).redacted.removeprefix("event:"))
    return commitment_to(stored)


def event_id(commitment: bytes) -> str:
    """Return the id of the event with this commitment."""
    return "event:" + commitment.hex()


def signed_bytes(commitments: Sequence[bytes]) -> bytes:
    """Return the bytes that the signature of a submission covers, from the commitments to its events in order."""
    # The root over one commitment is that commitment.
    return signed_root(len(commitments), commitments[0] if len(commitments) == 1 else root_of(commitments))


def signed_root(size: int, root: bytes) -> bytes:
    """Return the bytes that the signature of a submission covers, from its number of events and their root."""
    body = size.to_bytes(8, "big") + root
    return b"%b%d %b" % (_BATCH_PREFIX, len(body), body)


class BodyHead(msgspec.Struct, frozen=True):
    """The kind and the stream of a body, and its data as the author sent it."""

    kind: str
    stream: str
    data: msgspec.Raw


_head_decoder = json_decoder(BodyHead)


def head_of(body: bytes) -> BodyHead:
    """Return the head of an admitted body or its remnant.

    Raises the exceptions of ``codec.UNREADABLE`` if it is damaged. Refused: ``INVALID_FORMAT`` for a damaged remnant.
    """
    return _head_decoder.decode(read_remnant(body).body if is_remnant(body) else body)


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One stored event: the author's bytes, key and signature, its position in its batch, the ledger's time and counts.

    ``body`` is a remnant if the body was erased.

    A *batch* is the events of one submission; ``sig`` covers ``signed_bytes`` of all its ``batch_size`` events.
    ``accepted_ms`` (Unix) decreases along the log only at a ``ledger.clock_set`` (``lifecycle.clock``).
    ``stream_version`` counts the entries of the stream, and ``authority_version`` those of authority in the whole log,
    both up to and including this one: they show a reader of some entries which ones are missing.
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

    @property
    def commitment(self) -> bytes:
        """The commitment to the body, also if the body was erased."""
        return commitment_in(self.body)

    def encode(self) -> bytes:
        """Return the bytes of the entry as the log stores them."""
        return encode_packed(self)

    def bare_form(self, commitment: bytes | None = None) -> bytes:
        """Return the bytes that the tree hashes. A known ``commitment`` saves hashing the body again."""
        return encode_packed(replace(self, body=commitment or self.commitment))

    def leaf(self, commitment: bytes | None = None) -> bytes:
        """Return the entry's leaf hash in the log's tree."""
        return leaf_hash(self.bare_form(commitment))


def bodies_size(entries: Iterable[Entry]) -> int:
    """Return the bytes of the bodies of a batch, without erased ones: a remnant may be larger than the body was."""
    return sum(len(entry.body) for entry in entries if not is_remnant(entry.body))


_entry_decoder = msgpack_decoder(Entry)


def without_body(data: bytes) -> tuple[bytes, bytes]:
    """Return the bare form and the body of an entry's bytes.

    For bytes that are no entry, return these bytes and no body.
    """
    try:
        entry = decode_entry(data)
    except Refused:
        return data, b""
    return entry.bare_form(), entry.body


def with_body(bare: bytes, body: bytes) -> bytes:
    """Return the bytes of an entry from its bare form and its body; the caller compares the commitment.

    A bare form that cannot be read is returned as it is.
    """
    try:
        return replace(decode_entry(bare), body=body).encode()
    except Refused:
        return bare


_BEFORE_BODY: Final = b"\x9a\x01"  # msgpack: an array of ten values, and the first of them, ``ENTRY_VERSION``
_BARE_START: Final = _BEFORE_BODY + b"\xc4\x20"  # then a byte string of 32 bytes, the commitment
# The type byte of a byte string -> the bytes of its length, and the least length for which msgpack uses this type.
_LENGTH_BYTES: Final = {0xC4: (1, 0), 0xC5: (2, 2**8), 0xC6: (4, 2**16)}


def split_entry(data: bytes) -> tuple[bytes, bytes] | None:
    """Return the body in an entry's bytes and the bytes after it, undecoded; None if the bytes begin differently.

    This takes a quarter of the time of decoding, which helps an audit that only hashes entries again.
    """
    if not data.startswith(_BEFORE_BODY):
        return None
    width, least = _LENGTH_BYTES.get(data[2] if len(data) > 2 else 0, (0, 0))
    end = (start := 3 + width) + (length := int.from_bytes(data[3:start], "big"))
    return (data[start:end], data[end:]) if width and length >= least and end <= len(data) else None


def entry_leaf(data: bytes) -> bytes:
    """Return the leaf hash of an entry's bytes; for other bytes, a hash that no tree of entries has.

    A bare form is no entry: its body would be its commitment. So an entry that lost its body does not match the tree.
    """
    parts = split_entry(data)
    if parts is None:
        return leaf_hash(data)
    try:
        return leaf_hash(_BARE_START + commitment_in(parts[0]) + parts[1])
    except Refused:
        return leaf_hash(data)


def decode_entry(data: bytes) -> Entry:
    """Return the entry stored as ``data``.

    Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE`` when the bytes are not a minimally encoded entry;
    ``UNSUPPORTED_VERSION`` when newer software wrote it.
    """
    if len(data) > entry_size_max_bytes:
        raise Refused("TOO_LARGE", f"the entry has {len(data)} bytes, and the limit is {entry_size_max_bytes}")
    entry = decode_packed(data, _entry_decoder)
    if entry.version != ENTRY_VERSION or entry.alg != ED25519:
        what = f"the entry (algorithm {entry.alg})"
        raise newer_version(what, entry.version, ENTRY_VERSION)
    if len(entry.key) != 32 or len(entry.sig) != 64:
        raise Refused("INVALID_FORMAT", "the entry's key or signature has the wrong length")
    if not 0 <= entry.batch_index < entry.batch_size <= batch_events_max or not 0 <= entry.accepted_ms <= clock_max_ms:
        raise Refused("INVALID_FORMAT", "the entry's batch position or time is out of range")
    if not (1 <= entry.stream_version <= tree_size_max and 1 <= entry.authority_version <= tree_size_max):
        raise Refused("INVALID_FORMAT", "the entry's stream version or authority version is out of range")
    if is_remnant(entry.body):
        read_remnant(entry.body)
    return entry


def split_hashes(path: bytes) -> list[bytes]:
    """Return the hashes of a path that is sent as one byte string."""
    return [path[start : start + hash_size_bytes] for start in range(0, len(path), hash_size_bytes)]


class Submission(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """1 to 256 events, signed together by one key (``signed_bytes``), and committed together or not at all."""

    version: Literal[1]
    key: bytes
    sig: bytes
    bodies: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the bytes of the submission as they are sent over the bus."""
        return encode_packed(self)


@cache
def _submission_decoder() -> msgspec.msgpack.Decoder[Submission]:
    return msgpack_decoder(Submission)  # created late, because only a gate needs it


def decode_submission(data: bytes) -> Submission:
    """Return the submission in ``data``: Deedbook's msgpack form, or a DSSE JSON envelope with the bodies.

    Raises Refused: ``INVALID_FORMAT``, ``TOO_LARGE`` and the strict JSON codes.
    """
    if len(data) > request_size_max_bytes:
        message = (
            f"a submission of {len(data)} bytes exceeds {request_size_max_bytes}: send fewer events, or {AS_A_BLOB}"
        )
        raise Refused("TOO_LARGE", message, size=len(data))
    if data[:1] == b"{":
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
    if len(submission.key) != 32 or len(submission.sig) != 64:
        raise Refused("INVALID_FORMAT", "a key must have 32 bytes and a signature 64")
    return submission


class DsseSignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signature of a DSSE envelope; ``keyid`` is ``ed25519:`` + the public key in hex."""

    keyid: Annotated[str, msgspec.Meta(pattern=r"^ed25519:[0-9a-f]{64}\Z")]
    sig: str


class DsseEnvelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A DSSE JSON envelope (DSSE envelope.md) over the number and root of a submission's events, with their bodies.

    The export of one event of several has only its body, with its ``index`` in the submission and the RFC 6962 ``path``
    to the root. All bytes are in base64.
    """

    payload_type: str
    payload: str
    signatures: Annotated[list[DsseSignature], msgspec.Meta(min_length=1, max_length=1)]
    bodies: Annotated[list[str], msgspec.Meta(min_length=1, max_length=batch_events_max)]
    index: int | None = None
    path: list[str] | None = None


@cache
def _dsse_decoder() -> msgspec.json.Decoder[DsseEnvelope]:
    return json_decoder(DsseEnvelope)


def to_dsse(entry: Entry, path: list[bytes]) -> dict[str, Any]:
    """Return the event as a DSSE JSON envelope; ``path`` leads from its commitment to the root of its batch.

    Raises Refused: ``INVALID_FORMAT`` if the path does not fit; ``NOT_FOUND`` if the body was erased.
    """
    if is_remnant(entry.body):
        raise Refused("NOT_FOUND", "the body of this event was erased, and an envelope cannot be made without it")
    root = root_of_path(entry.commitment, entry.batch_index, entry.batch_size, path)
    if root is None:
        raise Refused("INVALID_FORMAT", "the path does not fit the position of the event in its batch")
    index = entry.batch_index if entry.batch_size > 1 else None
    siblings = [encode_base64(sibling) for sibling in path] or None
    submission = Submission(1, entry.key, entry.sig, (entry.body,))
    return _dsse_of(submission, entry.batch_size, root, index=index, path=siblings)


def submission_dsse(submission: Submission) -> dict[str, Any]:
    """Return a submission as a DSSE JSON envelope."""
    root = root_of([commitment_to(body) for body in submission.bodies])
    return _dsse_of(submission, len(submission.bodies), root)


def _dsse_of(submission: Submission, count: int, root: bytes, **place: Any) -> dict[str, Any]:
    envelope = DsseEnvelope(
        payload_type=BATCH_TYPE,
        payload=encode_base64(count.to_bytes(8, "big") + root),
        signatures=[DsseSignature("ed25519:" + submission.key.hex(), encode_base64(submission.sig))],
        bodies=[encode_base64(body) for body in submission.bodies],
        **place,
    )
    plain: dict[str, Any] = msgspec.to_builtins(envelope)
    return plain


def _from_dsse(data: bytes) -> Submission:
    envelope = decode_strict(data, _dsse_decoder())
    if envelope.payload_type != BATCH_TYPE:
        raise Refused("INVALID_FORMAT", f"the payload type must be {BATCH_TYPE}", found=envelope.payload_type)
    if envelope.index is not None or envelope.path is not None:
        raise Refused("INVALID_FORMAT", "this is the export of one event: submit the whole submission")
    bodies = tuple(decode_base64(body, "body") for body in envelope.bodies)
    key = bytes.fromhex(envelope.signatures[0].keyid.removeprefix("ed25519:"))
    submission = check_shape(Submission(1, key, decode_base64(envelope.signatures[0].sig, "signature"), bodies))
    root = root_of([commitment_to(body) for body in bodies])
    if decode_base64(envelope.payload, "payload") != len(bodies).to_bytes(8, "big") + root:
        raise Refused("INVALID_FORMAT", "the payload is not the number and the root of the bodies")
    return submission
