"""Sessions and reports as plain functions, each on the ledger that the settings name.

Each opens the ledger, does one thing and closes it again. A refusal raises ``ledger.errors.Refused``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import msgspec
from msgspec.structs import asdict

from deedbook.consumers.sdk.files import read_file
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.times import parse_since
from deedbook.consumers.sessions.copies import with_copies, write_files
from deedbook.consumers.sessions.generator import (
    ReportInputs,
    generate,
    identify_filled_gaps,
    inputs_of,
    recommend,
)
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes, report_in
from deedbook.consumers.sessions.query import query_reports
from deedbook.consumers.sessions.report import (
    assess,
    execute_phase,
    publish_report,
    report_at_end,
    start_session,
    with_report,
)
from deedbook.consumers.sessions.report_texts import whole
from deedbook.consumers.sessions.resume import resume
from deedbook.consumers.sessions.settings import FILES_FOLDER, StoredCopy, name_of
from deedbook.ledger.client.author import Draft, now
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.events.session import ReportGenerated, SessionEnded
from deedbook.ledger.format.codec import convert, read_json
from deedbook.ledger.home.location import present_folder
from deedbook.projections.reports.compressed import compressed_of
from deedbook.projections.reports.markdown import with_texts
from deedbook.projections.reports.report import Report, plain, read_report, report_of


class LedgerOptions(TypedDict, total=False):
    """The ledger to open, and the agent that acts in it.

    The default of ``home`` is ``DEEDBOOK_HOME`` or the nearest ``.deedbook``, that of ``agent`` is ``DEEDBOOK_AGENT``;
    ``server`` is the address of a ledger on the bus.
    """

    home: Path | str | None
    agent: str | None
    server: str | None


def bootstrap_session(
    task: str = "",
    *,
    ai_id: str = "",
    session_id: str | None = None,
    resumes: str = "",
    **options: Unpack[LedgerOptions],
) -> str:
    """Start a session and return its id; ``resumes`` is the session that it continues."""
    with Ledger(**options) as ledger:
        return start_session(ledger.author(), task=task, ai_id=ai_id, session_id=session_id, resumes=resumes)


def execute_preflight(session_id: str, prompt: str, **options: Unpack[LedgerOptions]) -> dict[str, Any]:
    """Open PREFLIGHT with the task, and return the ``vectors`` to assess."""
    with Ledger(**options) as ledger:
        return execute_phase(ledger.author(), ledger.client.view, session_id, "PREFLIGHT", prompt)


def submit_preflight_assessment(
    session_id: str,
    vectors: Mapping[str, float],
    reasoning: str = "",
    *,
    overall_confidence: float | None = None,
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Record the vectors before the work: any of the 13, each from 0 to 1; others count as not assessed."""
    with Ledger(**options) as ledger:
        author, ask = ledger.author(), ledger.client.view
        return assess(author, ask, session_id, "PREFLIGHT", vectors, reasoning, overall_confidence)


def execute_postflight(
    session_id: str,
    task_summary: str,
    generate_handoff: bool = True,  # noqa: FBT001, FBT002 - may be given by position
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Open POSTFLIGHT with a summary, and return the ``vectors`` to assess and the ``handoff_report``.

    The summary is recorded first and stays. A report that cannot be made yet is None with a warning.
    """
    with Ledger(**options) as ledger:
        author, ask = ledger.author(), ledger.client.view
        done = execute_phase(author, ask, session_id, "POSTFLIGHT", task_summary)
        inputs = ReportInputs(task_summary=task_summary)
        return with_report(author, ask, ledger.settings, done, inputs) if generate_handoff else done


def submit_postflight_assessment(
    session_id: str,
    vectors: Mapping[str, float],
    reasoning: str = "",
    *,
    overall_confidence: float | None = None,
    generate_handoff: bool = True,
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Record the vectors after the work, and return the record with a report, as ``execute_postflight``."""
    with Ledger(**options) as ledger:
        author, ask = ledger.author(), ledger.client.view
        done = assess(author, ask, session_id, "POSTFLIGHT", vectors, reasoning, overall_confidence)
        return with_report(author, ask, ledger.settings, done, ReportInputs()) if generate_handoff else done


def end_session(session_id: str, summary: str = "", **options: Unpack[LedgerOptions]) -> None:
    """Close a session, and make its report if it has findings and no report."""
    with Ledger(**options) as ledger:
        author = ledger.author()
        author.emit(Draft(stream=f"session/{session_id}", data=SessionEnded(summary=summary)))
        report_at_end(author, ledger.client.view, ledger.settings, session_id)


def generate_handoff_report(  # noqa: PLR0917 - may be given by position
    session_id: str,
    task_summary: str | None = None,
    key_findings: list[str] | None = None,
    remaining_unknowns: list[str] | None = None,
    next_session_context: str | None = None,
    artifacts_created: list[str] | None = None,
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Publish the report of a session, and copy it to the project's git notes and files.

    An argument that is None is derived from the session's events. See ``report.publish_report`` for the answer.
    """
    inputs = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
    with Ledger(**options) as ledger:
        report = publish_report(ledger.author(), ledger.client.view, session_id, inputs)
        return with_copies(ledger.client.view, ledger.settings, report)


def resume_previous_session(
    ai_id: str | None = None,
    resume_mode: str = "last",
    session_id: str | None = None,
    count: int = 1,
    detail_level: str = "summary",
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Return a digest of the last session, the last ``count``, or one by its id (see ``resume.resume``).

    Without ``ai_id`` the acting agent's sessions come first, then all; ``detail_level`` is summary, detailed or full.
    """
    with Ledger(**options) as ledger:
        client = ledger.client
        agent = ledger.settings.agent
        return resume(client.view, client.get_blob, ai_id, resume_mode, session_id, count, detail_level, agent=agent)


def query_handoff_reports(
    ai_id: str | None = None,
    since: str | None = None,
    task_pattern: str | None = None,
    limit: int = 10,
    after: int | None = None,
    **options: Unpack[LedgerOptions],
) -> dict[str, Any]:
    """Return reports by agent, date and task: ``reports``, ``total_found`` and ``next`` (see ``query``)."""
    with Ledger(**options) as ledger:
        return query_reports(ledger.client.view, datetime.now(UTC), ai_id, since, task_pattern, limit, after)


def load_handoff(
    session_id: str,
    format: Literal["json", "markdown"] = "json",  # noqa: A002 - the word that its users know
    **options: Unpack[LedgerOptions],
) -> dict[str, Any] | None:
    """Return a session's latest report from the signed log: the compressed JSON, or ``{"markdown": text}``.

    The Markdown has long texts in full. None if the session has no report. Raises Refused: ``INVALID_FIELD`` for
    another format, ``REF_AMBIGUOUS``.
    """
    if format not in {"json", "markdown"}:
        raise Refused("INVALID_FIELD", "format must be json or markdown", field="format")
    with Ledger(**options) as ledger:
        report = _report_of(ledger, session_id)
    if report is None or format == "markdown":
        return report and {"markdown": report["markdown"]}
    return _object(report["compressed_json"])


def _report_of(ledger: Ledger, session_id: str) -> dict[str, Any] | None:
    answer = or_none(ledger.client.view, "reports.show", {"id": session_id})
    return answer and whole(answer["report"], ledger.client.get_blob)


def _object(content: str | bytes) -> dict[str, Any]:
    return read_json(content, dict[str, Any])


def query_handoffs(
    ai_id: str | None = None, since: str | None = None, limit: int = 10, **options: Unpack[LedgerOptions]
) -> list[dict[str, Any]]:
    """Return the latest report of each session with all its fields, newest first."""
    with Ledger(**options) as ledger:
        since_ms = None if since is None else parse_since(since, datetime.now(UTC))
        page = ledger.ask("reports.list", ai_id=ai_id, since=since_ms, limit=limit)
        return [plain(read_report(report)) for report in page["reports"]]


class DatabaseHandoffStorage:
    """The reports in the ledger that the settings name: storing signs an event, and answers come from the log."""

    query_handoffs = staticmethod(query_handoffs)

    @staticmethod
    def store_handoff(session_id: str, report: Mapping[str, Any]) -> str:
        """Publish a report of a session and return the id of the report's event.

        If there is no session with this id, a new one is started. Only the author's inputs are read from ``report``
        (``ReportInputs``, and ``ai_id`` for a new session); the other fields are derived from the session's events.
        """
        inputs = inputs_of(*(report.get(name) for name in ReportInputs.__struct_fields__))
        with Ledger() as ledger:
            author, ask = ledger.author(), ledger.client.view
            if or_none(ask, "sessions.show", {"id": session_id}) is None:
                start_session(author, task=inputs.task_summary or "", ai_id=report["ai_id"], session_id=session_id)
            return str(publish_report(author, ask, session_id, inputs)["report_id"])

    @staticmethod
    def load_handoff(session_id: str) -> dict[str, Any] | None:
        """Return a session's latest report with all its fields; None if it has none."""
        with Ledger() as ledger:
            return _report_of(ledger, session_id)


class GitHandoffStorage:
    """Reports in the git notes of a repository, by default the present one.

    Anybody who can write there can change them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._notes = Notes(folder or present_folder())

    def store_handoff(self, session_id: str, report: dict[str, Any]) -> str:
        """Write a report's notes unless there are later ones, and return the id of the commit with its JSON."""
        name = name_of(session_id)
        for root, text in ((JSON_NOTES, "compressed_json"), (MARKDOWN_NOTES, "markdown")):
            self._notes.write(root + name, report[text], report_in(report))
        return self._notes.git.ask("rev-parse", JSON_NOTES + name)

    def load_handoff(self, session_id: str, format: Literal["json", "markdown"] = "json") -> dict[str, Any] | None:  # noqa: A002
        """Return the latest note, whatever commit is checked out; None if there is none."""
        content = self._notes.read((MARKDOWN_NOTES if format == "markdown" else JSON_NOTES) + name_of(session_id))
        return None if content is None else {"markdown": content} if format == "markdown" else _object(content)


class MarkdownHandoffStorage:
    """Reports as files for people: ``AI_ID/SESSION_ID.md`` and ``.json`` below a folder."""

    def __init__(self, base_path: Path | str = FILES_FOLDER) -> None:
        self.base_path = Path(base_path)

    def store_handoff(self, session_id: str, report: dict[str, Any]) -> list[StoredCopy]:
        """Write a report's two files unless a person changed them or there is a later report; return each result."""
        return write_files(self.base_path, report | {"session_id": session_id})

    def load_handoff(self, session_id: str, ai_id: str) -> dict[str, Any] | None:
        """Return ``markdown`` and ``compressed`` of a report; None if there is no such file."""
        path = self.base_path / name_of(ai_id) / f"{name_of(session_id)}.md"
        markdown, compact = read_file(path), read_file(path.with_suffix(".json"))
        return None if markdown is None else {"markdown": markdown.decode(), "compressed": _object(compact or b"{}")}


class EpistemicHandoffReportGenerator:
    """Makes reports of the sessions of one ledger without storing them."""

    def __init__(self, ask: Ask | None = None) -> None:
        """Read sessions through ``ask`` (as ``Client.view``), by default from the ledger that the settings name."""
        self._ask = ask

    def generate_handoff_report(  # noqa: PLR0917 - may be given by position
        self,
        session_id: str,
        task_summary: str | None = None,
        key_findings: list[str] | None = None,
        remaining_unknowns: list[str] | None = None,
        next_session_context: str | None = None,
        artifacts_created: list[str] | None = None,
    ) -> dict[str, Any]:
        """Return the report with its ``markdown`` and ``compressed_json``; an argument that is None is derived.

        Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``INVALID_FIELD`` (see ``generator.generate``).
        """
        inputs = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
        if self._ask is None:
            with Ledger() as ledger:
                return _generated(ledger.client.view, session_id, inputs)
        return _generated(self._ask, session_id, inputs)

    @staticmethod
    def _identify_filled_gaps(
        preflight_vectors: Mapping[str, float], postflight_vectors: Mapping[str, float], key_findings: Sequence[str]
    ) -> list[dict[str, Any]]:
        return list(map(asdict, identify_filled_gaps(preflight_vectors, postflight_vectors, key_findings)))

    @staticmethod
    def _generate_recommendations(
        postflight_vectors: Mapping[str, float], remaining_unknowns: Sequence[str], calibration: Mapping[str, str]
    ) -> list[str]:
        return recommend(postflight_vectors, remaining_unknowns, calibration["status"])

    @staticmethod
    def _compress_report(report: Mapping[str, Any]) -> str:
        """Return the compressed JSON of a report, which may lack fields."""
        known = {name: value for name, value in report.items() if name in Report.__struct_fields__}
        empty = report_of("", "", 0, "", 0, ReportGenerated("planning", "unknown", "", [], "not_assessable"))
        return compressed_of(convert(plain(empty) | {"timestamp": ""} | known, Report))


def _generated(ask: Ask, session_id: str, inputs: ReportInputs) -> dict[str, Any]:
    session = ask("sessions.show", {"id": session_id})
    accomplished = ask("reports.accomplished", {"id": session["id"]})["items"]
    report = report_of(session["id"], "", 0, session["author"], 0, generate(session, inputs, accomplished))
    return with_texts(msgspec.structs.replace(report, timestamp=now())).to_dict()
