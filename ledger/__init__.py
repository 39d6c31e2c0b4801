"""The ledger: accepts, orders, keeps and publishes signed events.

    >>> import tempfile, pathlib
    >>> from ledger import Author, Draft, Home, LocalClient, Settings, create_ledger, open_key
    >>> home = Home(pathlib.Path(tempfile.mkdtemp()) / ".deedbook")
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

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from ledger.author import Author as Author
    from ledger.author import Draft as Draft
    from ledger.client import Client as Client
    from ledger.client import follow as follow
    from ledger.client import open_client as open_client
    from ledger.config import Settings as Settings
    from ledger.config import read_settings as read_settings
    from ledger.entries import read_event as read_event
    from ledger.errors import DeedbookError as DeedbookError
    from ledger.errors import Corrupted as Corrupted
    from ledger.errors import Refused as Refused
    from ledger.errors import Unavailable as Unavailable
    from ledger.events.body import Event as Event
    from ledger.home import Home as Home
    from ledger.home import create_ledger as create_ledger
    from ledger.identity import Key as Key
    from ledger.identity import open_key as open_key
    from ledger.local import LocalClient as LocalClient
else:
    __getattr__, __dir__ = front_door(__name__)
