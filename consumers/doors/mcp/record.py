"""The tool that records: sessions and reasoning in one signed submission, all of it or nothing.

A session or reasoning that does not exist is started in the same submission. A call that is repeated under its
idempotency key adds nothing: what it recorded is found by the correlation that its events carry, because step numbers
and new ids would otherwise make the second call another one. What happens if we crash after the submission: the events
stand, and the repeated call answers with them; a report that was still to be made is made by ``baton session sweep``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import Field

from consumers.doors.mcp.answers import Answer, Quoting, Words, compact, fitting
from consumers.doors.mcp.batch import Batch, place_of, plan
from consumers.doors.mcp.entries import AnyEntry, Assessment
from consumers.doors.mcp.reports import Id
from consumers.doors.mcp.tool_ledger import ToolLedger
from consumers.sdk.quotation import words_of
from consumers.sessions.generator import ReportInputs
from consumers.sessions.workflow import with_report
from ledger.admission.decide import Accepted
from ledger.author import Author, kind_of
from ledger.client import read_event
from ledger.config import wants_traceback
from ledger.errors import Refused
from ledger.events.fields import EventData
from ledger.events.reasoning import ReasoningExtended
from ledger.events.session import SessionStarted

_log: Final = logging.getLogger(__name__)

entries_max: Final = 100
plans_max: Final = 4
_dead_ends_max: Final = 3
_digest_digits: Final = 40
_AGAIN: Final = frozenset({"IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY"})


class Recorded(Answer):
    """One event that was recorded."""

    kind: str
    event_index: int
    event_id: str
    step: int | None = None


class RecordedAll(Quoting):
    """What a call recorded, and where it goes on."""

    session_id: Annotated[str | None, Field(description="Give it with every later call of this session.")]
    reasoning_id: Annotated[str | None, Field(description="Give it to add steps; fetch_reasoning takes it as ref.")]
    events: list[Recorded]
    events_left_out: int | None = None
    first_index: int
    last_index: int
    is_repeat: Annotated[bool, Field(description="The call was made before under this key; nothing was added.")]
    report_id: Annotated[str | None, Field(description="The report that a POSTFLIGHT assessment made.")]
    dead_ends: Annotated[list[Words], Field(description="What failed in sessions with a similar task.")]
    warnings: list[str]


class RecordTool:
    """The tool that records sessions and reasoning."""

    def __init__(self, ledger: ToolLedger) -> None:
        self._ledger = ledger

    def record_reasoning(
        self,
        entries: Annotated[list[AnyEntry], Field(min_length=1, max_length=entries_max)],
        session_id: Annotated[
            Id | None,
            Field(description="Default: a new session if `task` is given or none is open, else your only open one."),
        ] = None,
        reasoning_id: Annotated[
            Id | None,
            Field(description="Of steps: a name you choose, and the same to go on. Default: made of day and task."),
        ] = None,
        task: Annotated[str, Field(max_length=40_000, description="What a new session or reasoning is about.")] = "",
        idempotency_key: Annotated[
            Annotated[str, Field(min_length=1, max_length=100)] | None,
            Field(description="Makes a repeated call harmless: the same key and content add nothing."),
        ] = None,
    ) -> RecordedAll:
        """Record what you assess, find, try and conclude."""
        author = self._ledger.author()
        asked = {
            "entries": [entry.model_dump(mode="json") for entry in entries],
            "session_id": session_id,
            "reasoning_id": reasoning_id,
            "task": task,
        }
        digest = sha256(compact([author.name, idempotency_key, asked]).encode()).hexdigest()[:_digest_digits]
        corr = None if idempotency_key is None else f"record:{digest}"
        if corr is not None and (found := self._earlier(author, corr)):
            return self._answer(found, self._report(author, entries, found), is_repeat=True)
        seed = corr or str(uuid.uuid4())

        def planned() -> Batch:
            place = place_of(self._ledger, author.name, entries, session_id, reasoning_id, task, seed=seed)
            return plan(entries, place, corr=corr, key=idempotency_key)

        batch = planned()
        dead_ends = self._failed_before(batch)
        try:
            batch, accepted = emit_planned(author, batch, planned)
        except Refused as refusal:
            # Another call under the same key may have been first: then its events are the answer.
            if refusal.code in _AGAIN and corr is not None and (found := self._earlier(author, corr)):
                return self._answer(found, self._report(author, entries, found), is_repeat=True)
            raise
        # Told from the drafts: nothing that could fail is asked once the events stand.
        events = [
            event_dict(kind_of(draft), draft.stream, one.index, one.id, draft.data)
            for draft, one in zip(batch.drafts, accepted, strict=True)
        ]
        report = self._report(author, entries, events)
        return self._answer(events, report, dead_ends=dead_ends, is_repeat=any(one.is_repeat for one in accepted))

    def _earlier(self, author: Author, corr: str) -> list[dict[str, Any]]:
        rows = self._ledger.ask("catalog.find", corr=corr, author=author.name, limit=500)["events"]
        client = self._ledger.client
        found = [read_event(row["event_index"], client.entry(row["event_index"])) for row in rows]
        return [event_dict(one.kind, one.stream, one.index, one.id, one.data) for one in found]

    def _failed_before(self, batch: Batch) -> list[dict[str, Any]]:
        """Return dead ends of sessions like the one that is started; asked before anything is signed."""
        first: EventData | dict[str, Any] = batch.drafts[0].data
        if not isinstance(first, SessionStarted) or not first.task.strip():
            return []
        found = self._ledger.ask("reports.dead_ends", task=first.task, limit=_dead_ends_max)["dead_ends"]
        names = ("approach", "why_failed", "session_id")
        return [words_of(one["author"], one["happened_ms"], {name: one[name] for name in names}) for one in found]

    def _report(self, author: Author, entries: list[AnyEntry], events: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return what came of the report of a POSTFLIGHT; a failure is a warning: the assessment stands.

        Made again, the same report adds nothing: so a repeated call makes what the first one may not have come to.
        """
        if not any(isinstance(entry, Assessment) and entry.phase == "POSTFLIGHT" for entry in entries):
            return None
        ledger = self._ledger
        name = next(one["stream"] for one in events if one["kind"] == "assessment.recorded").removeprefix("session/")
        done: dict[str, Any] = {"session_id": name, "warnings": []}
        try:
            return with_report(author, ledger.client.view, ledger.settings, done, ReportInputs())
        except Exception as failure:
            if wants_traceback():
                raise
            # Whatever it was: the assessment is in the ledger, and its author must hear that beside what failed.
            _log.exception("no report was made of session %s", name)
            said = f"POSTFLIGHT is recorded, but there is no report of it: {type(failure).__name__}"
            return {"handoff_report": None, "warnings": [f"{said}; `baton session sweep` makes it again"]}

    def _answer(
        self,
        events: list[dict[str, Any]],
        report: dict[str, Any] | None,
        *,
        is_repeat: bool,
        dead_ends: list[dict[str, Any]] | None = None,
    ) -> RecordedAll:
        streams = [one["stream"].partition("/") for one in events]
        made = {} if report is None else report.get("handoff_report") or {}
        rows = [{name: value for name, value in one.items() if name != "stream"} for one in events]
        answer: dict[str, Any] = {
            "session_id": next((name for sort, _, name in streams if sort == "session"), None),
            "reasoning_id": next((name for sort, _, name in streams if sort == "reasoning"), None),
            "events": [],
            "first_index": events[0]["event_index"],
            "last_index": events[-1]["event_index"],
            "is_repeat": is_repeat,
            "report_id": made.get("report_id"),
            "dead_ends": dead_ends or [],
            "others": self._ledger.others(),
            "warnings": [] if report is None else report["warnings"],
        }
        if answer["dead_ends"] and fitting(answer["dead_ends"], answer | {"dead_ends": []}) < len(answer["dead_ends"]):
            answer["dead_ends"] = []
            answer["warnings"].append("dead ends of similar tasks are left out: resume_previous_session names them")
        kept = fitting(rows, answer)
        more = {"events_left_out": len(rows) - kept} if kept < len(rows) else {}
        return RecordedAll.model_validate(answer | {"events": rows[:kept]} | more)


def emit_planned(author: Author, batch: Batch, planned: Callable[[], Batch]) -> tuple[Batch, list[Accepted]]:
    """Return what was emitted and accepted: the batch, or a new plan where another call was first with what it needs.

    Calls at the same time plan the same step numbers, or start the same session: the later one is planned again.
    """
    for _ in range(plans_max - 1):
        try:
            return batch, author.emit(*batch.drafts)
        except Refused as refusal:
            again = planned()
            # Without a key, calls that start one session in the same millisecond sign the same event: no repetition.
            is_repeated = refusal.code in _AGAIN and any(draft.idem for draft in batch.drafts)
            if is_repeated or again.drafts == batch.drafts:
                raise batch.located(refusal) from refusal
            batch = again
    try:
        return batch, author.emit(*batch.drafts)
    except Refused as refusal:
        raise batch.located(refusal) from refusal


def event_dict(kind: str, stream: str, index: int, event_id: str, data: Any) -> dict[str, Any]:
    """Return a recorded event as the answer names it, with the number of the step that it added."""
    row = {"kind": kind, "stream": stream, "event_index": index, "event_id": event_id}
    if isinstance(data, ReasoningExtended) and data.steps:
        row["step"] = data.steps[0].step_number
    return row
