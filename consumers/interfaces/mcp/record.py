"""The tool that records: sessions and reasoning in one signed submission, everything or nothing.

With a task, the same submission starts a session or reasoning that does not exist; without one an unknown session is
refused, as in every interface. Without a session id the tool uses ``DEEDBOOK_SESSION``, else the session of this
process's previous call if it is open, else ``choose_session``; with a task, or if no session is open, it starts a new
one. A reasoning without an id is named by date and task. The beginning of an id is never taken for the id.

A repeated call with the same idempotency key adds nothing. The tool finds the first call's events by their correlation,
because new step numbers would make the second call a different one; new names are derived from the call's seed. If we
crash after the submission, the events are in the log and the repeated call returns them; a missing report is made by
``deed session sweep``.

Snapshots, validations, reviews and the operations of families are entries, too, each alone in its call. So eight tools
are enough, and `fetch_reasoning` only reads.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from mcp.types import CallToolResult
from pydantic import BeforeValidator, Field, WithJsonSchema

from deedbook.consumers.interfaces.mcp.answers import fitting, time_text
from deedbook.consumers.interfaces.mcp.arguments import as_list
from deedbook.consumers.interfaces.mcp.entries import (
    NewDecision,
    NewEvent,
    Recorded,
    StepEntry,
    Work,
    alone_types,
    entries_schema,
    is_alone,
    of_families,
    read_entry,
)
from deedbook.consumers.interfaces.mcp.judgement import decided, judged, published
from deedbook.consumers.interfaces.mcp.reports import Id
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger, Tools
from deedbook.consumers.reasoning.links import check_drafts
from deedbook.consumers.reasoning.operations import check_assumption, following_number
from deedbook.consumers.sdk.text import default_id, json_text
from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.open_sessions import choose_session
from deedbook.consumers.sessions.report import with_report, with_report_at_end
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Author, Draft, kind_of
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.reasoning import AssumptionSettled, ReasoningExtended, ReasoningStarted
from deedbook.ledger.events.session import AssessmentRecorded, SessionEnded, SessionStarted
from deedbook.ledger.home.environment import present_session, wants_traceback
from deedbook.projections.answers.answer import Answer

_log: Final = logging.getLogger(__name__)

OfReasoning: TypeAlias = StepEntry | AssumptionSettled
entries_max: Final = 100
plans_max: Final = 4
warnings_max: Final = 8
_dead_ends_max: Final = 3
_digest_digits: Final = 40
_AGAIN: Final = frozenset({"IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY"})


class RecordTool(Tools):
    """The tool that records sessions and reasoning."""

    _session: str | None = None
    """The session of the previous call."""

    def record_reasoning(  # noqa: PLR0917 - MCP passes arguments by name
        self,
        entries: Annotated[
            list[dict[str, Any]],
            BeforeValidator(as_list),
            Field(min_length=1, max_length=entries_max),
            WithJsonSchema(entries_schema()),
        ],
        session_id: Annotated[
            Id | None,
            Field(description="Default: your newest open session; a new one if `task` is set or none is open."),
        ] = None,
        reasoning_id: Annotated[
            Id | None,
            Field(description="For steps: your name for it, e.g. audit-auth. Default: from date and task."),
        ] = None,
        task: Annotated[str, Field(max_length=40_000, description="The task of a new session or reasoning.")] = "",
        resumes: Annotated[Id | None, Field(description="The session that a new one continues.")] = None,
        idempotency_key: Annotated[
            Annotated[str, Field(min_length=1, max_length=100)] | None,
            Field(description="A repeated call with this key adds nothing."),
        ] = None,
    ) -> CallToolResult:
        """Record assessments, findings, failed approaches and reasoning steps."""
        author = self._ledger.author()
        read = [read_entry(number, entry) for number, entry in enumerate(entries, 1)]
        work: list[Work] = [entry for entry in read if not is_alone(entry)]
        if alone := [entry for entry in read if is_alone(entry)]:
            if len(read) > 1 or idempotency_key is not None:
                message = f"{', '.join(alone_types())} must be the only entry of a call, and take no idempotency_key"
                raise Refused("USAGE", message, field="entries")
            return self._record_alone(author, alone[0], session_id, task)
        content = {"entries": entries, "session_id": session_id, "reasoning_id": reasoning_id, "task": task}
        content |= {} if resumes is None else {"resumes": resumes}
        digest = sha256(json_text([author.name, idempotency_key, content]).encode()).hexdigest()[:_digest_digits]
        corr = None if idempotency_key is None else f"record:{digest}"
        if corr is not None and (earlier := self._earlier(author, corr)):
            return self._answer(earlier, self._report(author, work, earlier), is_repeat=True)
        seed = corr or str(uuid.uuid4())

        warnings: list[str] = []

        def planned() -> Batch:
            is_left_out = session_id is None and not task and not all(isinstance(entry, OfReasoning) for entry in work)
            session = present_session() or self._still_open() if is_left_out else session_id
            target = target_of(self._ledger, author.name, work, session, reasoning_id, task, seed=seed)
            if resumes is not None:
                target = target.resuming(self._ledger, resumes)
            batch = plan(work, target, corr=corr, key=idempotency_key)
            written = [(draft.stream, draft.data) for draft in batch.drafts]
            cited, warnings[:] = check_drafts(written, self._ledger.query_with)
            return batch.with_data(cited)

        batch = planned()
        dead_ends = self._failed_before(batch)
        try:
            batch, accepted = emit_planned(author, batch, planned)
        except Refused as refusal:
            # If another call with the same key was first, its events are the answer.
            if refusal.code in _AGAIN and corr is not None and (earlier := self._earlier(author, corr)):
                return self._answer(earlier, self._report(author, work, earlier), is_repeat=True)
            raise
        # Build the answer from the drafts: after the submission nothing may fail.
        events = [
            event_dict(kind_of(draft), draft.stream, event.index, event.id, draft.data)
            for draft, event in zip(batch.drafts, accepted, strict=True)
        ]
        report = self._report(author, work, events)
        is_repeat = any(event.is_repeat for event in accepted)
        return self._answer(events, report, dead_ends=dead_ends, is_repeat=is_repeat, warnings=warnings)

    def _record_alone(self, author: Author, entry: Any, session_id: str | None, task: str) -> CallToolResult:
        """Record an entry that is the only one of its call: a judgement, a decision, or an entry of a family."""
        if (of_family := of_families().get(type(entry))) is not None:
            answer = of_family.answer(self._ledger, entry)
            return self._answer([], None, is_repeat=False, judgement=answer, form=of_family.result or Recorded)
        if isinstance(entry, NewDecision):
            judgement = decided(author, self._ledger, entry)
        elif isinstance(entry, NewEvent):
            judgement = published(author, self._ledger, entry)
        else:
            judgement = judged(author, self._ledger, entry, session_id, task)
        return self._answer([], None, is_repeat=False, judgement=judgement)

    def _still_open(self) -> str | None:
        """Return the session of this process's previous call, if it is still open."""
        name = self._session
        return name if name and self._ledger.ask("sessions.show", id=name)["status"] == "open" else None

    def _earlier(self, author: Author, corr: str) -> list[dict[str, Any]]:
        rows = self._ledger.ask("catalog.find", corr=corr, author=author.name, limit=500)["items"]
        client = self._ledger.client
        events = [read_event(row["event_index"], client.entry(row["event_index"])) for row in rows]
        return [event_dict(event.kind, event.stream, event.index, event.id, event.data) for event in events]

    def _failed_before(self, batch: Batch) -> list[dict[str, Any]]:
        """Return dead ends of sessions similar to the one that this call starts. It runs before anything is signed."""
        first: EventData | dict[str, Any] = batch.drafts[0].data
        if not isinstance(first, SessionStarted) or not first.task.strip():
            return []
        dead_ends = self._ledger.ask("search.related", task=first.task, limit=_dead_ends_max)["dead_ends"]
        names = ("session_id", "author", "approach", "why_failed")
        return [{name: row[name] for name in names} | {"at": time_text(row["happened_ms"])} for row in dead_ends]

    def _report(self, author: Author, entries: list[Work], events: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the result of making the report after a POSTFLIGHT or an end; a failure is a warning.

        The same report made again adds nothing, so a repeated call can make a report that the first call did not.
        """
        is_assessed = any(isinstance(entry, AssessmentRecorded) and entry.phase == "POSTFLIGHT" for entry in entries)
        is_ended = any(isinstance(entry, SessionEnded) for entry in entries)
        if not is_assessed and not is_ended:
            return None
        ledger = self._ledger
        kind = "assessment.recorded" if is_assessed else "session.ended"
        name = next(row["stream"] for row in events if row["kind"] == kind).removeprefix("session/")
        done: dict[str, Any] = {"session_id": name, "warnings": []}
        try:
            if not is_assessed:
                return with_report_at_end(author, ledger.client.view, ledger.settings, done)
            return with_report(author, ledger.client.view, ledger.settings, done, ReportInputs())
        except Exception as failure:
            if wants_traceback():
                raise
            # The entries are in the ledger: the author must learn that together with the failure.
            _log.exception("no report was made of session %s", name)
            what = "POSTFLIGHT" if is_assessed else "the end"
            warning = f"{what} is recorded, but its report failed: {type(failure).__name__}"
            return {"handoff_report": None, "warnings": [f"{warning}; make it with `deed session sweep`"]}

    def _answer(
        self,
        events: list[dict[str, Any]],
        report: dict[str, Any] | None,
        *,
        is_repeat: bool,
        dead_ends: list[dict[str, Any]] | None = None,
        judgement: dict[str, Any] | None = None,
        warnings: Sequence[str] = (),
        form: type[Answer] = Recorded,
    ) -> CallToolResult:
        streams = [event["stream"].partition("/") for event in events]
        handoff_report = {} if report is None else report.get("handoff_report") or {}
        rows = [{name: value for name, value in event.items() if name != "stream"} for event in events]
        session = next((name for kind, _, name in streams if kind == "session"), None)
        self._session = session or self._session
        answer: dict[str, Any] = {
            "session_id": session,
            "reasoning_id": next((name for kind, _, name in streams if kind == "reasoning"), None),
            "events": [],
            "first_index": events[0]["event_index"] if events else None,
            "last_index": events[-1]["event_index"] if events else None,
            "is_repeat": is_repeat,
            "report_id": handoff_report.get("report_id"),
            "dead_ends": dead_ends or [],
            "warnings": [*warnings[:warnings_max], *([] if report is None else report["warnings"])],
        }
        if answer["dead_ends"] and fitting(answer["dead_ends"], answer | {"dead_ends": []}) < len(answer["dead_ends"]):
            answer["dead_ends"] = []
            answer["warnings"].append(
                "dead ends of similar tasks are left out: call resume_previous_session to read them"
            )
        count = fitting(rows, answer)
        rest = {"events_left_out": len(rows) - count} if count < len(rows) else {}
        return self._answered(answer | {"events": rows[:count]} | rest | (judgement or {}), form)


def emit_planned(author: Author, batch: Batch, planned: Callable[[], Batch]) -> tuple[Batch, list[Accepted]]:
    """Emit a batch, and return it with the accepted events.

    Concurrent calls may plan the same step numbers, or start the same session. Then the later call is planned again.
    """
    for left in reversed(range(plans_max)):
        try:
            return batch, author.emit(*batch.drafts)
        except Refused as refusal:
            again = planned() if left else batch
            if refusal.code in _AGAIN or again.drafts == batch.drafts:
                raise batch.located(refusal) from refusal
            batch = again
    raise AssertionError("the last plan is accepted or refused")


def event_dict(kind: str, stream: str, index: int, event_id: str, data: Any) -> dict[str, Any]:
    """Return a recorded event for the answer, with the number of the step that it added."""
    row = {"kind": kind, "stream": stream, "event_index": index, "event_id": event_id}
    if isinstance(data, ReasoningExtended) and data.steps:
        row["step"] = data.steps[0].step_number
    return row


class Target(NamedTuple):
    """The session and reasoning for the entries; the start events are None if they exist already."""

    session_id: str | None
    session_start: SessionStarted | None
    reasoning_id: str | None
    reasoning_start: ReasoningStarted | None
    next_step: int

    def resuming(self, ledger: ToolLedger, earlier: str) -> Target:
        """Return the target whose session continues an earlier one. Raises Refused: ``USAGE``: it starts no session."""
        if self.session_start is None:
            what = "starts none" if self.session_id is None else f"writes to {self.session_id}, which exists"
            message = f"resumes is for a new session, and this call {what}: set task and no session_id, or omit resumes"
            raise Refused("USAGE", message, field="resumes")
        resumed = ledger.ask("sessions.show", id=earlier)["id"]
        return self._replace(session_start=msgspec.structs.replace(self.session_start, resumes=resumed))


class Batch(NamedTuple):
    """The drafts of one submission, and for each draft the number of its entry (None: a start event)."""

    drafts: list[Draft]
    entries: list[int | None]

    def with_data(self, cited: Sequence[Any]) -> Batch:
        """Return the batch with other data in its drafts."""
        drafts = [msgspec.structs.replace(draft, data=data) for draft, data in zip(self.drafts, cited, strict=True)]
        return self._replace(drafts=drafts)

    def located(self, refusal: Refused) -> Refused:
        """Return the refusal with the numbers (from 1) of the entries that caused it."""
        about = [self.entries[event["position"]] for event in refusal.details.get("events", [])]
        if len(self.drafts) == 1:
            about = self.entries[:1]
        numbers = sorted({number for number in about if number is not None})
        if not numbers:
            return refusal
        message = f"entry {numbers[0]}: {refusal.message.partition(': ')[2] or refusal.message}"
        details = {name: value for name, value in refusal.details.items() if name != "events"}
        return Refused(refusal.code, f"{message} (nothing was recorded)", **details | {"entries": numbers})


def target_of(  # noqa: PLR0917 - what a call gives
    ledger: ToolLedger,
    agent: str,
    entries: Sequence[Work],
    session_id: str | None,
    reasoning_id: str | None,
    task: str,
    *,
    seed: str,
) -> Target:
    """Return the session and reasoning for the entries.

    Raises Refused: ``REF_AMBIGUOUS`` if no session is named and several are open, or if an id is the beginning of
    several; ``USAGE`` for a reasoning without an id and a task.
    """
    of_reasoning = [entry for entry in entries if isinstance(entry, OfReasoning)]
    session: tuple[str | None, SessionStarted | None] = (None, None)
    if len(of_reasoning) < len(entries) or session_id is not None:
        session = _session(ledger, agent, session_id, task, seed)
    if not of_reasoning:
        return Target(*session, None, None, 1)
    settled = [entry.step for entry in of_reasoning if isinstance(entry, AssumptionSettled)]
    reasoning, start, following = _reasoning(ledger, agent, reasoning_id, task, session[0], settled)
    return Target(*session, reasoning, start, following)


def plan(entries: Sequence[Work], target: Target, *, corr: str | None, key: str | None) -> Batch:
    """Return the drafts of the start events and then of ``entries``, in order."""
    session, reasoning = f"session/{target.session_id}", f"reasoning/{target.reasoning_id}"
    starts = ((session, target.session_start), (reasoning, target.reasoning_start))
    planned: list[tuple[str, EventData, int | None]] = [(of, data, None) for of, data in starts if data is not None]
    following = target.next_step
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, StepEntry):
            step = entry.step_number or following
            events = entry.events(step)
            if any(isinstance(data, ReasoningExtended) for data in events):
                following = max(following, step + 1)
            planned += [(reasoning, data, number) for data in events]
        elif isinstance(entry, AssumptionSettled):
            planned.append((reasoning, entry, number))
        else:
            planned.append((session, entry, number))
    drafts = [
        Draft(stream=stream, data=data, corr=corr, idem=None if key is None else f"record:{key}:{at}")
        for at, (stream, data, _) in enumerate(planned)
    ]
    return Batch(drafts, [number for _, _, number in planned])


def _session(
    ledger: ToolLedger, agent: str, session_id: str | None, task: str, seed: str
) -> tuple[str, SessionStarted | None]:
    if session_id is not None:
        name = session_id.removeprefix("session/")
        session = _found(ledger, "sessions.show", name, task)
        if session is None and not task.strip():
            raise Refused("NOT_FOUND", f"there is no session {name}: set task to start it", session=name)
        return (name, SessionStarted(task=task, ai_id=agent)) if session is None else (session["id"], None)
    if not task:
        choice = choose_session(ledger.client.view, agent)
        if choice.session_id is not None:
            return choice.session_id, None
        if choice.candidates:
            message = f"{agent} has {choice.total} open sessions: set session_id, or set task to start a new one"
            raise Refused("REF_AMBIGUOUS", message, candidates=[session["id"] for session in choice.candidates])
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{ledger.client.ledger}/{seed}"))
    return name, SessionStarted(task=task, ai_id=agent)


def _reasoning(  # noqa: PLR0917 - as of ``target_of``
    ledger: ToolLedger,
    agent: str,
    reasoning_id: str | None,
    task: str,
    session_id: str | None,
    settled: Sequence[int],
) -> tuple[str, ReasoningStarted | None, int]:
    if reasoning_id is None and not task.strip():
        raise Refused("USAGE", "a reasoning needs a name: set reasoning_id, or set task to start one", field="task")
    name = default_id(task) if reasoning_id is None else reasoning_id.removeprefix("reasoning/")
    reasoning = _found(ledger, "reasoning.show", name, task)
    if reasoning is not None:
        for number in settled:
            check_assumption(reasoning, number)
        return reasoning["id"], None, following_number(reasoning)
    return name, ReasoningStarted(task=task.strip() or name, ai_id=agent, session=session_id or ""), 1


def _found(ledger: ToolLedger, query: str, name: str, task: str) -> dict[str, Any] | None:
    """Return the row with exactly this name; None if the name is new.

    If the name is the beginning of an existing one, it counts as new with a task, and is refused without.
    """
    try:
        row = ledger.ask(query, id=name)
    except Refused as refusal:
        if refusal.code == "NOT_FOUND" or (refusal.code == "REF_AMBIGUOUS" and task.strip()):
            return None
        raise
    if row["id"] == name:
        return row
    if task.strip():
        return None
    message = f"there is no {name}. Did you mean {row['id']}? Send its full id, or set task to start {name}"
    raise Refused("REF_AMBIGUOUS", message, candidates=[row["id"]])
