"""What a person decides here: the form of a handoff or review, what became of one that was sent, and his key's lock.

A decision goes the way of every door: the table of acts, ``content.events_of``, the gate. What this door adds is whose
click it was (``guard``), what was displayed (``decision``) and the passphrase (``signer``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consumers.doors.dashboard import decision as decisions
from consumers.doors.dashboard.address import own_path, path_to
from consumers.doors.dashboard.page import Go, Page, Seen
from consumers.doors.web.server import status_of
from consumers.handoffs.acts import saying_way_on
from consumers.handoffs.content import events_of, of_version, query_for
from consumers.reasoning.grounds import Grounds
from ledger.author import Author, Draft
from ledger.errors import BatonError, Refused
from ledger.events.fields import EventData
from ledger.events.review import ReviewAnswered, Verdict
from ledger.lifecycle.handoff import HandoffState


def form_of(seen: Seen, sort: str, name: str) -> dict[str, Any] | None:
    """Return the form of a handoff or review, as it stands in the opened row of the queue."""
    if sort == "review":
        shown = seen.ask("reviews.show", id=name)
        return review_form(seen, shown, _grounds(seen, shown), "")
    shown = Grounds(seen.view, asker=seen.human).shown(seen.ask("handoffs.show", id=name))
    return handoff_form(seen, shown, seen.ask("handoffs.versions", id=name), "")


def handoff_form(seen: Seen, shown: Mapping[str, Any], versions: Mapping[str, Any], note: str) -> dict[str, Any] | None:
    """Return what the form of a handoff shows; None where its human has nothing to decide.

    ``{"path", "kind", "id", "signs", "fields", "choices", "note", "needs_passphrase", "number", "since", "changes",
    "tasks", "criteria", "asked", "grounds"}``: ``fields`` go with it unseen, ``signs`` is the whole ref of what is
    signed, ``changes`` what is new in it since the version ``since``, the last one that was approved, and ``asked`` the
    criteria to be waived. ``shown`` is an answer of ``handoffs.show`` with its reasonings.
    """
    if not _may_decide(seen, shown):
        return None
    name, as_of = shown["id"], shown["as_of"]
    state = seen.client.streams.read(f"handoff/{name}").state
    if not isinstance(state, HandoffState):
        return None
    displayed = decisions.Displayed(
        f"handoff/{name}", shown["version"], shown["completion"], as_of["entries"], as_of["size"], seen.now_ms
    )
    choices = list(decisions.choices_of(state, shown, versions["to"], seen.human or "", seen.now_ms))
    done = sum(one["done"] for one in shown["tasks"])
    met = sum(one["mark"] in ("checked", "waived") for one in shown["criteria"])
    asked = [one | {"number": one["position"] + 1} for one in shown["criteria"] if one["mark"] == "asked"]
    changes = [{of: one[of] for of in ("field", "counts")} for one in versions["changes"]]
    return _form(seen, displayed, choices, note) | {
        "signs": shown["version"], "number": versions["to"], "since": versions["from"], "changes": changes,
        "tasks": [done, len(shown["tasks"])], "criteria": [met, len(shown["criteria"])],
        "asked": asked, "grounds": [*shown["result_reasoning"], *shown["reasoning"]],
    } if choices else None  # fmt: skip


def review_form(
    seen: Seen, shown: Mapping[str, Any], grounds: list[dict[str, Any]], note: str
) -> dict[str, Any] | None:
    """Return what the form of a review shows, as ``handoff_form`` of a handoff."""
    if not _may_decide(seen, shown) or shown["status"] != "open":
        return None
    as_of = shown["as_of"]
    displayed = decisions.Displayed(f"review/{shown['id']}", "", "", as_of["entries"], as_of["size"], seen.now_ms)
    asked = {of: shown[of] for of in ("rule", "task", "reasons")}
    return _form(seen, displayed, decisions.ANSWERS, note) | asked | {"grounds": grounds}


def _may_decide(seen: Seen, shown: Mapping[str, Any]) -> bool:
    """Whether somebody may decide here of what was read: as it is now, from signed entries."""
    return seen.human is not None and seen.as_of is None and shown.get("as_of") is not None


def _form(seen: Seen, displayed: decisions.Displayed, choices: Sequence[decisions.Choice], note: str) -> dict[str, Any]:
    sort, _, name = displayed.stream.partition("/")
    buttons = [
        one._asdict() | {"value": f"{one.word}:{seen.session.token(*displayed.words(one.word))}"} for one in choices
    ]
    return {
        "kind": sort, "id": name, "path": f"{path_to(sort, name)}/decide", "fields": displayed.fields(), "note": note,
        "choices": buttons, "needs_passphrase": not seen.session.signer.left_s,
    }  # fmt: skip


def _grounds(seen: Seen, shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    return Grounds(seen.view, asker=shown["author"]).of(filter(None, [shown["reasoning_ref"]]))


def review(seen: Seen) -> Page:
    """Return ``{"review", "reasoning", "form", "done", "problem"}``: what an agent may not decide alone."""
    return review_page(seen, seen.params["id"])


def review_page(
    seen: Seen, name: str, *, note: str = "", problem: dict[str, Any] | None = None, status: int = 200
) -> Page:
    """Return all about one review, as ``handoff_page`` of a handoff."""
    shown = seen.ask("reviews.show", id=name)
    grounds, index = _grounds(seen, shown), shown["answered_index"]
    is_done = index is not None and seen.number("done") == index and _may_decide(seen, shown)
    data = {
        "review": shown, "reasoning": grounds, "form": review_form(seen, shown, grounds, note), "problem": problem,
        "done": index if is_done else None,
    }  # fmt: skip
    return Page(
        "review.html", shown["question"], data, status, "" if problem is None else path_to("review", shown["id"])
    )


def decide(seen: Seen, form: Mapping[str, str]) -> Page | Go:
    """Sign what was pressed in the form of a handoff, and lead to its receipt; else show its page, and why not."""
    from consumers.doors.dashboard.pages.handoffs import handoff_page  # noqa: PLC0415 - which shows this form

    return _decided(seen, form, "handoff", handoff_page)


def answer(seen: Seen, form: Mapping[str, str]) -> Page | Go:
    """Sign the answer to a review, as ``decide`` does."""
    return _decided(seen, form, "review", review_page)


def _decided(seen: Seen, form: Mapping[str, str], sort: str, page: Callable[..., Page]) -> Page | Go:
    if seen.human is None or seen.as_of is not None:
        raise _nobody()
    name = seen.params["id"]
    decision, displayed = decisions.decision_in(form), decisions.displayed_in(form, f"{sort}/{name}")
    # First of all: what this session was not shown is of nobody's concern.
    seen.session.demand({"csrf": decision.token}, *displayed.words(decision.word))
    try:
        decisions.check_age(displayed, seen.now_ms)
        given = decisions.arguments_of(decision, displayed) if sort == "handoff" else {}
        author = seen.session.signer.author(seen.ledger, seen.human, form.get("passphrase", ""))
        index = _signed(seen, author, decision, displayed, given)
    except BatonError as error:
        problem = {"code": error.code, "message": error.message, "version": displayed.version, "size": displayed.size}
        return page(seen, name, note=decision.note, problem=problem, status=status_of(error))
    return Go(f"{path_to(sort, name)}?done={index}")


def _signed(
    seen: Seen, author: Author, decision: decisions.Decision, displayed: decisions.Displayed, given: dict[str, Any]
) -> int:
    """Return the index of the event that a decision became, now or when the same form was sent before."""
    sort, _, name = displayed.stream.partition("/")

    def emit(events: Sequence[EventData], expect: int | None) -> int:
        drafts = [Draft(stream=displayed.stream, data=one, expect=expect, idem=decision.idem) for one in events]
        return author.emit(*drafts)[0].index

    if sort == "review":
        verdict: Verdict = "approved" if decision.verb == "approve" else "rejected"
        return emit([ReviewAnswered(verdict=verdict, comment=decision.note)], displayed.entries)
    # The result that was displayed, whatever was handed in since: the gate compares.
    handoff = seen.ask(query_for(decision.verb), id=name) | {"completion": displayed.completion}
    with saying_way_on(seen.view, name), of_version(seen.client, name, displayed.version):
        events = events_of(decision.verb, handoff, given, author)
        return emit(events, None if decisions.binds_itself(decision.verb) else displayed.entries)


def unlock(seen: Seen, form: Mapping[str, str]) -> Go:
    """Keep the key of the human open for a while, and lead back."""
    if seen.human is None:
        raise _nobody()
    seen.session.demand(form, "unlock")
    seen.session.signer.unlock(seen.ledger, seen.human, form.get("passphrase", ""))
    return Go(own_path(form.get("next", "/")))


def lock(seen: Seen, form: Mapping[str, str]) -> Go:
    """Forget the key of the human now, and lead back."""
    seen.session.demand(form, "lock")
    seen.session.signer.lock()
    return Go(own_path(form.get("next", "/")))


def _nobody() -> Refused:
    return Refused("NOT_AUTHORIZED", "nobody decides here: `baton dashboard --as NAME` with the key of a human")
