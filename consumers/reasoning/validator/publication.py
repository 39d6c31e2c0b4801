"""Fetches a graph by its ref, validates it, and signs and publishes the report.

A report is published, with one exception: it equals its validator's *latest* report on that version, and the newest of
all reports is younger than a day (its age is part of a verdict). If it were compared with any earlier report, a graph
that failed, passed and failed again would end as passed. The idempotency key is made of the report and its predecessor:
the same validation submitted twice, by a retry or two processes, is one event. If we crash here, the blob of a long
report may be stored without its event; the next validation stores the same blob and the event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from shlex import quote
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import (
    FetchedGraph,
    fetch,
    read_verdict,
    refuted_assumptions,
)
from deedbook.consumers.reasoning.validator.evidence import is_known
from deedbook.consumers.reasoning.validator.report import VALIDATOR_NAME, VALIDATOR_VERSION, ValidationReport
from deedbook.consumers.reasoning.validator.trees import Tree
from deedbook.consumers.reasoning.validator.validator import Judge, ReasoningValidator
from deedbook.ledger.bus.subjects import stream_token
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.answers.checked import formed
from deedbook.projections.validations.answers import Validations

again_after_s: Final = 86_400
able_named_max: Final = 3
VALIDATING: Final = frozenset({"reviewer", "human", "service"})


class _ReasoningAnswer(msgspec.Struct):
    id: str
    author: str


class ValidatedReasoning(msgspec.Struct, frozen=True):
    """A fetched graph with its validation report; ``owner`` is the agent whose reasoning it is."""

    reasoning_id: str
    owner: str
    fetched: FetchedGraph
    report: ValidationReport


def validate_ref(
    view: Ask, ref: str, *, tree: Tree | None = None, judge: Judge | None = None, validator: str = ""
) -> ValidatedReasoning:
    """Return the report on a reasoning (id, ref or prefix of a ref), compared with an earlier report that passed.

    ``validator`` is the agent that will sign it.
    """
    fetched = fetch(view, ref)
    reasoning = formed(view("reasoning.show", {"id": ref}), _ReasoningAnswer)
    answer = formed(view("validations.list", {"id": fetched.ref, "passed": True}), Validations)
    # The earlier report must be independent of the reasoning's author, and must have looked into a tree.
    others = (entry for entry in answer.items if entry.author != reasoning.author)
    earlier = next((entry for entry in others if entry.data.tree.type != "none"), None)
    knows = partial(is_known, view)
    report = ReasoningValidator(tree, judge, knows).validate(
        fetched.memory, earlier=earlier.data.evidence if earlier else (), validator=validator
    )
    report.add_refuted(refuted_assumptions(read_verdict(view, fetched.ref)))
    return ValidatedReasoning(reasoning.id, reasoning.author, fetched, report)


def offer(author: Author, view: Ask, validated: ValidatedReasoning, *, must: bool = False) -> dict[str, Any]:
    """Publish a report. If the agent may not publish it, return the reason, or with ``must`` raise the refusal.

    An agent's report that its own reasoning fails is published only with ``must``.
    """
    if author.name == validated.owner and not validated.report.passed and not must:
        return {"not_published": "it is your own: `deed reasoning validate --publish` publishes that it fails"}
    try:
        index, is_new = publish(author, view, validated)
    except Refused as refusal:
        why = {
            "SELF_APPROVAL": "nobody vouches for their own reasoning",
            "NOT_AUTHORIZED": f"{author.name} has none of the roles reviewer, human and service",
        }.get(refusal.code)
        if must or why is None:
            raise
        agents = view("agents.list", {})["agents"]
        able = [
            row["name"] for row in agents if VALIDATING.intersection(row["roles"]) and row["name"] != validated.owner
        ]
        names = f" ({', '.join(able[:able_named_max])})" if able else ""
        command = f"`deed reasoning validate {quote(validated.reasoning_id)} --as NAME`{names}"
        return {"not_published": f"{why}: a reviewer publishes it with {command}"}
    return {"published": index} if is_new else {"same_as": index, "not_published": f"same as entry {index}"}


def publish(
    author: Author, view: Ask, validated: ValidatedReasoning, *, clock_ms: Callable[[], int] = now_ms
) -> tuple[int, bool]:
    """Publish a report as ``author``; return its entry, and whether it is new (if not, the author's latest is equal).

    Raises Refused: for a report that passes, ``SELF_APPROVAL`` for the reasoning's own author and ``NOT_AUTHORIZED``
    for agents without the role service, reviewer or human; or the key cannot be used. Unavailable: see
    ``Client.submit``.
    """
    data = validated.report.to_event()
    if data.omitted:
        data = validated.report.to_event(whole=author.put_blob(encode_canonical(validated.report.to_dict())))
    arguments = {"id": data.reasoning_ref, "author": author.name, "limit": 1}
    latest = next(iter(formed(view("validations.list", arguments), Validations).items), None)
    newest = read_verdict(view, data.reasoning_ref).latest
    if latest is not None and latest.data == data and newest is not None:
        age_ms = clock_ms() - newest.at_ms
        if age_ms < 1000 * again_after_s:
            return latest.event_index, False
    stream = f"reasoning/{validated.reasoning_id}"
    follows = hashlib.sha256(encode_canonical([data, latest.event_id if latest else ""])).hexdigest()
    idem = f"{VALIDATOR_NAME}/{VALIDATOR_VERSION}:{stream_token(stream)}:{data.reasoning_ref}:{follows}"
    return author.emit(Draft(stream=stream, data=data, idem=idem))[0].index, True
