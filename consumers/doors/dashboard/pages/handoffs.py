"""`/h/ID`: one handoff; `/h/ID/v/N`: an exact version of it; `/h/ID/diff`: what changed between two."""

from __future__ import annotations

import re
from typing import Any, Final

from consumers.doors.dashboard.address import path_to
from consumers.doors.dashboard.page import Page, Seen
from consumers.doors.dashboard.pages.decisions import handoff_form
from consumers.handoffs.acts import NOTES, commands_on
from consumers.handoffs.receiver import later
from consumers.reasoning.grounds import Grounds
from consumers.sdk.quotation import gate_seen
from ledger.errors import Refused

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_ELSEWHERE: Final = ("why", "tasks", "criteria", "notes", "reasoning", "result_reasoning", "as_of")
# Which events of a handoff say something of one of its tasks or criteria.
_OF_TASKS: Final = ("handoff.task_checked",)
_OF_CRITERIA: Final = ("handoff.criterion_checked", "handoff.waiver_asked", "handoff.criterion_waived")


def handoff(seen: Seen) -> Page:
    """Return ``handoff_page`` of the one that is asked for, with ``?done=INDEX`` the receipt of a decision on it."""
    return handoff_page(seen, seen.params["id"])


def handoff_page(
    seen: Seen, name: str, *, note: str = "", problem: dict[str, Any] | None = None, status: int = 200
) -> Page:
    """Return all about one handoff.

    ``{"handoff", "why", "tasks", "criteria", "notes", "reasoning", "result_reasoning", "versions", "number", "log",
    "gate", "as_of", "form", "done", "problem"}``: ``form`` is None where there is nothing to decide, ``log`` has the
    newest event first, ``problem`` says why a decision was not taken, and what happened since its page was shown.
    """
    shown = Grounds(seen.view, asker=seen.human).shown(seen.ask("handoffs.show", id=name))
    versions = seen.ask("handoffs.versions", id=shown["id"])
    log = shown.pop("log")
    if problem is not None:  # what was amended between the page that he decided on and this one
        read = [one["number"] for one in versions["versions"] if one["version"] == problem["version"]]
        is_other = read and read[-1] != versions["to"]
        changed = seen.ask("handoffs.versions", id=shown["id"], **{"from": read[-1]}) if is_other else {"changes": []}
        problem = problem | {"changes": changed["changes"]}
    data = {
        "handoff": {name: value for name, value in shown.items() if name not in _ELSEWHERE},
        "why": shown["why"] | {"next": commands_on(seen.view, shown["why"])},
        "tasks": with_who(shown["tasks"], log, shown["skeleton_index"], _OF_TASKS),
        "criteria": with_who(shown["criteria"], log, shown["skeleton_index"], _OF_CRITERIA),
        "notes": {kind: shown["notes"][kind] for kind in NOTES} | {"later": later(shown | {"log": log})},
        "reasoning": shown["reasoning"], "result_reasoning": shown["result_reasoning"],
        "versions": versions["versions"], "number": versions["to"], "log": log[::-1],
        "gate": gate_seen(seen.ledger.home, seen.client), "as_of": shown.get("as_of"), "problem": problem,
        "form": handoff_form(seen, shown, versions, note), "done": _receipt(seen, shown, log),
    }  # fmt: skip
    path = "" if problem is None else path_to("handoff", shown["id"])
    return Page("handoff.html", shown["title"] or shown["id"], data, status, path)


def with_who(
    rows: list[dict[str, Any]], log: list[dict[str, Any]], since: int, kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return tasks or criteria, each counted from 1, with the event that said the last of it (``said``, or None).

    What was said of an earlier version, before the event ``since``, is of another task or criterion.
    """
    last = {one["position"]: one for one in log if one["kind"] in kinds and one["event_index"] > since}
    return [row | {"number": row["position"] + 1, "said": last.get(row["position"])} for row in rows]


def _receipt(seen: Seen, shown: dict[str, Any], log: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the event that a decision here became, and the tree that it was found in, its signature checked."""
    index = seen.number("done")
    event = next((one for one in log if one["event_index"] == index and one["author"] == seen.human), None)
    as_of = shown.get("as_of")
    return None if event is None or as_of is None else event | {name: as_of[name] for name in ("size", "root")}


def handoff_version(seen: Seen) -> Page:
    """Return ``{"id", "version", "versions", "content"}``: one version by its number, as it was signed."""
    answer = seen.ask("handoffs.versions", id=seen.params["id"], to=_number(seen.params["number"]))
    version = answer["versions"][answer["to"] - 1]
    data = {"id": answer["id"], "version": version, "versions": answer["versions"], "content": answer["content"]}
    return Page("handoff_version.html", f"{answer['id']} v{answer['to']}", data)


def handoff_diff(seen: Seen) -> Page:
    """Return the answer of `handoffs.versions` between ``?from`` and ``?to``, by default since the last approval."""
    asked = {of: None if seen.number(of) is None else _number(seen.query[of]) for of in ("from", "to")}
    answer = seen.ask("handoffs.versions", id=seen.params["id"], **asked)
    return Page("handoff_diff.html", f"{answer['id']}: what changed", answer)


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise Refused("NOT_FOUND", "versions are counted from 1: the page of the handoff lists them")
    return int(text)
