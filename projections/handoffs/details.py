"""The queries about one handoff: everything about it, why it waits, and the facts that programs need.

Each answer is computed from records, so it is the same from a view and from verified entries.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from deedbook.projections.answers.query import ById, ByIds
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.answers import (
    AskedQuestion,
    ExistingHandoffs,
    HandoffSummary,
    LogLine,
    Notes,
    ShownHandoff,
    Task,
    Why,
)
from deedbook.projections.handoffs.dependencies import blockers_named_max, facts_from, known_records
from deedbook.projections.handoffs.fold import LOG, row_of_handoff
from deedbook.projections.handoffs.lines import LinkedHandoff, References
from deedbook.projections.handoffs.next import criteria_of, dated, items_of_handoff
from deedbook.projections.handoffs.record import HandoffRecord, content_of, records_of, state_of
from deedbook.projections.handoffs.waits import waiting
from deedbook.projections.handoffs.why import explain

T = TypeVar("T", bound=msgspec.Struct)

_LOGGED: Final = ("event_index", "day", "at", "author", "kind", "text", "position")


def find_record(source: RowSource, reference: str) -> HandoffRecord:
    """Return the record of a handoff, by its id, its file's name (``ID.md``) or an unambiguous beginning of it.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
    """
    name = reference.removeprefix("handoff/")
    if records := records_of(source, [name]):
        return records[name]
    name = source.id_of("handoff", reference)
    return records_of(source, [name])[name]


def show_handoff(source: RowSource, args: ById) -> ShownHandoff:
    """Return everything about one handoff."""
    record = find_record(source, args.id)
    why = _why(source, record)
    known = records_of(source, state_of(record).depends_on)
    references = source.view("handoffs.references", {"id": record.id}, References)
    state, content = state_of(record), content_of(record)
    return _fields(
        ShownHandoff,
        record,
        notes=Notes(**msgspec.structs.asdict(content.notes)),
        artifacts=list(record.artifacts),
        reasoning_refs=list(content.reasoning_refs),
        result_refs=list(record.result_refs),
        tasks=[
            Task(position=position, text=text, done=mark == "done", evidence=evidence)
            for position, (text, mark, evidence) in enumerate(
                zip(content.tasks, state.tasks, record.task_evidence, strict=True)
            )
        ],
        criteria=criteria_of(record),
        questions=[
            AskedQuestion(
                position=position,
                text=told.question,
                by=asked.by,
                to=asked.to,
                place=told.place,
                mark=mark,
                answer=told.answer,
                comment=told.comment,
                event_index=told.index,
            )
            for position, (told, asked, mark) in enumerate(
                zip(record.questions, state.asked, state.questions, strict=True)
            )
        ],
        depends_on=[
            LinkedHandoff(id=on, status=state_of(known[on]).status if on in known else None) for on in state.depends_on
        ],
        dependents=references.dependents,
        answered_by=references.answered_by,
        log=[_log_line(line) for line in source.select(LOG, "event_index", handoff_id=record.id)],
        why=why,
        is_ready=why.is_ready,
    )


def _log_line(line: dict[str, Any]) -> LogLine:
    fields = {name: line[name] for name in _LOGGED}
    return LogLine(**fields, line=f"- {line['day']} [{line['author']}] {line['text']}")


def why_handoff(source: RowSource, args: ById) -> Why:
    """Return why a handoff is ready or not, and the agents it waits for with their operations."""
    return _why(source, find_record(source, args.id))


def _why(source: RowSource, record: HandoffRecord) -> Why:
    records, blocking = known_records(source, {record.id: record}, blockers_max=blockers_named_max)
    known = facts_from(source, records)
    why = explain(known[record.id], known)
    chains = [on for reason in why.reasons for on in reason.chain if on in records]
    blockers = dict.fromkeys([*chains, *blocking]) if chains else {}
    items = items_of_handoff(record, known[record.id], waiting(known[record.id]))
    for name in blockers:
        acting = [(agent, wait) for agent, wait in waiting(known[name]) if not wait.is_notice]
        items += items_of_handoff(records[name], known[name], acting)
    return msgspec.structs.replace(why, waits=dated(source, items))


def facts_of_handoff(source: RowSource, args: ById) -> HandoffSummary:
    """Return a handoff's parties, status, version, claims, origin and cited reasonings."""
    return _summary(find_record(source, args.id))


def existing_handoffs(source: RowSource, args: ByIds) -> ExistingHandoffs:
    """Return those of these handoffs that exist."""
    records = records_of(source, args.ids)
    return ExistingHandoffs(handoffs={name: _summary(record) for name, record in records.items()})


def _summary(record: HandoffRecord) -> HandoffSummary:
    return _fields(HandoffSummary, record, reasoning_refs=list(content_of(record).reasoning_refs))


def _fields(form: type[T], record: HandoffRecord, **fields: Any) -> T:
    """Return an answer with the fields of the handoff's row that it has, and with ``fields``."""
    row = msgspec.structs.asdict(row_of_handoff(record))
    return form(**{name: value for name, value in row.items() if name in form.__struct_fields__} | fields)
