"""A full-text table in SQLite: an FTS5 index that keeps where words stand, and not the text they stand in.

The words come from the fold, normalised and set apart by spaces, so FTS5's plainest tokenizer is right: whatever is no
ASCII letter or digit and no character beyond ASCII ends a word. Which rows are merged into which segments depends on
batches; what the index *says* does not, and that is what its digest covers: every word, in which row, at which place.
So `baton verify --views` finds an index that is out of step with the log, too.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from ledger.errors import Unavailable

if TYPE_CHECKING:
    from projections.projection import Table

MODULE: Final = "fts5"
places_max: Final = 2**20  # of a row: an entry has fewer bytes
rows_hashed: Final = 4_096

_VOCABULARY: Final = "temp.baton_vocabulary"
_pack = msgspec.msgpack.Encoder().encode


def create_index(db: sqlite3.Connection, table: Table, name: str) -> None:
    """Make an empty full-text table under a name.

    Raises:
        Unavailable: ``STORE_UNAVAILABLE`` when this Python's SQLite was built without FTS5.
    """
    _, column = table.columns
    try:
        db.execute(f"""CREATE VIRTUAL TABLE "{name}" USING {MODULE}("{column}", content = '', tokenize = 'ascii')""")
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        message = "the SQLite of this Python has no FTS5, which search needs: use a Python whose sqlite3 has it"
        raise Unavailable("STORE_UNAVAILABLE", message, cause=str(error)) from error


def insert_sql(table: Table, name: str) -> str:
    """Return the statement that adds a row: its key, which is the row's number, and its words."""
    _, column = table.columns
    return f'INSERT INTO "{name}"(rowid, "{column}") VALUES (?, ?)'  # noqa: S608 - names of tables in the code


def digest_of(db: sqlite3.Connection, name: str) -> str:
    """Return the BLAKE3 (hex) over every word of a live full-text table, with its rows and places, in order.

    First how often each word stands, then where, one number a place: together they leave nothing open, in half the time
    that the words themselves would take beside each of their places (measured).
    """
    hasher = blake3()
    for detail, columns in (("row", "term, doc, cnt"), ("instance", f'doc * {places_max} + "offset"')):
        db.execute(f"CREATE VIRTUAL TABLE {_VOCABULARY} USING fts5vocab('main', '{name}', '{detail}')")
        try:
            cursor = db.execute(f"SELECT {columns} FROM {_VOCABULARY}")  # noqa: S608 - fixed names
            while rows := cursor.fetchmany(rows_hashed):
                hasher.update(_pack(rows))
            cursor.close()
        finally:
            db.execute(f"DROP TABLE {_VOCABULARY}")
    return hasher.hexdigest()
