"""Checks the signed intent of an upload exactly like an event that its author appends now."""

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
from deedbook.ledger.lifecycle.authority import check_allows_secret
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log.blob_table import Intent
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.secrets.secret import refusal as secret_refusal


def check_intent(submission: Submission, snapshot: Snapshot, now_ms: int) -> Intent:
    """Return the intent in ``submission``, if its author may store that blob now.

    Raises Refused: as ``check``; the key codes; ``WRONG_LEDGER``, ``NOT_AUTHORIZED``, ``SECRET_DETECTED``;
    ``INVALID_FORMAT`` for anything but one intent; ``INVALID_FIELD`` for the stream of another blob;
    ``TRANSITION_NOT_ALLOWED`` for a blob that was erased.
    """
    candidates = check(submission).candidates
    body, data = candidates[0].body, candidates[0].data
    if len(candidates) > 1 or not isinstance(data, BlobStored):
        raise Refused("INVALID_FORMAT", "an upload must begin with one signed event of the kind blob.stored")
    digest = data.ref.partition(":")[2]
    if body.stream != f"blob/{digest}":
        raise Refused("INVALID_FIELD", f"the intent of {data.ref} must be on the stream blob/{digest}", path="$.stream")
    _check_storer(body, data, submission.key, snapshot, now_ms)
    _check_not_erased(data.ref, snapshot)
    if candidates[0].secret is not None and not body.allow_secret:
        raise secret_refusal(candidates[0].secret)
    raw, sig = candidates[0].raw, submission.sig
    return Intent(
        body.author,
        bytes.fromhex(digest),
        data.size,
        raw,
        submission.key,
        sig,
        now_ms,
        allows_secret=body.allow_secret,
    )


def check_again(intent: Intent, snapshot: Snapshot, now_ms: int) -> None:
    """Check again whether the author of a stored intent may store its blob: the key may have ended since.

    Raises Refused: the key codes, ``NOT_AUTHORIZED``; ``TRANSITION_NOT_ALLOWED`` if the blob was erased meanwhile.
    """
    _check_storer(*decode_body(intent.body), intent.key, snapshot, now_ms)
    _check_not_erased(intent.ref, snapshot)


def _check_not_erased(ref: str, snapshot: Snapshot) -> None:
    """Refuse a blob that a redaction erased: bundles and backups leave it out, even if a later event needs it."""
    if ref in erased_blobs(snapshot.redactions().values()):
        message = f"the blob {ref} was erased with an entry that named it, so it is not stored again"
        raise Refused("TRANSITION_NOT_ALLOWED", message, ref=ref)


def _check_storer(body: Body, data: EventData, key: bytes, snapshot: Snapshot, now_ms: int) -> None:
    state = state_of(snapshot)
    if body.ledger != state.ledger:
        message = f"the event is for ledger {body.ledger}, and this is ledger {state.ledger}"
        raise Refused("WRONG_LEDGER", message, ledger=state.ledger)
    last_ms = 0 if snapshot.head is None else snapshot.head.accepted_ms
    check_signer(body, data, key.hex(), state, max(now_ms, last_ms))
    check_working_role(state, body.author)
    if body.allow_secret:
        check_allows_secret(state, key.hex(), body.author)
