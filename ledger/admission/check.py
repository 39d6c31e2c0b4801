"""The checks of a submission that need only its bytes: format, schema, id, signature, and a scan for secrets.

Secrets are searched here, where threads work in parallel. ``ledger.admission.decide`` refuses them in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import AS_A_BLOB, Refused
from deedbook.ledger.events.body import Body, decode_body
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.envelope import Remnant, Submission, check_shape, commitment_to, event_id, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import body_size_max_bytes
from deedbook.ledger.secrets.scanner import scan_bodies

if TYPE_CHECKING:
    from deedbook.ledger.secrets.scanner import Secret


class Candidate(msgspec.Struct, frozen=True):
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


def check(submission: Submission) -> CheckedSubmission:
    """Return the candidates of a submission.

    Raises Refused: the code of the first bad event; ``details["events"]`` lists every bad event by position.
    """
    check_shape(submission)
    candidates: list[Candidate] = []
    refusals: dict[int, Refused] = {}
    commitments = [commitment_to(raw) for raw in submission.bodies]
    for position, raw in enumerate(submission.bodies):
        try:
            candidates.append(_candidate(raw, commitments[position]))
        except Refused as refusal:
            refusals[position] = refusal
    if refusals:
        raise refusal_of(refusals, len(submission.bodies))
    if not verify(submission.key, signed_bytes(commitments), submission.sig):
        raise Refused("SIGNATURE_INVALID", "the signature is not one of these events by this key")

    for position, secret in scan_bodies(submission.bodies).items():
        candidates[position] = replace(candidates[position], secret=secret)
    return CheckedSubmission(submission, candidates)


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


def _candidate(raw: bytes, commitment: bytes) -> Candidate:
    if len(raw) > body_size_max_bytes:
        message = f"the event has {len(raw)} bytes, and the limit is {body_size_max_bytes}: {AS_A_BLOB}"
        raise Refused("TOO_LARGE", message, size=len(raw))
    body, data = decode_body(raw)
    return Candidate(body, data, commitment, event_id(commitment), raw)
