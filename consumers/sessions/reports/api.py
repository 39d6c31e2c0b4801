"""The seed's functions by their names, on the ledger that the settings name (seed 004, "CLI Integration").

Each opens the ledger (``BATON_HOME`` or the nearest ``.baton``; ``home`` names another, ``server`` asks one on the
bus), does one thing and closes it again. Who signs is ``agent``, else ``BATON_AGENT``. What is refused raises
``ledger.errors.Refused`` with the codes of ``proto/errors.json``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from consumers.sessions.reports.generator import inputs_of
from consumers.sessions.reports.mirroring import mirrored, reported
from consumers.sessions.reports.opening import open_ledger
from consumers.sessions.reports.publishing import publish_report
from consumers.sessions.reports.querying import query_reports
from consumers.sessions.reports.resuming import resume
from consumers.sessions.reports.since import parse_since
from consumers.sessions.reports.sources import whole
from consumers.sessions.reports.workflow import assess, execute_phase, start_session
from ledger.errors import Refused
from projections.reports.report import plain, read_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def bootstrap_session(
    task: str = "",
    *,
    ai_id: str = "",
    session_id: str | None = None,
    resumes: str = "",
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> str:
    """Start a session and return its id; ``resumes`` names the session that it goes on with."""
    with open_ledger(home, agent=agent, server=server) as opened:
        return start_session(opened.author(), task=task, ai_id=ai_id, session_id=session_id, resumes=resumes)


def execute_preflight(
    session_id: str,
    prompt: str,
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Open PREFLIGHT with what is to be done, and return the ``vectors`` to assess."""
    with open_ledger(home, agent=agent, server=server) as opened:
        return execute_phase(opened.author(), opened.answer, session_id, "PREFLIGHT", prompt)


def submit_preflight_assessment(
    session_id: str,
    vectors: Mapping[str, float],
    reasoning: str = "",
    *,
    overall_confidence: float | None = None,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Record the vectors before the work: any of the 13, each from 0 to 1; those left out were not assessed."""
    with open_ledger(home, agent=agent, server=server) as opened:
        return assess(
            opened.author(),
            opened.answer,
            session_id,
            "PREFLIGHT",
            vectors,
            reasoning=reasoning,
            overall_confidence=overall_confidence,
        )


def execute_postflight(
    session_id: str,
    task_summary: str,
    generate_handoff: bool = True,  # noqa: FBT001, FBT002 - the seed's signature
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Open POSTFLIGHT with what was done, and return the ``vectors`` to assess and the ``handoff_report``.

    The words are recorded first and stand. A report that cannot be made yet is None with a warning.
    """
    with open_ledger(home, agent=agent, server=server) as opened:
        done = execute_phase(opened.author(), opened.answer, session_id, "POSTFLIGHT", task_summary)
        given = inputs_of(task_summary, None, None, None, None)
        return reported(opened.author(), opened.answer, opened.settings, done, given) if generate_handoff else done


def submit_postflight_assessment(
    session_id: str,
    vectors: Mapping[str, float],
    reasoning: str = "",
    *,
    overall_confidence: float | None = None,
    generate_handoff: bool = True,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Record the vectors after the work, and return with them the ``handoff_report`` that they belong to.

    The assessment is committed first and stands. A report that cannot be made is None with a warning.
    """
    with open_ledger(home, agent=agent, server=server) as opened:
        done = assess(
            opened.author(),
            opened.answer,
            session_id,
            "POSTFLIGHT",
            vectors,
            reasoning=reasoning,
            overall_confidence=overall_confidence,
        )
        given = inputs_of(None, None, None, None, None)
        return reported(opened.author(), opened.answer, opened.settings, done, given) if generate_handoff else done


def generate_handoff_report(  # noqa: PLR0917 - the seed's signature
    session_id: str,
    task_summary: str | None = None,
    key_findings: list[str] | None = None,
    remaining_unknowns: list[str] | None = None,
    next_session_context: str | None = None,
    artifacts_created: list[str] | None = None,
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Publish the report of a session, store it in the project's git notes and files, and return the seed's answer.

    What is None is derived from the session's events. See ``publishing.publish_report`` for the answer.
    """
    given = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
    with open_ledger(home, agent=agent, server=server) as opened:
        made = publish_report(opened.author(), opened.answer, session_id, given)
        return mirrored(opened.answer, opened.settings, made)


def resume_previous_session(
    ai_id: str | None = None,
    resume_mode: str = "last",
    session_id: str | None = None,
    count: int = 1,
    detail_level: str = "summary",
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Return what to read of the last session, the last ``count``, or one by its id (see ``resuming.resume``).

    Without ``ai_id`` of all agents; ``detail_level`` is summary, detailed or full.
    """
    with open_ledger(home, agent=agent, server=server) as opened:
        return resume(
            opened.answer,
            opened.client.get_blob,
            ai_id=ai_id,
            resume_mode=resume_mode,
            session_id=session_id,
            count=count,
            detail_level=detail_level,
        )


def query_handoff_reports(
    ai_id: str | None = None,
    since: str | None = None,
    task_pattern: str | None = None,
    limit: int = 10,
    cursor: int | None = None,
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Return reports by agent, date and task: ``reports``, ``total_found`` and ``next`` (see ``querying``)."""
    with open_ledger(home, agent=agent, server=server) as opened:
        return query_reports(
            opened.answer,
            datetime.now(UTC),
            ai_id=ai_id,
            since=since,
            task_pattern=task_pattern,
            limit=limit,
            cursor=cursor,
        )


def load_handoff(
    session_id: str,
    format: Literal["json", "markdown"] = "json",  # noqa: A002 - the seed's word
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> dict[str, Any] | None:
    """Return a session's latest report out of the signed log: the compressed JSON, or ``{"markdown": text}``.

    Long texts are whole in the Markdown. None when the session has no report, as in the seed.

    Raises:
        Refused: ``INVALID_FIELD`` for another format, ``REF_AMBIGUOUS``.
    """
    if format not in {"json", "markdown"}:
        raise Refused("INVALID_FIELD", f"format is json or markdown, not {format!r}", field="format")
    with open_ledger(home, agent=agent, server=server) as opened:
        try:
            fields = opened.answer("reports.show", {"id": session_id})["report"]
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
            return None
        report = whole(fields, opened.client.get_blob)
    if format == "markdown":
        return {"markdown": report["markdown"]}
    loaded: dict[str, Any] = msgspec.json.decode(report["compressed_json"])
    return loaded


def query_handoffs(
    ai_id: str | None = None,
    since: str | None = None,
    limit: int = 10,
    *,
    home: Path | str | None = None,
    agent: str | None = None,
    server: str | None = None,
) -> list[dict[str, Any]]:
    """Return the latest report of each session with all its fields, newest first (seed: ``DatabaseHandoffStorage``)."""
    with open_ledger(home, agent=agent, server=server) as opened:
        asked = {
            "ai_id": ai_id,
            "since_ms": None if since is None else parse_since(since, datetime.now(UTC)),
            "limit": limit,
        }
        found = opened.answer("reports.list", {name: value for name, value in asked.items() if value is not None})
        return [plain(read_report(report)) for report in found["reports"]]
