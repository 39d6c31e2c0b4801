"""Decisions of a person: the form of a handoff or review, the handling of a sent form, and the lock of the key.

A decision takes the same path as in every interface: the table of operations, ``composition.events_of``, the gate. This
interface adds the session of the click (``guard``), the displayed content (``decision``) and the passphrase
(``signer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from deedbook.consumers.handoffs.composition import events_of
from deedbook.consumers.handoffs.content import of_version, place_of, query_for
from deedbook.consumers.handoffs.operations import saying_way_on
from deedbook.consumers.interfaces.dashboard import decision as decisions
from deedbook.consumers.interfaces.dashboard.address import own_path, path_to
from deedbook.consumers.interfaces.dashboard.decision import ANSWERS, Choice, Decision, DisplayedContent
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext, Redirect, address
from deedbook.consumers.interfaces.dashboard.pages.evidence import with_places, with_reasonings
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.reasoning.citations import Citations
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.question import QuestionAnswered, QuestionSettled
from deedbook.ledger.events.review import ReviewAnswered, Verdict
from deedbook.ledger.lifecycle.gate_state import gate_text, read_gate
from deedbook.ledger.lifecycle.handoff import HandoffState

# Fields that the content shows elsewhere, or that are derived from others.
_SHOWN_APART: Final = ("title", "to", "reviewer", "reasoning_refs", "notes", "template", "created")
_DECIDED: Final = ("handoff", "question", "review")
# The fields that a person should read first: before an approval, and before a verification of the result.
_FIRST: Final = ("title", "task", "context", "tasks", "criteria")
_FIRST_OF_RESULT: Final = ("criteria", "tasks", *_FIRST)


def handoff_choices(context: PageContext, handoff: Mapping[str, Any], number: int) -> list[Choice]:
    """Return the buttons of a handoff at its version ``number`` for the human; none in the past."""
    state = context.client.streams.read(f"handoff/{handoff['id']}").state
    if context.human is None or context.as_of is not None or not isinstance(state, HandoffState):
        return []
    return list(decisions.choices_of(state, handoff, number, context.human, context.now_ms))


def handoff_form(
    context: PageContext, handoff: Mapping[str, Any], versions: Mapping[str, Any], note: str
) -> dict[str, Any] | None:
    """Return the data of a handoff's form; None if the human has nothing to decide.

    ``{"path", "page", "kind", "id", "signs", "fields", "choices", "note", "needs_passphrase", "gate", "number",
    "since", "between", "sections", "questions", "asked", "result", "only_in_file", "citations"}``: ``fields`` are the
    hidden fields, and ``signs`` is the ref of the version; a verification signs that of the result. ``since`` is the
    last version that this human approved (None: none), ``between`` are the versions after it, and ``sections`` the
    fields, each with its change since then. ``asked`` are the criteria with a requested waiver, and ``only_in_file``
    the lines of its file that no field has. ``handoff`` is an answer of ``handoffs.show`` with its reasonings and
    these lines.
    """
    choices = handoff_choices(context, handoff, versions["to"])
    if not choices:
        return None
    since, changes = _changes_since_approval(context, versions)
    is_completed = handoff["status"] == "completed"
    content = versions["content"] | {field: handoff[field] for field in ("tasks", "criteria")}
    return form_about(
        context,
        f"handoff/{handoff['id']}",
        handoff,
        note,
        choices,
        signs=handoff["version"],
        number=versions["to"],
        since=since,
        between=versions["versions"][since or 0 : versions["to"]],
        sections=_sections(content, changes, _FIRST_OF_RESULT if is_completed else _FIRST),
        questions=[question for question in handoff["questions"] if question["mark"] != "settled"],
        asked=[criterion for criterion in handoff["criteria"] if criterion["mark"] == "asked"],
        result={field: handoff[field] for field in ("summary", "artifacts")} if is_completed else None,
        only_in_file=handoff["only_in_file"],
        citations=[*handoff["result_reasoning"], *handoff["reasoning"]],
    )


def _changes_since_approval(context: PageContext, versions: Mapping[str, Any]) -> tuple[int | None, list[Any]]:
    """Return the last version that this human approved, and what changed since; None if they approved none."""
    approved = [
        row["number"] for row in versions["versions"] if context.human in (made["author"] for made in row["approvals"])
    ]
    since = approved[-1] if approved else None
    if since in (None, versions["to"]):
        return since, []
    if since == versions["from"]:
        return since, versions["changes"]
    changes = context.ask("handoffs.versions", id=versions["id"], **{"from": since})["changes"]
    return since, with_reasonings(context, changes)


def _sections(content: Mapping[str, Any], changes: list[Any], first: Iterable[str]) -> list[dict[str, Any]]:
    """Return the fields of a content, those of ``first`` first, each with its ``value`` and its ``change`` or None.

    Empty fields are left out. Title and names are in the heading, so they are left out unless they changed.
    """
    by_field = {change["field"]: change for change in changes}
    values = {field: value for field, value in content.items() if field not in _SHOWN_APART} | content["notes"]
    fields = dict.fromkeys([*first, *values, *by_field])
    if not content["depends_on"]:  # without dependencies the field means nothing
        del values["unlock_at"]
    rows = [{"field": field, "value": values.get(field), "change": by_field.get(field)} for field in fields]
    return [row for row in rows if row["value"] or row["change"]]


def review_form(context: PageContext, review: Mapping[str, Any], note: str = "") -> dict[str, Any] | None:
    """Return the data of a review's form, as ``handoff_form`` does, with the fields of the request.

    ``request`` is the id of its event, which is the hash of the signed text.
    """
    index = review["requested_index"]
    request = {field: review[field] for field in ("question", "rule", "task", "reasons", "requested_index")}
    request["request"] = read_event(index, context.client.entry(index)).id
    choices = ANSWERS if review["status"] == "open" else ()
    return form_about(
        context, f"review/{review['id']}", review, note, choices, **request, citations=citations_of(context, review)
    )


def form_about(
    context: PageContext, stream: str, item: Mapping[str, Any], note: str, choices: Iterable[Choice], **extra: Any
) -> dict[str, Any] | None:
    """Return the data of a form for a stream; None if there is no form.

    ``item`` is the checked answer that the page shows.
    """
    as_of, (kind, _, name) = item.get("as_of"), stream.partition("/")
    # A decision is about the present state, as the signed entries give it.
    if context.human is None or context.as_of is not None or as_of is None:
        return None
    version, result = (item.get(field, "") for field in ("version", "result"))
    displayed = DisplayedContent(stream, version, result, as_of["entries"], as_of["size"], context.now_ms)
    fields = {field: value for field, value in displayed._asdict().items() if field != "stream"}
    tokens = ((choice, context.session.token(*displayed.token_parts(choice.word))) for choice in choices)
    buttons = [choice._asdict() | {"value": f"{choice.word}:{token}"} for choice, token in tokens]
    return (
        {
            "kind": kind,
            "id": name,
            "path": f"{path_to(kind, name)}/decide",
            "page": None if kind == "question" else path_to(kind, name),
            "fields": fields,
            "note": note,
            "choices": buttons,
            "needs_passphrase": not context.session.signer.left_s,
            "gate": gate_text(read_gate(as_of["gate"])),
            **extra,
        }
        if buttons
        else None
    )


def citations_of(context: PageContext, review: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reasoning behind a review, as ``Citations`` describes it."""
    citations = Citations(context.view, asker=review["author"]).of(filter(None, [review["reasoning_ref"]]))
    return with_places(context, citations)


def decided(
    kind: str, show: Callable[..., Page], queue: Callable[..., Page], context: PageContext, form: Mapping[str, str]
) -> Page | Redirect:
    """Sign the decision and lead to its receipt; if that fails, show the page again with the note and ``problem``.

    A form in the queue leads to the next item there; ``queue`` shows it again, any other form ``show``.

    A form that another session was shown comes again, too: its author may have logged in anew since they loaded it.
    Raises Refused: ``NOT_AUTHORIZED`` if nobody may decide here, ``INVALID_FORMAT`` for a form that no page has.
    """
    check_may_sign(context)
    name = context.params["id"]
    decision = decisions.decision_in(form, f"{kind}/{name}")
    opened = dict(parse_qsl(form["queue"])) if "queue" in form else None
    try:
        context.session.demand({"csrf": decision.token}, *decision.displayed.token_parts(decision.word))
        args = decisions.arguments_of(decision, context.now_ms)
        index = sign(context, author_of(context, form), decision, args)
    except DeedbookError as error:
        problem = problem_of(context, error, decision)
        if opened is None:
            return show(context, decision.note, problem, status_of(error))
        return queue(msgspec.structs.replace(context, query=opened), decision.note, problem, status_of(error))
    if opened is None:
        return Redirect(f"{path_to(kind, name)}?done={index}")
    following = form.get("next", "")
    fragment = f"#at-{quote(following)}" if following else ""
    return Redirect(address("/", opened, open=following, done=index) + fragment)


def check_may_sign(context: PageContext) -> None:
    """Refuse if no human is logged in, or the page shows the past. Raises Refused: ``NOT_AUTHORIZED``."""
    if context.human is None:
        raise _read_only()
    if context.as_of is not None:
        message = "this page shows the past, in which nobody can decide: open the page as it is now"
        raise Refused("NOT_AUTHORIZED", message)


def author_of(context: PageContext, form: Mapping[str, str]) -> Author:
    """Return the human as the author of signed events, by the fields of their form. Raises: as ``Signer.author``."""
    return context.session.signer.author(context.ledger, form.get("passphrase", ""), form.get("proof", ""))


def sign(context: PageContext, author: Author, decision: Decision, args: dict[str, Any]) -> int:
    """Append a decision, or find it if the same form was sent before; return the index of its first event."""
    kind, _, name = decision.displayed.stream.partition("/")
    if kind == "review":
        verdict: Verdict = "approved" if decision.verb == "approve" else "rejected"
        return _emitted(author, decision, [ReviewAnswered(verdict=verdict, comment=decision.note)])
    if kind == "question":
        is_answer = decision.verb == "answer"
        done = QuestionAnswered(answer=decision.note) if is_answer else QuestionSettled(comment=decision.note)
        return _emitted(author, decision, [done])
    handoff = context.ask(query_for(decision.verb), id=name)
    if decision.verb == "ask":
        args = args | {"to": decisions.amender_of(handoff)}
    with saying_way_on(context.view, name), of_version(context.client, name, decision.displayed.version):
        place_of(decision.verb, handoff, decision.displayed.version)
        return _emitted(author, decision, events_of(decision.verb, handoff, args, author))


def _emitted(author: Author, decision: Decision, events: Iterable[EventData]) -> int:
    stream = decision.displayed.stream
    drafts = [Draft(stream=stream, data=event, expect=decision.expect, idem=decision.idem) for event in events]
    return author.emit(*drafts)[0].index


def problem_of(context: PageContext, error: DeedbookError, decision: Decision) -> dict[str, Any]:
    """Return why nothing was signed, with the changes and events since the page was loaded."""
    kind, _, name = decision.displayed.stream.partition("/")
    log = context.ask("handoffs.show", id=name)["log"] if kind == "handoff" else []
    is_shown = bool(error.details.get("changes"))
    message = f"{name} has changed since you opened it: read the changes, then decide" if is_shown else error.message
    return {
        "code": error.code,
        "message": message,
        "changes": error.details.get("changes", []),
        "events": [event for event in log if event["event_index"] >= decision.displayed.size],
    }


def receipt_of(context: PageContext, kind: str, row: Mapping[str, Any], index: int | None) -> dict[str, Any] | None:
    """Return the receipt of a decision that this human signed; None if the entry is no such decision.

    ``row`` is the answer of ``handoffs.show`` or ``reviews.show``, whose signatures were verified.
    """
    if (as_of := row.get("as_of")) is None or index is None:
        return None
    made = [event for event in row.get("log", ()) if event["event_index"] == index]
    if kind == "review" and index == row["answered_index"]:
        text = ": ".join(filter(None, (row["verdict"], row["comment"])))
        made = [{"event_index": index, "kind": "review.answered", "author": row["answered_by"], "text": text}]
    if kind == "question":
        text, by = (row["comment"], row["settled_by"]) if row["settled_by"] else (row["answer"], row["to"])
        what = "question.settled" if row["settled_by"] else "question.answered"
        made = [{"event_index": index, "kind": what, "author": by, "text": text}]
    head = {field: as_of[field] for field in ("size", "root")}
    about = {"stream": f"{kind}/{row['id']}", "title": row["title"] if kind == "handoff" else row["question"]}
    return next(({**event, **about, **head} for event in made if event["author"] == context.human), None)


def receipt_at(context: PageContext, index: int) -> dict[str, Any] | None:
    """Return the receipt of the human's decision at an entry, whatever it is about; None if it is no such decision."""
    kind, _, name = read_event(index, context.client.entry(index)).stream.partition("/")
    return receipt_of(context, kind, context.ask(f"{kind}s.show", id=name), index) if kind in _DECIDED else None


def unlock(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """Unlock the human's key for a while; the proof goes into the fragment, which browsers send to no server."""
    if context.human is None:
        raise _read_only()
    context.session.demand(form, "unlock")
    proof = context.session.signer.unlock(context.ledger, form.get("passphrase", ""))
    return Redirect(f"{own_path(form.get('next', '/')).partition('#')[0]}#unlocked={proof}")


def lock(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """Forget the human's key now, and lead back."""
    context.session.demand(form, "lock")
    context.session.signer.lock()
    return Redirect(own_path(form.get("next", "/")))


def _read_only() -> Refused:
    message = "this page is read-only, because you are not logged in as a human whose key is here: log in as one"
    return Refused("NOT_AUTHORIZED", message)
