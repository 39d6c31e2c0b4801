"""The text of a resumed session. An agent reads it first, and every line costs tokens, so it has no empty phrases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.consumers.sdk.text import counted, dead_end_text, sanitize_text

_TITLES: Final = {
    "task": "Task",
    "outcome": "Outcome",
    "key_findings": "Learned",
    "remaining_unknowns": "Still unknown",
    "next_steps": "Next steps",
    "next_session_context": "Context",
    "epistemic_deltas": "What changed",
    "knowledge_gaps_filled": "Gaps filled",
    "accomplished": "What was done",
    "investigation_tools": "Tools used",
    "artifacts_created": "Artifacts",
    "assessments": "Assessments",
}
_FACTS: Final = ("ai_id", "timestamp", "duration", "report_type", "calibration_status")


def resumed_text(answer: dict[str, Any]) -> str:
    """Return an answer of ``resume`` as text: dead ends, each session, and its number of tokens."""
    if not answer["sessions"]:
        return sanitize_text(answer.get("message", "No sessions found"))
    lines = list(_dead_ends(answer))
    for session in answer["sessions"]:
        lines += [*([""] if lines else []), session_text(session)]
    about = "" if answer["tokens_exact"] else "about "
    count, level = counted(answer["total_sessions"], "session"), answer["detail_level"]
    more = {"summary": "; --detail-level detailed or full has more", "detailed": "; --detail-level full has more"}
    lines += ["", f"-- {count}, {about}{answer['token_estimate']} tokens, {level}{more.get(level, '')}"]
    return "\n".join(lines)


def _dead_ends(answer: dict[str, Any]) -> Iterator[str]:
    if answer["dead_ends"] or answer.get("dead_ends_left_out"):
        yield "Dead ends: do not try these again"
    for dead_end in answer["dead_ends"]:
        # A dead end without a session is one of the resumed session.
        source = f"  [{dead_end['session']}]" if "session" in dead_end else ""
        source += f"  [imported by {dead_end['imported']}]" if "imported" in dead_end else ""
        yield _item(f"{dead_end_text(dead_end)}{source}")
    if left_out := answer.get("dead_ends_left_out"):
        yield f"  ({left_out} more left out)"


def session_text(session: dict[str, Any]) -> str:
    """Return one session of an answer as text, without empty sections."""
    lines = [f"Session {sanitize_text(session['session_id'])}"]
    lines.append(f"  {', '.join(sanitize_text(str(session[name])) for name in _FACTS if session[name])}")
    if mark := session.get("imported"):
        lines.append(
            f"  Imported by {sanitize_text(mark['by'])} from {sanitize_text(mark['format'])}: these are its own claims."
        )
    if session.get("no_report"):
        lines.append("  There is no report; this comes from the session's events.")
    for name, title in _TITLES.items():
        if texts := _texts(name, session.get(name)):
            lines += [title, *map(_item, texts)]
    if session.get("full_markdown"):
        lines += ["Full report", sanitize_text(session["full_markdown"]).rstrip("\n")]
    if session.get("left_out"):
        lines += ["Left out", *map(_item, left_out_lines(session["left_out"]))]
    return "\n".join(lines)


def _texts(name: str, value: Any) -> Sequence[str]:
    match name, value:
        case _, None | "":
            return ()
        case "epistemic_deltas", dict():
            changes = [f"{vector.replace('_', ' ')} {change:+.2f}" for vector, change in value.items()]
            return [", ".join(changes)] if changes else ()
        case "knowledge_gaps_filled", list():
            return [f"{gap['gap']}: {gap['before']} → {gap['after']}{_change(gap)}" for gap in value]
        case "assessments", list():
            return [_assessment(assessment) for assessment in value]
        case _:  # the texts and lists of texts
            return [value] if isinstance(value, str) else value


def _change(gap: dict[str, Any]) -> str:
    return f" ({gap['confidence_change']:+.2f})" if "confidence_change" in gap else ""


def _assessment(assessment: dict[str, Any]) -> str:
    vectors = ", ".join(f"{name} {value:.2f}" for name, value in assessment.get("vectors", {}).items())
    phase = f"{assessment['phase']} {assessment['round']}" if assessment.get("round") else assessment["phase"]
    return ": ".join(filter(None, (phase, vectors, assessment.get("reasoning"))))


def left_out_lines(left_out: dict[str, Any]) -> list[str]:
    """Return the lines about the omitted parts of a session, and the command that shows them."""
    parts = []
    for name, value in left_out.items():
        if name != "see":
            text = ", ".join(str(part).replace("_", " ") for part in value) if isinstance(value, list) else value
            parts.append(f"{name.replace('_', ' ')}: {text}")
    return ["; ".join(parts), f"see: {left_out['see']}"]


def _item(text: str) -> str:
    return "  - " + "\n    ".join(sanitize_text(text).strip().splitlines() or [""])
