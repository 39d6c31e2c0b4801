"""Publishing a report: what was generated becomes one signed event of its session.

Publishing the same content again adds nothing: the report that stands is found, or, when two do it at once, the
idempotency key is the same, so the ledger answers both with one event. Content that an older version had is published
anew, because the latest version counts.

Texts that an entry cannot hold are shortened at a word and stand whole as blobs, named by their JSON pointers in
``long_texts``; where the whole is too large, its longest texts are shortened to one length, the greatest that fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from blake3 import blake3

from consumers.sdk.tokens import cut_to_chars
from consumers.sessions.generator import ReportInputs, generate, warnings_of
from ledger.author import Author, Draft
from ledger.client import Ask, Client, read_event
from ledger.codec import converted, encode_canonical, encode_utf8
from ledger.errors import Refused
from ledger.events.body import Event
from ledger.events.session import ReportGenerated
from ledger.limits import data_size_max_bytes
from projections.briefs.tokens import count_tokens, greatest, tokenizer
from projections.reports.calibration import ends_of
from projections.reports.compressed import compressed_of
from projections.reports.markdown import markdown_of
from projections.reports.report import report_of

_key_digits: Final = 32
text_min_chars: Final = 24

_LISTS: Final = {
    "key_findings": 40_000,
    "remaining_unknowns": 40_000,
    "recommended_next_steps": 40_000,
    "accomplished": 40_000,
    "artifacts_created": 2_000,
    "investigation_tools": 200,
}
_TEXTS: Final = {"task_summary": 40_000, "next_session_context": 40_000, "ai_id": 200}
_whole_chars: Final = 40_000


def publish_report(author: Author, ask: Ask, session_id: str, given: ReportInputs | None = None) -> dict[str, Any]:
    """Generate, sign and append the report of a session, and say what was made.

    ``{"session_id", "report_id" (the event's id), "markdown", "storage_location", "token_count" (of the compressed
    JSON), "exact", "status": "success", "report_type", "event_index", "is_repeat", "warnings"}``.

    Raises:
        Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``NOT_AUTHORIZED`` for another agent's session; ``INVALID_FIELD``
            (see ``generator.generate``); ``TOO_LARGE``; what admission refuses. Unavailable: see ``Client.submit``.
    """
    given = given or ReportInputs()
    session = ask("sessions.show", {"id": session_id})
    if session["author"] != author.name:
        # Before any blob is put: admission would refuse the event only after them.
        message = f"session {session['id']} belongs to {session['author']}, who alone reports on it"
        raise Refused("NOT_AUTHORIZED", message, owner=session["author"])
    accomplished = ask("reports.accomplished", {"id": session["id"]})["accomplished"]
    data = fit_entry(msgspec.to_builtins(generate(session, given, accomplished)), author.put_blob)
    # If we crash here, the session has no new report: the next call (or `baton session sweep`) makes it, and finds the
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
    latest = _latest(author.client, ask, session["id"])
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


def _latest(client: Client, ask: Ask, session_id: str) -> Event | None:
    try:
        index = ask("reports.show", {"id": session_id})["report"]["event_index"]
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    return read_event(index, client.entry(index))


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
        kept = cut_to_chars(text, chars_max)
        if len(kept) > field_max:
            kept = cut_to_chars(text, field_max)
        if kept != text.strip():
            long_texts[path] = text
        return kept

    fitted = dict(data)
    for name, field_max in _TEXTS.items():
        if name in fitted:
            fitted[name] = keep(fitted[name], f"/{name}", field_max)
    for name, field_max in _LISTS.items():
        if name in fitted:
            fitted[name] = [keep(text, f"/{name}/{place}", field_max) for place, text in enumerate(fitted[name])]
    fitted["knowledge_gaps_filled"] = [
        gap | {"after": keep(gap["after"], f"/knowledge_gaps_filled/{place}/after", _whole_chars)}
        for place, gap in enumerate(fitted.get("knowledge_gaps_filled", []))
    ]
    fitted["long_texts"] = [{"path": path, "ref": blob_ref(text)} for path, text in long_texts.items()]
    return fitted, long_texts
