"""`/h/ID`: one handoff; `/h/ID/v/N`: an exact version of it; `/h/ID/diff`: what changed between two; and a review.

What was decided on one leads back to its page: with ``?done=INDEX`` it shows the receipt, and a ``problem`` says why
nothing was signed, and what happened since the page was shown that he decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deedbook.consumers.handoffs.operations import NOTES, commands_on
from deedbook.consumers.handoffs.receiver import later
from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.consumers.interfaces.dashboard.pages.decisions import citations_of, handoff_form, review_form
from deedbook.consumers.reasoning.citations import Citations
from deedbook.consumers.sdk.quotation import gate_state
from deedbook.ledger.errors import Refused, Unavailable

original_shown_max_bytes: Final = 16 * 1024
original_read_max_bytes: Final = 1024 * 1024
"""All of a file is hashed before any of it is shown; of a larger one only the command that gets it."""

rows_max: Final = 100
"""So many events and versions are shown, the newest: whoever may write can add thousands."""

_ELSEWHERE: Final = ("why", "tasks", "criteria", "notes", "reasoning", "result_reasoning", "as_of", "log")
# Which events of a handoff say something of one of its tasks or criteria.
_OF_TASKS: Final = ("handoff.task_checked",)
_OF_CRITERIA: Final = ("handoff.criterion_checked", "handoff.waiver_asked", "handoff.criterion_waived")


def handoff(seen: Seen, note: str = "", problem: dict[str, Any] | None = None, status: int = 200) -> Page:
    """Return all about one handoff.

    ``{"handoff", "why", "tasks", "criteria", "notes", "reasoning", "result_reasoning", "versions", "number", "log",
    "events", "gate", "as_of", "form", "done", "problem", "original"}``: ``form`` is None where there is nothing to
    decide, ``original`` what the imported file begins with (None: not imported, or not kept; empty: too large),
    ``log`` has the newest of so many ``events`` first, and of ``done`` it was checked that its signature fits and that
    it is in the tree named.
    """
    shown = Citations(seen.view, asker=seen.human).shown(seen.ask("handoffs.show", id=seen.params["id"]))
    name, log, as_of = shown["id"], shown["log"], shown.get("as_of")
    versions = seen.ask("handoffs.versions", id=name)
    done = [one for one in log if one["event_index"] == seen.number("done") and one["author"] == seen.human and as_of]
    data = {
        "handoff": {of: value for of, value in shown.items() if of not in _ELSEWHERE},
        "why": shown["why"] | {"next": commands_on(seen.view, shown["why"])},
        "tasks": _with_said(shown["tasks"], shown, _OF_TASKS),
        "problem": problem,
        "criteria": _with_said(shown["criteria"], shown, _OF_CRITERIA),
        "notes": {kind: shown["notes"][kind] for kind in NOTES} | {"later": later(shown)},
        "reasoning": shown["reasoning"],
        "result_reasoning": shown["result_reasoning"],
        "versions": versions["versions"][-rows_max:],
        "number": versions["to"],
        "events": len(log),
        "log": log[: -rows_max - 1 : -1],
        "as_of": as_of,
        "gate": gate_state(seen.ledger.home, seen.client),
        "form": handoff_form(seen, shown, versions, note),
        "original": _beginning_of(seen, shown["original"]),
        "done": done[0] | {of: as_of[of] for of in ("size", "root")} if as_of and done else None,
    }
    return Page("handoff.html", shown["title"] or name, data, status, path_to("handoff", name) if problem else "")


def _beginning_of(seen: Seen, ref: str | None) -> str | None:
    try:
        if ref and seen.client.stat_blob(ref).size > original_read_max_bytes:
            return ""
        return ref and seen.ledger.get_blob(ref)[:original_shown_max_bytes].decode(errors="replace")
    except (Refused, Unavailable):
        return None  # dropped by a retention, or not brought along: what was claimed is in the log


def _with_said(rows: list[dict[str, Any]], shown: Mapping[str, Any], kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return tasks or criteria, each with the event that ``said`` the last of it since its content stands, or None."""
    log = [one for one in shown["log"] if one["kind"] in kinds and one["event_index"] > shown["skeleton_index"]]
    return [
        row | {"said": next((one for one in log[::-1] if one["position"] == row["position"]), None)} for row in rows
    ]


def review(seen: Seen, note: str = "", problem: dict[str, Any] | None = None, status: int = 200) -> Page:
    """Return ``{"review", "reasoning", "form", "done", "problem"}``: what an agent may not decide alone."""
    shown = seen.ask("reviews.show", id=seen.params["id"])
    done = seen.number("done") if shown.get("as_of") else None
    data = {
        "review": shown,
        "reasoning": citations_of(seen, shown),
        "form": review_form(seen, shown, note),
        "problem": problem,
        "done": done if done == shown["answered_index"] else None,
    }
    return Page("review.html", shown["question"], data, status, path_to("review", shown["id"]) if problem else "")


def form_of(seen: Seen, sort: str, name: str) -> dict[str, Any] | None:
    """Return the form of a handoff or review, as it stands in the opened row of the queue."""
    if sort == "review":
        return review_form(seen, seen.ask("reviews.show", id=name))
    shown = Citations(seen.view, asker=seen.human).shown(seen.ask("handoffs.show", id=name))
    return handoff_form(seen, shown, seen.ask("handoffs.versions", id=name), "")


def handoff_version(seen: Seen) -> Page:
    """Return ``{"id", "version", "versions", "content"}``: one version by its number, as it was signed."""
    answer = seen.ask("handoffs.versions", id=seen.params["id"], to=seen.number("number"))
    data = {of: answer[of] for of in ("id", "versions", "content")} | {"version": answer["versions"][answer["to"] - 1]}
    return Page("handoff_version.html", f"{answer['id']} v{answer['to']}", data)


def handoff_diff(seen: Seen) -> Page:
    """Return the answer of `handoffs.versions` between ``?from`` and ``?to``, by default since the last approval."""
    asked = {of: seen.number(of) for of in ("from", "to")}
    answer = seen.ask("handoffs.versions", id=seen.params["id"], **asked)
    return Page("handoff_diff.html", f"{answer['id']}: what changed", answer)
