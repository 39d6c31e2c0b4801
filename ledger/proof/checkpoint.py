"""Checkpoints: the log's signed statement about its size and its Merkle root.

A C2SP signed-note is a text with signature lines below it. A *checkpoint* (tlog-checkpoint) is a note whose text is
origin, size and root. A *vkey* is the one-line text of a public key. A *cosignature* is another party's line on a note.

Rules: nothing in a note is trusted before its signature is verified over the bytes that arrived. Lines of unknown keys
are skipped, as the note format requires (a log may rotate its key, witnesses may add lines). A line that claims our key
and does not verify invalidates the note. A log signs under its origin: key name and first line agree.

*Stream heads* are a signed note on the number of entries of some streams, and of authority, in a log of a certain size:
``STREAM_HEADS_TYPE``, and in a second line the fields of ``StreamHeads`` in RFC 8785 form. A tree proves that entries
are in the log, never that there are no others. If a ledger signs wrong stream heads, its hidden entries prove that it
lied.

An *address* is a signed note, too: ``ADDRESS_TYPE``, and the URL at which agents reach the node that signs it.

Left out: ECDSA and ML-DSA. ``ledger.proof.policy`` handles the lines of witnesses, which sign more than the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Final, Self

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import (
    decode_base64,
    decode_decimal,
    decode_strict,
    encode_base64,
    encode_canonical,
    encode_utf8,
    json_decoder,
)
from deedbook.ledger.format.identity import Key, verify
from deedbook.ledger.format.merkle import hash_size_bytes, tree_size_max

# The format requires room for 16 signatures of up to 5 kB each (post-quantum ones).
note_size_max_bytes: Final = 256 * 1024
note_signatures_max: Final = 64

# Types of vkeys (C2SP signed-note, Signature types): Ed25519 over a note's text, and over a timestamped one.
NOTE_KEY: Final = 1
COSIGNATURE_KEY: Final = 4

_KEY_ID_SIZE_BYTES: Final = 4
_KEY_SIZE_BYTES: Final = 32
_CONTROL: Final = re.compile(r"[\x00-\x1f]")


class Checkpoint(msgspec.Struct, frozen=True):
    """The claim of a log: its origin, its size in entries, and the 32-byte root over them (C2SP tlog-checkpoint).

    Raises Refused: the origin is not one non-empty line, or the size or the root's length is invalid.
    """

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        _check_line(self.origin, "origin")
        if not 0 <= self.size <= tree_size_max:
            raise Refused("INVALID_FORMAT", f"The checkpoint's size {self.size} is out of range.")
        if len(self.root) != hash_size_bytes:
            raise Refused("INVALID_FORMAT", f"A root must have {hash_size_bytes} bytes, not {len(self.root)}.")


class CheckpointVerifier(msgspec.Struct, frozen=True):
    """The public side of a checkpoint key: its origin and its 32-byte Ed25519 key (C2SP signed-note).

    Raises Refused: the origin cannot be a key name, or the key has another length.
    """

    origin: str
    public_key: bytes

    def __post_init__(self) -> None:
        check_key(self.origin, self.public_key, "public key")

    @classmethod
    def from_vkey(cls, vkey: str) -> Self:
        """Return the verifier for a vkey, ``name+key id+type and key``.

        Raises Refused: it is not a vkey, not of an Ed25519 note key, or its id does not match its key.
        """
        return cls(*parse_vkey(vkey, NOTE_KEY))

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that name the key in signature lines; short, so no proof of anything."""
        return key_id(self.origin, NOTE_KEY, self.public_key)

    @property
    def vkey(self) -> str:
        """The vkey text, to be given to verifiers of this log."""
        return vkey_of(self.origin, NOTE_KEY, self.public_key)


def verifiers_of(origin: str, keys: Iterable[str]) -> list[CheckpointVerifier]:
    """Return verifiers for several keys (hex) of one origin, for example those of its nodes."""
    return [CheckpointVerifier(origin, bytes.fromhex(key)) for key in keys]


class CheckpointKey(msgspec.Struct, frozen=True):
    """The secret key of a log's checkpoints: its origin and an Ed25519 seed of 32 bytes.

    Raises Refused: the origin cannot be a key name, or the seed has another length.
    """

    origin: str
    seed: bytes

    def __post_init__(self) -> None:
        check_key(self.origin, self.seed, "signing seed")

    def __repr__(self) -> str:
        return f"CheckpointKey(vkey={self.verifier.vkey!r})"  # logs and tracebacks never show the seed

    @property
    def verifier(self) -> CheckpointVerifier:
        """The public side."""
        return CheckpointVerifier(self.origin, Key(self.seed).public)


class SignatureLine(msgspec.Struct, frozen=True):
    """One line below a note's text: the key that it claims, and its signature, which is not verified yet."""

    name: str
    key_id: bytes
    signature: bytes


def parse_vkey(vkey: str, type_: int) -> tuple[str, bytes]:
    """Return the name and the key of a vkey, ``name+key id+type and key``, which must be of this type.

    Raises Refused: it is not a vkey, not of an Ed25519 key of this type, or its id does not match its key.
    """
    # The base64 of the last part may itself contain a plus.
    parts = vkey.split("+", 2)
    if len(parts) != 3:
        raise Refused("INVALID_FORMAT", "A vkey must be a name, a key id and a key, joined by plus signs.")
    name, claimed_id, encoded = parts
    material = decode_base64(encoded, "key of the vkey")
    if material[:1] != bytes([type_]):
        what = "signs notes" if type_ == NOTE_KEY else "cosigns checkpoints"
        raise Refused("INVALID_FORMAT", f"The vkey is not of an Ed25519 key that {what} (type {type_}).")
    check_key(name, material[1:], "public key")
    expected = key_id(name, type_, material[1:]).hex()
    if expected != claimed_id:
        raise Refused("INVALID_FORMAT", f"The vkey's id is {claimed_id!r}, but the id of its key is {expected}.")
    return name, material[1:]


def vkey_of(name: str, type_: int, public_key: bytes) -> str:
    """Return the vkey of a key (C2SP signed-note, Verifier keys)."""
    return f"{name}+{key_id(name, type_, public_key).hex()}+{encode_base64(bytes([type_]) + public_key)}"


def key_id(name: str, type_: int, public_key: bytes) -> bytes:
    """Return the 4 bytes that name a key in signature lines; short, so no proof of anything."""
    return sha256(name.encode() + b"\n" + bytes([type_]) + public_key).digest()[:_KEY_ID_SIZE_BYTES]


def sign_checkpoint(checkpoint: Checkpoint, key: CheckpointKey) -> str:
    """Return the signed note of a checkpoint; equal input gives an equal note (C2SP tlog-checkpoint).

    Raises Refused: the key is of another origin.
    """
    if checkpoint.origin != key.origin:
        message = f"The key of {key.origin!r} cannot sign for {checkpoint.origin!r}."
        raise Refused("INVALID_FORMAT", message, origin=checkpoint.origin, key_origin=key.origin)
    return sign_note(f"{checkpoint.origin}\n{checkpoint.size}\n{encode_base64(checkpoint.root)}\n", key)


def sign_note(text: str, key: CheckpointKey) -> str:
    """Return the note of a text that ends in a newline (C2SP signed-note). The text must show its own type."""
    signature = Key(key.seed).sign(text.encode())
    return f"{text}\n— {key.origin} {encode_base64(key.verifier.key_id + signature)}\n"


def parse_checkpoint(note: str) -> Checkpoint:
    """Return the checkpoint in a note without verifying its signatures, for display and for choosing a key.

    Raises Refused: it is not a note, or its text is not that of a checkpoint.
    """
    text, _ = split_note(note)
    return _parse_text(text)


def verify_checkpoint(note: str, *verifiers: CheckpointVerifier) -> Checkpoint:
    """Return the checkpoint that one of the verifiers' keys signed for its origin (C2SP tlog-checkpoint).

    Raises Corrupted: none of them signed this note, or the checkpoint has another origin. Refused: it is not a note,
    or its text is not that of a checkpoint.
    """
    text, signer = open_note(note, *verifiers)
    checkpoint = _parse_text(text)
    if checkpoint.origin != signer.origin:
        message = f"The checkpoint's origin is {checkpoint.origin!r}, not {signer.origin!r}."
        raise Corrupted("VERIFICATION_FAILED", message, origin=checkpoint.origin, expected=signer.origin)
    return checkpoint


def open_note(note: str, *verifiers: CheckpointVerifier) -> tuple[str, CheckpointVerifier]:
    """Return the text, final newline included, and the verifier of its first known signature (C2SP signed-note).

    Raises Corrupted: no signature is by their keys, or one of such a key is invalid. Refused: it is not a note.
    """
    text, signatures = split_note(note)
    keys = {(verifier.origin, verifier.key_id): verifier for verifier in verifiers}
    ours = [(keys[key], line.signature) for line in signatures if (key := (line.name, line.key_id)) in keys]
    if not ours:
        expected = " or ".join(f"{verifier.key_id.hex()} of {verifier.origin!r}" for verifier in verifiers)
        message = f"The note has no signature by the key {expected}."
        raise Corrupted("VERIFICATION_FAILED", message, keys=[verifier.vkey for verifier in verifiers])
    for signer, signature in ours:
        if not verify(signer.public_key, text.encode(), signature):
            message = (
                f"The note's signature by the key {signer.key_id.hex()} of {signer.origin!r} does not match its text."
            )
            raise Corrupted("VERIFICATION_FAILED", message, origin=signer.origin, key_id=signer.key_id.hex())
    return text, ours[0][0]


def _parse_text(text: str) -> Checkpoint:
    # Only \n separates lines: str.splitlines would also split at U+2028 and similar characters, which an origin may
    # contain.
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):
        raise Refused("INVALID_FORMAT", "A checkpoint must have at least three lines, none of them empty.")
    # Further lines are extensions: they are signed, too, but not interpreted.
    origin, size, root, *_ = lines
    return Checkpoint(origin, decode_decimal(size, "checkpoint's size"), decode_base64(root, "checkpoint's root"))


def split_note(note: str) -> tuple[str, list[SignatureLine]]:
    """Return a note's text and its signature lines, in their order (C2SP signed-note, Format)."""
    size = len(encode_utf8(note, "note"))
    if size > note_size_max_bytes:
        message = f"A note must not exceed {note_size_max_bytes} bytes, and this one has {size}."
        raise Refused("TOO_LARGE", message, size_bytes=size, limit_bytes=note_size_max_bytes)
    if _CONTROL.search(note.replace("\n", "")):
        raise Refused("INVALID_FORMAT", "The note contains a control character other than newline.")
    # The text may have empty lines of its own; the last one in the note is the separator.
    text, separator, signed = note.rpartition("\n\n")
    if not separator or not signed.endswith("\n"):
        message = "A note must be a text, an empty line, and signature lines that end in newlines."
        raise Refused("INVALID_FORMAT", message)
    lines = signed.removesuffix("\n").split("\n")
    if len(lines) > note_signatures_max:
        message = f"A note must not have more than {note_signatures_max} signatures, and this one has {len(lines)}."
        raise Refused("TOO_LARGE", message, signatures=len(lines), limit=note_signatures_max)
    return text + "\n", [_parse_signature(line) for line in lines]


def _parse_signature(line: str) -> SignatureLine:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != "—":
        raise Refused("INVALID_FORMAT", "A signature line must be an em dash, a key name and a signature.")
    _check_key_name(parts[1])
    blob = decode_base64(parts[2], "signature")
    if len(blob) <= _KEY_ID_SIZE_BYTES:
        raise Refused("INVALID_FORMAT", "A signature line has no signature after the key id.")
    return SignatureLine(parts[1], blob[:_KEY_ID_SIZE_BYTES], blob[_KEY_ID_SIZE_BYTES:])


def check_key(name: str, key: bytes, what: str) -> None:
    """Refuse an invalid key name, or a key without 32 bytes."""
    _check_key_name(name)
    if len(key) != _KEY_SIZE_BYTES:
        raise Refused("INVALID_FORMAT", f"A {what} must have {_KEY_SIZE_BYTES} bytes, not {len(key)}.")


def _check_key_name(name: str) -> None:
    _check_line(name, "key name")
    if "+" in name or any(character.isspace() for character in name):
        raise Refused("INVALID_FORMAT", f"The key name {name!r} contains a space or a plus sign.")


def _check_line(line: str, what: str) -> None:
    encode_utf8(line, what)
    if not line or _CONTROL.search(line):
        raise Refused("INVALID_FORMAT", f"The {what} is empty or contains a control character.")


STREAM_HEADS_TYPE: Final = "application/vnd.deedbook.ends.v1"
ADDRESS_TYPE: Final = "application/vnd.deedbook.address.v1"
Count = Annotated[int, msgspec.Meta(ge=0)]


class StreamHeads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of entries of authority, and of some streams, in a log of ``size`` entries under ``root`` (hex)."""

    size: Count
    root: str
    authority: Count
    streams: dict[str, Count]

    def text(self) -> str:
        """Return the text to sign."""
        return f"{STREAM_HEADS_TYPE}\n{encode_canonical(self).decode()}\n"


_decoder = json_decoder(StreamHeads)


def sign_stream_heads(heads: StreamHeads, key: CheckpointKey) -> str:
    """Return the signed note. Raises Refused: ``TOO_LARGE`` when it names too many streams for a note."""
    note = sign_note(heads.text(), key)
    if len(note.encode()) > note_size_max_bytes:
        raise Refused("TOO_LARGE", f"the heads of {len(heads.streams)} streams do not fit into a note: ask for fewer")
    return note


def open_stream_heads(note: str, *verifiers: CheckpointVerifier) -> StreamHeads:
    """Return the stream heads that one of the verifiers' keys signed.

    Raises Corrupted: none of them signed this note. Refused: it is not such a note in canonical form.
    """
    text, _ = open_note(note, *verifiers)
    heads = decode_strict(text.removeprefix(f"{STREAM_HEADS_TYPE}\n").encode(), _decoder)
    if heads.text() != text:
        raise Refused("INVALID_FORMAT", "the note of stream heads is not in canonical form")
    return heads


def sign_address(url: str, key: CheckpointKey) -> str:
    """Return the signed note of a node's address."""
    return sign_note(f"{ADDRESS_TYPE}\n{url}\n", key)


def open_address(note: str, *verifiers: CheckpointVerifier) -> str:
    """Return the address that one of the verifiers' keys signed.

    Raises Corrupted: none of them signed this note. Refused: it is not such a note.
    """
    text, _ = open_note(note, *verifiers)
    url = text.partition("\n")[2].removesuffix("\n")
    if text != f"{ADDRESS_TYPE}\n{url}\n" or "\n" in url:
        raise Refused("INVALID_FORMAT", "the note is not that of an address")
    return url
