"""Resuming: a digest of earlier sessions for the next agent, within a stated number of tokens.

The whole answer, with dead ends, has at most as many tokens as its sessions may have (400, 800 or 1,250 each), as the
text and as the JSON that commands print, by the tokenizer that counts more. A session without a report resumes from its
events, marked ``no_report``: a crashed agent leaves no report, and then resuming matters most. A session that another
tool recorded is marked ``imported``: no agent of this ledger vouches for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from deedbook.consumers.sdk.quotation import is_plain
from deedbook.consumers.sessions.generator import by_weight, derived, last_ms_of, own_steps, uncorrected_part
from deedbook.consumers.sessions.packer import LEVELS, SessionSource, dead_ends_within, pack, printed
from deedbook.consumers.sessions.report_texts import Blobs, restored
from deedbook.consumers.sessions.resumed_text import resumed_text
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.format.codec import convert, converted
from deedbook.projections.briefs.tokens import most_tokens, strictest
from deedbook.projections.records.marks import Imported
from deedbook.projections.reports.compressed import short_ref
from deedbook.projections.reports.markdown import duration_text, markdown_of
from deedbook.projections.reports.report import DERIVED, Report, plain, read_report, report_of, uncorrected

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]

MODES: Final = ("last", "last_n", "session_id")
sessions_max: Final = 5
# The limit for all dead ends together; these tokens are taken from those of the sessions.
dead_end_tokens: Final = {"summary": 40, "detailed": 120, "full": 160}
_RESUMED_AS: Final = {"recommended_next_steps": "next_steps"}
_KEY_VECTORS: Final = frozenset({"overall_confidence", "know", "uncertainty"})
_similar_max: Final = 10
_labels_max: Final = 5
_sessions_checked_max: Final = 200
_short_id_chars: Final = (8, 13, 18, 24)


def resume(  # noqa: PLR0917 - in the order that the API gives them
    ask: Ask,
    get_blob: Blobs,
    ai_id: str | None = None,
    resume_mode: str = "last",
    session_id: str | None = None,
    count: int = 1,
    detail_level: str = "summary",
    *,
    agent: str | None = None,
    less: int = 0,
) -> dict[str, Any]:
    """Return ``{"sessions", "total_sessions", "token_estimate", "tokens_exact", "tokenizer", "detail_level", …}``.

    ``token_estimate`` counts this answer as it is printed, by ``tokenizer``; ``tokens_exact`` is false if none is
    installed and a cautious estimate is counted. Without ``ai_id`` the sessions of the asking ``agent`` come before
    those of others. ``less`` is the number of tokens that the caller will add. A ``count`` above five means five.
    Without any session there is a ``message``. Raises Refused: ``INVALID_FIELD`` for an invalid mode, level or count;
    for a session by id ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
    """
    if detail_level not in LEVELS:
        raise _invalid_choice("detail_level", tuple(LEVELS))
    rows = _selected(ask, ai_id, resume_mode, session_id, count, agent)
    tokens = strictest()
    answer: dict[str, Any] = {
        "sessions": [],
        "total_sessions": len(rows),
        "token_estimate": 0,
        "tokens_exact": tokens.exact,
        "tokenizer": tokens.name,
        "detail_level": detail_level,
        "dead_ends": [],
    }
    if not rows:
        answer["message"] = f"No sessions found for ai_id={ai_id}{_known(ask, ai_id)}" if ai_id else "No sessions found"
        return _counted(answer)
    sessions = [ask("sessions.show", {"id": row["session_id"]}) for row in rows]
    limit = LEVELS[detail_level]
    budget = limit * len(rows) - less
    own = _own_dead_ends(sessions)
    dead_ends = _dead_ends(ask, own[:_similar_max], sessions, _task_of(sessions[0], rows[0]))
    answer["dead_ends"], left_out = dead_ends_within(dead_ends, dead_end_tokens[detail_level] * len(rows))
    if left_out := left_out + len(own[_similar_max:]):
        answer["dead_ends_left_out"] = left_out
    sources = [
        source_of(session, row["report"], get_blob, level=detail_level, short_id=_short_id(ask, row["session_id"]))
        for session, row in zip(sessions, rows, strict=True)
    ]
    for number, source in enumerate(sources):
        # The older sessions may use the tokens that a newer one does not need, each up to its own limit.
        used = _cost(answer | {"token_estimate": budget})
        at_most = used + min((budget - used) // (len(sources) - number), limit)
        before = answer["sessions"]

        def fits(session: dict[str, Any]) -> bool:
            whole = answer | {"sessions": [*before, session], "token_estimate": budget}  # noqa: B023 - called at once
            is_alone = len(sources) == 1 or most_tokens(printed(session)) <= limit
            return is_alone and _cost(whole) <= at_most  # noqa: B023

        answer["sessions"] = [*before, pack(source, detail_level, fits)]
    return _counted(answer)


def _known(ask: Ask, ai_id: str) -> str:
    """Return a hint that names sessions' labels: those similar to ``ai_id``, which no session has, else the latest."""
    sessions = ask("sessions.list", {"limit": _sessions_checked_max})["items"]
    # A label is an agent's own text, and may be a sentence.
    labels = [*filter(is_plain, dict.fromkeys(session["ai_id"] or session["author"] for session in sessions))]
    alike = near(ai_id, labels)
    return did_you_mean(alike) or (labels and f"; try one of {', '.join(labels[:_labels_max])}") or ""


def _cost(answer: Mapping[str, Any]) -> int:
    """Return the tokens of an answer as it is printed (with its last newline): as text or JSON, whichever has more."""
    document = {"schema_version": 1, "kind": "resumed", "data": answer}
    return max(most_tokens(f"{text}\n") for text in (printed(document), resumed_text(dict(answer))))


def whose(ask: Ask, answer: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return author and time (in milliseconds) of each session in an answer of ``resume``, by its id there.

    The answer itself does not have them, because it has few tokens. Dead ends that name no session are those of ``""``.
    """
    named = [session["session_id"] for session in answer["sessions"]]
    authors: dict[str, tuple[str, int]] = {}
    for name in {*named, *(row["session"] for row in answer["dead_ends"] if "session" in row)}:
        try:
            (row,) = ask("reports.sessions", {"id": name, "limit": 1})["items"]
            authors[name] = (row["author"], row["happened_ms"])
        except Refused:  # a shortened id may match several sessions
            authors[name] = ("somebody", 0)
    return authors | {"": authors[named[0]] if named else ("somebody", 0)}


def _selected(  # noqa: PLR0917 - as of ``resume``
    ask: Ask, ai_id: str | None, mode: str, session_id: str | None, count: int, agent: str | None
) -> list[dict[str, Any]]:
    if mode not in MODES:
        raise _invalid_choice("resume_mode", MODES)
    if mode == "session_id" and not session_id:
        raise Refused("INVALID_FIELD", "resume_mode session_id needs a session: give session_id", field="session_id")
    if session_id:
        return list(ask("reports.sessions", {"id": session_id, "limit": 1})["items"])
    number = converted(count, AtLeastOne, "count")
    limit = 1 if mode == "last" else min(number, sessions_max)
    # An agent is found by its own label, else by its registered name. Its imported sessions are not its own work.
    # Without a label the agent's own sessions come first, then all others.
    own: list[dict[str, Any]] = [{"author": agent, "imported": False}] if agent else []
    filters: list[dict[str, Any]] = [{"ai_id": ai_id}, {"author": ai_id, "imported": False}] if ai_id else [*own, {}]
    # A session without findings is usually the one that asks now, or one opened by mistake.
    questions = [by | {"limit": limit, "has": has} for has in ("beliefs", "records", None) for by in filters]
    rows: dict[str, dict[str, Any]] = {}
    for question in questions:
        if len(rows) == limit or (rows and (ai_id or question["has"] is None)):
            break
        for row in ask("reports.sessions", question)["items"]:
            rows.setdefault(row["session_id"], row)
    return list(rows.values())[:limit]


def _task_of(session: dict[str, Any], row: dict[str, Any]) -> str:
    """Return the task that a session was started with, else that of its report."""
    started: str = session["task"].strip()
    return started or ("" if row["report"] is None else read_report(row["report"]).title.strip())


def _own_dead_ends(sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the dead ends of the sessions themselves, each once."""
    own: dict[tuple[str, str], dict[str, Any]] = {}
    for session in sessions:
        for event in uncorrected_part(session)["dead_ends"]:
            about = {"session_id": session["id"], "imported": session["imported"]}
            own.setdefault((event["approach"], event["why_failed"]), event | about)
    return list(own.values())


def _dead_ends(
    ask: Ask, own: list[dict[str, Any]], sessions: list[dict[str, Any]], task: str
) -> Iterator[dict[str, str]]:
    """Yield the ``own`` dead ends of the sessions, then those of sessions with tasks like the newest one's."""
    similar = ask("search.related", {"task": task, "limit": _similar_max})["dead_ends"] if task else []
    seen: set[tuple[str, str]] = set()
    for event in [*own, *similar]:
        if (event["approach"], event["why_failed"]) in seen:
            continue
        seen.add((event["approach"], event["why_failed"]))
        dead_end = {name: event[name] for name in ("approach", "why_failed", "basis") if event[name]}
        if event["imported"] is not None:
            dead_end["imported"] = event["imported"]["importer"]
        is_own = len(sessions) == 1 and event["session_id"] == sessions[0]["id"]
        yield dead_end if is_own else dead_end | {"session": _short_id(ask, event["session_id"])}


def _short_id(ask: Ask, session_id: str) -> str:
    """Return a beginning of a session's id that matches no other session."""
    for chars in _short_id_chars:
        if chars >= len(session_id):
            break
        try:
            ask("reports.sessions", {"id": session_id[:chars], "limit": 1})
        except Refused:
            continue
        return session_id[:chars]
    return session_id


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with the number of its own tokens in it."""
    for _ in range(3):
        answer["token_estimate"] = _cost(answer)
    return answer


def _invalid_choice(field: str, choices: tuple[str, ...]) -> Refused:
    return Refused("INVALID_FIELD", f"{field} must be one of {', '.join(choices)}", field=field)


def source_of(
    session: Mapping[str, Any], fields: Mapping[str, Any] | None, get_blob: Blobs, *, level: str, short_id: str
) -> SessionSource:
    """Return a session (an answer of ``sessions.show``) in full; ``fields`` are those of its report, if any."""
    if fields is None:
        imported = convert(session["imported"], Imported | None)
        data, at_ms = derived(session), last_ms_of(session)
        report = report_of(session["id"], "", 0, session["author"], at_ms, data, imported=imported)
    else:
        report = uncorrected(read_report(restored(fields, get_blob)))
    steps, are_own = own_steps(report.recommended_next_steps, report.remaining_unknowns)
    last = {"epistemic_deltas", "knowledge_gaps_filled", *(() if are_own else ["next_steps"])}
    last |= {"next_session_context"} if report.next_session_context.startswith(DERIVED) else set()
    resumed_as = _RESUMED_AS | {"task_summary": "outcome" if report.outcome else "task"}
    return SessionSource(
        head=_head(report, level) | ({"no_report": True} if fields is None else {}),
        fields=_fields(report) | {"next_steps": steps, "assessments": _assessments(session)},
        short_id=short_id,
        markdown=markdown_of(report) if level == "full" else "",
        shortened=frozenset(resumed_as.get(field := long.path.split("/")[1], field) for long in report.long_texts),
        last=frozenset(last),
        unreported=_unreported(session, report),
    )


def _unreported(session: Mapping[str, Any], report: Report) -> dict[str, int]:
    """Return how many findings and unknowns a session has beyond those of its report."""
    recorded = uncorrected_part(session)
    reported = {
        "finding": ("key_findings", report.key_findings),
        "unknown": ("remaining_unknowns", report.remaining_unknowns),
    }
    return {
        field: max(0, len(by_weight(recorded[f"{name}s"], name)) - len(texts))
        for name, (field, texts) in reported.items()
    }


def _head(report: Report, level: str) -> dict[str, Any]:
    """Return the head of every level; a summary has no report id, because its tokens are better spent on a finding."""
    facts: dict[str, Any] = {
        "session_id": report.session_id,
        "ai_id": report.ai_id,
        "timestamp": report.timestamp,
        "duration": duration_text(report.duration_seconds),
        "calibration_status": report.calibration_status,
        "report_type": report.report_type,
    }
    if report.imported is not None:
        facts["imported"] = {"by": report.imported.importer, "format": report.imported.format}
    if level != "summary":
        facts["report_id"] = (report.report_id if level == "full" else short_ref(report.report_id)) or None
    return facts


def _fields(report: Report) -> dict[str, Any]:
    # Accomplishments that repeat the task or an artifact are omitted.
    elsewhere = {report.task_summary, *(f"Created {artifact}" for artifact in report.artifacts_created)}
    fields = plain(report)
    gaps = fields["knowledge_gaps_filled"]
    return fields | {
        "task": _texts(report.title),
        "outcome": _texts(report.outcome),
        "next_session_context": _texts(report.next_session_context),
        "epistemic_deltas": sorted(
            report.epistemic_deltas.items(), key=lambda delta: (delta[0] not in _KEY_VECTORS, -abs(delta[1]))
        ),
        "knowledge_gaps_filled": [{name: part for name, part in gap.items() if part is not None} for gap in gaps],
        "accomplished": [text for text in report.accomplished if text not in elsewhere],
    }


def _assessments(session: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all assessments, those before and after the work first, then the newest."""
    newest_first = sorted(session["assessments"], key=lambda event: -event["event_index"])
    ranked = sorted(newest_first, key=lambda event: event["phase"] not in {"PREFLIGHT", "POSTFLIGHT"})
    names = ("phase", "round", "vectors", "reasoning", "overall_confidence")
    return [{name: event[name] for name in names if event[name] not in (None, "", {})} for event in ranked]


def _texts(text: str) -> list[str]:
    return [text] if text.strip() else []
