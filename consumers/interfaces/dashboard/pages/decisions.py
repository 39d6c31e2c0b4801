"""What a person decides here: the form of a handoff or review, what became of one that was sent, and his key's lock.

A decision takes the path of every interface: the table of operations, ``content.events_of``, the gate. The dashboard
adds whose click it was (``guard``), what was displayed (``decision``) and the passphrase (``signer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deedbook.consumers.handoffs.content import events_of, of_version, place_of, query_for
from deedbook.consumers.handoffs.operations import saying_way_on
from deedbook.consumers.interfaces.dashboard import decision as decisions
from deedbook.consumers.interfaces.dashboard.address import own_path, path_to
from deedbook.consumers.interfaces.dashboard.decision import ANSWERS, Choice, Decision, Displayed
from deedbook.consumers.interfaces.dashboard.page import Go, Page, Seen
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.reasoning.citations import Citations
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.review import ReviewAnswered, Verdict
from deedbook.ledger.lifecycle.handoff import HandoffState


def handoff_form(seen: Seen, shown: Mapping[str, Any], versions: Mapping[str, Any], note: str) -> dict[str, Any] | None:
    """Return what the form of a handoff shows; None where its human has nothing to decide.

    ``{"path", "kind", "id", "signs", "fields", "choices", "note", "needs_passphrase", "number", "since", "changes",
    "tasks", "criteria", "asked", "citations"}``: ``fields`` go with it unseen, ``signs`` is the whole ref of what is
    signed, ``changes`` what is new in it since the version ``since``, the last one that was approved, and ``asked`` the
    criteria to be waived. ``shown`` is an answer of ``handoffs.show`` with its reasonings.
    """
    state = seen.client.streams.read(f"handoff/{shown['id']}").state
    if seen.human is None or not isinstance(state, HandoffState):
        return None
    choices = decisions.choices_of(state, shown, versions["to"], seen.human, seen.now_ms)
    criteria = [one | {"number": one["position"] + 1} for one in shown["criteria"]]
    met = sum(one["mark"] in ("checked", "waived") for one in criteria)
    return _form(
        seen,
        f"handoff/{shown['id']}",
        shown,
        note,
        choices,
        signs=shown["version"],
        number=versions["to"],
        since=versions["from"],
        changes=[{of: one[of] for of in ("field", "counts")} for one in versions["changes"]],
        tasks=[sum(one["done"] for one in shown["tasks"]), len(shown["tasks"])],
        criteria=[met, len(criteria)],
        asked=[one for one in criteria if one["mark"] == "asked"],
        citations=[*shown["result_reasoning"], *shown["reasoning"]],
    )


def review_form(seen: Seen, shown: Mapping[str, Any], note: str = "") -> dict[str, Any] | None:
    """Return what the form of a review shows, as ``handoff_form`` does: with ``rule``, ``task`` and ``reasons``."""
    asked = {of: shown[of] for of in ("rule", "task", "reasons")}
    choices = ANSWERS if shown["status"] == "open" else ()
    return _form(seen, f"review/{shown['id']}", shown, note, choices, **asked, citations=citations_of(seen, shown))


def _form(
    seen: Seen, stream: str, shown: Mapping[str, Any], note: str, choices: Iterable[Choice], **own: Any
) -> dict[str, Any] | None:
    as_of, (sort, _, name) = shown.get("as_of"), stream.partition("/")
    if seen.human is None or seen.as_of is not None or as_of is None:  # decided is what is so now, by signed entries
        return None
    version, completion = (shown.get(of, "") for of in ("version", "completion"))
    displayed = Displayed(stream, version, completion, as_of["entries"], as_of["size"], seen.now_ms)
    fields = {of: value for of, value in displayed._asdict().items() if of != "stream"}
    tokens = ((one, seen.session.token(*displayed.words(one.word))) for one in choices)
    buttons = [one._asdict() | {"value": f"{one.word}:{token}"} for one, token in tokens]
    return (
        {
            "kind": sort,
            "id": name,
            "path": f"{path_to(sort, name)}/decide",
            "fields": fields,
            "note": note,
            "choices": buttons,
            "needs_passphrase": not seen.session.signer.left_s,
            **own,
        }
        if buttons
        else None
    )


def citations_of(seen: Seen, shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what stands behind a review, as ``Citations`` tells it."""
    return Citations(seen.view, asker=shown["author"]).of(filter(None, [shown["reasoning_ref"]]))


def decided(sort: str, show: Callable[..., Page], seen: Seen, form: Mapping[str, str]) -> Page | Go:
    """Sign what was pressed, and lead to its receipt; else ``show`` the page again, with the note and the ``problem``.

    Raises Refused: ``NOT_AUTHORIZED``, ``INVALID_FORMAT`` for what this session was not shown: of nobody's concern.
    """
    if seen.human is None or seen.as_of is not None:
        raise _nobody()
    name = seen.params["id"]
    decision = decisions.decision_in(form, f"{sort}/{name}")
    seen.session.demand({"csrf": decision.token}, *decision.displayed.words(decision.word))
    try:
        given = decisions.arguments_of(decision, seen.now_ms)
        author = seen.session.signer.author(seen.ledger, seen.human, form.get("passphrase", ""), form.get("proof", ""))
        if sort == "review":
            verdict: Verdict = "approved" if decision.verb == "approve" else "rejected"
            return _emitted(author, decision, [ReviewAnswered(verdict=verdict, comment=decision.note)])
        # The result that was displayed, whatever was handed in since: the gate compares.
        handoff = seen.ask(query_for(decision.verb), id=name) | {"completion": decision.displayed.completion}
        with saying_way_on(seen.view, name), of_version(seen.client, name, decision.displayed.version):
            place_of(decision.verb, handoff, decision.displayed.version)
            return _emitted(author, decision, events_of(decision.verb, handoff, given, author))
    except DeedbookError as error:
        problem = {"code": error.code, "message": error.message, "size": decision.displayed.size}
        return show(seen, decision.note, problem | {"changes": error.details.get("changes", [])}, status_of(error))


def _emitted(author: Author, decision: Decision, events: Iterable[EventData]) -> Go:
    """Append what was decided, or find it where the same form was sent before; lead to the receipt."""
    stream = decision.displayed.stream
    drafts = [Draft(stream=stream, data=one, expect=decision.expect, idem=decision.idem) for one in events]
    sort, _, name = stream.partition("/")
    return Go(f"{path_to(sort, name)}?done={author.emit(*drafts)[0].index}")


def unlock(seen: Seen, form: Mapping[str, str]) -> Go:
    """Keep the key of the human open for a while, and lead back with the proof, which no server is sent."""
    if seen.human is None:
        raise _nobody()
    seen.session.demand(form, "unlock")
    proof = seen.session.signer.unlock(seen.ledger, seen.human, form.get("passphrase", ""))
    return Go(f"{own_path(form.get('next', '/')).partition('#')[0]}#unlocked={proof}")


def lock(seen: Seen, form: Mapping[str, str]) -> Go:
    """Forget the key of the human now, and lead back."""
    seen.session.demand(form, "lock")
    seen.session.signer.lock()
    return Go(own_path(form.get("next", "/")))


def logout(seen: Seen, form: Mapping[str, str]) -> Go:
    """End the session of this browser, and lead to the page that says how to come back."""
    seen.session.demand(form, "logout")
    seen.leave(seen.session)
    return Go("/")


def _nobody() -> Refused:
    return Refused("NOT_AUTHORIZED", "nobody decides here: `deed dashboard --as NAME` with the key of a human")
