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
from deedbook.ledger.format.envelope import Submission, batch_pae, check_shape, event_id, pae
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import body_size_max_bytes
from deedbook.ledger.secrets.scanner import scan_bodies

if TYPE_CHECKING:
    from deedbook.ledger.secrets.scanner import Secret


class Candidate(msgspec.Struct, frozen=True):
    """An event with valid bytes: its body decoded, its id computed, its signature verified.

    Only a gate searches for a ``secret``. A replay makes candidates without it.
    """

    body: Body
    data: EventData
    id: str
    raw: bytes
    secret: Secret | None = None


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
    signed: list[bytes] = []
    for position, raw in enumerate(submission.bodies):
        signed.append(pae(raw))
        try:
            candidates.append(_candidate(raw, signed[-1]))
        except Refused as refusal:
            refusals[position] = refusal
    if not refusals:
        refusals = _bad_signatures(submission, signed)
    if refusals:
        raise refusal_of(refusals, len(submission.bodies))

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


def _candidate(raw: bytes, signed: bytes) -> Candidate:
    if len(raw) > body_size_max_bytes:
        message = f"the event has {len(raw)} bytes, and the limit is {body_size_max_bytes}: {AS_A_BLOB}"
        raise Refused("TOO_LARGE", message, size=len(raw))
    body, data = decode_body(raw)
    return Candidate(body, data, event_id(signed), raw)


def _bad_signatures(submission: Submission, signed: list[bytes]) -> dict[int, Refused]:
    if submission.is_batch_signed:
        is_good = verify(submission.key, batch_pae(signed), submission.sigs[0])
        bad = [] if is_good else [0]
    else:
        pairs = zip(signed, submission.sigs, strict=True)
        bad = [position for position, (message, sig) in enumerate(pairs) if not verify(submission.key, message, sig)]
    message = f"the signature does not match the PAE of the {'batch' if submission.is_batch_signed else 'event'}"
    return {position: Refused("SIGNATURE_INVALID", message) for position in bad}
