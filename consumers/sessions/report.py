"""The steps of a session from its start to its report, each signed by its author.

PREFLIGHT and POSTFLIGHT are *executed* with a text (the task, the result) and then *assessed* with vectors. Executing
records the text as an assessment without vectors, so it is in the ledger whatever happens next. A POSTFLIGHT is
recorded first and stays; if its report fails, the answer has a warning, never an error.

Publishing the same content again adds nothing: the present report is found, or, if two publish at once, the idempotency
key is the same. Content that an older version had is published again, because the latest version counts.

A text that is too long for an entry is shortened at a word and stored in full as a blob, by its JSON pointer in
``long_texts``. If the whole is too large, its longest texts are shortened to one length, the greatest that fits.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any, Final

import msgspec
from blake3 import blake3

from deedbook.consumers.sessions.copies import with_copies
from deedbook.consumers.sessions.generator import ReportInputs, generate, uncorrected_part, warnings_of
from deedbook.consumers.sessions.operations import Resolution, Retraction
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
from deedbook.projections.reports.calibration import assessment_pair
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


def publish_report(author: Author, ask: Ask, session_id: str, inputs: ReportInputs | None = None) -> dict[str, Any]:
    """Generate, sign and append the report of a session, and return it.

    ``{"session_id", "report_id" (the event's id), "markdown", "storage_location", "token_count" (of the compressed
    JSON), "exact", "status": "success", "report_type", "event_index", "is_repeat", "warnings"}``. Raises Refused:
    ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``NOT_AUTHORIZED`` for another agent's session; ``INVALID_FIELD`` (see
    ``generator.generate``); ``TOO_LARGE``; refusals of the gate. Unavailable: see ``Client.submit``.
    """
    inputs = inputs or ReportInputs()
    session = ask("sessions.show", {"id": session_id})
    if session["author"] != author.name:
        # Checked before any blob is stored, because the gate would refuse the event only afterwards.
        message = f"session {session['id']} belongs to {session['author']}; only they can report on it"
        raise Refused("NOT_AUTHORIZED", message, owner=session["author"], session=session["id"])
    accomplished = ask("reports.accomplished", {"id": session["id"]})["items"]
    data = fit_entry(msgspec.to_builtins(generate(session, inputs, accomplished)), author.put_blob)
    # If we crash here, the session has no new report: the next call (or `deed session sweep`) makes it, and finds the
    # blobs of its long texts, which no event references yet.
    event, is_repeat = _published(author, ask, session, data)
    report = report_of(session["id"], event.id, event.index, event.author, event.accepted_ms, data)
    warnings = warnings_of(session, inputs, len(data.key_findings))
    if data.long_texts:
        warnings.append(f"{len(data.long_texts)} texts were too long for an entry and are stored in full as blobs")
    names = ("session_id", "report_id", "report_type", "event_index")
    return {name: getattr(report, name) for name in names} | {
        "markdown": markdown_of(report),
        "storage_location": f"ledger:session/{report.session_id}",
        "token_count": count_tokens(compressed_of(report)),
        "exact": tokenizer().exact,
        "status": "success",
        "is_repeat": is_repeat,
        "warnings": warnings,
    }


def _published(author: Author, ask: Ask, session: Mapping[str, Any], data: ReportGenerated) -> tuple[Event, bool]:
    """Return the event with ``data`` as the session's latest report, and whether it was there before."""
    answer = or_none(ask, "reports.show", {"id": session["id"]})
    index = None if answer is None else answer["report"]["event_index"]
    latest = None if index is None else read_event(index, author.client.entry(index))
    if latest is not None and latest.data == data:
        return latest, True
    ends = assessment_pair(session["assessments"])
    causes = [
        read_event(assessment["event_index"], author.client.entry(assessment["event_index"])).id
        for assessment in (ends.preflight, ends.postflight)
        if assessment is not None
    ]
    basis = [session["id"], "" if latest is None else latest.id, data]
    key = f"report-{hashlib.sha256(encode_canonical(basis)).hexdigest()[:_key_digits]}"
    (accepted,) = author.emit(Draft(stream=f"session/{session['id']}", data=data, causes=causes, idem=key))
    return read_event(accepted.index, author.client.entry(accepted.index)), accepted.is_repeat


def fit_entry(data: dict[str, Any], put_blob: Callable[[bytes], str]) -> ReportGenerated:
    """Return the report with the fields ``data``, shortened if needed, with its long texts in blobs."""
    fitted, long_texts = _shortened(data, 2 * _whole_chars)
    if not _fits(fitted):
        chars = greatest(text_min_chars, data_size_max_bytes, lambda chars: _fits(_shortened(data, chars)[0]))
        fitted, long_texts = _shortened(data, chars)
        if not _fits(fitted):
            advice = "give the 3 to 5 key findings, and fewer unknowns and artifacts"
            message = f"the report is larger than {data_size_max_bytes} bytes: {advice}"
            raise Refused("TOO_LARGE", message, limit=data_size_max_bytes)
    for text in dict.fromkeys(long_texts.values()):
        put_blob(encode_utf8(text, "a text of the report"))
    return converted(fitted, ReportGenerated)


def blob_ref(text: str) -> str:
    """Return the ref of a text's blob."""
    return f"blake3:{blake3(encode_utf8(text, 'a text of the report')).hexdigest()}"


def _fits(data: dict[str, Any]) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: dict[str, Any], chars_max: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the report with no text longer than ``chars_max``, and the full texts by their JSON pointers."""
    long_texts: dict[str, str] = {}

    def keep(text: str, path: str, field_max: int) -> str:
        short = shorten(text, chars_max)
        if len(short) > field_max:
            short = shorten(text, field_max)
        if short != text.strip():
            long_texts[path] = text
        return short

    fitted = dict(data)
    for name, field_max in _CHARS_MAX.items():
        if isinstance(fitted.get(name), str):
            fitted[name] = keep(fitted[name], f"/{name}", field_max)
        elif name in fitted:
            fitted[name] = [keep(text, f"/{name}/{index}", field_max) for index, text in enumerate(fitted[name])]
    fitted["knowledge_gaps_filled"] = [
        gap | {"after": keep(gap["after"], f"/knowledge_gaps_filled/{index}/after", _whole_chars)}
        for index, gap in enumerate(fitted.get("knowledge_gaps_filled", []))
    ]
    fitted["long_texts"] = [{"path": path, "ref": blob_ref(text)} for path, text in long_texts.items()]
    return fitted, long_texts


_id_bytes: Final = 8


def start_session(
    author: Author, *, task: str = "", ai_id: str = "", session_id: str | None = None, resumes: str = ""
) -> str:
    """Start a session and return its id. Raises Refused: ``TRANSITION_NOT_ALLOWED`` if it was started already."""
    name = session_id or secrets.token_hex(_id_bytes)
    author.emit(Draft(stream=f"session/{name}", data=SessionStarted(task=task, ai_id=ai_id, resumes=resumes)))
    return name


def execute_phase(author: Author, ask: Ask, session_id: str, phase: Phase, text: str) -> dict[str, Any]:
    """Record the text that opens a phase, and return the vectors to assess.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``INVALID_FIELD`` without text; ``TRANSITION_NOT_ALLOWED`` after
    the session's end; ``NOT_AUTHORIZED`` in another agent's session.
    """
    if not text.strip():
        raise Refused("INVALID_FIELD", f"{phase} needs a text: write a sentence", field="task_summary")
    return _recorded(author, ask, session_id, AssessmentRecorded(phase=phase, vectors=Vectors(), reasoning=text)) | {
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
    """Record an assessment; names of vectors ignore case, and others count as not assessed.

    Raises Refused: ``INVALID_FIELD`` for an unknown vector, a value that is no number from 0 to 1, or no vector; as
    ``execute_phase`` for the session.
    """
    read = read_vectors(converted(vectors, dict[str, Any], "vectors"))
    if read == Vectors():
        raise Refused(
            "INVALID_FIELD", f"no vector is assessed: give some of {', '.join(VECTOR_NAMES)}", field="vectors"
        )
    data = AssessmentRecorded(phase=phase, vectors=read, reasoning=reasoning, overall_confidence=overall_confidence)
    return _recorded(author, ask, session_id, data)


def with_report(
    author: Author, ask: Ask, settings: Settings, postflight: dict[str, Any], inputs: ReportInputs
) -> dict[str, Any]:
    """Return the answer of a recorded POSTFLIGHT with its published and copied report, or with a warning."""
    # If we crash here, the session has a POSTFLIGHT and no report: it resumes from its events, and a sweep makes one.
    try:
        report = publish_report(author, ask, postflight["session_id"], inputs)
    except DeedbookError as error:
        warning = f"POSTFLIGHT is recorded, but its report could not be made: {error.message}"
        more = {"handoff_report": None, "warnings": [*postflight["warnings"], warning]}
        return postflight | more | {"report_error": error.to_dict()}
    report = with_copies(ask, settings, report)
    return postflight | {"handoff_report": report, "warnings": [*postflight["warnings"], *report["warnings"]]}


def report_at_end(author: Author, ask: Ask, settings: Settings, session_id: str) -> dict[str, Any]:
    """Return the report of an ended session. If it has none, make it now, or return why that is impossible.

    ``{"status": "success", …}`` is the report with its copies; ``{"status": "exists"}``, an earlier one; ``{"status":
    "nothing_found", "message"}``; ``{"status": "failed", "error"}``. The end is recorded in any case.
    """
    (row,) = ask("reports.sessions", {"id": session_id, "limit": 1})["items"]
    session = ask("sessions.show", {"id": session_id})
    latest = max((row["event_index"] for row in session["assessments"] if row["phase"] == "POSTFLIGHT"), default=-1)
    if row["report"] is not None and row["report"]["event_index"] > latest:
        return {"status": "exists"}
    if not uncorrected_part(session)["findings"]:
        message = "no report: nothing was found in this session (`deed report generate` makes one of your own words)"
        return {"status": "nothing_found", "message": message}
    # If we crash here, the session has ended without its report: `deed session sweep` makes it.
    try:
        return with_copies(ask, settings, publish_report(author, ask, session_id))
    except DeedbookError as error:
        return {"status": "failed", "error": error.to_dict()}


def with_report_at_end(author: Author, ask: Ask, settings: Settings, end: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of a recorded end with its report, or with the reason why there is none as a warning."""
    report = report_at_end(author, ask, settings, end["session_id"])
    match report["status"]:
        case "exists":
            return None
        case "success":
            return end | {"handoff_report": report, "warnings": [*end["warnings"], *report["warnings"]]}
        case _:  # there is none, and it says why
            why = report.get("message") or f"no report was made: {report['error']['message']}"
            return end | {"handoff_report": None, "warnings": [*end["warnings"], why]}


def correction(ask: Ask, entry: Retraction | Resolution, *, within: str | None = None) -> tuple[str, kinds.Correction]:
    """Return the session's stream, and the event that retracts or resolves an earlier one.

    Raises Refused: ``NOT_FOUND``; ``USAGE`` for an event that cannot be corrected in this way, or is not in the session
    ``within``; ``TRANSITION_NOT_ALLOWED`` if it is corrected already.
    """
    is_resolved = isinstance(entry, Resolution)
    text = entry.answer if isinstance(entry, Resolution) else entry.reason
    if not text.strip():
        raise Refused(
            "USAGE", "give the reason of the retraction, or the answer to the unknown: the next reader needs it"
        )
    event = ask("catalog.show", {"id": entry.ref})
    index, stream = event["event_index"], event["stream"]
    family, _, name = stream.partition("/")
    if within is not None and not name.startswith(within.removeprefix("session/")):
        message = (
            f"entry {index} is in {stream}, not in session {within}: leave out the session, or give one of its entries"
        )
        raise Refused("USAGE", message, stream=stream)
    session = ask("sessions.show", {"id": name}) if family == "session" else {}
    rows = ((kind, row) for kind in ("findings", "dead_ends", "unknowns") for row in session.get(kind, ()))
    match = next((pair for pair in rows if pair[1]["event_index"] == index), None)
    if match is None:
        remedy = "`deed session show` lists them"
        if event["kind"] == "reasoning.extended":
            remedy = f"`deed reasoning retract {quote(name)} --step N --reason TEXT` retracts a step"
        message = f"entry {index} ({event['kind']}) is not a finding, dead end or unknown: {remedy}"
        raise Refused("USAGE", message)
    kind, row = match
    if (kind == "unknowns") != is_resolved:
        command = f"resolve {index} --with TEXT" if kind == "unknowns" else f"retract {index} --reason TEXT"
        raise Refused("USAGE", f"entry {index} is one of the {kind.replace('_', ' ')}: use `deed session {command}`")
    if (done := row["correction"]) is not None:
        verb = done["kind"].partition(".")[2]
        message = f"entry {index} is already {verb} by {done['author']} in entry {done['event_index']}"
        raise Refused("TRANSITION_NOT_ALLOWED", message, entry=done["event_index"])
    if is_resolved:
        return stream, kinds.UnknownResolved(target=event["id"], answer=text)
    made = kinds.FindingRetracted if kind == "findings" else kinds.DeadEndRetracted
    return stream, made(target=event["id"], reason=text)


def correct(
    author: Author, ask: Ask, settings: Settings, entry: Retraction | Resolution, *, within: str | None = None
) -> dict[str, Any]:
    """Correct an event of a session, and return ``{"id", "kind", "event_index", "target", "stored", "warnings"}``.

    Raises Refused: as ``correction``; ``NOT_AUTHORIZED`` for an agent that is neither the session's author nor an
    admin.
    """
    stream, data = correction(ask, entry, within=within)
    try:
        (accepted,) = author.emit(Draft(stream=stream, data=data))
    except Refused as refusal:
        refusal.details.setdefault("stream", stream)  # the caller named only the entry
        raise
    # If we crash here, the correction is in the log, and copies of the report lack it until `deed notes sync`.
    name = stream.removeprefix("session/")
    answer = {"id": name, "event_index": accepted.index, "target": data.target, "stored": [], "warnings": []}
    (session,) = ask("reports.sessions", {"id": name, "limit": 1})["items"]
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
