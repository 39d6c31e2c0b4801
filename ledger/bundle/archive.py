"""Reads a bundle without trusting it: sizes are limited, nothing is extracted.

A bundle is a tar, the folder of an unpacked one, or a signed file (``signed_file``). A tar must be canonical. A folder
has the same files, all of them regular. It may lack blobs and entries, for example if somebody passed on only some of
them. ``Bundle.lost`` names these, and the verdict of an audit is PARTIAL. It may have more blobs: those that were
missing at the export, and that somebody has put back.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from deedbook.ledger.bundle.layout import (
    Manifest,
    blob_ref,
    check_format,
    entry_range,
    member_names,
    split_tile,
    tile_name,
)
from deedbook.ledger.bundle.signed_file import BEGINNING, read_signed_file, signed_file_size_max_bytes
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import decode_strict, json_decoder
from deedbook.ledger.format.envelope import with_body
from deedbook.ledger.limits import batch_events_max, blob_chunk_bytes, blob_size_max_bytes, entry_size_max_bytes
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_WIDTH
from deedbook.ledger.proof.receipt import receipt_size_max_bytes
from deedbook.ledger.system.files import absent, open_regular
from deedbook.ledger.system.resource import Resource

members_max: Final = 4_000_000
manifest_size_max_bytes: Final = 64 * 1024**2
keys_size_max_bytes: Final = 256 * 1024**2
text_size_max_bytes: Final = 1024**2
sealed_size_max_bytes: Final = 64 * 1024**2
page_size_max_bytes: Final = 64 * 1024**2

_BLOCK: Final = 512
_RECORD: Final = 10_240
_SIZES: Final[tuple[tuple[re.Pattern[str], int], ...]] = tuple(
    (re.compile(pattern, re.ASCII), limit)
    for pattern, limit in (
        (r"blobs/(blake3|sha256)/[0-9a-f]{64}", blob_size_max_bytes),
        (r"checkpoint|ends|verify\.py|schemas\.json", text_size_max_bytes),
        (r"keys/(checkpoint\.vkey|root\.vkey|root\.fingerprint)", text_size_max_bytes),
        (r"home/(chains|config)\.toml", text_size_max_bytes),
        (r"home/(keys|subjects)\.sealed", sealed_size_max_bytes),
        (r"index\.html", page_size_max_bytes),
        (r"keys/agents\.vkeys", keys_size_max_bytes),
        (r"manifest\.json", manifest_size_max_bytes),
        (r"entries/\d{20}\.entry", entry_size_max_bytes),
        (r"entries/\d{20}\.tlog-proof", receipt_size_max_bytes + batch_events_max * HASH_SIZE),
        (r"tile/\d{1,2}/(x\d{3}/)*\d{3}(\.p/\d{1,3})?", TILE_WIDTH * HASH_SIZE),
        (r"tile/(entries|bodies)/(x\d{3}/)*\d{3}(\.p/\d{1,3})?", TILE_WIDTH * (2 + entry_size_max_bytes)),
    )
)

_manifest_decoder = json_decoder(Manifest)


def header(name: str, size: int) -> bytes:
    """Return the canonical header of a member: 512 bytes."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


def padding(size: int, block: int = _BLOCK) -> bytes:
    """Return the zeros that fill the last block after ``size`` bytes."""
    return bytes(-size % block)


def ending(size: int) -> bytes:
    """Return the end of a tar whose members have ``size`` bytes: two empty blocks, and zeros up to a full record."""
    return bytes(2 * _BLOCK) + padding(size + 2 * _BLOCK, _RECORD)


class Bundle(Resource):
    """An open bundle. Its members are complete, in order and within their limits; their content is not verified.

    ``lost`` are the names of blobs, entries and proofs that an unpacked folder lacks; a tar lacks nothing. ``added``
    are the blobs that a folder has and its manifest does not list, because they were missing when it was exported.
    """

    def __init__(self, path: Path) -> None:
        """Read the names and sizes of all members, and the manifest. ``path`` is a tar, a folder, or a signed file.

        Raises Refused: ``NOT_FOUND``, ``INVALID_FORMAT`` or ``TOO_LARGE`` when this is not a bundle. Corrupted: the
        bundle is damaged; ``details`` name the member and the indexes of its entries.
        """
        self.lost: list[str] = []
        self.added: list[str] = []
        self._folder = path if path.is_dir() else None
        self._file: BinaryIO | None = None
        self._content: dict[str, bytes] | None = None
        if self._folder is not None:
            self._members = _scan_folder(path)
            self.manifest = self._read_manifest()
            self._check_folder()
            return
        try:
            # Duplicate the descriptor, because ``open_regular`` closes its own. It refuses pipes, which never end.
            with open_regular(path, follow=True) as descriptor:
                self._file = os.fdopen(os.dup(descriptor), "rb")
        except FileNotFoundError as error:
            raise absent(path) from error
        except OSError as error:
            message = f"{path} cannot be read ({error.strerror}): name a file or folder that `deed export` wrote"
            raise Refused("NOT_FOUND", message, path=str(path)) from error
        try:
            if self._file.read(len(BEGINNING)) == BEGINNING:
                self._read_signed_file(path)
                return
            self._members = _scan_tar(self._file, path)
            self.manifest = self._read_manifest()
            self._check_names()
        except BaseException:
            self._file.close()
            raise

    @property
    def blobs(self) -> list[str]:
        """The blobs of the bundle, which may be ``lost``."""
        return [*self.manifest.blobs, *self.added]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def read(self, name: str) -> bytes:
        """Return the content of a member. Raises Corrupted: the bundle has no such member, or a file has changed."""
        return b"".join(self.chunks(name))

    def size(self, name: str) -> int:
        """Return the size of a member. Raises Corrupted: the bundle has no such member."""
        if name not in self._members:
            raise _damaged(f"the bundle lacks {name}", name)
        return self._members[name][1]

    def chunks(self, name: str, position: int = 0) -> Iterator[bytes]:
        """Yield the content of a member from a position on, chunk by chunk.

        Raises Corrupted: the bundle has no such member, or a file has changed.
        """
        size = self.size(name)
        with ExitStack() as stack:
            start, file = self._members[name][0], self._file
            if self._content is not None:
                start, file = 0, BytesIO(self._content[name])
            elif self._folder is not None:
                try:
                    descriptor = stack.enter_context(open_regular(self._folder / name))
                except OSError as error:
                    raise _damaged(f"{name} cannot be read: {error.strerror}", name) from error
                file = stack.enter_context(os.fdopen(descriptor, "rb", closefd=False))
                if os.fstat(descriptor).st_size != size:
                    raise _damaged(f"{name} was changed while the bundle was read", name)
            assert file is not None  # noqa: S101 - a bundle is a folder or a file
            while position < size:
                file.seek(start + position)  # the caller may read another member between two chunks
                chunk = file.read(min(blob_chunk_bytes, size - position))
                if not chunk:
                    raise _damaged(f"{name} was changed while the bundle was read", name)
                position += len(chunk)
                yield chunk

    def read_tile(self, number: int, width: int) -> list[bytes]:
        """Return the entries in a tile of a bundle of a log. Raises Corrupted: there are not ``width``."""
        return list(map(with_body, self._items("entries", number, width), self._items("bodies", number, width)))

    def _items(self, part: str, number: int, width: int) -> list[bytes]:
        name = tile_name(part, number, width)
        items = split_tile(self.read(name), width)
        if items is None:
            index = number * TILE_WIDTH
            raise Corrupted("CORRUPTED", f"{name} does not contain {width} entries", member=name, index=index)
        return items

    def _read_signed_file(self, path: Path) -> None:
        assert self._file is not None  # noqa: S101 - a signed file is a file
        self._file.seek(0)
        content = self._file.read(signed_file_size_max_bytes + 1)
        if len(content) > signed_file_size_max_bytes:
            raise Refused("TOO_LARGE", f"{path} has more than {signed_file_size_max_bytes} bytes", path=str(path))
        self.manifest, self._content = read_signed_file(content)
        self._members = {name: (0, len(member)) for name, member in self._content.items()}
        self._check_names()

    def _read_manifest(self) -> Manifest:
        content = self.read("manifest.json")
        check_format(content)
        try:
            manifest = decode_strict(content, _manifest_decoder)
        except Refused as refusal:
            raise _damaged(f"manifest.json: {refusal.message}", "manifest.json") from refusal
        if manifest.encode() != content:
            raise _damaged("manifest.json is not in canonical form", "manifest.json")
        if manifest.size // TILE_WIDTH > members_max:
            raise _damaged("the size in manifest.json is too large for a bundle", "manifest.json")
        return manifest

    def _check_names(self) -> None:
        names = iter(self._members)
        for expected in member_names(self.manifest):
            name = next(names, "its end")
            if name != expected:
                message = f"the bundle has {name} at the position of {expected}"
                raise _damaged(message, expected)
        for name in names:
            raise _damaged(f"the bundle has {name} after its last member", name)

    def _check_folder(self) -> None:
        others = set(self._members)
        for name in member_names(self.manifest):
            others.discard(name)
            if name not in self._members:
                if not name.startswith(("blobs/", "entries/")):
                    raise _damaged(f"the bundle lacks {name}", name)
                self.lost.append(name)
        for name in sorted(others):
            if not name.startswith("blobs/"):
                raise _damaged(f"{name} is not a part of the bundle", name)
            self.added.append(blob_ref(name))


def _scan_tar(file: BinaryIO, path: Path) -> dict[str, tuple[int, int]]:
    """Return offset and size of each member of a tar."""
    members: dict[str, tuple[int, int]] = {}
    file_size = file.seek(0, 2)
    file.seek(0)
    position, last = 0, "the beginning"
    while (block := file.read(_BLOCK)) != bytes(_BLOCK):
        name, size = _read_header(block, position, last, path)
        if position + _BLOCK + size > file_size:
            raise _damaged(f"the bundle ends within {name}", name)
        if name in members:
            raise Refused("INVALID_FORMAT", f"the bundle contains {name} twice", member=name)
        if len(members) == members_max:
            raise Refused("TOO_LARGE", f"the bundle has more than {members_max} members")
        members[name] = (position + _BLOCK, size)
        file.seek(position + _BLOCK + size)
        if file.read(-size % _BLOCK) != padding(size):
            raise _damaged(f"the padding after {name} is not zero", name)
        position += _BLOCK + size + len(padding(size))
        last = name
    if file_size != position + len(ending(position)) or block + file.read() != ending(position):
        raise _damaged(f"the end of the bundle, after {last}, is damaged", last)
    return members


def _scan_folder(folder: Path) -> dict[str, tuple[int, int]]:
    """Return offset (0) and size of each file below a folder. Links are refused, because they lead outside."""
    members: dict[str, tuple[int, int]] = {}
    if not (folder / "manifest.json").exists():
        message = f"{folder} is not the folder of an unpacked bundle, because it has no manifest.json"
        raise Refused("INVALID_FORMAT", message, path=str(folder))
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            continue
        name = path.relative_to(folder).as_posix()
        if not stat.S_ISREG(status.st_mode):
            raise Refused("INVALID_FORMAT", f"{name!r} in the bundle is not a regular file", member=name)
        if len(members) == members_max:
            raise Refused("TOO_LARGE", f"the bundle has more than {members_max} files")
        _check_size(name, status.st_size)
        members[name] = (0, status.st_size)
    return members


def _damaged(message: str, member: str) -> Corrupted:
    message = f"{message}: copy the bundle again, or export it again"
    return Corrupted("CORRUPTED", message, member=member, **entry_range(member))


def _read_header(block: bytes, position: int, last: str, path: Path) -> tuple[str, int]:
    if position == 0 and block[257:262] != b"ustar" and not block.startswith((b"blobs/", b"checkpoint\0")):
        raise Refused(
            "INVALID_FORMAT", f"{path} is not a bundle: it is neither a tar nor a signed file", path=str(path)
        )
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        message = f"the header after {last} is damaged: {error}"
        raise _damaged(message, last) from error
    name = block[:100].rstrip(b"\0").decode("ascii", "backslashreplace")
    _check_size(name, member.size)
    if header(name, member.size) != block:
        message = f"the header of {name} is not canonical: unpack this repacked bundle and run its verify.py"
        raise Refused("INVALID_FORMAT", message, member=name)
    return name, member.size


def _check_size(name: str, size: int) -> None:
    limit = next((limit for pattern, limit in _SIZES if pattern.fullmatch(name)), None)
    if limit is None:
        raise Refused("INVALID_FORMAT", f"a bundle cannot contain a member named {name!r}", member=name)
    if not 0 <= size <= limit:
        raise Refused("TOO_LARGE", f"{name} has {size} bytes; the limit is {limit}", member=name)
