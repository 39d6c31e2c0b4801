"""The types of answers about reports."""

from __future__ import annotations

from typing import Annotated

import msgspec

from deedbook.ledger.events.brief import Level
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

    ``happened_ms`` is the start, or the time that an imported session claims, 0 if it claims none.
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
    """A report of an agent: ``dk`` is how much knowledge grew, ``du`` how much uncertainty fell.

    ``imported`` is null, or the origin of a report whose vectors are claims.
    """

    timestamp: str
    session_id: str
    report_id: str
    dk: Change | None
    du: Change | None
    bias: Bias | None
    status: Calibration
    imported: Imported | None
    grounds: Grounds


class AgentCalibration(Answer, frozen=True, kw_only=True):
    """How well an agent judges itself, by its ``total`` reports: ``assessed`` have a bias, ``claimed`` are imported.

    ``points`` are the newest reports, oldest first, and ``grounds`` is the judgement of others on all of them together.
    ``counts`` has the number of reports with each label. ``bias`` is the mean, and ``meaning`` says in a sentence what
    it means.
    """

    ai_id: Untrusted
    points: list[CalibrationPoint]
    counts: dict[Calibration, int]
    total: int
    assessed: int
    claimed: int
    bias: Bias | None
    meaning: str
    grounds: Grounds


class Calibrations(Answer, frozen=True, kw_only=True):
    """How well agents judge themselves, by ``ai_id``."""

    items: list[AgentCalibration]


class Figure(Answer, frozen=True, kw_only=True):
    """How many values there are, their mean, median and maximum."""

    count: int
    mean: float
    median: float
    max: float


class TransferMetrics(Answer, frozen=True, kw_only=True):
    """The tokens of transfers, those of the whole graphs, and the share that was ``saved``; ``target`` is in tokens."""

    transferred: Figure | None
    full: Figure | None
    saved: float | None
    target: int | None


class TokenMetrics(Answer, frozen=True, kw_only=True):
    """The tokens of published briefs by level, of snapshots with a reasoning, and of compressed reports."""

    briefs: dict[Level, TransferMetrics]
    snapshots: TransferMetrics
    reports: TransferMetrics


class FidelityMetrics(Answer, frozen=True, kw_only=True):
    """The measured fidelity of published briefs, and the share of key facts that they hold, from 0 to 1."""

    fidelity: Figure | None
    target: float | None
    coverage: Figure | None
    coverage_target: float


class TimeMetrics(Answer, frozen=True, kw_only=True):
    """Seconds by the ledger's clock.

    ``pause_s``: from the end of a session (or its last event) to the start of the one that resumes it.
    ``until_ready_s``: from that start to its first record. ``until_claimed_s``: from a handoff's approval to its claim.
    """

    pause_s: Figure | None
    until_ready_s: Figure | None
    until_claimed_s: Figure | None


class QuestionMetrics(Answer, frozen=True, kw_only=True):
    """How many questions came up: the unknowns of a session that resumes another, and of all other sessions.

    ``completed_handoffs``: the unknowns and reviews of the receiver between the claim and the completion.
    """

    resumed_sessions: Figure | None
    other_sessions: Figure | None
    completed_handoffs: Figure | None


class Metrics(Answer, frozen=True, kw_only=True):
    """The success metrics of this ledger, counted from its events. Null: there was nothing to count.

    Of briefs, snapshots and reports the newest 100 count. ``tokenizer`` counted the reports; ``exact`` is false if it
    is an upper bound.
    """

    tokens: TokenMetrics
    fidelity: dict[Level, FidelityMetrics]
    time: TimeMetrics
    questions: QuestionMetrics
    tokenizer: str
    exact: bool
