"""Backup: a ledger as a bundle of its whole log, so that anybody can verify it, with and without Deedbook.

Agents may write meanwhile: the backup signs a checkpoint first and then reads the entries under it, page by page. If
the process dies, the earlier file at this path remains, or there is no file.

Left out: views (rebuilt from the log), the bus folder (a copy of the log), session keys (agents delegate new ones), the
trust store of readers, and blobs that no event refers to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deedbook.ledger.bundle.export import Exported, export_bundle
from deedbook.ledger.bundle.layout import HomeFile
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import read_private, seal_files
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import read_file

SUFFIX: Final = ".tar"
SETTINGS: Final[tuple[HomeFile, ...]] = ("chains.toml", "config.toml")
KEYS: Final[HomeFile] = "keys.sealed"
KEY_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\.(key|nkey)", re.ASCII)


def write_backup(
    client: LocalClient,
    home: Home,
    path: Path,
    *,
    passphrase: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write a backup of the ledger to a tar at ``path``. With a passphrase, it contains the keys, sealed with it.

    Raises Refused: the codes of a key file, when the checkpoint key is missing or a key cannot be read; as
    ``location.read_file``. Unavailable: ``STORE_UNAVAILABLE`` when ``path`` cannot be written.
    """
    settings = {name: read_file(home.path, name) for name in SETTINGS}
    files = {name: content for name, content in settings.items() if content}
    if passphrase is not None:
        files[KEYS] = seal_files({key.name: read_private(key) for key in key_files(home)}, passphrase)
    return export_bundle(client, path, files=files, progress=progress)


def count_left_out(client: LocalClient) -> int:
    """Return the number of blobs that no event refers to. No backup contains them."""
    count, page = 0, client.blobs(unreferenced=True)
    while page.next is not None:
        count, page = count + len(page.blobs), client.blobs(page.next, unreferenced=True)
    return count + len(page.blobs)


def key_files(home: Home) -> list[Path]:
    """Return the files of identity keys and bus keys, without session keys, which expire."""
    return sorted(path for path in home.keys.glob("*.*key") if KEY_NAME.fullmatch(path.name))


def newest_backup(folder: Path) -> Path:
    """Return the newest backup in a folder, by its name.

    Raises Refused: ``NOT_FOUND`` when there is none; ``REF_AMBIGUOUS`` when the backups are of several ledgers.
    """
    backups = sorted(path for path in folder.glob(f"deedbook-*{SUFFIX}") if path.is_file())
    if not backups:
        raise Refused("NOT_FOUND", f"{folder} contains no backup (deedbook-*{SUFFIX}): name the file", path=str(folder))
    if len({path.name.split("-")[1] for path in backups}) > 1:
        raise Refused("REF_AMBIGUOUS", f"{folder} contains backups of several ledgers: name the file", path=str(folder))
    return backups[-1]
