"""Publishing a report: what was generated becomes one signed event of its session (seed 004, DESIGN §11).

The event follows from the two assessments that it compares. Publishing the same content again adds nothing: the report
that stands is found, or, when two do it at once, the idempotency key is the same, so the ledger answers both with one
event. Content that an older version had is published anew, because the latest version counts. What happens if we crash
before the event was accepted: the session has no new report, and the next call (or ``baton session sweep``) makes it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sessions.reports.generator import generate
from consumers.sessions.reports.inputs import ReportInputs, warnings_of
from consumers.sessions.reports.shortening import fit_entry
from ledger.author import Draft
from ledger.client import read_event
from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events.report import ReportGenerated
from projections.briefs.tokens import count_tokens, tokenizer
from projections.reports.calibration import ends_of
from projections.reports.compressed import compressed_of
from projections.reports.markdown import markdown_of
from projections.reports.report import report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.author import Author
    from ledger.client import Ask, Client
    from ledger.events.body import Event

_key_digits: Final = 32


def publish_report(author: Author, answer: Ask, session_id: str, given: ReportInputs | None = None) -> dict[str, Any]:
    """Generate, sign and append the report of a session, and return what the seed's tool does.

    ``{"session_id", "report_id" (the event's id), "markdown", "storage_location", "token_count" (of the compressed
    JSON), "exact", "status": "success", "report_type", "event_index", "is_repeat", "warnings"}`` (SEEDS, 004).

    Raises:
        Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``; ``NOT_AUTHORIZED`` for another agent's session; ``INVALID_FIELD``
            (see ``generator.generate``); ``TOO_LARGE``; what admission refuses. Unavailable: see ``Client.submit``.
    """
    given = given or ReportInputs()
    shown = answer("sessions.show", {"id": session_id})
    if shown["author"] != author.name:
        # Before any blob is put: admission would refuse the event only after them.
        raise Refused(
            "NOT_AUTHORIZED",
            f"session {shown['id']} belongs to {shown['author']}, who alone reports on it",
            owner=shown["author"],
        )
    accomplished = answer("reports.accomplished", {"id": shown["id"]})["accomplished"]
    data = fit_entry(msgspec.to_builtins(generate(shown, given, accomplished)), author.client.put_blob)
    event, is_repeat = _published(author, answer, shown, data)
    report = report_of(shown["id"], event.id, event.index, event.author, event.accepted_ms, data)
    warnings = warnings_of(shown, given, len(data.key_findings))
    if data.long_texts:
        warnings.append(f"{len(data.long_texts)} texts were too long for an entry and stand whole in blobs")
    return {
        "session_id": report.session_id,
        "report_id": report.report_id,
        "markdown": markdown_of(report),
        "storage_location": f"ledger:session/{report.session_id}",
        "token_count": count_tokens(compressed_of(report)),
        "exact": tokenizer().exact,
        "status": "success",
        "report_type": report.report_type,
        "event_index": report.event_index,
        "is_repeat": is_repeat,
        "warnings": warnings,
    }


def _published(author: Author, answer: Ask, shown: Mapping[str, Any], data: ReportGenerated) -> tuple[Event, bool]:
    """Return the event that holds ``data`` as the session's latest report, and whether it stood there before."""
    latest = _latest(author.client, answer, shown["id"])
    if latest is not None and latest.data == data:
        return latest, True
    ends = ends_of(shown["assessments"])
    causes = [
        read_event(one["event_index"], author.client.entry(one["event_index"])).id
        for one in (ends.preflight, ends.postflight)
        if one is not None
    ]
    grounds = [shown["id"], "" if latest is None else latest.id, data]
    key = f"report-{hashlib.sha256(encode_canonical(grounds)).hexdigest()[:_key_digits]}"
    (accepted,) = author.emit(Draft(stream=f"session/{shown['id']}", data=data, causes=causes, idem=key))
    return read_event(accepted.index, author.client.entry(accepted.index)), accepted.is_repeat


def _latest(client: Client, answer: Ask, session_id: str) -> Event | None:
    try:
        index = answer("reports.show", {"id": session_id})["report"]["event_index"]
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    return read_event(index, client.entry(index))
