"""The ledger: accepts, orders, keeps and publishes signed events.

Not public: programs import from ``deedbook`` (``docs/public-api.md`` lists the exceptions).

    >>> import tempfile, pathlib
    >>> from deedbook.ledger.client.author import Author, Draft
    >>> from deedbook.ledger.client.creation import create_ledger
    >>> from deedbook.ledger.client.local import LocalClient
    >>> from deedbook.ledger.format.identity import open_key
    >>> from deedbook.ledger.home.home import Home
    >>> from deedbook.ledger.home.config import Settings
    >>> home = Home(pathlib.Path(tempfile.mkdtemp()) / ".deedbook")
    >>> ledger = create_ledger(home, origin="example.org/docs", map_size=2**30)
    >>> with LocalClient(Settings(home=home.path)) as client:
    ...     root = Author(client, "root", lambda kinds: open_key(home.key_file("root")))
    ...     client.head().size
    1

The terms used here, each with one meaning:

- *event*: a signed statement of an agent, of one *kind*, on one *stream* (its aggregate, never a stream of JetStream)
- *entry*: the stored bytes of an event; *index*: its position in the *log*, from 0
- *checkpoint*: a signed statement of the log's size and root; *receipt*: the proof that an entry is under one
- *gate*: the code that admits or *refuses* every event
"""
