"""The layout of a bundle: the names of its members, its manifest, the files under keys/.

Source: C2SP tlog-tiles.md, signed-note.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.errors import newer_version
from deedbook.ledger.events.authority import AgentRegistered, KeyDelegated, KeyRotated, LedgerCreated
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.merkle import tree_size_max
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import CheckpointKeys
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.ledger.proof.checkpoint import CheckpointVerifier

FORMAT: Final = "deedbook-bundle-1"
LENGTH_BYTES: Final = 2  # before each item in a tile of entries or bodies
_OTHER_FORMAT: Final = re.compile(rb'"format":"deedbook-(bundle|signed)-(?!1")([0-9]{1,4})"')
_TILE: Final = re.compile(r"tile/(\d{1,2}|entries|bodies)/((?:x\d{3}/)*\d{3})", re.ASCII)

# The authority events of a ledger, in order: (index, author, data).
AuthorityEvents: TypeAlias = Iterable[tuple[int, str, EventData]]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]

# The files that a bundle may contain beside log and blobs: settings and keys in a backup, and requested keys of
# subjects in an export. Keys are sealed with a passphrase.
HomeFile: TypeAlias = Literal["chains.toml", "config.toml", "keys.sealed", "subjects.sealed"]
SUBJECTS: Final[HomeFile] = "subjects.sealed"


def check_format(content: bytes) -> None:
    """Check the format that a manifest or the beginning of a signed file names. Raises: as ``newer_version``."""
    if match := _OTHER_FORMAT.search(content):
        raise newer_version(f"the {match[1].decode()} file", int(match[2]), 1)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundle's description of itself. Nobody signs it, so ``verify_bundle`` checks every value.

    ``indexes`` are the entries in a bundle of one stream, else empty; ``verify_py`` is the SHA-256 of verify.py;
    ``files`` are the names under home/ in a backup with their BLAKE3, else empty.
    """

    format: Literal["deedbook-bundle-1"]
    ledger: str
    origin: str
    size: Annotated[int, msgspec.Meta(ge=0, le=tree_size_max)]
    root: Digest
    content: Literal["log", "stream"]
    stream: str | None
    indexes: list[Annotated[int, msgspec.Meta(ge=0, le=tree_size_max)]]
    blobs: list[Annotated[str, msgspec.Meta(pattern=r"^(blake3|sha256):[0-9a-f]{64}$")]]
    verify_py: Digest
    files: dict[HomeFile, Digest]

    def encode(self) -> bytes:
        """Return the canonical bytes of the manifest."""
        return encode_canonical(self) + b"\n"


def tile_name(level: int | str, number: int, width: int = TILE_WIDTH) -> str:
    """Return the path of a tile; with the level ``entries`` or ``bodies``, of an entry bundle or its bodies."""
    digits = f"{number:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    path = "".join(f"x{part}/" for part in parts[:-1]) + parts[-1]
    return f"tile/{level}/{path}" + ("" if width == TILE_WIDTH else f".p/{width}")


def tiles_of(size: int, level: int) -> Iterator[tuple[int, int]]:
    """Yield (number, width) of the tiles of a tree of ``size`` at a level. Entry bundles are as at level 0."""
    whole, partial = divmod(size >> (8 * level), TILE_WIDTH)
    for number in range(whole):
        yield number, TILE_WIDTH
    if partial:
        yield whole, partial


def split_tile(content: bytes, count: int) -> list[bytes] | None:
    """Return the ``count`` items of a tile of entries or bodies, each after its length; None if the number differs."""
    items, start = list[bytes](), 0
    while len(items) < count:
        end = start + LENGTH_BYTES + int.from_bytes(content[start : start + LENGTH_BYTES], "big")
        items.append(content[start + LENGTH_BYTES : end])
        start = end
    return items if start == len(content) else None


def join_tile(items: Iterable[bytes]) -> bytes:
    """Return the items of a tile of entries or bodies joined, each after its length (C2SP tlog-tiles, Log entries)."""
    return b"".join(len(item).to_bytes(LENGTH_BYTES, "big") + item for item in items)


def levels_of(size: int) -> range:
    """Return the levels at which a tree of ``size`` has tiles."""
    return range(-(-size.bit_length() // 8) if size else 0)


def entry_names(index: int) -> tuple[str, str]:
    """Return the member names of an entry and its proof in a bundle of one stream."""
    return f"entries/{index:020d}.entry", f"entries/{index:020d}.tlog-proof"


def blob_name(ref: str) -> str:
    """Return the member name of a blob."""
    return "blobs/" + ref.replace(":", "/")


def blob_ref(name: str) -> str:
    """Return the blob with a member name."""
    return name.removeprefix("blobs/").replace("/", ":")


def home_name(file: str) -> str:
    """Return the member name of a file of the ledger's folder."""
    return f"home/{file}"


def member_names(manifest: Manifest) -> Iterator[str]:
    """Yield the names of all members, in order."""
    yield from map(blob_name, manifest.blobs)
    yield "checkpoint"
    if manifest.content == "stream":
        yield "ends"
    for index in manifest.indexes:
        yield from entry_names(index)
    yield from map(home_name, sorted(manifest.files))
    yield from (
        "index.html",
        "keys/agents.vkeys",
        "keys/checkpoint.vkey",
        "keys/root.fingerprint",
        "keys/root.vkey",
        "manifest.json",
        "schemas.json",
    )
    if manifest.content == "log":
        for level in levels_of(manifest.size):
            yield from (tile_name(level, number, width) for number, width in tiles_of(manifest.size, level))
        for number, width in tiles_of(manifest.size, 0):
            yield from (tile_name(part, number, width) for part in ("entries", "bodies"))
    yield "verify.py"


def key_members(authority: AuthorityEvents) -> dict[str, bytes]:
    """Return the members under keys/, made from the authority events; empty without entry 0.

    ``agents.vkeys`` has every key that could ever sign events, ``checkpoint.vkey`` the keys that may sign a checkpoint
    after the last event, one a line. The root files have the first root key: it defines ledger id and fingerprint.
    """
    created: LedgerCreated | None = None
    lines: list[str] = []
    signers = CheckpointKeys()
    for index, author, data in authority:
        signers = signers.after(index, data)
        match data:
            case LedgerCreated() if index == 0:
                created = data
                lines += [_vkey("root", data.root), _vkey("node", data.node_key)]
            case AgentRegistered():
                lines.append(_vkey(data.name, data.key))
            case KeyRotated():
                lines.append(_vkey(data.agent, data.key))
            case KeyDelegated():
                lines.append(_vkey(author, data.key))
            case _:  # other authority events name no key, and a later ledger.created counts for nothing
                continue
    if created is None:
        return {}
    root = bytes.fromhex(created.root)
    checkpoint_keys = [_vkey(created.origin, signer.key) for signer in signers.keys if signer.until is None]
    return {
        "keys/agents.vkeys": "".join(f"{line}\n" for line in lines).encode(),
        "keys/checkpoint.vkey": "".join(f"{line}\n" for line in checkpoint_keys).encode(),
        "keys/root.fingerprint": fingerprint(root).encode() + b"\n",
        "keys/root.vkey": _vkey("root", created.root).encode() + b"\n",
    }


def entry_range(name: str) -> dict[str, int]:
    """Return the indexes of the entries in a member, or under a tile, as error details; empty for other members."""
    if name.startswith("entries/"):
        return {"index": int(name[8:28])}
    match = _TILE.match(name)
    if match is None:
        return {}
    level = int(match[1]) if match[1].isdecimal() else 0
    width = TILE_WIDTH ** (level + 1)
    start = int(match[2].replace("x", "").replace("/", "")) * width
    return {"index": start, "end": start + width}


def _vkey(name: str, key: str) -> str:
    return CheckpointVerifier(name, bytes.fromhex(key)).vkey
