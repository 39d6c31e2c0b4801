"""Maps each kind of note to the data of an event, or to the reason why it has none. Pure.

The keys are those of the compressed report and of the tool's own records. If an original lacks a required field, the
event gets a default or "not said", and ``said`` names the field under ``filled in``. An unknown calibration word
becomes ``not_assessable``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

from deedbook.consumers.importers.empirica.values import Reading, label_max_chars, line_max_chars, type_of
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import session
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.session import Calibration, Deltas, FilledGap, ReportGenerated, ReportType
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.records.marks import UNKNOWN

NOT_SAID: Final = "(not said)"
GENERATOR: Final = "empirica"
_VECTORS: Final = session.Vectors.__struct_fields__
_gaps_max: Final = 1_000


class NoteContext(NamedTuple):
    """Facts about a note beside its fields: the parts of its ref's name below the kind, and its author."""

    name: list[str]
    author: str


class NoteMapping(NamedTuple):
    """The event data of a note, the fields that were filled in, and further remarks for ``said``."""

    data: EventData
    filled: tuple[str, ...] = ()
    said: dict[str, str] = {}


def report(note: Reading, about: NoteContext) -> NoteMapping:
    """Return the report of a compressed handoff, full or planning."""
    filled: list[str] = []

    def or_default(field: str, value: Any, default: Any) -> Any:
        if not value:
            filled.append(field)
        return value or default

    deltas, report_type = _deltas(note), _report_type(note)
    task, findings, context = note.text("task"), note.texts("findings"), note.text("next")
    if not (task or findings or context):
        raise Refused("INVALID_FORMAT", "the report has neither a task nor findings nor a context")
    status = _calibration(note)
    data = ReportGenerated(
        report_type=report_type or ("complete" if deltas is not None else "planning"),
        ai_id=about.author or UNKNOWN,
        task_summary=or_default("task_summary", task, NOT_SAID),
        key_findings=or_default("key_findings", findings, [NOT_SAID]),
        recommended_next_steps=note.texts("recommend"),
        calibration_status=status,
        knowledge_gaps_filled=_gaps(note),
        remaining_unknowns=note.texts("unknowns"),
        investigation_tools=note.texts("tools", label_max_chars),
        next_session_context=context,
        artifacts_created=note.texts("artifacts", line_max_chars),
        epistemic_deltas=deltas or Deltas(),
        duration_seconds=_duration(note),
        generator=GENERATOR,
    )
    return NoteMapping(data, tuple(filled))


def assessment(note: Reading, about: NoteContext) -> NoteMapping:
    """Return the assessment of a checkpoint; phase and round come from the ref if the note has none."""
    name = note.text("phase", chars_max=label_max_chars) or (about.name[1] if len(about.name) > 1 else "")
    phase: session.Phase | None = _one_of(session.Phase, name.strip().upper())
    if phase is None:
        raise Refused("INVALID_FIELD", f"{name!r} is not a phase" if name else "it names no phase")
    if phase != name:
        note.complain("phase", name, f"read as {phase}")
    number = note.count("round")
    if number is None and len(about.name) > 2 and re.fullmatch("[0-9]{1,9}", about.name[2]):
        number = int(about.name[2])
    assessed = _vectors(note.below("vectors"))
    meta = note.below("meta")
    task, reasoning = meta.text("task_summary"), meta.text("reasoning")
    texts = [task, reasoning] if task.strip() != reasoning.strip() else [reasoning]
    data = session.AssessmentRecorded(
        phase=phase,
        vectors=session.Vectors(**assessed),
        reasoning=note.fitted("meta", "\n\n".join(text for text in texts if text), 40_000),
        round=number or 0,
        overall_confidence=note.number("overall_confidence"),
    )
    return NoteMapping(data)


def finding(note: Reading, _about: NoteContext) -> NoteMapping:
    """Return a finding."""
    evidence = note.texts("evidence", line_max_chars)
    text, weight = _logged(note, "finding")
    return NoteMapping(session.FindingLogged(finding=text, evidence=evidence, **weight))


def unknown(note: Reading, _about: NoteContext) -> NoteMapping:
    """Return an unknown. Our event cannot say that it was resolved, so ``said`` keeps that."""
    text, weight = _logged(note, "unknown")
    return NoteMapping(session.UnknownLogged(unknown=text, **weight))


def dead_end(note: Reading, _about: NoteContext) -> NoteMapping:
    """Return a dead end."""
    why = note.text("why_failed")
    text, weight = _logged(note, "approach", "dead_end")
    data = session.DeadEndLogged(approach=text, why_failed=why or NOT_SAID, **weight)
    return NoteMapping(data, () if why else ("why_failed",))


def mistake(note: Reading, _about: NoteContext) -> NoteMapping:
    """Return a mistake as a dead end: why it was wrong, and how to prevent it."""
    why, prevention = note.text("why_wrong"), note.text("prevention")
    reasons = "\n".join(part for part in (why, f"Prevention: {prevention}" if prevention else "") if part)
    text, weight = _logged(note, "mistake")
    why = note.fitted("why_wrong", reasons, 40_000) or NOT_SAID
    data = session.DeadEndLogged(approach=text, why_failed=why, **weight)
    return NoteMapping(data, () if reasons else ("why_failed",), {"read as": "a mistake"})


def goal(note: Reading, about: NoteContext) -> NoteMapping:
    """Return a goal as the start of its session."""
    nested = note.below("goal_data")
    objective = note.text("objective") or nested.text("objective")
    if not objective:
        raise Refused("INVALID_FORMAT", "the goal has no objective")
    return NoteMapping(session.SessionStarted(task=objective, ai_id=about.author or UNKNOWN))


READ_BY: Final[dict[str, Callable[[Reading, NoteContext], NoteMapping]]] = {
    "handoff": report,
    "session": assessment,
    "findings": finding,
    "unknowns": unknown,
    "dead_ends": dead_end,
    "mistakes": mistake,
    "goals": goal,
}
ASIDE: Final = {
    "handoff-markdown": "the Markdown of a report is derived from it: the report itself is imported from handoff/ID",
    "tasks": "a session here has no tasks: tasks belong to handoffs, which have a receiver",
    "messages": "there are no messages here: agents pass work on by handoffs",
}
"""The kinds of notes that map to no event, and why."""


def _logged(note: Reading, name: str, other: str = "") -> tuple[str, dict[str, Any]]:
    """Return the logged text and its weight; the text may be in ``NAME_data``."""
    nested = note.below(f"{name}_data")
    inner = nested.text(name)
    text = note.text(name, *([other] if other else [])) or inner
    if not text:
        raise Refused("INVALID_FORMAT", f"the note has no text in its field {name}")
    impact = note.number("impact")
    if nested.fields.get("impact") == impact:
        nested.take("impact")  # the tool writes this value twice; ``said`` has it once
    if inner not in ("", text):
        nested.fields[name] = inner
    return text, {"impact": impact, "topic": note.text("subject", chars_max=label_max_chars)}


def _vectors(vectors: Reading) -> dict[str, float]:
    """Return the valid vectors; vectors nested in groups are taken out of them and listed as dirty."""
    clean = {name: vectors.number(name) for name in _VECTORS}
    for group in [name for name, value in vectors.fields.items() if isinstance(value, dict)]:
        names = [name for name in vectors.fields[group] if name in _VECTORS]
        if not names:
            continue
        vectors.complain(group, vectors.fields[group], "vectors nested in a group: they were taken out of it")
        nested = vectors.below(group)
        for name in names:
            value = nested.number(name)
            if clean[name] is None:
                clean[name] = value
            else:
                nested.complain(name, value, f"{name} occurs twice: the one outside the group counts")
    return {name: value for name, value in clean.items() if value is not None}


def _deltas(note: Reading) -> Deltas | None:
    if note.fields.get("deltas") is None:
        return None
    deltas = note.below("deltas")
    return Deltas(**{name: deltas.number(name, -1.0) for name in Deltas.__struct_fields__})


def _report_type(note: Reading) -> ReportType | None:
    report_type: ReportType | None = _one_of(ReportType, note.fields.get("type"))
    type_ = note.take("type")
    if report_type is None and type_ is not None:
        note.complain("type", type_, "not a type of report")
    return report_type


def _calibration(note: Reading) -> Calibration:
    """Return the label of a report; an unknown word stays in ``said``."""
    name = "cal" if "cal" in note.fields else "calibrated"
    status: Calibration | None = _one_of(Calibration, note.fields.get(name))
    if status is not None or not isinstance(note.fields.get(name), str):
        value = note.take(name)
        if status is None and value is not None:
            note.complain(name, value, f"expected a calibration word, not {type_of(value)}")
    return status or "not_assessable"


def _one_of(literal: Any, value: Any) -> Any:
    return next((known for known in get_args(literal) if known == value), None)


def _duration(note: Reading) -> int | None:
    """Return a duration in whole seconds; one with a fraction also goes to ``said`` as written."""
    duration = note.fields.get("dur")
    seconds = note.number("dur", 0, json_integer_max)
    if seconds is not None and seconds != int(seconds):
        note.fields["dur"] = duration
    return None if seconds is None else int(seconds)


def _gaps(note: Reading) -> list[FilledGap]:
    items = note.take("gaps")
    if items is not None and not isinstance(items, list):
        note.complain("gaps", items, f"expected a list, not {type_of(items)}")
    gaps: list[FilledGap] = []
    for number, item in enumerate(items[:_gaps_max] if isinstance(items, list) else []):
        if not isinstance(item, dict):
            note.complain(f"gaps[{number}]", item, f"expected an object, not {type_of(item)}")
            continue
        gap = note.nested(f"gaps[{number}]", item)
        name = gap.text("g", chars_max=line_max_chars) or NOT_SAID
        before, after = gap.text("b") or NOT_SAID, gap.text("a") or NOT_SAID
        gaps.append(FilledGap(gap=name, before=before, after=after, confidence_change=gap.number("c", -1.0)))
    if isinstance(items, list) and len(items) > _gaps_max:
        note.complain("gaps", len(items), f"only the first {_gaps_max} were imported: the original is complete")
    return gaps
