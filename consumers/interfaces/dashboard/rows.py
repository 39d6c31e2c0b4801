"""Things as rows of a list: the title, a description, the agent and the time, and whether these are only claimed.

Imported history has the name and the time that it claims (``claim`` says who imported it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.marks import OUTCOME_WORDS
from deedbook.consumers.interfaces.dashboard.page import PageContext
from deedbook.consumers.sdk.text import counted
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.answers.instants import to_ms


class Claim(msgspec.Struct, frozen=True):
    """An imported record: who imported it, and the time that it claims, as written."""

    importer: str
    at: str | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A thing in a list. ``path`` (and ``part`` of that page) show it; ``at_ms`` is 0 if an import claims no time.

    ``state`` is a word, and ``colour`` the state whose colour it has. ``is_over``: it was retracted or resolved.
    """

    type: str
    path: str
    part: str = ""
    title: str
    about: str = ""
    agent: str
    to: str = ""
    at_ms: int
    state: str = ""
    colour: str | None = None
    is_over: bool = False
    claim: Claim | None = None
    compromised: int | None = None
    redacted: dict[str, Any] | None = None


class Source(NamedTuple):
    """A query whose items are rows: its fixed arguments, and the name of its argument for a chosen agent.

    ``complete`` adds to an item the fields that the query does not answer.
    """

    query: str
    row: Callable[[Mapping[str, Any]], Row]
    arguments: Mapping[str, Any] = {}
    agent: str = "agent"
    complete: Callable[[PageContext, Mapping[str, Any]], Mapping[str, Any]] | None = None

    def page(self, context: PageContext, agent: str | None, **filters: Any) -> dict[str, Any]:
        """Return ``{"rows", "total", "next"}`` of a page."""
        answer = context.ask(self.query, **self.arguments, **{self.agent: agent}, **filters)
        # ``reports.list`` has names of its own for its items and their number.
        names = ("reports", "total_found") if "reports" in answer else ("items", "total")
        items, total = (answer[name] for name in names)
        completed = items if self.complete is None else [self.complete(context, item) for item in items]
        return {"rows": list(map(self.row, completed)), "total": total, "next": answer["next"]}


def ms_of(timestamp: str) -> int:
    """Return a time in ISO 8601 as Unix ms."""
    return to_ms(datetime.fromisoformat(timestamp))


def _row(item: Mapping[str, Any], **fields: Any) -> Row:
    return Row(compromised=item.get("compromised"), redacted=item.get("redacted"), **fields)


def _claim(item: Mapping[str, Any]) -> Claim | None:
    imported = item["imported"]
    return None if imported is None else Claim(imported["importer"], imported["claimed_at"])


def _agent(item: Mapping[str, Any]) -> str:
    """Return the agent that worked in a session: its author, or the agent that an imported record claims."""
    agent: str = item["ai_id" if item["imported"] else "author"]
    return agent


def _counts(item: Mapping[str, Any], **nouns: str) -> str:
    return ", ".join(counted(item[name], noun) for name, noun in nouns.items() if item[name])


def session(item: Mapping[str, Any]) -> Row:
    """Return an item of ``sessions.list``."""
    recorded = _counts(
        item, findings="finding", unknowns="open unknown", dead_ends="dead end", assessments="assessment"
    )
    return _row(
        item,
        type="session",
        path=path_to("session", item["id"]),
        title=item["task"] or item["summary"] or item["id"],
        about=recorded or "nothing was recorded in it",
        agent=_agent(item),
        at_ms=item["happened_ms"],
        state="" if item["imported"] else item["status"],
        colour="work" if item["status"] == "open" else "over",
        claim=_claim(item),
    )


def report(item: Mapping[str, Any]) -> Row:
    """Return an item of ``reports.list``."""
    learned, unknown = len(item["key_findings"]), len(item["remaining_unknowns"])
    parts = [
        item["outcome"],
        f"{counted(learned, 'thing')} learned" if learned else "",
        f"{counted(unknown, 'thing')} still unknown" if unknown else "",
    ]
    claim = _claim(item)
    is_dated = claim is None or claim.at is not None
    return _row(
        item,
        type="report",
        path=path_to("session", item["session_id"]),
        part="report-title",
        title=item["task"] or item["task_summary"],
        about=" · ".join(filter(None, parts)),
        agent=_agent(item),
        at_ms=ms_of(item["timestamp"]) if is_dated else UNDATED_MS,
        state="" if item["calibration_status"] == "not_assessable" else item["calibration_status"],
        claim=claim,
    )


def _with_outcome(context: PageContext, item: Mapping[str, Any]) -> Mapping[str, Any]:
    reports = context.ask("validations.list", id=item["ref"], limit=1)["total"]
    # Most reasonings in a list have no report, and a verdict is slow: it compares all with the same conclusion.
    is_judged = reports or item["is_refuted"] or "redacted" in item
    return {**item, "outcome": context.ask("validations.latest", id=item["ref"])["outcome"] if is_judged else "none"}


def reasoning(item: Mapping[str, Any]) -> Row:
    """Return an item of ``reasoning.list`` with the ``outcome`` of its validations."""
    steps, imported = counted(item["steps"], "step"), item["imported"]
    state = "open" if item["status"] == "open" and item["outcome"] == "none" else OUTCOME_WORDS[item["outcome"]]
    return _row(
        item,
        type="reasoning",
        path=path_to("reasoning", item["id"]),
        title=item["task"] or item["id"],
        about=f"→ {item['conclusion']}" if item["conclusion"] else f"{steps}, no conclusion yet",
        agent=item["author"] if imported is None else imported["claimed_author"] or "unknown",
        at_ms=item["changed_ms"],
        state="rests on a refuted assumption" if item["is_refuted"] else state,
        colour="stop" if item["is_refuted"] else "work" if state == "open" else None,
        claim=_claim(item),
    )


def handoff(item: Mapping[str, Any]) -> Row:
    """Return an item of ``handoffs.list``.

    An imported file's status is a claim until somebody here acts on the handoff.
    """
    is_claim = item["importer"] is not None and item["status"] == "pending"
    done = f"{item['tasks_done']} of {counted(item['tasks_total'], 'task')} done" if item["tasks_total"] else ""
    claims = f"claims to be {item['claimed_status']}" if is_claim and item["claimed_status"] else ""
    return _row(
        item,
        type="handoff",
        path=path_to("handoff", item["id"]),
        title=item["title"] or item["id"],
        about=" · ".join(filter(None, (claims, done, item["reason"]))),
        agent=(item["claimed_author"] if is_claim else None) or item["from"],
        to=item["to"],
        at_ms=item["changed_ms"],
        state="" if item["is_history"] else item["status"],
        claim=Claim(item["importer"], item["claimed_at"]) if is_claim else None,
    )


def verdict(item: Mapping[str, Any]) -> Row:
    """Return an item of ``catalog.find`` that approves, verifies or refuses the work of a handoff."""
    imported = item["kind"] == "record.imported"
    verdict = item["type"].partition(".")[2]
    return _row(
        item,
        type="verdict",
        path=path_to("handoff", item["stream"].partition("/")[2]),
        title=item["title"] or item["stream"],
        about=item["text"],
        agent=item["agent"],
        at_ms=item["happened_ms"],
        state=verdict,
        colour="changes" if verdict == "changes_requested" else None,
        claim=Claim(item["author"], None) if imported else None,
    )


def review(item: Mapping[str, Any]) -> Row:
    """Return an item of ``reviews.list``."""
    verdict = f"{item['answered_by']}: {item['verdict']}" if item["verdict"] else "nobody has answered yet"
    return _row(
        item,
        type="review",
        path=path_to("review", item["id"]),
        title=item["question"],
        about=" · ".join(filter(None, (verdict, item["comment"], item["task"]))),
        agent=item["author"],
        at_ms=item["answered_ms"] or item["requested_ms"],
        state="open" if item["status"] == "open" else item["verdict"] or "answered",
        colour="wait" if item["status"] == "open" else "over",
    )


def decision(item: Mapping[str, Any]) -> Row:
    """Return an item of ``decisions.list``."""
    return _row(
        item,
        type="decision",
        path=path_to("event", item["made_index"]),
        title=item["text"],
        about=" · ".join(filter(None, (item["why"], ", ".join(item["paths"])))),
        agent=item["author"],
        at_ms=item["made_ms"],
        state="contract" if item["contract"] else "" if item["status"] == "standing" else item["status"],
        colour="over",
        is_over=item["status"] != "standing",
    )


def statement(item: Mapping[str, Any]) -> Row:
    """Return an item of ``sessions.statements``."""
    correction = item["correction"]
    words = "" if correction is None else f"{correction['author']}: {correction['words']}"
    detail = f"failed: {item['detail']}" if item["detail"] else ""
    task = f"in “{item['task']}”" if item["task"] else ""
    return _row(
        item,
        type=item["type"],
        path=path_to("session", item["session_id"]),
        part=f"e-{item['event_index']}",
        title=item["text"],
        about=" · ".join(filter(None, (words, detail, item["topic"], task))),
        agent=item["agent"],
        at_ms=item["happened_ms"],
        state="" if correction is None else "resolved" if item["type"] == "unknown" else "retracted",
        colour="over",
        is_over=correction is not None and item["type"] != "unknown",
        claim=None if item["imported"] is None else Claim(item["imported"]["importer"], None),
    )


def compared_session(item: Mapping[str, Any]) -> Row:
    """Return a session of ``reports.overlap``."""
    return _row(
        item,
        type="session",
        path=path_to("session", item["session_id"]),
        title=item["task"] or item["session_id"],
        agent=_agent(item),
        at_ms=item["happened_ms"],
        claim=_claim(item),
    )


REPORTS: Final = Source("reports.list", report)
REASONINGS: Final = Source("reasoning.list", reasoning, {"by_change": True}, complete=_with_outcome)
HANDOFFS: Final = Source("handoffs.list", handoff, {"history": "shown", "by_change": True})
