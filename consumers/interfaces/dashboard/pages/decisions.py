"""Decisions of a person: the form of a handoff or review, the handling of a sent form, and the lock of the key.

A decision takes the same path as in every interface: the table of operations, ``content.events_of``, the gate. This
interface adds the session of the click (``guard``), the displayed content (``decision``) and the passphrase
(``signer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deedbook.consumers.handoffs.content import events_of, of_version, place_of, query_for
from deedbook.consumers.handoffs.operations import saying_way_on
from deedbook.consumers.interfaces.dashboard import decision as decisions
from deedbook.consumers.interfaces.dashboard.address import own_path, path_to
from deedbook.consumers.interfaces.dashboard.decision import ANSWERS, Choice, Decision, DisplayedContent
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext, Redirect
from deedbook.consumers.interfaces.dashboard.pages.evidence import with_places
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.reasoning.citations import Citations
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.review import ReviewAnswered, Verdict
from deedbook.ledger.lifecycle.handoff import HandoffState


def handoff_form(
    context: PageContext, handoff: Mapping[str, Any], versions: Mapping[str, Any], note: str
) -> dict[str, Any] | None:
    """Return the data of a handoff's form; None if the human has nothing to decide.

    ``{"path", "kind", "id", "signs", "fields", "choices", "note", "needs_passphrase", "number", "since", "changes",
    "tasks", "criteria", "asked", "only_in_file", "citations"}``: ``fields`` are the hidden fields, ``signs`` is the
    full ref of the signed version, ``since`` the last approved version, ``changes`` the changes since then, ``asked``
    the criteria with a requested waiver, and ``only_in_file`` the lines of its file that no field has. ``handoff`` is
    an answer of ``handoffs.show`` with its reasonings and these lines.
    """
    state = context.client.streams.read(f"handoff/{handoff['id']}").state
    if context.human is None or not isinstance(state, HandoffState):
        return None
    choices = decisions.choices_of(state, handoff, versions["to"], context.human, context.now_ms)
    criteria = [criterion | {"number": criterion["position"] + 1} for criterion in handoff["criteria"]]
    met = sum(criterion["mark"] in ("checked", "waived") for criterion in criteria)
    return _form(
        context,
        f"handoff/{handoff['id']}",
        handoff,
        note,
        choices,
        signs=handoff["version"],
        number=versions["to"],
        since=versions["from"],
        changes=[{name: change[name] for name in ("field", "counts")} for change in versions["changes"]],
        tasks=[sum(task["done"] for task in handoff["tasks"]), len(handoff["tasks"])],
        criteria=[met, len(criteria)],
        asked=[criterion for criterion in criteria if criterion["mark"] == "asked"],
        only_in_file=handoff["only_in_file"],
        citations=[*handoff["result_reasoning"], *handoff["reasoning"]],
    )


def review_form(context: PageContext, review: Mapping[str, Any], note: str = "") -> dict[str, Any] | None:
    """Return the data of a review's form, as ``handoff_form`` does, with ``rule``, ``task`` and ``reasons``."""
    request = {field: review[field] for field in ("rule", "task", "reasons")}
    choices = ANSWERS if review["status"] == "open" else ()
    return _form(
        context, f"review/{review['id']}", review, note, choices, **request, citations=citations_of(context, review)
    )


def _form(
    context: PageContext, stream: str, item: Mapping[str, Any], note: str, choices: Iterable[Choice], **extra: Any
) -> dict[str, Any] | None:
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
            "fields": fields,
            "note": note,
            "choices": buttons,
            "needs_passphrase": not context.session.signer.left_s,
            **extra,
        }
        if buttons
        else None
    )


def citations_of(context: PageContext, review: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reasoning behind a review, as ``Citations`` describes it."""
    citations = Citations(context.view, asker=review["author"]).of(filter(None, [review["reasoning_ref"]]))
    return with_places(context, citations)


def decided(kind: str, show: Callable[..., Page], context: PageContext, form: Mapping[str, str]) -> Page | Redirect:
    """Sign the decision and lead to its receipt; if that fails, ``show`` the page again with the note and ``problem``.

    Raises Refused: ``NOT_AUTHORIZED``, ``INVALID_FORMAT`` for a form that this session was not shown.
    """
    if context.human is None or context.as_of is not None:
        raise _read_only()
    name = context.params["id"]
    decision = decisions.decision_in(form, f"{kind}/{name}")
    context.session.demand({"csrf": decision.token}, *decision.displayed.token_parts(decision.word))
    try:
        args = decisions.arguments_of(decision, context.now_ms)
        author = context.session.signer.author(
            context.ledger, context.human, form.get("passphrase", ""), form.get("proof", "")
        )
        if kind == "review":
            verdict: Verdict = "approved" if decision.verb == "approve" else "rejected"
            return _emitted(author, decision, [ReviewAnswered(verdict=verdict, comment=decision.note)])
        handoff = context.ask(query_for(decision.verb), id=name)
        with saying_way_on(context.view, name), of_version(context.client, name, decision.displayed.version):
            place_of(decision.verb, handoff, decision.displayed.version)
            return _emitted(author, decision, events_of(decision.verb, handoff, args, author))
    except DeedbookError as error:
        problem = {"code": error.code, "message": error.message, "size": decision.displayed.size}
        return show(context, decision.note, problem | {"changes": error.details.get("changes", [])}, status_of(error))


def _emitted(author: Author, decision: Decision, events: Iterable[EventData]) -> Redirect:
    """Append the decision, or find it if the same form was sent before; lead to the receipt."""
    stream = decision.displayed.stream
    drafts = [Draft(stream=stream, data=event, expect=decision.expect, idem=decision.idem) for event in events]
    kind, _, name = stream.partition("/")
    return Redirect(f"{path_to(kind, name)}?done={author.emit(*drafts)[0].index}")


def unlock(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """Unlock the human's key for a while; the proof goes into the fragment, which browsers send to no server."""
    if context.human is None:
        raise _read_only()
    context.session.demand(form, "unlock")
    proof = context.session.signer.unlock(context.ledger, context.human, form.get("passphrase", ""))
    return Redirect(f"{own_path(form.get('next', '/')).partition('#')[0]}#unlocked={proof}")


def lock(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """Forget the human's key now, and lead back."""
    context.session.demand(form, "lock")
    context.session.signer.lock()
    return Redirect(own_path(form.get("next", "/")))


def logout(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """End this browser's session, and lead to the page that explains how to log in again."""
    context.session.demand(form, "logout")
    context.leave(context.session)
    return Redirect("/")


def _read_only() -> Refused:
    return Refused(
        "NOT_AUTHORIZED", "this dashboard is read-only: start `deed dashboard --as NAME` with the name of a human"
    )
