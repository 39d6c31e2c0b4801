"""Asking a human: one signed request for one question, however often it comes up (SEEDS, 001).

The id of a request is made of who asks, what about, and on which grounds; so asking again finds the request that is
there, open or answered, and new grounds (another rule, a new report) make a new one. What happens if we crash after the
request was appended: the next call finds it.

Anybody may take any id. A stream under our id that somebody else opened is not ours, and the next number is tried.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.author import Draft
from ledger.codec import encode_canonical
from ledger.errors import Corrupted, Refused

if TYPE_CHECKING:
    from ledger.author import Author
    from ledger.client import Ask
    from ledger.events.review import ReviewRequested

_digits: Final = 16
_numbers_max: Final = 8


class Review(msgspec.Struct, frozen=True):
    """A request and, once a human gave it, the answer."""

    id: str
    status: str
    author: str
    question: str
    rule: str
    reasoning_ref: str | None
    requested_index: int
    verdict: str | None = None
    comment: str = ""
    answered_by: str | None = None


def ask_human(author: Author, view: Ask, asked: ReviewRequested, causes: list[str]) -> Review:
    """Return the review of a question: the one that stands, or one appended now and signed by ``author``.

    Raises:
        Refused: it was not admitted, or the key cannot be used. Unavailable: see ``Client.submit``.
        Corrupted: ``VERIFICATION_FAILED`` when the answer is no review.
    """
    for number in range(_numbers_max):
        name = review_id(author.name, asked, number)
        found = _found(view, name)
        if found is None:
            try:
                author.emit(Draft(stream=f"review/{name}", data=asked, causes=causes))
            except Refused as refusal:
                # Between our look and our word another process of ours, or a stranger, opened the stream.
                if refusal.code != "TRANSITION_NOT_ALLOWED":
                    raise
            found = _found(view, name)
        if found is not None and found.author == author.name and found.reasoning_ref == asked.reasoning_ref:
            return found
    raise Refused("TRANSITION_NOT_ALLOWED", f"somebody else took every id for the review of {asked.question}")


def review_id(name: str, asked: ReviewRequested, number: int = 0) -> str:
    """Return the id of ``name``'s request on these grounds."""
    grounds = [name, asked.reasoning_ref, asked.snapshot_id, asked.rule, asked.reasons, asked.validations, number]
    return f"{name}-{hashlib.sha256(encode_canonical(grounds)).hexdigest()[:_digits]}"


def _found(view: Ask, name: str) -> Review | None:
    try:
        answer = view("reviews.show", {"id": name})
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    try:
        return msgspec.convert(answer, Review)
    except msgspec.ValidationError as error:
        raise Corrupted("VERIFICATION_FAILED", f"the answer is not what was asked for: {error}") from error
