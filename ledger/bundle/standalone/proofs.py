"""Hashes, trees, signatures, notes: RFC 6962, RFC 8032, DSSE, C2SP signed-note and tlog-checkpoint."""

from __future__ import annotations

import base64
import hashlib
import re

from blake3 import blake3
from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

EVENT = b"application/vnd.deedbook.event.v1+json"
BATCH = b"application/vnd.deedbook.batch.v1"
ENDS = "application/vnd.deedbook.ends.v1"
POSSESSION = b"application/vnd.deedbook.possession.v1"
JOINING = b"application/vnd.deedbook.joining.v1"
NOTE_MAX = 256 * 1024
NOTE_SIGNATURES_MAX = 64
TREE_MAX = 2**63 - 1


class WrongError(Exception):
    """Something in the bundle is not what it must be."""


def need(condition: object, message: str) -> None:
    """Stop with a message unless the condition holds."""
    if not condition:
        raise WrongError(message)


def leaf_hash(data: bytes) -> bytes:
    """RFC 6962 §2.1: the hash of a leaf."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 §2.1: the hash of an inner node."""
    return hashlib.sha256(b"\1" + left + right).digest()


def tree_root(hashes: list[bytes]) -> bytes:
    """RFC 6962 §2.1: the root over leaf hashes."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    while len(hashes) > 1:
        pairs = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
        hashes = pairs + ([hashes[-1]] if len(hashes) % 2 else [])
    return hashes[0]


def path_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """RFC 9162 §2.1.3.2: the root that a path leads to."""
    need(0 <= index < size, "a path is of no entry of the tree")
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
    """DSSE: the bytes that are signed."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature fits (RFC 8032)."""
    try:
        VerifyKey(key).verify(message, signature)
    except (CryptoError, ValueError):
        return False
    return True


def digest_of(algorithm: str, content: bytes) -> str:
    """Return the hash of a content by the name that refs have for it."""
    return blake3(content).hexdigest() if algorithm == "blake3" else hashlib.sha256(content).hexdigest()


def key_id(name: str, key: bytes) -> bytes:
    """C2SP signed-note: the four bytes that name a key."""
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def vkey(name: str, key: bytes) -> str:
    """C2SP signed-note: the text of a key."""
    return f"{name}+{key_id(name, key).hex()}+{base64.b64encode(bytes([1]) + key).decode()}"


def read_text(content: bytes, what: str) -> str:
    """Read UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongError(f"{what} is not UTF-8") from error


def read_base64(text: str) -> bytes:
    """Read base64 in its one form."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raw = b""
    need(text and base64.b64encode(raw).decode() == text, "base64 is not in its one form")
    return raw


def read_decimal(text: str) -> int:
    """Read a number in its one form."""
    need(re.fullmatch("0|[1-9][0-9]{0,18}", text) and int(text) <= TREE_MAX, "a number is not in its one form")
    return int(text)


def read_note(note: str, origin: str, keys: list[bytes]) -> list[str]:
    """Return the lines of a C2SP signed note by a key of the origin's: of a checkpoint, or of where streams end."""
    need(len(note.encode()) <= NOTE_MAX, "the checkpoint is too large")
    need(not re.search(r"[\x00-\x09\x0b-\x1f]", note), "the checkpoint has a control character")
    text, separator, signatures = note.rpartition("\n\n")
    need(separator and signatures.endswith("\n"), "the checkpoint does not end in signature lines")
    lines = text.split("\n")
    need(len(lines) >= 2 and all(lines), "the checkpoint has too few lines")
    signed, ours = signatures.removesuffix("\n").split("\n"), list[tuple[bytes, bytes]]()
    need(len(signed) <= NOTE_SIGNATURES_MAX, "the checkpoint has too many signatures")
    for line in signed:
        parts = line.split(" ")
        need(len(parts) == 3 and parts[0] == "—", "the checkpoint has a malformed signature line")
        name, blob = parts[1], read_base64(parts[2])
        need(name and "+" not in name and not re.search(r"\s", name), "the checkpoint is signed by no name of a key")
        need(len(blob) > 4, "the checkpoint has an empty signature")
        ours += [(key, blob[4:]) for key in keys if name == origin and blob[:4] == key_id(origin, key)]
    need(ours, "the checkpoint is not signed by a checkpoint key of its size")
    is_good = all(is_signed(key, text.encode() + b"\n", signature) for key, signature in ours)
    need(is_good, "the signature of the checkpoint does not fit")
    return lines


def read_checkpoint(note: str, origin: str, keys: list[bytes]) -> tuple[int, bytes]:
    """Return (size, root) of a C2SP tlog-checkpoint."""
    lines = read_note(note, origin, keys)
    need(len(lines) >= 3 and lines[0] == origin, "the checkpoint is not of this ledger")
    root = read_base64(lines[2])
    need(len(root) == 32, "the checkpoint's root is no hash")
    return read_decimal(lines[1]), root


def read_proof(text: str, index: int, note: str) -> tuple[list[bytes], list[bytes] | None]:
    """Return the path of a C2SP tlog-proof under the checkpoint, and the path within a batch that it brings along."""
    head, separator, under = text.partition("\n\n")
    lines = head.split("\n")
    need(separator and lines.pop(0) == "c2sp.org/tlog-proof@v1" and lines, "its proof is of an unknown form")
    extra = read_base64(lines.pop(0)[6:]) if lines[0].startswith("extra ") else None
    need(lines and lines.pop(0) == f"index {index}", "its proof is of another index")
    need(under == note, "its proof is under another checkpoint")
    path = [read_base64(line) for line in lines]
    need(len(path) <= 63 and all(len(sibling) == 32 for sibling in path), "its proof's path is not of hashes")
    return path, None if extra is None else [extra[at : at + 32] for at in range(0, len(extra), 32)]


def tile_name(level: int | str, number: int, width: int) -> str:
    """C2SP tlog-tiles: the path of a tile."""
    digits = str(number)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "".join(f"x{part}/" for part in parts[:-1]) + parts[-1]
    return f"tile/{level}/{path}" + ("" if width == 256 else f".p/{width}")
