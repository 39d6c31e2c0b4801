"""Checking the signed intent of an upload, exactly as an event is checked that its author would append now."""

from __future__ import annotations

from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.decide import check_signer
from deedbook.ledger.admission.gate import state_of
from deedbook.ledger.admission.rules import check_working_role
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.blob import BlobStored
from deedbook.ledger.events.body import Body, decode_body
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.envelope import Submission
from deedbook.ledger.log.blobs import Intent
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.secrets.scanner import refusal as secret_refusal


def check_intent(submission: Submission, snapshot: Snapshot, now_ms: int) -> Intent:
    """Return the intent that ``submission`` is, if its author may store that blob now.

    Raises Refused: as ``check``; the key codes; ``WRONG_LEDGER``, ``NOT_AUTHORIZED``, ``SECRET_DETECTED``;
    ``INVALID_FORMAT`` when it is no intent, or several; ``INVALID_FIELD`` for a stream of another blob.
    """
    candidates = check(submission).candidates
    body, data = candidates[0].body, candidates[0].data
    if len(candidates) > 1 or not isinstance(data, BlobStored):
        raise Refused("INVALID_FORMAT", "an upload begins with one signed event of the kind blob.stored")
    digest = data.ref.partition(":")[2]
    if body.stream != f"blob/{digest}":
        raise Refused("INVALID_FIELD", f"the intent of {data.ref} belongs on blob/{digest}", path="$.stream")
    _check_storer(body, data, submission.key, snapshot, now_ms)
    if candidates[0].secret is not None:
        raise secret_refusal(candidates[0].secret)
    raw, sig = candidates[0].raw, submission.sigs[0]
    return Intent(body.author, bytes.fromhex(digest), data.size, raw, submission.key, sig, now_ms)


def check_again(intent: Intent, snapshot: Snapshot, now_ms: int) -> None:
    """Ask once more who may store the blob of a stored intent: its key may have ended since.

    Raises Refused: the key codes, ``NOT_AUTHORIZED``.
    """
    _check_storer(*decode_body(intent.body), intent.key, snapshot, now_ms)


def _check_storer(body: Body, data: EventData, key: bytes, snapshot: Snapshot, now_ms: int) -> None:
    state = state_of(snapshot)
    if body.ledger != state.ledger:
        raise Refused("WRONG_LEDGER", f"the event is for ledger {body.ledger}", ledger=state.ledger)
    last_ms = 0 if snapshot.head is None else snapshot.head.accepted_ms
    check_signer(body, data, key.hex(), state, max(now_ms, last_ms))
    check_working_role(state.agent(body.author), body.author)
