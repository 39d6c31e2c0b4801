"""The record of the files that setup changed, with which removal restores every byte.

The record is stored outside project and ledger (``ledger.home.location.state_folder``): setup must be removable after
the ledger is deleted. It is written before the files. If we crash in between, it describes contents that the files do
not have yet, and then only the files themselves count. It holds their earlier contents, so only its owner may read it.
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
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.home.location import state_folder
from deedbook.ledger.system.files import TEMPORARY

leftover_age_s: Final = 10.0
_random_chars: Final = 8
"""Random characters in the name of a temporary file (``tempfile``)."""

_key_digits: Final = 16
KEPT: Final = "setup-kept"
"""The folder in a ledger's folder for copies of files in which a person edited our part."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its earlier content (None: there was none), the digest of its content after setup, and our values."""

    path: str
    before: bytes | None
    after: str
    written: dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One setup: its agent and ledger, the files, and the folders that it made, outer ones first."""

    agent: str
    home: str | None
    server: str | None
    files: list[FileRecord]
    folders: list[str]

    def of(self, path: Path) -> FileRecord | None:
        """Return the record of a file."""
        return next((file for file in self.files if file.path == str(path)), None)


def digest(content: bytes) -> str:
    """Return the digest that identifies the content."""
    return sha256(content).hexdigest()


def record_path(harness: str, folder: Path) -> Path:
    """Return the path of the record of one setup."""
    key = sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:_key_digits]
    return state_folder() / "setup" / f"{harness}-{key}.json"


def kept_folder() -> Path:
    """Return the folder for copies of edited files where there is no ledger."""
    return state_folder() / "setup" / "kept"


def read_record(path: Path) -> Record | None:
    """Return a record; None if it is missing or unreadable: then only the files themselves count."""
    try:
        return read_json(path.read_bytes(), Record)
    except (OSError, *UNREADABLE):
        return None


def write_record(path: Path, record: Record) -> None:
    """Write a record."""
    write_file(path, msgspec.json.encode(record) + b"\n")


def remove_record(path: Path, record: Record) -> None:
    """Remove a record, and the folders that setup made and that are empty now.

    Folders that hold other records are passed on to one of these records, so the last removal deletes them. The folders
    of the project are deleted before the record: if we crash in between, the next removal finds the rest.
    """
    made = [type(path)(folder) for folder in record.folders]
    _remove_empty(folder for folder in reversed(made) if not path.is_relative_to(folder))
    remove_file(path)
    _remove_empty(
        [path.parent, path.parent.parent, *(folder for folder in reversed(made) if path.is_relative_to(folder))]
    )
    left = [str(folder) for folder in made if path.is_relative_to(folder) and folder.exists()]
    for other in sorted(path.parent.glob("*.json"))[:1] if left else []:
        if (other_record := read_record(other)) is not None:
            write_record(other, msgspec.structs.replace(other_record, folders=[*left, *other_record.folders]))


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty: somebody uses it now
            folder.rmdir()


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Remove the temporary files of a setup that was killed while it wrote; a young one may still be in use."""
    for folder in folders:
        for path in folder.glob(f"{TEMPORARY}{'?' * _random_chars}"):
            if path.is_file() and (settled_for_s(path) or 0) >= leftover_age_s:
                remove_file(path)


def missing_folders(folder: Path) -> list[Path]:
    """Return the missing ones among a folder and its parents, outer ones first."""
    return [path for path in (folder, *folder.parents) if not path.exists()][::-1]


def make_folders(folder: Path, *, mode: int = 0o755) -> list[Path]:
    """Make a folder and its missing parents; return the folders that were made, outer ones first."""
    made: list[Path] = []
    try:
        for missing in missing_folders(folder):
            missing.mkdir(mode=mode)
            made.append(missing)
    except OSError as error:
        for path in reversed(made):
            path.rmdir()
        message = f"{folder} cannot be made: {error.strerror}"
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(folder)) from error
    return made
