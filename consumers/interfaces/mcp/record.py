"""The tool that records: sessions and reasoning in one signed submission, all of it or nothing.

With a task, a session or reasoning that does not exist is started in the same submission; without one an unknown
session is refused, as everywhere. A session that is left out is that of ``DEEDBOOK_SESSION``, else that of this
process's call before while it is open, else the one that is meant (``meant_session``); with a task, or when none is
open, a new one. A reasoning that is left out is named by day and task. What begins another's name is not taken for it.

A call that is repeated under its idempotency key adds nothing: what it recorded is found by the correlation that its
events carry, because step numbers would otherwise make the second call another one; new names are made from the call's
seed. What happens if we crash after the submission: the events stand, and the repeated call answers with them; a report
that was still to be made is made by ``deed session sweep``.

A snapshot, a validation, the request for a human and a search of a tree of thoughts are entries, too, each alone in its
call: so the tools stay eight, and `fetch_reasoning` only reads.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pydantic import Field

from deedbook.consumers.interfaces.mcp.answers import Answer, Quoting, Words, fitting
from deedbook.consumers.interfaces.mcp.entries import Alone, AnyEntry, Assessment, SessionEntry, Step, Thoughts
from deedbook.consumers.interfaces.mcp.judgement import judged
from deedbook.consumers.interfaces.mcp.reports import Id
from deedbook.consumers.interfaces.mcp.thoughts import search_thoughts
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger, Tools
from deedbook.consumers.reasoning.validator.evidence import cite
from deedbook.consumers.sdk.quotation import untrusted_text
from deedbook.consumers.sdk.text import default_id, json_text
from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.open_sessions import meant_session
from deedbook.consumers.sessions.report import with_report
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Author, Draft, kind_of
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.reasoning import ReasoningExtended, ReasoningStarted
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.home.environment import present_session, wants_traceback
from deedbook.projections.answers.checked import ask

_log: Final = logging.getLogger(__name__)

entries_max: Final = 100
plans_max: Final = 4
warnings_max: Final = 8
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
    first_index: int | None
    last_index: int | None
    is_repeat: Annotated[bool, Field(description="The call was made before under this key; nothing was added.")]
    report_id: Annotated[str | None, Field(description="The report that a POSTFLIGHT assessment made.")]
    dead_ends: Annotated[list[Words], Field(description="What failed in sessions with a similar task.")]
    warnings: list[str]


class RecordTool(Tools):
    """The tool that records sessions and reasoning."""

    _session: str | None = None
    """That of the call before."""

    def record_reasoning(
        self,
        entries: Annotated[list[AnyEntry], Field(min_length=1, max_length=entries_max)],
        session_id: Annotated[
            Id | None,
            Field(description="Default: a new session if `task` is given or none is open, else the one you are in."),
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
        of_work = [entry for entry in entries if not isinstance(entry, Alone | Thoughts)]
        for one in entries:
            if isinstance(one, Alone | Thoughts):
                if len(entries) > 1 or idempotency_key is not None:
                    raise Refused("USAGE", f"a {one.type} stands alone in its call, without a key", field="entries")
                if isinstance(one, Thoughts):
                    return self._answer([], None, is_repeat=False, judgement=search_thoughts(self._ledger, one))
                judgement = judged(author, self._ledger, one, session_id, task)
                return self._answer([], None, is_repeat=False, judgement=judgement)
        asked = {
            "entries": [entry.model_dump(mode="json") for entry in entries],
            "session_id": session_id,
            "reasoning_id": reasoning_id,
            "task": task,
        }
        digest = sha256(json_text([author.name, idempotency_key, asked]).encode()).hexdigest()[:_digest_digits]
        corr = None if idempotency_key is None else f"record:{digest}"
        if corr is not None and (earlier := self._earlier(author, corr)):
            return self._answer(earlier, self._report(author, entries, earlier), is_repeat=True)
        seed = corr or str(uuid.uuid4())

        warnings: list[str] = []

        def planned() -> Batch:
            is_left_out = session_id is None and not task and not all(isinstance(one, Step) for one in of_work)
            meant = present_session() or self._still_open() if is_left_out else session_id
            place = place_of(self._ledger, author.name, of_work, meant, reasoning_id, task, seed=seed)
            batch = plan(of_work, place, corr=corr, key=idempotency_key)
            cited, warnings[:] = cite([draft.data for draft in batch.drafts], partial(ask, self._ledger.client))
            drafts = [msgspec.structs.replace(one, data=data) for one, data in zip(batch.drafts, cited, strict=True)]
            return batch._replace(drafts=drafts)

        batch = planned()
        dead_ends = self._failed_before(batch)
        try:
            batch, accepted = emit_planned(author, batch, planned)
        except Refused as refusal:
            # Another call under the same key may have been first: then its events are the answer.
            if refusal.code in _AGAIN and corr is not None and (earlier := self._earlier(author, corr)):
                return self._answer(earlier, self._report(author, entries, earlier), is_repeat=True)
            raise
        # Told from the drafts: nothing that could fail is asked once the events stand.
        events = [
            event_dict(kind_of(draft), draft.stream, one.index, one.id, draft.data)
            for draft, one in zip(batch.drafts, accepted, strict=True)
        ]
        report = self._report(author, entries, events)
        is_repeat = any(one.is_repeat for one in accepted)
        return self._answer(events, report, dead_ends=dead_ends, is_repeat=is_repeat, warnings=warnings)

    def _still_open(self) -> str | None:
        """Return the session of this process's call before, if it is still open."""
        name = self._session
        return name if name and self._ledger.ask("sessions.show", id=name)["status"] == "open" else None

    def _earlier(self, author: Author, corr: str) -> list[dict[str, Any]]:
        rows = self._ledger.ask("catalog.find", corr=corr, author=author.name, limit=500)["events"]
        client = self._ledger.client
        events = [read_event(row["event_index"], client.entry(row["event_index"])) for row in rows]
        return [event_dict(one.kind, one.stream, one.index, one.id, one.data) for one in events]

    def _failed_before(self, batch: Batch) -> list[dict[str, Any]]:
        """Return dead ends of sessions like the one that is started; asked before anything is signed."""
        first: EventData | dict[str, Any] = batch.drafts[0].data
        if not isinstance(first, SessionStarted) or not first.task.strip():
            return []
        dead_ends = self._ledger.ask("search.related", task=first.task, limit=_dead_ends_max)["dead_ends"]
        names = ("approach", "why_failed", "session_id")
        return [
            untrusted_text(one["author"], one["happened_ms"], {name: one[name] for name in names}) for one in dead_ends
        ]

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
            warning = f"POSTFLIGHT is recorded, but there is no report of it: {type(failure).__name__}"
            return {"handoff_report": None, "warnings": [f"{warning}; `deed session sweep` makes it again"]}

    def _answer(
        self,
        events: list[dict[str, Any]],
        report: dict[str, Any] | None,
        *,
        is_repeat: bool,
        dead_ends: list[dict[str, Any]] | None = None,
        judgement: dict[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> RecordedAll:
        streams = [one["stream"].partition("/") for one in events]
        made = {} if report is None else report.get("handoff_report") or {}
        rows = [{name: value for name, value in one.items() if name != "stream"} for one in events]
        session = next((name for sort, _, name in streams if sort == "session"), None)
        self._session = session or self._session
        answer: dict[str, Any] = {
            "session_id": session,
            "reasoning_id": next((name for sort, _, name in streams if sort == "reasoning"), None),
            "events": [],
            "first_index": events[0]["event_index"] if events else None,
            "last_index": events[-1]["event_index"] if events else None,
            "is_repeat": is_repeat,
            "report_id": made.get("report_id"),
            "dead_ends": dead_ends or [],
            "others": self._ledger.others(),
            "warnings": [*warnings[:warnings_max], *([] if report is None else report["warnings"])],
        }
        if answer["dead_ends"] and fitting(answer["dead_ends"], answer | {"dead_ends": []}) < len(answer["dead_ends"]):
            answer["dead_ends"] = []
            answer["warnings"].append("dead ends of similar tasks are left out: resume_previous_session names them")
        kept = fitting(rows, answer)
        more = {"events_left_out": len(rows) - kept} if kept < len(rows) else {}
        return RecordedAll.model_validate(answer | {"events": rows[:kept]} | more | (judgement or {}))


def emit_planned(author: Author, batch: Batch, planned: Callable[[], Batch]) -> tuple[Batch, list[Accepted]]:
    """Return what was emitted and accepted: the batch, or a new plan where another call was first with what it needs.

    Calls at the same time plan the same step numbers, or start the same session: the later one is planned again.
    """
    for left in reversed(range(plans_max)):
        try:
            return batch, author.emit(*batch.drafts)
        except Refused as refusal:
            again = planned() if left else batch
            # Without a key, calls that start one session in the same millisecond sign the same event: no repetition.
            is_repeated = refusal.code in _AGAIN and any(draft.idem for draft in batch.drafts)
            if is_repeated or again.drafts == batch.drafts:
                raise batch.located(refusal) from refusal
            batch = again
    raise AssertionError("the last plan is accepted or refused")


def event_dict(kind: str, stream: str, index: int, event_id: str, data: Any) -> dict[str, Any]:
    """Return a recorded event as the answer names it, with the number of the step that it added."""
    row = {"kind": kind, "stream": stream, "event_index": index, "event_id": event_id}
    if isinstance(data, ReasoningExtended) and data.steps:
        row["step"] = data.steps[0].step_number
    return row


class Place(NamedTuple):
    """The session and reasoning that entries go to; what starts them is None where they exist."""

    session_id: str | None
    session_start: SessionStarted | None
    reasoning_id: str | None
    reasoning_start: ReasoningStarted | None
    next_step: int


class Batch(NamedTuple):
    """The drafts of one submission, and of each the entry that it comes from (None: a start)."""

    drafts: list[Draft]
    entries: list[int | None]

    def located(self, refusal: Refused) -> Refused:
        """Return the refusal with the numbers, from 1, of the entries that it is about."""
        about = [self.entries[one["position"]] for one in refusal.details.get("events", [])]
        if len(self.drafts) == 1:
            about = self.entries[:1]
        numbers = sorted({number for number in about if number is not None})
        if not numbers:
            return refusal
        message = f"entry {numbers[0]}: {refusal.message.partition(': ')[2] or refusal.message}"
        details = {name: value for name, value in refusal.details.items() if name != "events"}
        return Refused(refusal.code, f"{message} (nothing was recorded)", **details | {"entries": numbers})


def place_of(  # noqa: PLR0917 - what a call gives
    ledger: ToolLedger,
    agent: str,
    entries: Sequence[SessionEntry | Step],
    session_id: str | None,
    reasoning_id: str | None,
    task: str,
    *,
    seed: str,
) -> Place:
    """Return where entries go.

    Raises Refused: ``REF_AMBIGUOUS`` when no session is named and several are open, or a beginning of an id fits
    several; ``USAGE`` for a reasoning without id and task.
    """
    of_reasoning = [entry for entry in entries if isinstance(entry, Step)]
    session: tuple[str | None, SessionStarted | None] = (None, None)
    if len(of_reasoning) < len(entries) or session_id is not None:
        session = _session(ledger, agent, session_id, task, seed)
    if not of_reasoning:
        return Place(*session, None, None, 1)
    reasoning, start, following = _reasoning(ledger, agent, reasoning_id, task, session[0])
    return Place(*session, reasoning, start, following)


def plan(entries: Sequence[SessionEntry | Step], place: Place, *, corr: str | None, key: str | None) -> Batch:
    """Return the drafts that record ``entries``, in their order, behind what starts their streams."""
    session, reasoning = f"session/{place.session_id}", f"reasoning/{place.reasoning_id}"
    starts = ((session, place.session_start), (reasoning, place.reasoning_start))
    planned: list[tuple[str, EventData, int | None]] = [(of, data, None) for of, data in starts if data is not None]
    following = place.next_step
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, Step):
            step = entry.step or following
            following = max(following, step + 1)
            planned += [(reasoning, data, number) for data in entry.events(step)]
        else:
            planned.append((session, entry.event(), number))
    drafts = [
        Draft(stream=stream, data=data, corr=corr, idem=None if key is None else f"record:{key}:{at}")
        for at, (stream, data, _) in enumerate(planned)
    ]
    return Batch(drafts, [number for _, _, number in planned])


def _session(
    ledger: ToolLedger, agent: str, given: str | None, task: str, seed: str
) -> tuple[str, SessionStarted | None]:
    if given is not None:
        name = given.removeprefix("session/")
        session = _found(ledger, "sessions.show", name, task)
        if session is None and not task.strip():
            raise Refused("NOT_FOUND", f"there is no session {name}: give a task to start it", session=name)
        return (name, SessionStarted(task=task, ai_id=agent)) if session is None else (session["id"], None)
    if not task:
        meant = meant_session(ledger.client.view, agent)
        if meant.session_id is not None:
            return meant.session_id, None
        if meant.candidates:
            message = f"{agent} has {meant.total} open sessions: give session_id, or a task to start a new one"
            raise Refused("REF_AMBIGUOUS", message, candidates=[session["id"] for session in meant.candidates])
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{ledger.client.ledger}/{seed}"))
    return name, SessionStarted(task=task, ai_id=agent)


def _reasoning(
    ledger: ToolLedger, agent: str, given: str | None, task: str, session_id: str | None
) -> tuple[str, ReasoningStarted | None, int]:
    if given is None and not task.strip():
        raise Refused("USAGE", "a reasoning needs a name: give reasoning_id, or a task to start one", field="task")
    name = default_id(task) if given is None else given.removeprefix("reasoning/")
    reasoning = _found(ledger, "reasoning.show", name, task)
    if reasoning is not None:
        numbers = [one["step_number"] for one in reasoning["memory"]["steps"]]
        return reasoning["id"], None, max(numbers, default=0) + 1
    return name, ReasoningStarted(task=task.strip() or name, ai_id=agent, session=session_id or ""), 1


def _found(ledger: ToolLedger, query: str, name: str, task: str) -> dict[str, Any] | None:
    """Return what has exactly this name, or None; a name that another's begins with needs a task to be a new one."""
    try:
        shown = ledger.ask(query, id=name)
    except Refused as refusal:
        if refusal.code == "NOT_FOUND" or (refusal.code == "REF_AMBIGUOUS" and task.strip()):
            return None
        raise
    if shown["id"] == name:
        return shown
    if task.strip():
        return None
    message = f"there is no {name}, and {shown['id']} may be meant: give its whole id, or a task to start {name}"
    raise Refused("REF_AMBIGUOUS", message, candidates=[shown["id"]])
