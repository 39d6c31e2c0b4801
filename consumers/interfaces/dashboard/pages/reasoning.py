"""`/r/REF`: a brief beside its graph, and whether it can be trusted.

Every figure is measured of the text that stands there, and what the graph cites is looked up whenever it is asked for.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.layout import Box, Drawing, Edge, Node, layered
from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.consumers.reasoning.compressor.transfer import Received, describe, fetch, receive_brief
from deedbook.consumers.reasoning.explanation import explain_brief, look_again
from deedbook.consumers.reasoning.validator.trees import work_tree
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import beside, resolved
from deedbook.ledger.home.trust import actions_of
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.delta import describe_change

budgets: Final = {"200": TransferLevel.MINIMAL, "400": None, "700": TransferLevel.STANDARD, "full": TransferLevel.FULL}
"""The levels that are published have budgets of their own; any other number makes a brief on the spot."""

budget_max_tokens: Final = 100_000
validations_shown_max: Final = 20
steps_shown_max: Final = 100
"""Of the table, and of all that is listed for each step; the next ones are a link away (``after``)."""

versions_shown_max: Final = 8
dropped_named_max: Final = 40
steps_drawn_max: Final = 120
"""A larger graph is drawn without what the brief leaves out, unless ``all`` is asked for."""

_DOUBT: Final = {"refuted": 0, "not_checked": 1}
_STATES: Final = {"inference": "active", "assumption": "open", "hypothesis": "review", "conclusion": "completed"}


def reasoning(seen: Seen) -> Page:
    """Return one version: its ``brief`` as it reads, ``fidelity``, ``steps``, ``graph``, reports and ``delta``."""
    ref, budget = seen.params["ref"], seen.query.get("budget") or "700"
    row = seen.ask("reasoning.show", id=ref)
    del row["memory"]
    (version,) = (one for one in row["versions"] if one["version"] == row["asked_version"])
    received = _received(seen.view, ref, budget)
    explained, chosen = explain_brief(received), seen.number("step")
    steps = explained["steps"]
    shown, following = _page_of(seen, steps)
    event = read_event(version["event_index"], seen.client.entry(version["event_index"]))
    delta = None
    if against := seen.query.get("against"):  # applied here, and what comes of it hashes to the ref
        before = fetch(seen.view, against)
        after = fetch(seen.view, version["ref"], have=before.memory)
        delta = describe_change(before.memory, after.memory) | {"sent": msgspec.to_builtins(after.sent)}
    origins = seen.ask("reasoning.existing", ids=seen.ask("reasoning.origins", ref=version["ref"])["ids"])
    owners = sorted({one["author"] for one in origins["reasonings"].values()})
    reports = seen.ask("validations.list", ref=version["ref"], limit=validations_shown_max)["validations"]
    others = [one for one in reports if one["author"] not in owners]
    looked = look_again(seen.view, received.memory, _tree_of(seen.settings), others)
    listed = {one["step"] for one in shown} | {chosen}
    doubted = sorted(looked["assumptions"], key=lambda one: _DOUBT.get(one["status"], 2))
    row["versions"] = [one for one in row["versions"] if one is not version][-versions_shown_max:]
    data = {
        "reasoning": row
        | {
            "asked": ref,
            "ref": version["ref"],
            "signer": event.author,
            "signed_ms": event.accepted_ms,
            "signed_index": event.index,
            "suspect": row.get("suspect"),
        },
        "brief": describe(received),
        "rules": msgspec.to_builtins(received.answer.all_rules),
        "sections": explained["sections"],
        "fidelity": explained["measured"],
        "is_full": "full" in seen.query,
        "budgets": list(budgets),
        "budget": budget,
        "delta": delta,
        "steps": shown,
        "steps_total": len(steps),
        "next": following,
        "dropped": _dropped(steps),
        "chosen": next((step for step in steps if step["step"] == chosen), None),
        "graph": _drawing(seen, steps, chosen),
        "limitations": received.memory.known_limitations,
        "looked": looked
        | {
            "evidence": [one for place, one in enumerate(looked["evidence"]) if place < 12 or one["step"] in listed],
            "assumed": Counter(one["status"] for one in looked["assumptions"]),
            "assumptions": doubted[:steps_shown_max],
        },
        "validations": reports,
        "owners": owners,
    }
    return Page("reasoning.html", received.memory.task, data)


def _page_of(seen: Seen, steps: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int | None]:
    """Return the steps behind the one asked for, and the last of them where there are more."""
    after = seen.number("after")
    numbers = [step["step"] for step in steps]
    if after is not None and after not in numbers:
        raise Refused("NOT_FOUND", f"this reasoning has no step {after}")
    start = 0 if after is None else numbers.index(after) + 1
    end = start + steps_shown_max
    return steps[start:end], numbers[end - 1] if end < len(steps) else None


def _dropped(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return why steps are not in the text, each with how many, and the first of them."""
    by_why: dict[str, list[int]] = {}
    for step in steps:
        if not step["in_text"]:
            by_why.setdefault(step["why"], []).append(step["step"])
    named = sorted(by_why.items())
    return [{"why": why, "count": len(numbers), "steps": numbers[:dropped_named_max]} for why, numbers in named]


def _received(view: Ask, ref: str, budget: str) -> Received:
    level, tokens = budgets.get(budget), None
    if level is None:
        level, tokens = TransferLevel.STANDARD, int(budget) if budget.isdecimal() and len(budget) <= 6 else 0
        if not 0 < tokens <= budget_max_tokens:
            raise Refused("USAGE", f"budget is `full` or a number up to {budget_max_tokens}, not {budget[:40]!r}")
    return receive_brief(view, ref, level, budget=tokens)


def _drawing(seen: Seen, steps: list[dict[str, Any]], chosen: int | None) -> Drawing:
    kept = {name: seen.query[name] for name in ("budget", "full", "all") if name in seen.query}
    is_whole = len(steps) <= steps_drawn_max or "all" in seen.query
    drawn = {step["step"]: step for step in steps if is_whole or step["in_text"]}
    nodes = [
        Node(
            str(number),
            f"{number} {sanitize_line(step['content'])}",
            meta=" ".join(filter(None, (step["state"], step["type"]))),
            figure=f"{step['confidence']:.2f}".removeprefix("0"),
            state="rejected" if step["state"] == "refuted" else _STATES.get(step["type"], "claim"),
            href=path_to("reasoning", seen.params["ref"]),
            query=kept | {"step": str(number)},
            is_faded=not step["in_text"],
            is_selected=number == chosen,
        )
        for number, step in drawn.items()
    ]
    edges = [
        Edge(str(on), str(number), is_faded=not (step["in_text"] and drawn[on]["in_text"]))
        for number, step in drawn.items()
        for on in step["rests_on"]
        if on in drawn
    ]
    return layered(nodes, edges, "topbottom", box=Box(132, 56))


def _tree_of(settings: Settings) -> Path | None:
    """Return the folder that evidence is looked up in: the one that validators are told, else the git work tree."""
    home = resolved(settings.home)
    with suppress(DeedbookError):  # a folder that is not trusted names nothing
        if (named := actions_of(settings).validator_tree) is not None:
            return beside(home, named)
    return work_tree(beside(home, ".")) or work_tree(Path.cwd())
