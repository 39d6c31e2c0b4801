"""The types of answers about reports."""

from __future__ import annotations

from typing import Annotated

import msgspec

from deedbook.ledger.events.session import Calibration
from deedbook.projections.answers.answer import Answer, Cursor, Index, Marked, Ms, Untrusted
from deedbook.projections.records.marks import Imported
from deedbook.projections.reports.report import ListedReport
from deedbook.projections.sessions.answers import Bias, SessionStatus

Change = Annotated[
    float, msgspec.Meta(description="A change from -1 to 1. Null: the vector was not assessed before and after.")
]


class ReportPage(Answer, frozen=True, kw_only=True):
    """A page of reports, the latest of each session, newest first. ``total_found`` counts all matches."""

    reports: list[ListedReport]
    total_found: int
    next: Cursor


class ReportedSession(Marked, frozen=True, kw_only=True):
    """A session with its latest report, which is null if there is none. ``ai_id`` is its author if it names no agent.

    ``happened_ms`` is the start, or the time that an imported session claims.
    """

    session_id: str
    ai_id: Untrusted
    author: str
    task: Untrusted
    resumes: str
    status: SessionStatus
    started_ms: Ms
    ended_ms: Ms | None
    started_index: Index
    happened_ms: Ms
    imported: Imported | None
    report: ListedReport | None


class ShownReport(ListedReport, frozen=True, kw_only=True):
    """A report with its Markdown and its compressed JSON."""

    markdown: Untrusted
    compressed_json: Untrusted


class VersionLine(Marked, frozen=True, kw_only=True):
    """A version of a session's report."""

    report_id: str
    event_index: Index
    timestamp: str


class Grounds(Answer, frozen=True, kw_only=True):
    """The judgement of others and of later events on sessions, beside the agent's own vectors; ``text`` sums it up.

    ``verified`` of the ``criteria`` that the author ticked are in handoffs that were verified. ``retracted`` of the
    ``findings`` and dead ends were taken back. ``tests`` counts the uses of tools whose names say that they test.
    ``stand`` of the ``reasonings`` passed their newest validation by another agent.
    """

    criteria: int = 0
    verified: int = 0
    findings: int = 0
    retracted: int = 0
    tests: int = 0
    reasonings: int = 0
    stand: int = 0
    text: str


class ReportAnswer(Answer, frozen=True, kw_only=True):
    """A version of a session's report, the lines of all its ``versions``, oldest first, and the session's grounds."""

    report: ShownReport
    versions: list[VersionLine]
    grounds: Grounds


class Accomplishments(Answer, frozen=True, kw_only=True):
    """The tasks, criteria and handoffs that a session's author completed while the session ran."""

    items: list[Untrusted]


class CalibrationPoint(Marked, frozen=True, kw_only=True):
    """A report of an agent: ``dk`` is how much knowledge grew, ``du`` how much uncertainty fell."""

    timestamp: str
    session_id: str
    report_id: str
    dk: Change | None
    du: Change | None
    bias: Bias | None
    status: Calibration
    grounds: Grounds


class AgentCalibration(Answer, frozen=True, kw_only=True):
    """How well an agent judges itself, by its ``total`` reports, of which ``assessed`` have a bias.

    ``points`` are the newest reports, oldest first, and ``grounds`` are those of all these points together. ``counts``
    has the number of reports with each label. ``bias`` is the mean, and ``meaning`` says in a sentence what it means.
    """

    ai_id: Untrusted
    points: list[CalibrationPoint]
    counts: dict[Calibration, int]
    total: int
    assessed: int
    bias: Bias | None
    meaning: str
    grounds: Grounds


class Calibrations(Answer, frozen=True, kw_only=True):
    """How well agents judge themselves, by ``ai_id``. Imported reports do not count: ``imported_left_out`` of them."""

    items: list[AgentCalibration]
    imported_left_out: int
