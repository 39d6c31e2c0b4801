"""Receipts: proofs that one entry is in the log. Anybody can check them offline with the log's vkey.

A receipt is a C2SP tlog-proof (version 1): the entry's index, its inclusion path, and a checkpoint note. It does not
contain the entry: a verifier hashes the entry's exact bytes (``merkle.leaf_hash``). The extra data is not signed.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import decode_base64, decode_decimal, encode_base64, encode_utf8
from deedbook.ledger.format.merkle import hash_size_bytes, tree_size_max, verify_inclusion
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointVerifier, note_size_max_bytes, verify_checkpoint

receipt_size_max_bytes: Final = note_size_max_bytes + 256 * 1024

_HEADER: Final = "c2sp.org/tlog-proof@v1"
# The deepest leaf of the largest tree has one sibling for each bit of the tree's size.
_PATH_MAX: Final = tree_size_max.bit_length()


class Receipt(msgspec.Struct, frozen=True):
    """A proof of inclusion: the entry's index, the path of 32-byte hashes, and the signed checkpoint note.

    Raises Refused: the index is out of range, or the path does not consist of hashes or is longer than in any tree.
    """

    index: int
    path: tuple[bytes, ...]
    checkpoint_text: str
    extra: bytes | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.index < tree_size_max:
            raise Refused("INVALID_FORMAT", f"The receipt's index {self.index} is out of range.")
        if len(self.path) > _PATH_MAX or any(len(sibling) != hash_size_bytes for sibling in self.path):
            message = f"A path must be at most {_PATH_MAX} hashes of {hash_size_bytes} bytes each."
            raise Refused("INVALID_FORMAT", message)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the receipt in a tlog-proof text without verifying it (C2SP tlog-proof, Format).

        Raises Refused: the text is not a tlog-proof of version 1, or is too large.
        """
        size = len(encode_utf8(text, "receipt"))
        if size > receipt_size_max_bytes:
            message = f"A receipt must not exceed {receipt_size_max_bytes} bytes, and this one has {size}."
            raise Refused("TOO_LARGE", message, size_bytes=size, limit_bytes=receipt_size_max_bytes)
        head, separator, checkpoint_text = text.partition("\n\n")
        header, *lines = head.split("\n")
        if not separator or header != _HEADER:
            raise Refused("INVALID_FORMAT", f"A receipt must begin with {_HEADER!r} and end with a checkpoint.")
        extra = None
        if lines and lines[0].startswith("extra "):
            extra = decode_base64(lines.pop(0).removeprefix("extra "), "receipt's extra data")
        if not lines or not lines[0].startswith("index "):
            raise Refused("INVALID_FORMAT", "The receipt's index line is missing.")
        index = decode_decimal(lines.pop(0).removeprefix("index "), "receipt's index")
        return cls(index, tuple(decode_base64(line, "hash in the path") for line in lines), checkpoint_text, extra)

    def to_text(self) -> str:
        """Return the tlog-proof text, the content of a ``.tlog-proof`` file (C2SP tlog-proof, Format)."""
        lines = [_HEADER]
        if self.extra is not None:
            lines.append(f"extra {encode_base64(self.extra)}")
        lines.append(f"index {self.index}")
        lines += [encode_base64(sibling) for sibling in self.path]
        return "\n".join(lines) + "\n\n" + self.checkpoint_text

    def verify(self, leaf_hash: bytes, *verifiers: CheckpointVerifier) -> Checkpoint:
        """Return the signed checkpoint if the receipt proves that the entry with this leaf hash is at the index.

        Raises Corrupted: the checkpoint is not signed by a verifier's key, or the path does not lead to its root.
        Refused: the checkpoint is malformed.
        """
        checkpoint = verify_checkpoint(self.checkpoint_text, *verifiers)
        if not verify_inclusion(leaf_hash, self.index, checkpoint.size, self.path, checkpoint.root):
            message = f"The path does not prove this entry at index {self.index} of {checkpoint.size}."
            raise Corrupted("VERIFICATION_FAILED", message, index=self.index, size=checkpoint.size)
        return checkpoint
