"""The tables of search: the text as it was written, and beside it the index of its words.

Author, kind, stream and time of an event stand in the catalog's ``events``, which search joins.
"""

from __future__ import annotations

from typing import Final

from projections.projection import Table

TEXTS: Final = Table(
    "search_texts",
    {"event_index": "INTEGER NOT NULL", "text": "TEXT NOT NULL"},
    primary_key=("event_index",),
)
WORDS: Final = Table(
    "search_words",
    {"event_index": "INTEGER NOT NULL", "words": "TEXT NOT NULL"},
    primary_key=("event_index",),
    is_full_text=True,
)
