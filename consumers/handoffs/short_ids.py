"""Short ids for decisions and questions, which people type: the first words of the text, with a number if need be."""

from __future__ import annotations

from itertools import count
from typing import Final

from deedbook.consumers.sdk.text import slug_of
from deedbook.ledger.client.client import Ask

words_max: Final = 5
chars_max: Final = 40


def short_id(view: Ask, family: str, text: str) -> str:
    """Return an id made of the first words of a text. No stream of the family has this id yet.

    If another agent takes it first, the ledger refuses the second event.
    """
    words = "-".join(slug_of(text, chars_max).split("-")[:words_max])
    ids = (words if number == 1 else f"{words}-{number}" for number in count(1))
    return next(id_ for id_ in ids if not view("catalog.find", {"stream": f"{family}/{id_}", "limit": 1})["items"])
