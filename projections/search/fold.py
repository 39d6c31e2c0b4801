"""The fold of search: the human text of an event, and its words, added once and never changed.

Between two fields of an event is a word that no query can contain, so a phrase is found within one field
only.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.events import KINDS
from deedbook.ledger.events.declared import OWN
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.search.texts import TEXTS_OF, texts_of
from deedbook.projections.search.words import words_of
from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows
from deedbook.projections.views.registry import VIEW_VERSIONS


class TextRow(Row, frozen=True):
    """The text of an event as it was written; its author, kind, stream and time are in the catalog's ``events``."""

    event_index: int
    text: str


class WordsRow(Row, frozen=True):
    """The words of that text, normalised and separated by spaces."""

    event_index: int
    words: str


TEXTS: Final = Table("search_texts", TextRow, primary_key=("event_index",))
WORDS: Final = Table("search_words", WordsRow, primary_key=("event_index",), is_full_text=True)
BETWEEN_FIELDS: Final = " ¶ "


def added(logged: Logged) -> Rows:
    """Return the event's text and words; nothing for an event without text."""
    texts = texts_of(logged.event.data, logged.event.name)
    if not texts:
        return ()
    index = logged.event.index
    words = BETWEEN_FIELDS.join(" ".join(words_of(text)) for text in texts)
    return TextRow(index, "\n".join(texts)), WordsRow(index, words)


HANDLED: Final = frozenset(
    {OWN, *(name for name, kind in KINDS.items() if kind.data in TEXTS_OF or kind.data is RecordImported)}
)

VIEW: Final = event_rows("search", VIEW_VERSIONS["search"], HANDLED, (TEXTS, WORDS), added)
