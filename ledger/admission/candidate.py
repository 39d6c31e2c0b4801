"""Candidates: events of a submission or of a log, before the rules decide them.

This module does not import the scanner for secrets, because readers that check entries do not need it: only a gate
scans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Body
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.envelope import Remnant, Submission
    from deedbook.ledger.secrets.secret import Secret


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """An event with valid bytes: its body decoded, the commitment to it computed, its signature verified.

    Only a gate searches for a ``secret``; a replay leaves the field empty. Only a replay has candidates whose body was
    erased: ``body``, ``data`` and ``raw`` are then those of the ``remnant``.
    """

    body: Body
    data: EventData
    commitment: bytes
    id: str
    raw: bytes
    secret: Secret | None = None
    remnant: Remnant | None = None


class CheckedSubmission(msgspec.Struct, frozen=True):
    """A submission with valid bytes, and its candidates in order."""

    submission: Submission
    candidates: list[Candidate]


def refusal_of(refusals: dict[int, Refused], count: int) -> Refused:
    """Return the refusal of a submission: that of its first bad event, with the positions of all of them."""
    first = refusals[min(refusals)]
    if count == 1:
        return first
    events: list[dict[str, Any]] = [
        {"position": position, "code": refusal.code, "message": refusal.message}
        for position, refusal in sorted(refusals.items())
    ]
    return Refused(first.code, first.message, **(first.details | {"events": events}))
