"""The files of a bundle in a folder or a tar: all regular, unique and within their size limit, read one by one."""

from __future__ import annotations

import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deedbook.ledger.bundle.standalone.form import BATCH_MAX, ENTRY_MAX
from deedbook.ledger.bundle.standalone.proofs import NOTE_MAX, need, tile_name

MIB = 1024**2
SIZES = [
    ("blobs/(blake3|sha256)/[0-9a-f]{64}", 1024 * MIB),
    ("home/(keys|subjects)\\.sealed|manifest\\.json", 64 * MIB),
    ("checkpoint|ends|(verify|schemas)\\.(py|json)|home/[a-z]+\\.toml", MIB),
    ("index\\.html", 64 * MIB),
    ("keys/(checkpoint|root)\\.(vkey|fingerprint)", MIB),
    ("keys/agents\\.vkeys", 256 * MIB),
    ("entries/[0-9]{20}\\.entry", ENTRY_MAX),
    ("entries/[0-9]{20}\\.tlog-proof", NOTE_MAX + 256 * 1024 + BATCH_MAX * 32),
    ("tile/[0-9]{1,2}/(x[0-9]{3}/)*[0-9]{3}(\\.p/[0-9]{1,3})?", 256 * 32),
    ("tile/(entries|bodies)/(x[0-9]{3}/)*[0-9]{3}(\\.p/[0-9]{1,3})?", 256 * (2 + ENTRY_MAX)),
]
HOME = ("chains.toml", "config.toml", "keys.sealed", "subjects.sealed")
KEYS = ("agents.vkeys", "checkpoint.vkey", "root.fingerprint", "root.vkey")


def check_size(name: str, size: int) -> None:
    """Check that a bundle may contain a file of this name and size."""
    limit = next((limit for pattern, limit in SIZES if re.fullmatch(pattern, name)), None)
    why = f"{name!r} is no file of a bundle: remove it, or check the tar file itself"
    need(limit is not None, why, "INVALID_FORMAT")
    need(0 <= size <= (limit or 0), f"{name} has {size} bytes; the limit is {limit}", "TOO_LARGE")


class Members:
    """The files of a bundle by name. Contents are read on demand."""

    def __init__(self, path: Path) -> None:
        """List the files; unpack nothing."""
        self.path, self.is_tar = path, not path.is_dir()
        self.spans: dict[str, tuple[int, int]] = {}
        self.added: list[str] = []
        if self.is_tar:
            self.scan_tar()
        else:
            self.scan_folder()

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file, chunk by chunk."""
        need(name in self.spans, f"{name} is missing", "CORRUPTED")
        start, size = self.spans[name]
        with (self.path if self.is_tar else self.path / name).open("rb") as file:
            file.seek(start)
            while size and (chunk := file.read(min(size, MIB))):
                size -= len(chunk)
                yield chunk

    def scan_folder(self) -> None:
        """List the folder of an unpacked bundle. Refuse links, which lead outside, and pipes, which never end."""
        for path in self.path.rglob("*"):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                name = path.relative_to(self.path).as_posix()
                need(stat.S_ISREG(status.st_mode), f"{name} is not a regular file", "INVALID_FORMAT")
                check_size(name, status.st_size)
                self.spans[name] = (0, status.st_size)

    def scan_tar(self) -> None:
        """List a tar in canonical form: plain headers with only name and size, and zeros as padding and at the end."""
        need(stat.S_ISREG(self.path.stat().st_mode), f"{self.path} is not a regular file", "INVALID_FORMAT")
        total, at = self.path.stat().st_size, 0
        with self.path.open("rb") as file:
            while (block := file.read(512)) != bytes(512):
                if not at and block[257:262] != b"ustar" and not block.startswith((b"blobs/", b"checkpoint\0")):
                    raise OSError("it is not a tar")
                name, digits = block[:100].rstrip(b"\0").decode("ascii", "backslashreplace"), block[124:135]
                size = int(digits, 8) if digits.isdigit() else -1
                check_size(name, size)
                plain = tarfile.TarInfo(name)
                plain.size = size
                is_plain = plain.tobuf(tarfile.USTAR_FORMAT) == block and name not in self.spans
                message = f"the header of {name} is not in canonical form, or the tar contains it twice"
                need(is_plain, message, "INVALID_FORMAT")
                self.spans[name] = (at + 512, size)
                file.seek(at + 512 + size)
                need(file.read(-size % 512) == bytes(-size % 512), f"the padding after {name} is not zero", "CORRUPTED")
                at += 512 + size + -size % 512
            end = 1024 + -(at + 1024) % 10240
            is_whole = total == at + end and file.read() == bytes(end - 512)
            need(is_whole, "the end of the tar is damaged", "CORRUPTED")

    def check_names(self, manifest: dict[str, Any]) -> list[str]:
        """Check that the files are those of the manifest, and in a tar that they are in the canonical order.

        Return the files that a folder lacks and the other checks do not need: blobs, entries of a stream, proofs. A
        folder may have more blobs: somebody ``added`` those that were missing when the bundle was made.
        """
        wanted = list(names_of(manifest, len(self.spans)))
        names = list(self.spans)
        absent = [name for name in wanted if name not in self.spans]
        lost = [] if self.is_tar else [name for name in absent if name.startswith(("blobs/", "entries/"))]
        unnamed = sorted(set(names) - set(wanted))
        more = [] if self.is_tar else [name for name in unnamed if name.startswith("blobs/")]
        self.added = [name.removeprefix("blobs/").replace("/", ":") for name in more]
        other = [name for name in absent if name not in lost] or [name for name in unnamed if name not in more]
        need(not other, f"missing, or not part of the bundle: {', '.join(other[:3])}", "CORRUPTED")
        need(not self.is_tar or names == wanted, "the files are not in the canonical order", "CORRUPTED")
        return lost


def names_of(manifest: dict[str, Any], files_max: int) -> Iterator[str]:
    """Yield the name of each file of the bundle, in order. Refuse a size that needs more tiles than files exist."""
    size, is_log = manifest["size"], manifest["content"] == "log"
    is_possible = not is_log or size // 256 <= files_max
    need(is_possible, "the manifest names a size that does not match the number of tiles", "CORRUPTED")
    yield from (f"blobs/{ref.replace(':', '/')}" for ref in manifest["blobs"])
    yield from ["checkpoint"] if is_log else ["checkpoint", "ends"]
    for index in manifest["indexes"]:
        yield from (f"entries/{index:020d}.entry", f"entries/{index:020d}.tlog-proof")
    yield from (f"home/{name}" for name in sorted(manifest["files"]))
    yield "index.html"
    yield from (f"keys/{name}" for name in KEYS)
    yield from ("manifest.json", "schemas.json")
    levels: list[tuple[tuple[int | str, ...], int]] = [((level,), size >> 8 * level) for level in range(8)]
    for parts, hashes in [*levels, (("entries", "bodies"), size)] if is_log else []:
        for number in range(-(-hashes // 256)):
            yield from (tile_name(part, number, min(256, hashes - number * 256)) for part in parts)
    yield "verify.py"
