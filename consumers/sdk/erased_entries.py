"""The entries that redactions erased, and how far the copies in a ledger's folder follow these redactions.

A redaction may happen on another machine. So each folder stores how far its copies follow the redactions in the log
(``HANDLED_FILE``). When programs run, they compare this with the log, and remove newly erased texts from the copies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.authority import EntryRedacted
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry, is_remnant
from deedbook.ledger.home.location import REPLACED, read_file
from deedbook.ledger.log.reader import LogReader
from deedbook.ledger.system.files import as_unavailable, replacing
from deedbook.ledger.trust.store import TrustStore

HANDLED_FILE: Final = "redacted"


class ErasedEntries(NamedTuple):
    """The streams of erased entries by the entries' indexes, and the index of the log to read next."""

    streams: dict[int, str]
    next_index: int


def erased_since(client: LogReads, start: int = 0) -> ErasedEntries:
    """Return the entries that redactions from index ``start`` on erased."""
    streams: dict[int, str] = {}
    position, size = start, start + 1
    while position < size:
        page = client.entries(position, kinds=["entry.redacted"], stream="ledger")
        if start > page.size:  # the log was reset, or is another one
            return erased_since(client)
        for event in (read_event(index, data) for index, data in page.entries):
            if isinstance(event.data, EntryRedacted) and is_remnant(
                decode_entry(data := client.entry(event.data.entry)).body
            ):
                streams[event.data.entry] = read_event(event.data.entry, data).stream
        position, size = page.next_index, page.size
    return ErasedEntries(streams, position)


def erased_in_copies(ledger: str, home: Path, read_entry: Callable[[int], bytes]) -> list[int]:
    """Return the entries that other logs of a ledger on this machine erased, and whose bodies ``read_entry`` still has.

    These logs are in other folders, or were replaced by `deed restore`. The log of ``home`` may be an older backup.
    """
    replaced = sorted((home / REPLACED).glob("*/"))
    folders = [*replaced, *(Path(copy.location) for copy in TrustStore.of_folder(ledger, home).copies())]
    return sorted({index for folder in folders for index in _returned(folder, ledger, read_entry)})


def _returned(folder: Path, ledger: str, read_entry: Callable[[int], bytes]) -> list[int]:
    indexes: list[int] = []
    # Skip a damaged or missing copy: nobody can say which entries it had erased.
    with suppress(DeedbookError), LogReader(folder) as log, log.snapshot() as snapshot:
        if snapshot.head is None or snapshot.head.ledger != ledger:
            return []
        for at, _ in snapshot.stream_indexes("ledger"):
            data = read_event(at, snapshot.entry(at)).data
            if isinstance(data, EntryRedacted) and is_remnant(decode_entry(snapshot.entry(data.entry)).body):
                erased = read_event(data.entry, snapshot.entry(data.entry))
                with suppress(Refused):  # this log ends before the entry
                    present = read_event(data.entry, entry := read_entry(data.entry))
                    if present.id == erased.id and not is_remnant(decode_entry(entry).body):
                        indexes.append(data.entry)
    return indexes


def unhandled_erasures(client: LogReads, home: Path) -> ErasedEntries:
    """Return the erased entries whose texts may still be in the copies that belong to a ledger's folder."""
    ledger, _, position = (read_file(home, HANDLED_FILE) or b"").decode("ascii", "replace").strip().partition(" ")
    return erased_since(client, int(position) if ledger == client.ledger and position.isdecimal() else 0)


def store_handled(client: LogReads, home: Path, next_index: int) -> None:
    """Store that the copies of a ledger's folder follow the redactions before an index.

    Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``.
    """
    with as_unavailable(home / HANDLED_FILE), replacing(home / HANDLED_FILE) as file:
        file.write(f"{client.ledger} {next_index}\n".encode())
