"""The signed files beside handoff files, and the file that pins the ledger's root for all of them.

A folder with a file ``ROOT`` has for each handoff file ``ID.md`` a signed file ``ID.deed.json``: the signed entries
that prove it (``ledger.bundle.signed_file``). `deed handoff check-files` reads both without a ledger. A signed file is
written again only when its handoff has a new event, so that a commit shows only what happened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.ledger.bundle import signed_file_of
from deedbook.ledger.bundle.signed_file import read_signed_entries, signed_file_size_max_bytes
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.location import SIGNED_FILE
from deedbook.ledger.home.trust import fingerprint

ROOT_FILE: Final = "ROOT"
_root_size_max_bytes: Final = 200


def signed_name(id_: str) -> str:
    """Return the name of the signed file of a handoff."""
    return f"{id_}{SIGNED_FILE}"


def root_in(content: bytes) -> str:
    """Return the fingerprint in a file ``ROOT``; an empty text if it has none."""
    return content.decode("ascii", "replace").strip()


def is_signed_folder(folder: Path) -> bool:
    """Return whether a folder pins a root, so that each handoff file gets a signed file."""
    return read_file(folder / ROOT_FILE, size_max_bytes=_root_size_max_bytes) is not None


def pin_root(folder: Path, client: Client) -> bool:
    """Write the file ``ROOT`` of a folder if there is none, and return whether it was written.

    Raises Refused: ``INVALID_FIELD`` if the folder pins the root of another ledger.
    """
    created = read_event(0, client.entry(0)).data
    assert isinstance(created, LedgerCreated)  # noqa: S101 - the gate accepts no other first entry
    root = fingerprint(bytes.fromhex(created.root))
    pinned = read_file(folder / ROOT_FILE, size_max_bytes=_root_size_max_bytes)
    if pinned is None:
        write_file(folder / ROOT_FILE, root.encode() + b"\n")
        return True
    if root_in(pinned) != root:
        message = (
            f"{folder / ROOT_FILE} pins another ledger, and this one has the root {root}: use the other ledger, or \
another folder"
        )
        raise Refused("INVALID_FIELD", message, path=str(folder / ROOT_FILE))
    return False


def write_signed(folder: Path, client: Client, handoff: dict[str, Any]) -> bool:
    """Write a handoff's signed file if it would lack the last event or have an erased body. Return whether it did.

    ``handoff`` is an answer of ``handoffs.show``. Raises Refused: as ``signed_file_of``, or the file is no regular one.
    """
    path = folder / signed_name(handoff["id"])
    try:
        content = read_file(path, size_max_bytes=signed_file_size_max_bytes)
        present = None if content is None else read_signed_entries(content)
    except (Corrupted, Refused) as error:
        if error.code == "INVALID_FORMAT" and path.is_symlink():
            raise
        present = None  # the file is damaged, or was written by hand
    stream = f"handoff/{handoff['id']}"
    erased = handoff["redacted"]["entries"] if "redacted" in handoff else 0
    now = (client.ledger, stream, handoff["updated_index"], erased)
    if present and (present.ledger, present.stream, present.last_index, present.erased_count) == now:
        return False
    return write_file(path, signed_file_of(client, stream))
