"""A session from its start to its report, each step signed by its author.

PREFLIGHT and POSTFLIGHT are *executed* with words (what is to be done, what was done) and then *assessed* with vectors.
Executing records the words as an assessment without vectors, so that they are in the ledger whatever happens next. A
POSTFLIGHT is committed first and stands; a report of it that fails is a warning in the answer, never an error.

Publishing the same content again adds nothing: the report that stands is found, or, when two do it at once, the
idempotency key is the same. Content that an older version had is published anew, because the latest version counts.

Texts that an entry cannot hold are shortened at a word and stand whole as blobs, named by their JSON pointers in
``long_texts``; where the whole is too large, its longest texts are shortened to one length, the greatest that fits.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from blake3 import blake3

from deedbook.consumers.sessions.copies import with_copies
from deedbook.consumers.sessions.generator import ReportInputs, generate, warnings_of
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused, or_none
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import AssessmentRecorded, Phase, ReportGenerated, SessionStarted, Vectors
from deedbook.ledger.format.codec import converted, encode_canonical, encode_utf8
from deedbook.ledger.home.config import Settings
from deedbook.ledger.limits import data_size_max_bytes
from deedbook.projections.briefs.tokens import count_tokens, greatest, tokenizer
from deedbook.projections.reports.calibration import ends_of
from deedbook.projections.reports.compressed import compressed_of, shorten
from deedbook.projections.reports.markdown import markdown_of
from deedbook.projections.reports.report import report_of
from deedbook.projections.snapshots.vectors import VECTOR_NAMES, read_vectors

_key_digits: Final = 32
text_min_chars: Final = 24

_whole_chars: Final = 40_000
_CHARS_MAX: Final = {
    "task": _whole_chars,
    "task_summary": _whole_chars,
    "next_session_context": _whole_chars,
    "ai_id": 200,
    "key_findings": _whole_chars,
    "remaining_unknowns": _whole_chars,
    "recommended_next_steps": _whole_chars,
    "accomplished": _whole_chars,
    "artifacts_created": 2_000,
    "investigation_tools": 200,
}


def publish_report(author: Author, ask: Ask, session_id: str, given: ReportInputs | None = None) -> dict[str, Any]:
    """Generate, sign and append the report of a session, and say what was made.

    ``{"session_id", "report_id" (the event's id), "markdown", "storage_location", "token_count" (of the compressed
    JSON), "exact", "status": "success", "report_type", "event_index", "is_repeat", "warnings"}``. Raises Refused:
    ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``NOT_AUTHORIZED`` for another agent's session; ``INVALID_FIELD`` (see
    ``generator.generate``); ``TOO_LARGE``; what admission refuses. Unavailable: see ``Client.submit``.
    """
    given = given or ReportInputs()
    session = ask("sessions.show", {"id": session_id})
    if session["author"] != author.name:
        # Before any blob is put: admission would refuse the event only after them.
        message = f"session {session['id']} belongs to {session['author']}, who alone reports on it"
        raise Refused("NOT_AUTHORIZED", message, owner=session["author"])
    accomplished = ask("reports.accomplished", {"id": session["id"]})["accomplished"]
    data = fit_entry(msgspec.to_builtins(generate(session, given, accomplished)), author.put_blob)
    # If we crash here, the session has no new report: the next call (or `deed session sweep`) makes it, and finds the
    # blobs of its long texts, which nothing names yet.
    event, is_repeat = _published(author, ask, session, data)
    report = report_of(session["id"], event.id, event.index, event.author, event.accepted_ms, data)
    warnings = warnings_of(session, given, len(data.key_findings))
    if data.long_texts:
        warnings.append(f"{len(data.long_texts)} texts were too long for an entry and stand whole in blobs")
    kept = ("session_id", "report_id", "report_type", "event_index")
    return {name: getattr(report, name) for name in kept} | {
        "markdown": markdown_of(report),
        "storage_location": f"ledger:session/{report.session_id}",
        "token_count": count_tokens(compressed_of(report)),
        "exact": tokenizer().exact,
        "status": "success",
        "is_repeat": is_repeat,
        "warnings": warnings,
    }


def _published(author: Author, ask: Ask, session: Mapping[str, Any], data: ReportGenerated) -> tuple[Event, bool]:
    """Return the event that holds ``data`` as the session's latest report, and whether it stood there before."""
    shown = or_none(ask, "reports.show", {"id": session["id"]})
    index = None if shown is None else shown["report"]["event_index"]
    latest = None if index is None else read_event(index, author.client.entry(index))
    if latest is not None and latest.data == data:
        return latest, True
    ends = ends_of(session["assessments"])
    causes = [
        read_event(assessment["event_index"], author.client.entry(assessment["event_index"])).id
        for assessment in (ends.preflight, ends.postflight)
        if assessment is not None
    ]
    grounds = [session["id"], "" if latest is None else latest.id, data]
    key = f"report-{hashlib.sha256(encode_canonical(grounds)).hexdigest()[:_key_digits]}"
    (accepted,) = author.emit(Draft(stream=f"session/{session['id']}", data=data, causes=causes, idem=key))
    return read_event(accepted.index, author.client.entry(accepted.index)), accepted.is_repeat


def fit_entry(data: dict[str, Any], put_blob: Callable[[bytes], str]) -> ReportGenerated:
    """Return the report whose plain fields are ``data``, shortened where needed, with its long texts in blobs."""
    fitted, long_texts = _shortened(data, 2 * _whole_chars)
    if not _fits(fitted):
        chars = greatest(text_min_chars, data_size_max_bytes, lambda chars: _fits(_shortened(data, chars)[0]))
        fitted, long_texts = _shortened(data, chars)
        if not _fits(fitted):
            advice = "give the 3 to 5 key findings, and fewer unknowns and artifacts"
            message = f"a report holds {data_size_max_bytes} bytes, and these are too many texts for it: {advice}"
            raise Refused("TOO_LARGE", message, limit=data_size_max_bytes)
    for text in dict.fromkeys(long_texts.values()):
        put_blob(encode_utf8(text, "a text of the report"))
    return converted(fitted, ReportGenerated)


def blob_ref(text: str) -> str:
    """Return the ref under which a text stands as a blob."""
    return f"blake3:{blake3(encode_utf8(text, 'a text of the report')).hexdigest()}"


def _fits(data: dict[str, Any]) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: dict[str, Any], chars_max: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the report with no text longer than ``chars_max``, and the whole texts by their JSON pointers."""
    long_texts: dict[str, str] = {}

    def keep(text: str, path: str, field_max: int) -> str:
        kept = shorten(text, chars_max)
        if len(kept) > field_max:
            kept = shorten(text, field_max)
        if kept != text.strip():
            long_texts[path] = text
        return kept

    fitted = dict(data)
    for name, field_max in _CHARS_MAX.items():
        if isinstance(fitted.get(name), str):
            fitted[name] = keep(fitted[name], f"/{name}", field_max)
        elif name in fitted:
            fitted[name] = [keep(text, f"/{name}/{place}", field_max) for place, text in enumerate(fitted[name])]
    fitted["knowledge_gaps_filled"] = [
        gap | {"after": keep(gap["after"], f"/knowledge_gaps_filled/{place}/after", _whole_chars)}
        for place, gap in enumerate(fitted.get("knowledge_gaps_filled", []))
    ]
    fitted["long_texts"] = [{"path": path, "ref": blob_ref(text)} for path, text in long_texts.items()]
    return fitted, long_texts


_id_bytes: Final = 8


def start_session(
    author: Author, *, task: str = "", ai_id: str = "", session_id: str | None = None, resumes: str = ""
) -> str:
    """Start a session and return its id. Raises Refused: ``TRANSITION_NOT_ALLOWED`` when it was started already."""
    name = session_id or secrets.token_hex(_id_bytes)
    author.emit(Draft(stream=f"session/{name}", data=SessionStarted(task=task, ai_id=ai_id, resumes=resumes)))
    return name


def execute_phase(author: Author, ask: Ask, session_id: str, phase: Phase, words: str) -> dict[str, Any]:
    """Record the words that open a phase, and return which vectors are to be assessed.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``INVALID_FIELD`` without a word; ``TRANSITION_NOT_ALLOWED`` after
    the session's end, ``NOT_AUTHORIZED`` in another agent's.
    """
    if not words.strip():
        raise Refused("INVALID_FIELD", f"{phase} begins with what it is about: give a sentence", field="task_summary")
    return _recorded(author, ask, session_id, AssessmentRecorded(phase=phase, vectors=Vectors(), reasoning=words)) | {
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

    Raises Refused: ``INVALID_FIELD`` for a vector that is none, or no number from 0 to 1, and without any vector; as
    ``execute_phase`` for the session.
    """
    read = read_vectors(converted(vectors, dict[str, Any], "vectors"))
    if read == Vectors():
        raise Refused("INVALID_FIELD", f"nothing is assessed: give some of {', '.join(VECTOR_NAMES)}", field="vectors")
    data = AssessmentRecorded(phase=phase, vectors=read, reasoning=reasoning, overall_confidence=overall_confidence)
    return _recorded(author, ask, session_id, data)


def with_report(
    author: Author, ask: Ask, settings: Settings, postflight: dict[str, Any], given: ReportInputs
) -> dict[str, Any]:
    """Return the answer of a POSTFLIGHT that stands, with its report published and copied, or with a warning."""
    # If we crash here, the session has a POSTFLIGHT and no report: it resumes from its events, and a sweep makes it.
    try:
        report = publish_report(author, ask, postflight["session_id"], given)
    except DeedbookError as error:
        warning = f"POSTFLIGHT is recorded, but there is no report of it: {error.message}"
        more = {"handoff_report": None, "warnings": [*postflight["warnings"], warning]}
        return postflight | more | {"report_error": error.to_dict()}
    report = with_copies(ask, settings, report)
    return postflight | {"handoff_report": report, "warnings": [*postflight["warnings"], *report["warnings"]]}


def correction(
    ask: Ask, ref: str, words: str, *, is_resolved: bool, within: str | None = None
) -> tuple[str, kinds.Correction]:
    """Return the session's stream, and what corrects the event ``ref``: a number, an id, or the beginning of one.

    Raises Refused: ``NOT_FOUND``; ``USAGE`` for an event that cannot be corrected so, or is of another session than
    ``within``; ``TRANSITION_NOT_ALLOWED`` where it is corrected already.
    """
    if not words.strip():
        raise Refused("USAGE", "say why it is taken back, or what it came to: whoever reads it goes on from that")
    event = ask("catalog.show", {"ref": ref})
    index, stream = event["event_index"], event["stream"]
    family, _, name = stream.partition("/")
    if within is not None and not name.startswith(within.removeprefix("session/")):
        message = f"entry {index} is of {stream}, and not of session {within}: leave that out, or give an entry of it"
        raise Refused("USAGE", message, stream=stream)
    session = ask("sessions.show", {"id": name}) if family == "session" else {}
    logged = ((kind, one) for kind in ("findings", "dead_ends", "unknowns") for one in session.get(kind, ()))
    match = next((pair for pair in logged if pair[1]["event_index"] == index), None)
    if match is None:
        message = f"entry {index} ({event['kind']}) is no finding, dead end or unknown: `deed session show` has them"
        raise Refused("USAGE", message)
    kind, one = match
    if (kind == "unknowns") != is_resolved:
        way = f"resolve {index} --with TEXT" if kind == "unknowns" else f"retract {index} --reason TEXT"
        raise Refused("USAGE", f"entry {index} is one of the {kind.replace('_', ' ')}: `deed session {way}`")
    if (done := one["correction"]) is not None:
        verb = done["kind"].partition(".")[2]
        message = f"entry {index} was {verb} by {done['author']} in entry {done['event_index']} already"
        raise Refused("TRANSITION_NOT_ALLOWED", message, entry=done["event_index"])
    if is_resolved:
        return stream, kinds.UnknownResolved(target=event["id"], answer=words)
    made = kinds.FindingRetracted if kind == "findings" else kinds.DeadEndRetracted
    return stream, made(target=event["id"], reason=words)


def correct(
    author: Author,
    ask: Ask,
    settings: Settings,
    ref: str,
    words: str,
    *,
    is_resolved: bool = False,
    within: str | None = None,
) -> dict[str, Any]:
    """Correct an event of a session, and return ``{"id", "kind", "event_index", "target", "stored", "warnings"}``.

    Raises Refused: as ``correction``; ``NOT_AUTHORIZED`` for who is neither the session's author nor an admin.
    """
    stream, data = correction(ask, ref, words, is_resolved=is_resolved, within=within)
    (accepted,) = author.emit(Draft(stream=stream, data=data))
    # If we crash here, the correction stands, and copies of the report lack it until `deed notes sync`.
    name = stream.removeprefix("session/")
    answer = {"id": name, "event_index": accepted.index, "target": data.target, "stored": [], "warnings": []}
    (session,) = ask("reports.sessions", {"id": name, "limit": 1})["sessions"]
    if session["report"] is None or session["imported"] is not None:
        return answer
    copied = with_copies(ask, settings, {"session_id": name, "storage_location": "", "warnings": []})
    return answer | {part: copied[part] for part in ("stored", "warnings")}


def _recorded(author: Author, ask: Ask, session_id: str, data: AssessmentRecorded) -> dict[str, Any]:
    name = ask("sessions.show", {"id": session_id})["id"]
    (accepted,) = author.emit(Draft(stream=f"session/{name}", data=data))
    return {
        "session_id": name,
        "phase": data.phase,
        "event_id": accepted.id,
        "event_index": accepted.index,
        "status": "recorded",
        "warnings": [],
    }
