"""From a ref to a published report: fetch the graph, validate it, sign what was found.

A report is published unless it says word for word what its validator's *latest* on that version says, and the newest of
all is younger than a day (its age is part of a verdict). Compared with any earlier one, a graph that failed, passed and
failed again would end as passed. The idempotency key is made of the report and the one it follows: the same validation
submitted twice, by a retry or two processes, is one event. What happens if we crash here: the blob of a long report may
lie there without its event; the next validation stores the same blob and the event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import Fetched, fetch, read_answer
from deedbook.consumers.reasoning.validator.evidence import is_known
from deedbook.consumers.reasoning.validator.report import VALIDATOR_NAME, VALIDATOR_VERSION, ValidationReport
from deedbook.consumers.reasoning.validator.trees import Tree
from deedbook.consumers.reasoning.validator.validator import Judge, ReasoningValidator
from deedbook.ledger.bus.subjects import stream_token
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import ReasoningValidated
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.validations.queries import LatestVerdict

again_after_s: Final = 86_400


class _Shown(msgspec.Struct):
    id: str
    author: str


class _Former(msgspec.Struct):
    data: ReasoningValidated
    author: str
    event_index: int
    event_id: str


class _Latest(msgspec.Struct):
    validations: list[_Former]


class Validated(msgspec.Struct, frozen=True):
    """A graph that was fetched and validated."""

    reasoning_id: str
    fetched: Fetched
    report: ValidationReport


def validate_ref(view: Ask, ref: str, *, tree: Tree | None = None, judge: Judge | None = None) -> Validated:
    """Return the report on a reasoning (id, ref or beginning of one), compared with an earlier report that passed."""
    fetched = fetch(view, ref)
    shown = read_answer(view("reasoning.show", {"id": ref}), _Shown)
    answer = read_answer(view("validations.list", {"ref": fetched.ref, "passed": True}), _Latest)
    # Not one by the reasoning's own author, which would be no independent one, nor one that looked into no tree.
    independent = (one for one in answer.validations if one.author != shown.author and one.data.tree.sort != "none")
    former = next(independent, None)
    knows = partial(is_known, view)
    report = ReasoningValidator(tree, judge, knows).validate(
        fetched.memory, earlier=former.data.evidence if former else ()
    )
    return Validated(shown.id, fetched, report)


def offer(author: Author, view: Ask, validated: Validated, *, must: bool = False) -> dict[str, Any]:
    """Publish a report; an agent that may not publish it, and need not, only hears why."""
    try:
        index, is_new = publish(author, view, validated)
    except Refused as refusal:
        if must or refusal.code != "NOT_AUTHORIZED":
            raise
        return {"not_published": refusal.message}
    return {"published": index} if is_new else {"same_as": index, "not_published": f"same as entry {index}"}


def publish(
    author: Author, view: Ask, validated: Validated, *, clock_ms: Callable[[], int] = now_ms
) -> tuple[int, bool]:
    """Publish a report as ``author``; return its entry, and whether it is new: else his latest one says the same.

    Raises Refused: ``NOT_AUTHORIZED`` for the reasoning's own author and for agents that are neither service, reviewer
    nor human; or the key cannot be used. Unavailable: see ``Client.submit``.
    """
    data = validated.report.to_event()
    if data.omitted:
        data = validated.report.to_event(whole=author.put_blob(encode_canonical(validated.report.to_dict())))
    asked = {"ref": data.reasoning_ref, "author": author.name, "limit": 1}
    latest = next(iter(read_answer(view("validations.list", asked), _Latest).validations), None)
    newest = read_answer(view("validations.latest", {"ref": data.reasoning_ref}), LatestVerdict).latest
    if latest is not None and latest.data == data and newest is not None:
        age_ms = clock_ms() - newest.at_ms
        if age_ms < 1000 * again_after_s:
            return latest.event_index, False
    stream = f"reasoning/{validated.reasoning_id}"
    follows = hashlib.sha256(encode_canonical([data, latest.event_id if latest else ""])).hexdigest()
    idem = f"{VALIDATOR_NAME}/{VALIDATOR_VERSION}:{stream_token(stream)}:{data.reasoning_ref}:{follows}"
    return author.emit(Draft(stream=stream, data=data, idem=idem))[0].index, True
