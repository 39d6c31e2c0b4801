"""How much an answer may say: tokens counted, lists ended at an item, texts at a word, and what was left out named.

Answers are filled to ``filled_tokens_max`` by the tokenizer that this installation has, which leaves room under
``answer_tokens_max`` for clients that count with another one. Only who asks for more (a level, a budget) gets more.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sdk.tokens import Budget, cut_to_tokens
from projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

answer_tokens_max: Final = 2_000
filled_tokens_max: Final = 1_500
arguments_size_max_bytes: Final = 900 * 1024
_note_tokens: Final = 60
"""Room for saying what was left out."""


def compact(value: Any) -> str:
    """Return a value as the JSON text that a client's model reads."""
    return msgspec.json.encode(value).decode()


def tokens_of(value: Any) -> int:
    """Return the tokens of a value as JSON text."""
    return count_tokens(compact(value))


def fitting(items: Sequence[Any], answer: Mapping[str, Any], *, limit: int = filled_tokens_max) -> int:
    """Return how many of ``items``, from the first on, fit into an answer that holds ``answer`` already; at least one.

    One item that is alone too long has to be shortened by who knows what it is.
    """
    budget = Budget(limit - _note_tokens - tokens_of(answer))
    kept = list(takewhile(lambda item: budget.take(tokens_of(item) + 1), items))
    return max(len(kept), min(1, len(items)))


def shorten(item: dict[str, Any], fields: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return an item with its texts cut at a word to ``tokens`` each, and in ``shortened`` the names of those cut."""
    cut = {name: cut_to_tokens(item[name], tokens) for name in fields if isinstance(item.get(name), str)}
    names = [name for name, text in cut.items() if text != item[name].strip()]
    return item | {name: cut[name] for name in names} | ({"shortened": names} if names else {})


def shorten_list(texts: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """Return the first texts that fit into ``tokens``, the first at least in part, and how many were left out."""
    budget = Budget(tokens)
    kept = list(takewhile(lambda text: budget.take(count_tokens(text) + 2), texts))
    kept = kept or [cut_to_tokens(text, tokens) for text in texts[:1]]
    return kept, len(texts) - len(kept)
