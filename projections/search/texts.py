"""The human text of each kind of event, for the search and for lists of events.

Briefs and validations have no text, because they repeat steps, and a search should find a text once. Tests compare the
tables with ``KINDS``, so a new kind needs a decision. A family brings a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from msgspec.structs import asdict

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import (
    CORE_KINDS,
    KIND_OF,
    decision,
    declared,
    handoff,
    kinds_on,
    question,
    reasoning,
    review,
    session,
    snapshot,
    subject,
)
from deedbook.ledger.events.declared import DeclaredData, texts_in
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.ledger.packages import family_of, part_of
from deedbook.ledger.seal.reference import read_reference
from deedbook.projections.briefs.text import one_line
from deedbook.projections.kinds.words import line_of
from deedbook.projections.reports.compressed import shorten

first_words_max_chars: Final = 80


def texts_of(data: EventData, name: str) -> list[str]:
    """Return the texts of an event's data, in order, without empty ones; ``name`` is the name of its stream.

    A handoff is also found by its id, which people say and write like a title.
    """
    texts = list(_imported(data) if isinstance(data, RecordImported) else _texts(data))
    is_import = isinstance(data, RecordImported) and data.mapped_kind == "handoff.created"
    if isinstance(data, handoff.HandoffCreated) or is_import:
        texts.insert(0, name)
    return [text for text in map(str.strip, texts) if text]


def first_words(data: EventData) -> str:
    """Return the beginning of an event's text, on one line, by which a person recognizes it in a list; "" without text.

    An imported record begins with its mapped text, because its author and its source have fields of their own. A sealed
    reference stays whole, so that a reader with the key can open it.
    """
    if isinstance(data, RecordImported):
        mapped = read_mapped(data)
        texts: Iterable[str] = (
            *(() if mapped is None else _texts(mapped[0])),
            data.body,
            data.reason,
        )
    elif isinstance(data, DeclaredData):
        return line_of(data.fields)
    else:
        texts = _texts(data)
    line = next(filter(None, map(one_line, texts)), "")
    return shorten(line, first_words_max_chars) if read_reference(line) is None else line


def _texts(data: EventData) -> Iterable[str]:
    """Return the texts of an event, by the tables of the core and of its family."""
    form = type(data)
    if (of := TEXTS_OF.get(form)) is not None:
        return of(data)
    if (of := _texts_of_family(form)) is None:
        return ()
    try:
        return [*map(str, of(data))]
    except Exception:  # noqa: BLE001 - a package may raise anything, and lists show events of all kinds
        return ()


@cache
def _texts_of_family(form: type[EventData]) -> Callable[[Any], Iterable[str]] | None:
    kind = KIND_OF.get(form, "")
    return None if kind in CORE_KINDS or not kind else texts_of_family(kind.partition(".")[0]).get(form)


def texts_of_family(name: str) -> Mapping[type[Any], Callable[[Any], Iterable[str]]]:
    """Return the table of texts that a family brings; an empty one if it has none that can be used.

    So the events of such a family are shown without texts, and `deed doctor` says why.
    """
    try:
        family = family_of(name)
        table = part_of(family, family.texts) if family is not None and family.texts else {}
    except Refused:
        return {}
    return table if isinstance(table, Mapping) else {}


def _imported(data: RecordImported) -> Iterable[str]:
    mapped = read_mapped(data)
    if mapped is not None:
        yield from _texts(mapped[0])
    # Excerpts are taken from the first match: a path comes last, because its words are in every record of its tool.
    yield from (data.body, data.reason, data.claimed_author or "", data.source)


def _handoff(data: handoff.HandoffContent) -> Iterable[str]:
    reason = data.reason if isinstance(data, handoff.HandoffAmended) else ""
    notes = [text for of in asdict(data.notes).values() for text in of]
    return (data.title, data.task, *data.tasks, *data.criteria, *notes, data.context, data.proposal or "", reason)


def _remark(data: Any) -> Iterable[str]:
    return [getattr(data, name) for name in handoff.REMARKS if name in data.__struct_fields__]


def _extended(data: reasoning.ReasoningExtended) -> Iterable[str]:
    for step in data.steps:
        yield from (step.content, step.conclusion or "", *step.evidence, *step.premises)
        yield from (*step.alternatives_considered, *step.assumptions, step.validation_method or "")


def _report(data: session.ReportGenerated) -> Iterable[str]:
    yield data.task_summary
    for texts in (data.key_findings, data.accomplished, data.remaining_unknowns, data.recommended_next_steps):
        yield from texts
    for gap in data.knowledge_gaps_filled:
        yield from (gap.gap, gap.before, gap.after)
    yield data.next_session_context
    yield from data.artifacts_created


def _snapshot(data: snapshot.SnapshotTaken) -> Iterable[str]:
    yield from (data.context_summary, data.domain, data.conclusion, data.reasoning_brief)
    yield from (*data.top_assumptions, *(data.top_evidence_refs or data.evidence_refs))


# Each function takes the data type of its key; the table's type erases that to Any. Other events of a handoff are found
# by their remarks.
TEXTS_OF: Final[dict[type[Any], Callable[[Any], Iterable[str]]]] = {
    kind.data: _remark for kind in kinds_on("handoff").values() if {*handoff.REMARKS} & {*kind.data.__struct_fields__}
} | {
    handoff.HandoffContent: _handoff,
    handoff.HandoffCreated: _handoff,
    handoff.HandoffAmended: _handoff,
    handoff.HandoffQuestionAsked: lambda data: (data.question, data.place or ""),
    handoff.HandoffQuestionAnswered: lambda data: (data.answer,),
    handoff.HandoffCriterionChecked: lambda data: (data.evidence,),
    handoff.HandoffCompleted: lambda data: (data.summary, *data.artifacts),
    handoff.HandoffChangesRequested: lambda data: data.reasons,
    session.SessionStarted: lambda data: (data.task,),
    session.AssessmentRecorded: lambda data: (data.reasoning,),
    session.FindingLogged: lambda data: (data.finding, data.topic, *data.evidence),
    session.UnknownLogged: lambda data: (data.unknown, data.topic),
    session.DeadEndLogged: lambda data: (data.approach, data.why_failed, data.topic),
    session.FindingRetracted: lambda data: (data.reason,),
    session.DeadEndRetracted: lambda data: (data.reason,),
    session.UnknownResolved: lambda data: (data.answer,),
    session.ToolUsed: lambda data: (data.purpose, data.tool, data.topic),
    session.SessionEnded: lambda data: (data.summary,),
    session.ReportGenerated: _report,
    reasoning.ReasoningStarted: lambda data: (data.task, data.domain),
    reasoning.ReasoningExtended: _extended,
    reasoning.AssumptionSettled: lambda data: (data.how, *data.evidence),
    reasoning.StepRetracted: lambda data: (data.reason,),
    reasoning.ReasoningConcluded: lambda data: (data.conclusion, *(data.known_limitations or ())),
    snapshot.SnapshotTaken: _snapshot,
    decision.DecisionMade: lambda data: (data.text, data.why, *data.paths),
    decision.DecisionWithdrawn: _remark,
    question.QuestionAsked: lambda data: (data.question, data.place or ""),
    question.QuestionAnswered: lambda data: (data.answer,),
    question.QuestionSettled: _remark,
    review.ReviewRequested: lambda data: (data.question, data.task, *data.reasons),
    review.ReviewAnswered: _remark,
    subject.SubjectErased: _remark,
    declared.KindDeclared: lambda data: (data.name, data.title, data.description),
    declared.DeclaredData: lambda data: texts_in(data.fields),
}
