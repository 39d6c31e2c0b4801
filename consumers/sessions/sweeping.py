"""The edge of a sweep: read what happened in an agent's sessions, decide, and append what is missing.

Only the sessions of the acting agent are swept: nobody else may write to them. What the agent imported is left alone:
it is not his to end or to report on. What cannot be done for one session is
kept with its error, and the others go on. What happens if we crash in between: what was appended stands, and the next
sweep finds the rest. A session that somebody writes to while it is swept is left alone: the end is refused by its
version (``expect``), and it is not idle any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from consumers.sessions.deciding import SWEPT, Seen, decide, last_of_each_phase
from ledger.author import Draft
from ledger.errors import BatonError, Refused
from ledger.events.session import SessionEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.author import Author
    from ledger.client import Ask

    MakesReport = Callable[[str], dict[str, Any]]

_page_rows: Final = 500


class Unmade(NamedTuple):
    """What could not be done for a session."""

    session_id: str
    what: str
    error: BatonError


class Swept(NamedTuple):
    """What a sweep did: ids of the sessions it ended, session and answer of the reports it made, what it could not."""

    ended: list[str]
    reported: list[dict[str, Any]]
    unmade: list[Unmade]
    looked_at: int


def sweep(
    author: Author, answer: Ask, make_report: MakesReport, *, now_ms: int, older_than_ms: int, is_dry: bool = False
) -> Swept:
    """End the author's idle sessions and make the reports that are missing; with ``is_dry`` only say what would be.

    ``make_report`` takes a session's id and returns the answer of making its report.

    Raises:
        Refused: the codes of a query. Unavailable: the views or the server.
    """
    done = Swept([], [], [], 0)
    for seen, version in list(_look(answer, author.name)):
        decision = decide(seen, now_ms=now_ms, older_than_ms=older_than_ms)
        done = done._replace(looked_at=done.looked_at + 1)
        # The report first: it may be about the session's summary, and "swept" says nothing about the work.
        appended = decision.report and _report(make_report, seen.session_id, done, is_dry=is_dry)
        if decision.end:
            _end(author, seen, version + appended, done, is_dry=is_dry)
    return done


def _report(make_report: MakesReport, session_id: str, done: Swept, *, is_dry: bool) -> bool:
    """Return whether an event was appended (or would be): a report that would say the same stands already."""
    try:
        made = {} if is_dry else make_report(session_id)
    except BatonError as error:
        done.unmade.append(Unmade(session_id, "report", error))
        return False
    if made.get("is_repeat"):
        return False
    done.reported.append({"session_id": session_id, **made})
    return True


def _end(author: Author, seen: Seen, version: int, done: Swept, *, is_dry: bool) -> None:
    try:
        if not is_dry:
            data = SessionEnded(summary=SWEPT)
            author.emit(Draft(stream=f"session/{seen.session_id}", data=data, expect=version))
    except Refused as refusal:
        if refusal.code != "STREAM_CONFLICT":
            done.unmade.append(Unmade(seen.session_id, "end", refusal))
        return
    done.ended.append(seen.session_id)


def _look(answer: Ask, agent: str) -> Iterator[tuple[Seen, int]]:
    """Yield the agent's sessions that may need something, each with the version of its stream."""
    reports = _last_by_stream(answer, "report.generated", agent)
    assessments = _last_by_stream(answer, "assessment.recorded", agent)
    for row in _pages(answer, "sessions.list", "sessions", {"author": agent}):
        if row["imported"] is not None:
            continue
        name, is_open = row["id"], row["status"] == "open"
        stream = f"session/{name}"
        report = reports.get(stream)
        is_assessed = assessments.get(stream, -1) > (-1 if report is None else report)
        if not (is_open or is_assessed):
            continue
        # Where nothing was assessed since the report, the phases would change nothing.
        shown = answer("sessions.show", {"id": name})["assessments"] if is_assessed else []
        last_ms, version = _last_event(answer, stream, row["updated_index"]) if is_open else (0, 0)
        yield Seen(name, is_open, last_ms, last_of_each_phase(shown), report), version


def _last_event(answer: Ask, stream: str, index: int) -> tuple[int, int]:
    """Return when the last event was accepted, at ``index`` or since then, and the version of its stream."""
    found = answer("catalog.find", {"stream": stream, "after": index - 1, "limit": _page_rows})
    return found["events"][-1]["accepted_ms"], found["total"]


def _last_by_stream(answer: Ask, kind: str, agent: str) -> dict[str, int]:
    """Return the index of the last event of ``kind`` in each of the agent's streams."""
    rows = _pages(answer, "catalog.find", "events", {"kind": kind, "author": agent})
    return {row["stream"]: row["event_index"] for row in rows}


def _pages(answer: Ask, query: str, of: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list, page by page."""
    after: dict[str, Any] = {}
    while True:
        page = answer(query, {**asked, **after, "limit": _page_rows})
        yield from page[of]
        if page["next"] is None:
            return
        after = {"after": page["next"]}
