"""Where entries belong and the drafts they become: which session and reasoning, started now or going on.

A session that is left out is that of ``BATON_SESSION``, or the acting agent's only open one; with a task, or when none
is open, a new one. A reasoning that is left out is named by day and task. New names are made from the call's seed, so
that a second call under the same idempotency key makes the same ones. What begins another's name is not taken for it:
what is recorded stays where it was recorded.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from consumers.doors.mcp.entries import SessionEntry, Step
from consumers.doors.mcp.tool_ledger import ToolLedger
from consumers.sdk.names import default_id
from consumers.sessions.open_sessions import meant_session
from ledger.author import Draft
from ledger.config import present_session
from ledger.errors import Refused
from ledger.events.fields import EventData
from ledger.events.reasoning import ReasoningStarted
from ledger.events.session import SessionStarted


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
        said = f"entry {numbers[0]}: {refusal.message.partition(': ')[2] or refusal.message}"
        details = {name: value for name, value in refusal.details.items() if name != "events"}
        return Refused(refusal.code, f"{said} (nothing was recorded)", **details | {"entries": numbers})


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

    Raises:
        Refused: ``REF_AMBIGUOUS`` when no session is named and several are open, or a beginning of an id fits several;
            ``USAGE`` for a reasoning without id and task.
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
    planned: list[tuple[str, EventData, int | None]] = []
    session, reasoning = f"session/{place.session_id}", f"reasoning/{place.reasoning_id}"
    if place.session_start is not None:
        planned.append((session, place.session_start, None))
    if place.reasoning_start is not None:
        planned.append((reasoning, place.reasoning_start, None))
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
    named = given or (None if task else present_session())
    if named is not None:
        name = named.removeprefix("session/")
        found = _found(ledger, "sessions.show", name, task)
        return (name, SessionStarted(task=task, ai_id=agent)) if found is None else (found["id"], None)
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
    found = _found(ledger, "reasoning.show", name, task)
    if found is not None:
        numbers = [one["step_number"] for one in found["memory"]["steps"]]
        return found["id"], None, max(numbers, default=0) + 1
    return name, ReasoningStarted(task=task.strip() or name, ai_id=agent, session=session_id or ""), 1


def _found(ledger: ToolLedger, query: str, name: str, task: str) -> dict[str, Any] | None:
    """Return what has exactly this name, or None; a name that another's begins with needs a task to be a new one."""
    try:
        found = ledger.ask(query, id=name)
    except Refused as refusal:
        if refusal.code == "NOT_FOUND" or (refusal.code == "REF_AMBIGUOUS" and task.strip()):
            return None
        raise
    if found["id"] == name:
        return found
    if task.strip():
        return None
    said = f"there is no {name}, and {found['id']} may be meant: give its whole id, or a task to start {name}"
    raise Refused("REF_AMBIGUOUS", said, candidates=[found["id"]])
