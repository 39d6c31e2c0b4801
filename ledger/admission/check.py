"""The checks of a submission that need only its bytes: format, schema, id, signature, and a scan for secrets.

The search for secrets is here, because threads run these checks in parallel. ``ledger.admission.decide`` then refuses
the events with secrets.
"""

from __future__ import annotations

from msgspec.structs import replace

from deedbook.ledger.admission.candidate import Candidate, CheckedSubmission, refusal_of
from deedbook.ledger.errors import AS_A_BLOB, Refused
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.format.envelope import Submission, check_shape, commitment_to, event_id, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import body_size_max_bytes
from deedbook.ledger.secrets.scanner import scan_bodies


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


def _candidate(raw: bytes, commitment: bytes) -> Candidate:
    if len(raw) > body_size_max_bytes:
        message = f"the event has {len(raw)} bytes, and the limit is {body_size_max_bytes}: {AS_A_BLOB}"
        raise Refused("TOO_LARGE", message, size=len(raw))
    body, data = decode_body(raw)
    return Candidate(body, data, commitment, event_id(commitment), raw)
