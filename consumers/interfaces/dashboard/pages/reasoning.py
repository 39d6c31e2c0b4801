"""`/r/REF`: a brief beside its graph, with fidelity, evidence and validations.

Every request measures the fidelity of the text that the page shows, and checks again the evidence that the graph cites.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.layout import Drawing, Edge, Node, beside_room, layered, lines_box
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.evidence import project_places, validations_of
from deedbook.consumers.reasoning.compressor.transfer import ReceivedBrief, described, fetch, receive_brief
from deedbook.consumers.reasoning.explanation import explain_brief
from deedbook.consumers.reasoning.snapshots.act import act_on
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.entries import read_event
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.delta import describe_change

budgets: Final = {"200": TransferLevel.MINIMAL, "400": None, "700": TransferLevel.STANDARD, "full": TransferLevel.FULL}
"""Published levels have budgets of their own. For any other number, the page makes a brief."""

budget_max_tokens: Final = 100_000
steps_shown_max: Final = 100
"""The steps on one page of the table and of the lists for steps; ``after`` gives the next page."""

versions_shown_max: Final = 8
dropped_named_max: Final = 40
steps_drawn_max: Final = 120
"""A larger graph is drawn without the steps that the brief drops, unless ``all`` is requested."""

_DOUBT: Final = {"refuted": 0, "not_checked": 1}


def reasoning(context: PageContext) -> Page:
    """Return one version: its ``brief``, ``fidelity``, ``steps``, ``graph``, validation reports and ``delta``."""
    ref, budget = context.params["ref"], context.query.get("budget") or "700"
    row = context.ask("reasoning.show", id=ref)
    del row["memory"]
    (version,) = (item for item in row["versions"] if item["version"] == row["asked_version"])
    received = _received(context.view, ref, budget)
    explained, chosen = explain_brief(received), context.number("step")
    steps = explained["steps"]
    page, following = _page_of(context, steps)
    event = read_event(version["event_index"], context.client.entry(version["event_index"]))
    delta = None
    if against := context.query.get("against"):  # apply the delta here and check that the result hashes to the ref
        before = fetch(context.view, against)
        after = fetch(context.view, version["ref"], have=before.memory)
        delta = describe_change(before.memory, after.memory) | {"sent": msgspec.to_builtins(after.sent)}
    # Citations are decided by the same rules; here they read the fidelity of the text on the page.
    decision = act_on(context.view, version["ref"], fidelity=explained["measured"]["value"])
    reports, others, owners = validations_of(context, version["ref"])
    with project_places(context) as places:
        checks = places().of_graph(received.memory, others)
    listed = {step["step"] for step in page} | {chosen}
    doubted = sorted(checks["assumptions"], key=lambda assumption: _DOUBT.get(assumption["status"], 2))
    recorded = _recorded_in(row["versions"], [step["step"] for step in steps], chosen)
    total, (row["versions"], older) = len(row["versions"]), _versions(context, row["versions"])
    data = {
        "reasoning": row
        | {
            "asked": ref,
            "versions_total": total,
            "versions_next": older,
            "ref": version["ref"],
            "signer": event.author,
            "signed_ms": event.accepted_ms,
            "signed_index": event.index,
            "compromised": row.get("compromised"),
        },
        "brief": described(received).to_dict(),
        "decision": {"action": decision.action, "may_act": decision.may_act},
        "rules": msgspec.to_builtins(decision.answer.all_rules),
        "sections": explained["sections"],
        "fidelity": explained["measured"],
        "is_full": "full" in context.query,
        "budgets": list(budgets),
        "budget": budget,
        "delta": delta,
        "steps": page,
        "steps_total": len(steps),
        "next": following,
        "dropped": _dropped(steps),
        "chosen": next((step for step in steps if step["step"] == chosen), None),
        "recorded": recorded,
        "graph": _drawing(context, steps, chosen),
        "limitations": received.memory.known_limitations,
        "looked": checks
        | {
            "evidence": [item for n, item in enumerate(checks["evidence"]) if n < 12 or item["step"] in listed],
            "assumed": Counter(assumption["status"] for assumption in checks["assumptions"]),
            "assumptions": doubted[:steps_shown_max],
        },
        "validations": reports,
        "owners": owners,
    }
    return Page("reasoning.html", received.memory.task, data)


def _versions(context: PageContext, versions: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int | None]:
    """Return the newest versions (before ``before``), newest first, and the number of the last one if there are older.

    Each version has author, time and text of the event that made it.
    """
    before = context.number("before")
    listed = [version for version in versions if before is None or version["version"] < before]
    newest = listed[: -versions_shown_max - 1 : -1]
    events = (context.ask("catalog.show", id=str(version["event_index"])) for version in newest)
    rows = [
        version | {name: event[name] for name in ("author", "accepted_ms", "text")}
        for version, event in zip(newest, events, strict=True)
    ]
    return rows, newest[-1]["version"] if len(newest) < len(listed) else None


def _recorded_in(versions: list[dict[str, Any]], numbers: list[int], chosen: int | None) -> int | None:
    """Return the entry that recorded a step: the first version with this number of steps."""
    position = numbers.index(chosen) if chosen in numbers else len(numbers)
    return next((version["event_index"] for version in versions if version["steps"] > position), None)


def _page_of(context: PageContext, steps: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int | None]:
    """Return one page of steps, and the number of its last step if there are more."""
    after = context.number("after")
    numbers = [step["step"] for step in steps]
    if after is not None and after not in numbers:
        raise Refused("NOT_FOUND", f"this reasoning has no step {after}")
    start = 0 if after is None else numbers.index(after) + 1
    end = start + steps_shown_max
    return steps[start:end], numbers[end - 1] if end < len(steps) else None


def _dropped(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reasons why steps were dropped, each with the number of steps and the first of them."""
    by_why: dict[str, list[int]] = {}
    for step in steps:
        if not step["in_text"]:
            by_why.setdefault(step["why"], []).append(step["step"])
    named = sorted(by_why.items())
    return [{"why": why, "count": len(numbers), "steps": numbers[:dropped_named_max]} for why, numbers in named]


def _received(view: Ask, ref: str, budget: str) -> ReceivedBrief:
    level, tokens = budgets.get(budget), None
    if level is None:
        level, tokens = TransferLevel.STANDARD, int(budget) if budget.isdecimal() and len(budget) <= 6 else 0
        if not 0 < tokens <= budget_max_tokens:
            raise Refused("USAGE", f"budget must be `full` or a number up to {budget_max_tokens}, not {budget[:40]!r}")
    return receive_brief(view, ref, level, budget=tokens)


def _drawing(context: PageContext, steps: list[dict[str, Any]], chosen: int | None) -> Drawing:
    query = {name: context.query[name] for name in ("budget", "full", "all") if name in context.query}
    is_whole = len(steps) <= steps_drawn_max or "all" in context.query
    drawn_steps = {step["step"]: step for step in steps if is_whole or step["in_text"]}
    nodes = [
        Node(
            str(number),
            f"{number} {sanitize_line(step['content'])}",
            meta=(" ".join(filter(None, (step["state"], step["type"]))),),
            figure=f"{step['confidence']:.2f}".removeprefix("0"),
            state=_state_of(step),
            href=path_to("reasoning", context.params["ref"]),
            query=query | {"step": str(number)},
            fragment="chosen",
            is_faded=not step["in_text"],
            is_selected=number == chosen,
        )
        for number, step in drawn_steps.items()
    ]
    edges = [
        Edge(str(on), str(number), is_faded=not (step["in_text"] and drawn_steps[on]["in_text"]))
        for number, step in drawn_steps.items()
        for on in step["rests_on"]
        if on in drawn_steps
    ]
    return layered(nodes, edges, "topbottom", box=lines_box(5, width=180), room=beside_room)


def _state_of(step: dict[str, Any]) -> str:
    """Return the colour of a step: refuted steps, other steps with a mark, and the conclusion have their own."""
    if step["state"]:
        return "stop" if "refuted" in step["state"] else "wait"
    return "plain" if step["type"] == "conclusion" else "over"
