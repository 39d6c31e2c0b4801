"""`/h/ID`: one handoff; `/h/ID/v/N`: one version of it; `/h/ID/diff`: the changes between two; `/reviews/ID`: a review.

A decision leads back to this page. With ``?done=INDEX`` the page shows the receipt. A ``problem`` says why nothing was
signed, and what happened since the person loaded the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deedbook.consumers.handoffs.decisions import standing, touched_paths
from deedbook.consumers.handoffs.files.mapping import lines_only_in_file
from deedbook.consumers.handoffs.operations import NOTES, commands_on
from deedbook.consumers.handoffs.receiver import later
from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.decisions import (
    citations_of,
    handoff_choices,
    handoff_form,
    receipt_of,
    review_form,
)
from deedbook.consumers.interfaces.dashboard.pages.evidence import (
    doubts_of,
    with_doubts,
    with_evidence,
    with_reasonings,
)
from deedbook.consumers.interfaces.dashboard.pages.graph import drawn_max
from deedbook.consumers.reasoning.citations import Citations
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.lifecycle.gate_state import gate_text, read_gate

original_shown_max_bytes: Final = 16 * 1024
original_read_max_bytes: Final = 1024 * 1024
"""A file is hashed completely before any of it is shown; for a larger file the page shows only the command."""

rows_max: Final = 100
"""The number of newest events and versions that are shown: any agent that may write can add thousands."""

_ELSEWHERE: Final = (
    "why",
    "tasks",
    "criteria",
    "notes",
    "reasoning",
    "result_reasoning",
    "as_of",
    "log",
    "only_in_file",
)
# The kinds of events about a handoff's tasks or criteria.
_OF_TASKS: Final = ("handoff.task_checked",)
_OF_CRITERIA: Final = ("handoff.criterion_checked", "handoff.waiver_asked", "handoff.criterion_waived")
# The events that give a result, and send it back.
_REQUESTED: Final = "handoff.changes_requested"
_OF_RESULT: Final = ("handoff.completed", _REQUESTED)


def handoff(context: PageContext, note: str = "", problem: dict[str, Any] | None = None, status: int = 200) -> Page:
    """Return all about one handoff.

    ``{"handoff", "why", "tasks", "criteria", "notes", "reasoning", "result_reasoning", "versions", "number", "log",
    "events", "gate", "as_of", "form", "done", "problem", "original", "only_in_file", "sent_back", "titles"}``.
    ``form`` is None if there is nothing to decide. ``sent_back`` is the event that requested changes of the present
    result, and ``titles`` are those of its dependencies and dependents.
    ``original`` is the beginning of the imported file (None: not imported, or not stored; empty: too large), and
    ``only_in_file`` the lines of the handoff's file that no field has (None: the file is not here or is not a handoff
    file). ``log`` is newest first, and ``events`` its full length. ``done`` is an event whose signature and inclusion
    were verified.
    """
    row = whole(context, context.params["id"])
    name, log, as_of = row["id"], row["log"], row.get("as_of")
    versions = compared(context, name)
    data = {
        "handoff": {field: value for field, value in row.items() if field not in _ELSEWHERE},
        "why": row["why"]
        | {"next": commands_on(row["why"], shown=row), "waits": with_doubts(context, row["why"]["waits"])},
        "titles": _titles(context, row),
        "tasks": _with_last_event(row["tasks"], row, _OF_TASKS),
        "problem": problem,
        "criteria": _with_last_event(row["criteria"], row, _OF_CRITERIA),
        "notes": {kind: row["notes"][kind] for kind in NOTES} | {"later": later(row)},
        "decisions": standing(context.view, touched_paths(row["notes"]))["items"],
        "reasoning": row["reasoning"],
        "result_reasoning": row["result_reasoning"],
        "versions": versions["versions"][-rows_max:],
        "number": versions["to"],
        "events": len(log),
        "log": log[: -rows_max - 1 : -1],
        "as_of": as_of,
        "gate": gate_text(read_gate(as_of["gate"])) if as_of else None,
        "form": handoff_form(context, row, versions, note),
        "original": _beginning_of(context, row["original"]),
        "only_in_file": row["only_in_file"],
        "done": receipt_of(context, "handoff", row, context.number("done")),
        "sent_back": _sent_back(row),
    }
    return Page("handoff.html", row["title"] or name, data, status, path_to("handoff", name) if problem else "")


def whole(context: PageContext, name: str) -> dict[str, Any]:
    """Return an answer of `handoffs.show` with its reasonings, the places of all evidence, and ``only_in_file``."""
    row = Citations(context.view, asker=context.human).shown(context.ask("handoffs.show", id=name))
    return with_evidence(context, row) | {"only_in_file": lines_only_in_file(row, context.ledger.get_blob)}


def compared(context: PageContext, name: str, **numbers: int | None) -> dict[str, Any]:
    """Return an answer of `handoffs.versions` whose changes have the changes in the cited reasonings."""
    answer = context.ask("handoffs.versions", id=name, **numbers)
    return answer | {"changes": with_reasonings(context, answer["changes"])}


def _beginning_of(context: PageContext, ref: str | None) -> str | None:
    try:
        if ref and context.client.stat_blob(ref).size > original_read_max_bytes:
            return ""
        return ref and context.ledger.get_blob(ref)[:original_shown_max_bytes].decode(errors="replace")
    except (Refused, Unavailable):
        return None  # a retention deleted the file, or it was not copied to this ledger; the log has its claims


def _with_last_event(
    rows: list[dict[str, Any]], handoff: Mapping[str, Any], kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return tasks or criteria, each with ``said``: the last event about it since the content was set, or None."""
    start = handoff["template_index"]
    log = [event for event in handoff["log"] if event["kind"] in kinds and event["event_index"] > start]
    last = {event["position"]: event for event in log}
    return [row | {"said": last.get(row["position"])} for row in rows]


def _titles(context: PageContext, handoff: Mapping[str, Any]) -> dict[str, str]:
    if not handoff["depends_on"] and not handoff["dependents"]:
        return {}
    around = context.ask("handoffs.around", id=handoff["id"], depth=1, limit=drawn_max)
    return {node["id"]: node["title"] or "" for node in around["nodes"]}


def _sent_back(handoff: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the last request for changes; None if the work was completed after it, or nobody requested changes."""
    of_result = (event for event in reversed(handoff["log"]) if event["kind"] in _OF_RESULT)
    last = next(of_result, None)
    return last if last is not None and last["kind"] == _REQUESTED else None


def review(context: PageContext, note: str = "", problem: dict[str, Any] | None = None, status: int = 200) -> Page:
    """Return ``{"review", "reasoning", "form", "done", "problem"}``: a question that an agent may not decide alone."""
    row = context.ask("reviews.show", id=context.params["id"])
    data = {
        "review": row,
        "reasoning": citations_of(context, row),
        "form": review_form(context, row, note),
        "problem": problem,
        "done": receipt_of(context, "review", row, context.number("done")),
    }
    return Page("review.html", row["question"], data, status, path_to("review", row["id"]) if problem else "")


def form_of(context: PageContext, kind: str, name: str, note: str) -> dict[str, Any] | None:
    """Return the form of a handoff or review, for the opened row of the queue."""
    if kind == "review":
        return review_form(context, context.ask("reviews.show", id=name), note)
    row = whole(context, name)
    return handoff_form(context, row, compared(context, name), note)


def handoff_version(context: PageContext) -> Page:
    """Return ``{"id", "version", "versions", "last", "content"}``: one version by its number, as signed."""
    answer = context.ask("handoffs.versions", id=context.params["id"], to=context.number("number"))
    version, last = answer["versions"][answer["to"] - 1], len(answer["versions"])
    data = {"id": answer["id"], "content": answer["content"], "version": version, "last": last}
    return Page("handoff_version.html", f"{answer['id']} v{answer['to']}", data)


def handoff_diff(context: PageContext) -> Page:
    """Return the answer of `handoffs.versions` between ``?from`` and ``?to`` (default: since the last approval).

    ``versions`` are the newest and the two that are compared, ``choice`` the label of the decision that waits for the
    person about version ``to`` (None: none), and ``doubts`` are the checks of its reasonings.
    """
    answer = compared(context, context.params["id"], **{field: context.number(field) for field in ("from", "to")})
    name, last = answer["id"], len(answer["versions"])
    shown = context.ask("handoffs.show", id=name)
    choices = handoff_choices(context, shown, last) if answer["to"] == last else []
    choice = choices[0].label if choices and choices[0].style == "yes" else None
    refs = (*shown["result_refs"], *shown["reasoning_refs"])
    data = answer | {
        "last": last,
        "versions": [
            version
            for version in answer["versions"]
            if version["number"] > last - rows_max or version["number"] in (answer["from"], answer["to"])
        ],
        "choice": choice,
        "doubts": list(doubts_of(context, refs).values()) if choice else [],
    }
    return Page("handoff_diff.html", f"{answer['content']['title'] or name}: changes", data)
