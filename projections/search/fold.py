"""The fold of search: the text of an event, and its words, added once and never changed.

Between two fields of an event stands a word that no question can hold, so that a phrase is found within one field only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.projection import NoState, Projection
from projections.search.tables import TEXTS, WORDS
from projections.search.texts import HANDLED, texts_of
from projections.search.words import words_of
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from projections.projection import Logged, Rows

BETWEEN_FIELDS: Final = " ¶ "


def added(_state: NoState | None, logged: Logged) -> Rows:
    """Return the event's text and words; nothing for an event that says nothing."""
    texts = texts_of(logged.event.data, logged.event.name)
    if not texts:
        return {}
    index = logged.event.index
    words = BETWEEN_FIELDS.join(" ".join(words_of(text)) for text in texts)
    return {TEXTS.name: [(index, "\n".join(texts))], WORDS.name: [(index, words)]}


SEARCH_VIEW: Final = Projection(
    name="search",
    version=VIEW_VERSIONS["search"],
    handles=HANDLED,
    tables=(TEXTS, WORDS),
    state=NoState,
    initial=lambda _key: NoState(),
    fold=lambda state, _event: state,
    added=added,
)
