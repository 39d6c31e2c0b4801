"""The reader of streams of a ledger in a folder on this machine, for the client and for verbs that sign nothing."""

from __future__ import annotations

from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.client.stream_reader import StreamReader, pinned_root


def streams_of(reader: LocalReader) -> StreamReader:
    """Return the reader of streams of a ledger in a folder on this machine."""
    home = reader.settings.home
    file = None if reader.settings.only_looks else reader.trust_store.authority_file
    is_pinned = pinned_root(home, reader.ledger) is not None
    return StreamReader(reader, file, lambda: f"the log in {home}", is_pinned=is_pinned)
