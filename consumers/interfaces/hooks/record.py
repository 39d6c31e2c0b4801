"""What setup remembers of the files it changed, so that removal can put back every byte.

The record stands outside project and ledger (``ledger.home.location.state_folder``): setup must be removable after the
ledger is gone. It is written before the files: what happens if we crash in between is that it speaks of files that
hold something else, and then only what is found in them counts. It holds what the files held before, so its folder is
for its owner alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.sdk.files import remove_file, settled_for_s, write_file
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.home.location import state_folder
from deedbook.ledger.system.files import TEMPORARY

leftover_age_s: Final = 10.0
_random_chars: Final = 8
"""Of a temporary file's name (``tempfile``)."""

_key_digits: Final = 16


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file: what it held before (None: there was none), the digest of what setup left, and what it wrote."""

    path: str
    before: bytes | None
    after: str
    written: dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One setup: for whom, the files, and the folders that it made, outer ones first."""

    agent: str
    home: str | None
    server: str | None
    files: list[FileRecord]
    folders: list[str]

    def of(self, path: Path) -> FileRecord | None:
        """Return what is known of a file."""
        return next((one for one in self.files if one.path == str(path)), None)


def digest(content: bytes) -> str:
    """Return the digest by which a file is known again."""
    return sha256(content).hexdigest()


def record_path(harness: str, folder: Path) -> Path:
    """Return where the record of one setup stands."""
    key = sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:_key_digits]
    return state_folder() / "setup" / f"{harness}-{key}.json"


def read_record(path: Path) -> Record | None:
    """Return a record; None when there is none, or none that can be read: then only what the files say counts."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, *UNREADABLE):
        return None


def write_record(path: Path, record: Record) -> None:
    """Put a record in its place."""
    write_file(path, msgspec.json.encode(record) + b"\n")


def remove_record(path: Path, record: Record) -> None:
    """Remove a record, and those folders that setup made which are empty now.

    Folders that hold other records are handed on to one of them, so that the last to go takes them along. The project's
    go before the record: what happens if we crash in between is that the next removal finds the rest.
    """
    made = [type(path)(one) for one in record.folders]
    _remove_empty(one for one in reversed(made) if not path.is_relative_to(one))
    remove_file(path)
    _remove_empty([path.parent, path.parent.parent, *(one for one in reversed(made) if path.is_relative_to(one))])
    left = [str(one) for one in made if path.is_relative_to(one) and one.exists()]
    for other in sorted(path.parent.glob("*.json"))[:1] if left else []:
        if (found := read_record(other)) is not None:
            write_record(other, msgspec.structs.replace(found, folders=[*left, *found.folders]))


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty: somebody uses it now
            folder.rmdir()


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Remove the temporary files of a setup that was killed while it wrote; a young one may be somebody's at work."""
    for folder in folders:
        for path in folder.glob(f"{TEMPORARY}{'?' * _random_chars}"):
            if path.is_file() and (settled_for_s(path) or 0) >= leftover_age_s:
                remove_file(path)


def missing_folders(folder: Path) -> list[Path]:
    """Return which of a folder and those above it are missing, outer ones first."""
    return [one for one in (folder, *folder.parents) if not one.exists()][::-1]


def make_folders(folder: Path, *, mode: int = 0o755) -> list[Path]:
    """Make a folder and those above it that are missing; return what was made, outer ones first."""
    made: list[Path] = []
    try:
        for one in missing_folders(folder):
            one.mkdir(mode=mode)
            made.append(one)
    except OSError as error:
        for one in reversed(made):
            one.rmdir()
        message = f"{folder} cannot be made: {error.strerror}"
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(folder)) from error
    return made
