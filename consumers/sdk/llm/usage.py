"""The costs of requests to a language model. Events may hold them."""

from __future__ import annotations

from msgspec.structs import astuple

from deedbook.ledger.events.fields import Count, EventData
from deedbook.ledger.limits import json_integer_max


class Usage(EventData, frozen=True):
    """The cost of asking a model: the requests sent (also failed ones) and the tokens. Asking a program is free."""

    requests: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, at most the largest JSON integer: otherwise false claims could make it unreadable."""
        sums = (mine + others for mine, others in zip(astuple(self), astuple(other), strict=True))
        return Usage(*(min(total, json_integer_max) for total in sums))
