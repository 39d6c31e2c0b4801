"""The bytes of a sealed blob: a header, and the content as a secretstream of libsodium.

| bytes | content |
|---|---|
| 8 | ``DEEDSEAL`` |
| 1 | version: 1 |
| 1 + n | the subject's name, after its length |
| 1 + n | the id of the subject key that wrapped the data key, after its length |
| 2 + n | the wrapped data key, after its length (big-endian) |
| 24 | the header of the secretstream |
| ≤ 262,144 + 17 each | the messages: each has 262,144 bytes of content, the last at most so many |

The secretstream (XChaCha20-Poly1305) has one random data key a blob. All bytes before the 24 are the associated data of
the first message, so nobody can exchange a header. The last message has the tag FINAL, so a blob that was cut is
detected, even if it was cut between two messages. An empty content is one empty message. Each message is authenticated
before its content is used, so content of any size is sealed and opened in constant memory.

Other forms were worse: age needs X25519 recipients and a Go or Rust program; a single AEAD box needs all content in
memory and gives no content before the last byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from nacl import bindings, exceptions

from deedbook.ledger.errors import Corrupted, Refused, newer_version
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.seal.keys import KeyService, Wrapped

MAGIC: Final = b"DEEDSEAL"
VERSION: Final = 1
message_size_bytes: Final = 256 * 1024
_name_size_max_bytes: Final = 255
_wrapped_size_max_bytes: Final = 4096
_TAG_BYTES: Final = bindings.crypto_secretstream_xchacha20poly1305_ABYTES
_FINAL: Final = bindings.crypto_secretstream_xchacha20poly1305_TAG_FINAL
_MESSAGE: Final = bindings.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE


class ByteSource(Protocol):
    """Content that is read once, from its beginning: a file, or the chunks of a blob."""

    def read(self, size: int, /) -> bytes:
        """Return the next ``size`` bytes. Fewer mean that these are the last."""


class Header(msgspec.Struct, frozen=True):
    """The header of a sealed blob: its subject, the wrapped data key, and the bytes of the header."""

    subject: str
    wrapped: Wrapped
    raw: bytes


def seal(source: ByteSource, subject: str, keys: KeyService) -> Iterator[bytes]:
    """Yield the bytes of the sealed blob with this content, piece by piece. Raises Refused: ``SUBJECT_KEY_MISSING``."""
    data_key = bindings.crypto_secretstream_xchacha20poly1305_keygen()
    header = _encode_header(subject, keys.wrap(subject, data_key))
    state = bindings.crypto_secretstream_xchacha20poly1305_state()
    yield header + bindings.crypto_secretstream_xchacha20poly1305_init_push(state, data_key)
    ad: bytes | None = header
    content = source.read(message_size_bytes)
    while True:
        following = source.read(message_size_bytes) if len(content) == message_size_bytes else b""
        tag = _MESSAGE if following else _FINAL
        yield bindings.crypto_secretstream_xchacha20poly1305_push(state, content, ad, tag)
        if not following:
            return
        content, ad = following, None


def read_header(source: ByteSource) -> Header:
    """Return the header at the beginning of a sealed blob.

    Raises Refused: ``INVALID_FORMAT`` if it is not sealed, ``UNSUPPORTED_VERSION``. Corrupted: ``VERIFICATION_FAILED``
    if it is cut.
    """
    raw = source.read(len(MAGIC))
    if raw != MAGIC:
        raise Refused("INVALID_FORMAT", "this blob is not sealed: read it without --unseal")
    raw += (version := _exactly(source, 1))
    if version[0] != VERSION:
        raise newer_version("the sealed blob", version[0], VERSION)
    fields: list[bytes] = []
    for size_bytes in (1, 1, 2):
        size = _exactly(source, size_bytes)
        length = int.from_bytes(size, "big")
        if length > _wrapped_size_max_bytes:
            raise _damaged("its header is too long")
        fields.append(_exactly(source, length))
        raw += size + fields[-1]
    try:
        subject, key_id = fields[0].decode(), fields[1].decode()
    except UnicodeDecodeError as error:
        raise _damaged("its header is not text") from error
    # The name of the subject becomes part of the name of a file.
    if re.match(NAME_PATTERN, subject) is None:
        raise _damaged("its header names no subject")
    return Header(subject, Wrapped(key_id, fields[2]), raw)


def unseal(source: ByteSource, keys: KeyService, header: Header | None = None) -> Iterator[bytes]:
    """Yield the content of a sealed blob, piece by piece. Each piece is authentic; only the end proves completeness.

    Pass ``header`` if it was already read from ``source``. Raises Refused: as ``read_header`` and
    ``KeyService.unwrap``. Corrupted: ``VERIFICATION_FAILED`` if the blob is damaged or cut.
    """
    header = header or read_header(source)
    data_key = keys.unwrap(header.subject, header.wrapped)
    state = bindings.crypto_secretstream_xchacha20poly1305_state()
    start = _exactly(source, bindings.crypto_secretstream_xchacha20poly1305_HEADERBYTES)
    bindings.crypto_secretstream_xchacha20poly1305_init_pull(state, start, data_key)
    ad: bytes | None = header.raw
    while True:
        message = source.read(message_size_bytes + _TAG_BYTES)
        if len(message) < _TAG_BYTES:
            raise _damaged("it was cut")
        try:
            content, tag = bindings.crypto_secretstream_xchacha20poly1305_pull(state, message, ad)
        except exceptions.CryptoError as error:
            raise _damaged("a part of it was changed") from error
        yield content
        if tag == _FINAL:
            if source.read(1):
                raise _damaged("something was appended to it")
            return
        ad = None


def _encode_header(subject: str, wrapped: Wrapped) -> bytes:
    name, key_id = subject.encode(), wrapped.key_id.encode()
    assert max(len(name), len(key_id)) <= _name_size_max_bytes  # noqa: S101 - subjects and key ids are short names
    parts = (MAGIC, bytes([VERSION, len(name)]), name, bytes([len(key_id)]), key_id)
    return b"".join((*parts, len(wrapped.data).to_bytes(2, "big"), wrapped.data))


def _exactly(source: ByteSource, size: int) -> bytes:
    content = source.read(size)
    if len(content) < size:
        raise _damaged("it was cut")
    return content


def _damaged(why: str) -> Corrupted:
    message = f"this sealed blob is damaged ({why}): fetch it again, or restore it from a backup"
    return Corrupted("VERIFICATION_FAILED", message)
