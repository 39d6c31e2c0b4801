"""Storing one report in every store of a project, and loading it from whichever has it (seed 004, "Storage Layer").

A store that cannot be written is told, never raised: the report is an event of the log already, and ``repair`` writes
it when the store can be written again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from consumers.sessions.stores.files import read_files, write_files
from consumers.sessions.stores.names import name_of
from consumers.sessions.stores.notes import JSON_NOTES, MARKDOWN_NOTES, Notes, report_in
from consumers.sessions.stores.stored import Stored
from ledger.errors import BatonError, Corrupted, Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from consumers.sessions.stores.project import Project

Format = Literal["json", "markdown"]


def store_report(report: dict[str, Any], project: Project, known: Collection[str] | None = None) -> list[Stored]:
    """Write a report (``reports.show``'s, with ``markdown`` and ``compressed_json``) to the project's stores.

    The first is the note with the JSON, whose ``location`` is the seed's ``storage_location``; a store that is left out
    or fails as a whole has none. ``known`` are the ids of
    all versions of the report, if they are at hand (``Notes.write``).

    Raises:
        Refused: ``INVALID_FIELD`` when ``report`` has no session or no text.
    """
    for field in ("session_id", "markdown", "compressed_json"):
        if not isinstance(report.get(field), str):
            raise Refused("INVALID_FIELD", f"a report to store has a text {field}", path=f"$.{field}")
    stored = _store_notes(report, project, known)
    if project.files is None:
        return [*stored, Stored("files", "", "skipped", project.no_files)]
    return stored + write_files(project.files, report)


def load_handoff(session_id: str, format: Format, project: Project) -> dict[str, Any] | None:  # noqa: A002 - the seed's word
    """Return a session's report from git notes, else from files: the JSON itself, or ``{"markdown": text}``.

    None when neither has it. What is read is what a store holds, which anybody may have changed: ``reports.show``
    answers from the signed log (seed 004, ``load_handoff``).

    Raises:
        Corrupted: ``CORRUPTED`` when the JSON is none. Refused: ``TOO_LARGE``. Unavailable: the last store failed.
    """
    text: str | None = None
    problem: BatonError | None = None
    if project.git is not None:
        root = MARKDOWN_NOTES if format == "markdown" else JSON_NOTES
        try:
            text = Notes(project.git).read(root + name_of(session_id))
        except BatonError as error:
            problem = error
    if text is None and project.files is not None:
        text = read_files(project.files, session_id)[format == "markdown"]
    if text is None:
        if problem is not None and problem.code != "NOT_FOUND":
            raise problem
        return None
    return {"markdown": text} if format == "markdown" else _parsed(text, session_id)


def _store_notes(report: dict[str, Any], project: Project, known: Collection[str] | None) -> list[Stored]:
    if project.git is None:
        return [Stored("git_notes", "", "skipped", project.no_git)]
    name, version = name_of(report["session_id"]), report_in(report)
    contents = {JSON_NOTES + name: report["compressed_json"], MARKDOWN_NOTES + name: report["markdown"]}
    try:
        notes = Notes(project.git)
        notes.check()
    except BatonError as error:
        status: Literal["skipped", "failed"] = (
            "skipped" if error.code == "NOT_FOUND" and not project.is_git_sure else "failed"
        )
        return [Stored("git_notes", "", status, error.message)]
    stored = []
    for ref, content in contents.items():
        try:
            written = notes.write(ref, content, version, known)
            stored.append(Stored("git_notes", f"git:{ref}", written.status, written.reason))
        except BatonError as error:
            stored.append(Stored("git_notes", f"git:{ref}", "failed", error.message))
    return stored


def _parsed(text: str, session_id: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Corrupted("CORRUPTED", f"the stored report of session {session_id} is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Corrupted("CORRUPTED", f"the stored report of session {session_id} is no JSON object")
    return parsed
