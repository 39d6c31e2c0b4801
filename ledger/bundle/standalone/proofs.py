"""Hashes, trees, signatures, notes: RFC 6962, RFC 8032, DSSE, C2SP signed-note and tlog-checkpoint."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

from blake3 import blake3
from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

EVENT = b"application/vnd.deedbook.event.v1+json"
BATCH = b"application/vnd.deedbook.batch.v1"
ENDS = "application/vnd.deedbook.ends.v1"
POSSESSION = b"application/vnd.deedbook.possession.v1"
JOINING = b"application/vnd.deedbook.joining.v1"
PROOF = "c2sp.org/tlog-proof@v1"
NOTE_MAX = 256 * 1024
NOTE_SIGNATURES_MAX = 64
TREE_MAX = 2**63 - 1


class WrongError(Exception):
    """Something in the bundle is wrong. ``code`` names the rule that is broken, as `deed verify` names it."""

    def __init__(self, message: str, code: str) -> None:
        """Create the error."""
        super().__init__(message)
        self.code = code


def need(condition: object, message: str, code: str = "VERIFICATION_FAILED") -> None:
    """Raise a WrongError with this message and code if the condition is false."""
    if not condition:
        raise WrongError(message, code)


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962 §2.1)."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (RFC 6962 §2.1)."""
    return hashlib.sha256(b"\1" + left + right).digest()


def tree_root(hashes: list[bytes]) -> bytes:
    """Return the root over leaf hashes (RFC 6962 §2.1)."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    while len(hashes) > 1:
        pairs = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
        hashes = pairs + ([hashes[-1]] if len(hashes) % 2 else [])
    return hashes[0]


def path_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that a path leads to (RFC 9162 §2.1.3.2)."""
    need(0 <= index < size, "a path is for an entry outside the tree")
    last, rest = size - 1, list(path)
    while last > 0:
        if index % 2 or index < last:
            need(rest, "a path is too short")
            sibling = rest.pop(0)
            leaf = node_hash(sibling, leaf) if index % 2 else node_hash(leaf, sibling)
        index, last = index // 2, last // 2
    need(not rest, "a path is too long")
    return leaf


def pae(kind: bytes, body: bytes) -> bytes:
    """Return the pre-authentication encoding of a body (DSSE)."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def signed_bytes(size: int, root: bytes) -> bytes:
    """Return the bytes that the signature of a batch covers, from the number of its events and their root."""
    return pae(BATCH, size.to_bytes(8, "big") + root)


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether an Ed25519 signature is valid (RFC 8032)."""
    try:
        VerifyKey(key).verify(message, signature)
    except (CryptoError, ValueError):
        return False
    return True


def digest_of(algorithm: str, chunks: Iterable[bytes]) -> str:
    """Return the hash of a content in hex; ``algorithm`` is blake3 or sha256, as in a ref."""
    digest = blake3() if algorithm == "blake3" else hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def key_id(name: str, key: bytes) -> bytes:
    """Return the four bytes that name a key in signature lines (C2SP signed-note)."""
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def vkey(name: str, key: bytes) -> str:
    """Return the one-line text of a key (C2SP signed-note)."""
    return f"{name}+{key_id(name, key).hex()}+{base64.b64encode(bytes([1]) + key).decode()}"


def read_text(content: bytes, what: str) -> str:
    """Return the text of UTF-8 bytes; ``what`` names it in the error."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongError(f"{what} is not UTF-8", "VERIFICATION_FAILED") from error


def read_base64(text: str) -> bytes:
    """Return the bytes of base64 in canonical form."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raw = b""
    need(text and base64.b64encode(raw).decode() == text, "base64 is not in canonical form")
    return raw


def read_decimal(text: str) -> int:
    """Return the number in decimal digits without leading zeroes."""
    need(re.fullmatch("0|[1-9][0-9]{0,18}", text) and int(text) <= TREE_MAX, "a number is not in canonical form")
    return int(text)


def split_note(note: str) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Return the text lines of a C2SP signed note, and the name and the content of each signature, not verified."""
    need(len(note.encode()) <= NOTE_MAX, "the note is too large")
    need(not re.search(r"[\x00-\x09\x0b-\x1f]", note), "the note contains a control character")
    text, separator, signatures = note.rpartition("\n\n")
    need(separator and signatures.endswith("\n"), "the note does not end in signature lines")
    lines = text.split("\n")
    need(len(lines) >= 2 and all(lines), "the note has too few lines")
    signature_lines, blobs = signatures.removesuffix("\n").split("\n"), list[tuple[str, bytes]]()
    need(len(signature_lines) <= NOTE_SIGNATURES_MAX, "the note has too many signatures")
    for line in signature_lines:
        parts = line.split(" ")
        need(len(parts) == 3 and parts[0] == "—", "the note has a malformed signature line")
        name, blob = parts[1], read_base64(parts[2])
        need(name and "+" not in name and not re.search(r"\s", name), "a signature of the note has an invalid key name")
        need(len(blob) > 4, "the note has an empty signature")
        blobs.append((name, blob))
    return lines, blobs


def read_note(note: str, origin: str, keys: list[bytes]) -> list[str]:
    """Return the text lines of a C2SP signed note (a checkpoint or stream heads) that one of these keys signed."""
    lines, blobs = split_note(note)
    of = {key_id(origin, key): key for key in keys}
    ours = [(of[blob[:4]], blob[4:]) for name, blob in blobs if name == origin and blob[:4] in of]
    need(ours, "the note is not signed by a checkpoint key that is valid at its size")
    text = "\n".join([*lines, ""]).encode()
    need(all(is_signed(key, text, signature) for key, signature in ours), "the signature of the note is not valid")
    return lines


def parse_checkpoint(note: str) -> tuple[str, int, bytes]:
    """Return the origin, the size and the root of a C2SP tlog-checkpoint, without verifying its signature."""
    lines, _ = split_note(note)
    need(len(lines) >= 3, "the checkpoint has too few lines")
    root = read_base64(lines[2])
    need(len(root) == 32, "the checkpoint's root is not a hash")
    return lines[0], read_decimal(lines[1]), root


def read_checkpoint(note: str, origin: str, keys: list[bytes]) -> tuple[int, bytes]:
    """Return the size and root of a C2SP tlog-checkpoint that one of these keys signed."""
    read_note(note, origin, keys)
    named, size, root = parse_checkpoint(note)
    need(named == origin, "the checkpoint is from another ledger")
    return size, root


def split_proof(text: str) -> tuple[int, list[bytes], bytes | None, str]:
    """Return the index, the inclusion path, the extra data and the checkpoint of a C2SP tlog-proof, not verified."""
    head, separator, note = text.partition("\n\n")
    lines = head.split("\n")
    need(separator and lines.pop(0) == PROOF and lines, "its proof has an unknown form")
    extra = read_base64(lines.pop(0)[6:]) if lines[0].startswith("extra ") else None
    need(lines and lines[0].startswith("index "), "its proof has no index")
    index, path = read_decimal(lines.pop(0)[6:]), [read_base64(line) for line in lines]
    need(len(path) <= 63 and all(len(sibling) == 32 for sibling in path), "its proof's path does not consist of hashes")
    return index, path, extra, note


def read_proof(text: str, index: int, note: str) -> tuple[list[bytes], list[bytes]]:
    """Return the inclusion path of an entry's proof in a bundle, and its path within its batch."""
    proven, path, extra, checkpoint = split_proof(text)
    need(proven == index, "its proof is for another index")
    need(checkpoint == note, "its proof refers to another checkpoint")
    return path, hashes_in(extra or b"")


def hashes_in(joined: bytes) -> list[bytes]:
    """Return the hashes of a path that is stored as their concatenated bytes."""
    return [joined[at : at + 32] for at in range(0, len(joined), 32)]


def tile_name(level: int | str, number: int, width: int) -> str:
    """Return the path of a tile (C2SP tlog-tiles)."""
    digits = str(number)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "".join(f"x{part}/" for part in parts[:-1]) + parts[-1]
    return f"tile/{level}/{path}" + ("" if width == 256 else f".p/{width}")
