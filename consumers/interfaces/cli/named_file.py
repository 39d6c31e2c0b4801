"""Files that the user named for an output: an existing one is replaced only with ``--force``.

Some outputs recognize an earlier output of their own (a backup, an export, PROV, a rendered handoff). They replace it
without ``--force``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from deedbook.ledger.errors import Refused
from deedbook.ledger.system.files import as_unavailable, check_regular, create_exclusively, replacing

if TYPE_CHECKING:
    from pathlib import Path

force_option: Final = click.option("--force", is_flag=True, help="Replace the file if it exists.")


def check_free(path: Path, *, force: bool) -> None:
    """Check, before anything is signed or fetched, that ``path`` may be written.

    Raises Refused: ``FILE_EXISTS`` without ``force``; ``INVALID_FORMAT`` for a folder, a link, a pipe or a device.
    """
    with as_unavailable(path), suppress(FileNotFoundError):
        check_regular(path)
        if not force:
            raise file_exists(path)


def write_named(path: Path, content: bytes, *, force: bool) -> None:
    """Write a whole file or none. Raises Refused: as ``check_free``. Unavailable: ``STORE_UNAVAILABLE``."""
    check_free(path, force=force)
    with as_unavailable(path):
        try:
            with (replacing if force else create_exclusively)(path) as file:
                file.write(content)
        except FileExistsError as error:  # another process created the file meanwhile
            raise file_exists(path) from error


def file_exists(path: Path) -> Refused:
    """Return the error for an existing file."""
    return Refused("FILE_EXISTS", f"{path} exists: name another file, or replace it with --force", path=str(path))
