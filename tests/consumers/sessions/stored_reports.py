"""Reports in the stores beside the log. Only tests read them; Deedbook itself answers from the signed log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from deedbook.consumers.sdk.files import read_file
from deedbook.consumers.sessions.copies import _LAST_LINE
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from deedbook.consumers.sessions.settings import Project, name_of
from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable

Format = Literal["json", "markdown"]


def load_handoff(session_id: str, format: Format, project: Project) -> dict[str, Any] | None:  # noqa: A002 - as in the API
    """Return a session's report from git notes, else from files: the JSON itself, or ``{"markdown": text}``.

    None if neither has it. Anybody may have changed the content of a store; ``reports.show`` answers from the signed
    log.

    Raises:
        Corrupted: ``CORRUPTED`` if the JSON is invalid. Refused: ``TOO_LARGE``. Unavailable: the last store failed.
    """
    text: str | None = None
    problem: DeedbookError | None = None
    if project.git is not None:
        root = MARKDOWN_NOTES if format == "markdown" else JSON_NOTES
        try:
            text = Notes(project.git).read(root + name_of(session_id))
        except DeedbookError as error:
            problem = error
    if text is None and project.files is not None:
        text = read_files(project.files, session_id)[format == "markdown"]
    if text is None:
        if problem is not None and problem.code != "NOT_FOUND":
            raise problem
        return None
    return {"markdown": text} if format == "markdown" else _parsed(text, session_id)


def _parsed(text: str, session_id: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Corrupted("CORRUPTED", f"the stored report of session {session_id} is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Corrupted("CORRUPTED", f"the stored report of session {session_id} is no JSON object")
    return parsed


def read_files(root: Path, session_id: str) -> tuple[str | None, str | None]:
    """Return a session's JSON and markdown from the first agent's folder that has them; None for a missing file.

    Raises:
    Refused: ``TOO_LARGE``, ``INVALID_FORMAT`` for a file that is not regular. Unavailable: a file cannot be read.
    """
    name = name_of(session_id)
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except FileNotFoundError:
        folders = []
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{root} cannot be read: {error.strerror}", path=str(root)) from error
    for folder in folders:
        compact, markdown = read_file(folder / f"{name}.json"), read_file(folder / f"{name}.md")
        if compact is not None or markdown is not None:
            text = None if markdown is None else _LAST_LINE.sub(b"\n", markdown).decode("utf-8", "replace")
            return None if compact is None else compact.decode("utf-8", "replace"), text
    return None, None
