"""The ledger: accepts, orders, keeps and publishes signed events.

    >>> import tempfile, pathlib
    >>> from ledger import Author, Draft, Home, LocalClient, Settings, create_ledger, open_key
    >>> home = Home(pathlib.Path(tempfile.mkdtemp()) / ".baton")
    >>> ledger = create_ledger(home, origin="example.org/docs", map_size=2**30)
    >>> with LocalClient(Settings(home=home.path)) as client:
    ...     root = Author(client, "root", lambda kinds: open_key(home.key_file("root")))
    ...     client.head().size
    1

The words used here, each with one meaning:

- *event*: what an agent signed, of one *kind*, on one *stream* (the aggregate it belongs to, never JetStream's)
- *entry*: the bytes an event is stored as; *index*: its place in the *log*, from 0
- *checkpoint*: a signed statement of the log's size and root; *receipt*: the proof that an entry is under one
- *gate*: where every event is admitted or *refused*, with a code

Importing this package opens nothing and loads neither lmdb nor nats; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from ledger.author import Author, Draft
    from ledger.client import Client, follow, read_event
    from ledger.config import Settings, read_settings
    from ledger.connect import open_client
    from ledger.errors import BatonError, Corrupted, Refused, Unavailable
    from ledger.events.body import Event
    from ledger.home import Home, create_ledger
    from ledger.identity import Key, open_key
    from ledger.local import LocalClient

__all__ = [
    "Author",
    "BatonError",
    "Client",
    "Corrupted",
    "Draft",
    "Event",
    "Home",
    "Key",
    "LocalClient",
    "Refused",
    "Settings",
    "Unavailable",
    "create_ledger",
    "follow",
    "open_client",
    "open_key",
    "read_event",
    "read_settings",
]

__getattr__ = front_door(
    __name__,
    {
        "author": ("Author", "Draft"),
        "client": ("Client", "follow", "read_event"),
        "connect": ("open_client",),
        "config": ("Settings", "read_settings"),
        "errors": ("BatonError", "Corrupted", "Refused", "Unavailable"),
        "events.body": ("Event",),
        "home": ("Home", "create_ledger"),
        "identity": ("Key", "open_key"),
        "local": ("LocalClient",),
    },
)
