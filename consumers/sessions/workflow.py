"""A session from its start to its report, each step signed by its author.

PREFLIGHT and POSTFLIGHT are *executed* with words (what is to be done, what was done) and then *assessed* with vectors.
Executing records the words as an assessment without vectors, so that they are in the ledger whatever happens next.

A POSTFLIGHT is committed first and stands; a report of it that fails is a warning in the answer, never an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from consumers.sessions.copies import with_copies
from consumers.sessions.generator import ReportInputs
from consumers.sessions.report import publish_report
from ledger.author import Author, Draft
from ledger.client import Ask
from ledger.codec import converted
from ledger.config import Settings
from ledger.errors import BatonError, Refused
from ledger.events.session import AssessmentRecorded, Phase, SessionStarted, Vectors
from projections.snapshots.vectors import VECTOR_NAMES, read_vectors

_id_bytes: Final = 8


def start_session(
    author: Author, *, task: str = "", ai_id: str = "", session_id: str | None = None, resumes: str = ""
) -> str:
    """Start a session and return its id.

    Raises:
        Refused: ``TRANSITION_NOT_ALLOWED`` when a session of this id was started already.
    """
    name = session_id or secrets.token_hex(_id_bytes)
    author.emit(Draft(stream=f"session/{name}", data=SessionStarted(task=task, ai_id=ai_id, resumes=resumes)))
    return name


def execute_phase(author: Author, ask: Ask, session_id: str, phase: Phase, words: str) -> dict[str, Any]:
    """Record the words that open a phase, and return which vectors are to be assessed.

    Raises:
        Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``INVALID_FIELD`` without a word; ``TRANSITION_NOT_ALLOWED`` after
            the session's end, ``NOT_AUTHORIZED`` in another agent's.
    """
    if not words.strip():
        raise Refused("INVALID_FIELD", f"{phase} begins with what it is about: give a sentence", field="task_summary")
    name = ask("sessions.show", {"id": session_id})["id"]
    return _recorded(author, name, AssessmentRecorded(phase=phase, vectors=Vectors(), reasoning=words)) | {
        "vectors": list(VECTOR_NAMES),
        "next": f"submit_{phase.lower()}_assessment(session_id, vectors, reasoning)",
    }


def assess(  # noqa: PLR0917 - in the order that the API gives them
    author: Author,
    ask: Ask,
    session_id: str,
    phase: Phase,
    vectors: Mapping[str, Any],
    reasoning: str = "",
    overall_confidence: float | None = None,
) -> dict[str, Any]:
    """Record an assessment; vectors are named in any case, and those left out were not assessed.

    Raises:
        Refused: ``INVALID_FIELD`` for a vector that is none, or no number from 0 to 1, and without any vector; as
            ``execute_phase`` for the session.
    """
    read = read_vectors(converted(vectors, dict[str, Any], "vectors"))
    if read == Vectors():
        raise Refused("INVALID_FIELD", f"nothing is assessed: give some of {', '.join(VECTOR_NAMES)}", field="vectors")
    name = ask("sessions.show", {"id": session_id})["id"]
    data = AssessmentRecorded(phase=phase, vectors=read, reasoning=reasoning, overall_confidence=overall_confidence)
    return _recorded(author, name, data)


def with_report(
    author: Author, ask: Ask, settings: Settings, postflight: dict[str, Any], given: ReportInputs
) -> dict[str, Any]:
    """Return the answer of a POSTFLIGHT that stands, with its report published and copied, or with a warning."""
    # If we crash here, the session has a POSTFLIGHT and no report: it resumes from its events, and a sweep makes it.
    try:
        report = publish_report(author, ask, postflight["session_id"], given)
    except BatonError as error:
        warning = f"POSTFLIGHT is recorded, but there is no report of it: {error.message}"
        more = {"handoff_report": None, "warnings": [*postflight["warnings"], warning]}
        return postflight | more | {"report_error": error.to_dict()}
    report = with_copies(ask, settings, report)
    return postflight | {"handoff_report": report, "warnings": [*postflight["warnings"], *report["warnings"]]}


def _recorded(author: Author, session_id: str, data: AssessmentRecorded) -> dict[str, Any]:
    (accepted,) = author.emit(Draft(stream=f"session/{session_id}", data=data))
    return {
        "session_id": session_id,
        "phase": data.phase,
        "event_id": accepted.id,
        "event_index": accepted.index,
        "status": "recorded",
        "warnings": [],
    }
