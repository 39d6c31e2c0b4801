"""An independent client of C2SP logs, written from the specifications with only Ed25519 and SHA-256.

Sources: C2SP signed-note, tlog-checkpoint, tlog-tiles, tlog-proof, tlog-cosignature; RFC 6962 §2.1. It imports none of
our code. So it finds a mistake that our code makes both when it makes a proof and when it checks one.
"""

from __future__ import annotations

import urllib.request
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

Fetch = Callable[[str], bytes]
Hashes = Callable[[int, int], bytes]


class NotAccepted(Exception):
    """The received data does not prove what it should."""


def over_http(prefix: str) -> Fetch:
    """Return a function that reads a resource of a log by its path."""

    def fetch(path: str) -> bytes:
        with urllib.request.urlopen(f"{prefix}/{path}", timeout=30) as answer:
            return bytes(answer.read())

    return fetch


def open_note(note: bytes, vkey: str) -> tuple[str, int, bytes]:
    """Return origin, size and root of a checkpoint, after checking that the key of ``vkey`` signed it."""
    text, _, lines = note.decode().rpartition("\n\n")
    name, key_id, encoded = vkey.split("+", 2)
    key = b64decode(encoded)
    if sha256(name.encode() + b"\n" + key).digest()[:4].hex() != key_id:
        raise NotAccepted("the vkey's id")
    signatures = []
    for line in lines.splitlines():
        dash, signer, blob = line.split(" ")
        if (dash, signer) == ("—", name) and b64decode(blob)[:4].hex() == key_id:
            signatures.append(b64decode(blob)[4:])
    if not signatures:
        raise NotAccepted("no signature by the key")
    for signature in signatures:
        message = text.encode() + b"\n"
        if key[0] == 4:  # a timestamped cosignature
            time_s = int.from_bytes(signature[:8], "big")
            message, signature = b"cosignature/v1\ntime %d\n" % time_s + message, signature[8:]  # noqa: PLW2901
        try:
            VerifyKey(key[1:]).verify(message, signature)
        except BadSignatureError as error:
            raise NotAccepted("a signature") from error
    origin, size, root = text.split("\n")[:3]
    return origin, int(size), b64decode(root)


def leaf(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\x00" + entry).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node."""
    return sha256(b"\x01" + left + right).digest()


def split(size: int) -> int:
    """Return k, the largest power of two smaller than the size."""
    k = 1
    while 2 * k < size:
        k *= 2
    return k


def tree_hash(hashes: Hashes, start: int, end: int) -> bytes:
    """Return MTH(D[start:end]); the hashes of complete subtrees come from tiles of higher levels."""
    size = end - start
    for level in range(8, -1, -1):
        if size == 256**level and start % size == 0:
            return hashes(level, start // size)
    k = split(size)
    return node(tree_hash(hashes, start, start + k), tree_hash(hashes, start + k, end))


def consistency(hashes: Hashes, m: int, start: int, end: int, *, is_whole: bool = True) -> list[bytes]:
    """Return SUBPROOF(m, D[start:end], b) (RFC 6962 §2.1.2)."""
    if m == end - start:
        return [] if is_whole else [tree_hash(hashes, start, end)]
    k = split(end - start)
    if m <= k:
        return [*consistency(hashes, m, start, start + k, is_whole=is_whole), tree_hash(hashes, start + k, end)]
    return [*consistency(hashes, m - k, start + k, end, is_whole=False), tree_hash(hashes, start, start + k)]


def check_consistency(old: tuple[int, bytes], new: tuple[int, bytes], proof: list[bytes]) -> None:
    """Check a consistency proof by following the recursion of SUBPROOF for both trees at once."""
    rest = list(proof)

    def unfold(m: int, size: int, *, is_whole: bool) -> tuple[bytes, bytes]:
        if m == size:
            found = old[1] if is_whole else rest.pop(0)
            return found, found
        k = split(size)
        if m <= k:
            before, after = unfold(m, k, is_whole=is_whole)
            return before, node(after, rest.pop(0))
        before, after = unfold(m - k, size - k, is_whole=False)
        left = rest.pop(0)
        return node(left, before), node(left, after)

    try:
        roots = unfold(old[0], new[0], is_whole=True)
    except IndexError as error:
        raise NotAccepted("the proof is too short") from error
    if rest or roots != (old[1], new[1]):
        raise NotAccepted("the proof leads to another tree")


def check_receipt(receipt: bytes, entry: bytes, vkey: str) -> tuple[int, int, bytes]:
    """Return index, size and root, after checking a tlog-proof of the entry and the checkpoint by ``vkey`` in it."""
    head, _, note = receipt.decode().partition("\n\n")
    header, *lines = head.split("\n")
    if header != "c2sp.org/tlog-proof@v1":
        raise NotAccepted("the header")
    lines = [line for line in lines if not line.startswith("extra ")]
    index, path = int(lines[0].removeprefix("index ")), [b64decode(line) for line in lines[1:]]
    _, size, root = open_note(note.encode(), vkey)

    def climb(place: int, width: int) -> bytes:
        if width == 1:
            return leaf(entry)
        k, sibling = split(width), path.pop()
        return node(climb(place, k), sibling) if place < k else node(sibling, climb(place - k, width - k))

    if not index < size or climb(index, size) != root or path:
        raise NotAccepted("the path")
    return index, size, root


class Tiles:
    """The tree of a log of a known size, read from its tiles."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        self.fetch, self.size = fetch, size
        self.read: dict[Any, bytes] = {}

    def path(self, level: int | str, number: int) -> str:
        """Return the path of a tile."""
        width = min(256, self.size // 256 ** (level if isinstance(level, int) else 0) - 256 * number)
        parts = [f"{number % 1000:03d}"]
        while number >= 1000:
            number //= 1000
            parts.insert(0, f"x{number % 1000:03d}")
        return f"tile/{level}/{'/'.join(parts)}" + ("" if width == 256 else f".p/{width}")

    def tile(self, level: int | str, number: int) -> bytes:
        """Return a tile; each tile is fetched only once."""
        if (level, number) not in self.read:
            self.read[level, number] = self.fetch(self.path(level, number))
        return self.read[level, number]

    def hash(self, level: int, number: int) -> bytes:
        """Return the hash of 256**level leaves."""
        place = 32 * (number % 256)
        return self.tile(level, number // 256)[place : place + 32]

    def entries(self) -> list[bytes]:
        """Return every entry, each checked against the hash in its tile."""
        entries: list[bytes] = []
        for number in range(-(-self.size // 256)):
            bundle = self.tile("entries", number)
            while bundle:
                size = int.from_bytes(bundle[:2], "big")
                entries.append(bundle[2 : 2 + size])
                bundle = bundle[2 + size :]
        if [leaf(entry) for entry in entries] != [self.hash(0, index) for index in range(self.size)]:
            raise NotAccepted("an entry is not the one in the tree")
        return entries
