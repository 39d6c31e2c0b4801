"""From a ref to a published report: fetch the graph, validate it, sign what was found.

The report goes on the reasoning's own stream, signed by whoever validated: the service agent ``validator`` or the
acting reviewer. The ledger refuses one by the stream's own author, because it would be no independent one.

The idempotency key is made of the validator's version, the stream, the ref, and the conditions: the tree as far as it
was looked at, and the judge. Validating twice under equal conditions leaves one event. What happens if we crash here:
the blob of a long report may lie there without its event; the next validation stores the same blob and the event.
"""

from __future__ import annotations

import hashlib

import msgspec
import structlog

from consumers.reasoning.compressor.transfer import Fetched, fetch, find_answer, read_answer
from consumers.reasoning.validator.report import VALIDATOR_NAME, VALIDATOR_VERSION, ValidationReport
from consumers.reasoning.validator.trees import Tree
from consumers.reasoning.validator.validator import Judge, ReasoningValidator
from ledger.author import Author, Draft
from ledger.bus.subjects import stream_token
from ledger.client import Ask
from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events.reasoning import ReasoningValidated

log = structlog.get_logger("baton.validator")


class _Shown(msgspec.Struct):
    id: str
    author: str


class _Former(msgspec.Struct):
    data: ReasoningValidated


class Validated(msgspec.Struct, frozen=True):
    """A graph that was fetched and validated."""

    reasoning_id: str
    fetched: Fetched
    report: ValidationReport


def validate_ref(view: Ask, ref: str, *, tree: Tree | None = None, judge: Judge | None = None) -> Validated:
    """Return the report on a reasoning (id, ref or beginning of one), compared with an earlier report that passed.

    Raises:
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
        Corrupted: ``VERIFICATION_FAILED`` when the graph is not what its ref names.
    """
    fetched = fetch(view, ref)
    shown = read_answer(view("reasoning.show", {"id": ref}), _Shown)
    # Not one by the reasoning's own author: it would be no independent one.
    former = find_answer(view, "validations.best", {"ref": fetched.ref, "not_by": shown.author}, _Former)
    report = ReasoningValidator(tree, judge).validate(fetched.memory, earlier=former.data.evidence if former else ())
    return Validated(shown.id, fetched, report)


def publish(author: Author, validated: Validated) -> int | None:
    """Publish a report as ``author``; return the entry's index, None when an earlier report of the same stands.

    Raises:
        Refused: ``NOT_AUTHORIZED`` for the reasoning's own author and for agents that are neither service, reviewer
            nor human; or the key cannot be used. Unavailable: see ``Client.submit``.
    """
    data = validated.report.to_event()
    if data.omitted:
        data = validated.report.to_event(whole=author.put_blob(encode_canonical(validated.report.to_dict())))
    stream = f"reasoning/{validated.reasoning_id}"
    conditions = hashlib.sha256(encode_canonical([data.tree, data.judge])).hexdigest()
    idem = f"{VALIDATOR_NAME}/{VALIDATOR_VERSION}:{stream_token(stream)}:{data.reasoning_ref}:{conditions}"
    draft = Draft(stream=stream, data=data, idem=idem)
    try:
        return author.emit(draft)[0].index
    except Refused as refusal:
        if refusal.code != "IDEMPOTENCY_CONFLICT":
            raise
        # Same tree, same validator, other words: a judge answered otherwise. The first report stands.
        log.warning("report was published before", stream=stream, idem=draft.idem)
        return None
