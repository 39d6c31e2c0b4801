"""The costs of requests to a language model. Events may hold them."""

from __future__ import annotations

from msgspec.structs import astuple

from deedbook.ledger.events.fields import Count, EventData
from deedbook.ledger.limits import json_integer_max


class Usage(EventData, frozen=True):
    """The costs at a model: the requests sent, failed ones included, and tokens. A program costs nothing."""

    requests: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, limited to the largest JSON integer, so that false claims cannot make it unreadable."""
        sums = (mine + others for mine, others in zip(astuple(self), astuple(other), strict=True))
        return Usage(*(min(total, json_integer_max) for total in sums))
