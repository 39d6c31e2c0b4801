"""The fold of search: the human text of an event, and its words, added once and never changed.

Between two fields of an event is a word that no query can contain, so a phrase is found within one field
only.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.events import CORE_KINDS, KIND_OF
from deedbook.ledger.events.declared import DeclaredData, phrase_of
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.families import installed
from deedbook.ledger.format.forms import OWN
from deedbook.projections.search.texts import TEXTS_OF, texts_of, texts_of_family
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
    """Return the event's text and words; nothing for an event without text.

    The words of a declared kind's event include those of the kind's name.
    """
    texts = texts_of(logged.event.data, logged.event.name)
    names: list[str] = []
    if isinstance(logged.event.data, DeclaredData):  # lists show such an event in the words of its kind
        names = [logged.event.kind]
        texts = texts or [phrase_of(logged.event.kind)]
    if not texts:
        return ()
    index = logged.event.index
    words = BETWEEN_FIELDS.join(" ".join(words_of(text)) for text in (*texts, *names))
    return TextRow(index, "\n".join(texts)), WordsRow(index, words)


def handled() -> frozenset[str]:
    """Return the kinds with texts, those of families too."""
    core = {name for name, kind in CORE_KINDS.items() if kind.data in TEXTS_OF or kind.data is RecordImported}
    families = (texts_of_family(family.name) for family in installed() if family.texts)
    return frozenset(core | {OWN} | {KIND_OF[form] for table in families for form in table if form in KIND_OF})


HANDLED: Final = handled()

VIEW: Final = event_rows("search", VIEW_VERSIONS["search"], HANDLED, (TEXTS, WORDS), added)
