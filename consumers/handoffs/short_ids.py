"""Ids that people type: short ones for new decisions and questions, and whole ones where they sign."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from deedbook.consumers.sdk.text import slug_of
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean

words_max: Final = 5
chars_max: Final = 40


def short_id(view: Ask, family: str, text: str) -> str:
    """Return an id made of the first words of a text. No stream of the family has this id yet.

    If another agent takes it first, the ledger refuses the second event.
    """
    words = "-".join(slug_of(text, chars_max).split("-")[:words_max])
    ids = (words if number == 1 else f"{words}-{number}" for number in count(1))
    return next(id_ for id_ in ids if not view("catalog.find", {"stream": f"{family}/{id_}", "limit": 1})["items"])


def by_whole_id(answer: dict[str, Any], family: str, name: str) -> dict[str, Any]:
    """Return ``answer``, a query's answer, if ``name`` is the whole id of its subject: somebody will sign about it.

    A query also takes the beginning of an id. A signature does not: a typo may be the beginning of another id.
    Raises Refused: ``NOT_FOUND`` for a beginning, with the whole id as ``near``.
    """
    id_ = answer["id"]
    if name.removeprefix(f"{family}/") in {id_, f"{id_}.md"}:
        return answer
    raise Refused("NOT_FOUND", f"there is no {family} {name}{did_you_mean([id_])}", reference=name, near=[id_])
