"""One handoff as people and agents act on it: everything about it, why it waits, and what programs need of it.

Each answer is computed from records, so it is the same from a view and from verified entries.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.projections.answers.query import Answer, ById, ByIds
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.dependencies import known_facts
from deedbook.projections.handoffs.facts import HandoffFacts
from deedbook.projections.handoffs.fold import LOG, row_of_handoff
from deedbook.projections.handoffs.next import awaited_operations, criteria_of
from deedbook.projections.handoffs.record import HandoffRecord, content_of, records_of, state_of
from deedbook.projections.handoffs.why import explain

_NAMES: Final = {"sender": "from", "receiver": "to"}
# The fields for programs that act on a handoff, or import over it.
_BRIEFLY: Final = (
    *("id", "from", "importer", "to", "reviewer", "status", "version", "completion", "claimed_status", "claimed_done"),
    *("updated_ms", "source", "original", "format", "template_index"),
)
_LOGGED: Final = ("event_index", "day", "at", "author", "kind", "text", "position")


class References(msgspec.Struct, frozen=True):
    """The handoffs that depend on a handoff, and those that answer it: ``{"id", "status"}`` of each."""

    dependents: list[dict[str, Any]]
    answered_by: list[dict[str, Any]]


def find_record(source: RowSource, reference: str) -> HandoffRecord:
    """Return the record of a handoff, by its id, its file's name (``ID.md``) or an unambiguous beginning of it.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
    """
    name = reference.removeprefix("handoff/")
    if records := records_of(source, [name]):
        return records[name]
    name = source.id_of("handoff", reference)
    return records_of(source, [name])[name]


def show_handoff(source: RowSource, args: ById) -> Answer:
    """Return everything about one handoff: content, checks, log, dependencies with their status, and ``why``."""
    record = find_record(source, args.id)
    known = known_facts(source, {record.id: record})
    references = source.view("handoffs.references", {"id": record.id}, References)
    state, content = state_of(record), content_of(record)
    log = [{name: line[name] for name in _LOGGED} for line in source.select(LOG, "event_index", handoff_id=record.id)]
    why = _why(record, known)
    return _fields(record) | {
        "notes": msgspec.structs.asdict(content.notes),
        "artifacts": list(record.artifacts),
        "reasoning_refs": list(content.reasoning_refs),
        "result_refs": list(record.result_refs),
        "tasks": [
            {"position": position, "text": text, "done": mark == "done"}
            for position, (text, mark) in enumerate(zip(content.tasks, state.tasks, strict=True))
        ],
        "criteria": criteria_of(record),
        "depends_on": [{"id": on, "status": known[on].status if on in known else None} for on in state.depends_on],
        "dependents": references.dependents,
        "answered_by": references.answered_by,
        "log": [line | {"line": f"- {line['day']} [{line['author']}] {line['text']}"} for line in log],
        "why": why,
        "is_ready": why["is_ready"],
    }


def why_handoff(source: RowSource, args: ById) -> Answer:
    """Return why a handoff is ready or not, as ``explain``, and the agents it waits for with their acts (``waits``)."""
    record = find_record(source, args.id)
    return _why(record, known_facts(source, {record.id: record}))


def _why(record: HandoffRecord, known: dict[str, HandoffFacts]) -> Answer:
    facts = known[record.id]
    return explain(facts, known) | {"waits": awaited_operations(facts, record)}


def facts_of_handoff(source: RowSource, args: ById) -> Answer:
    """Return a handoff's parties, status, version, claims and origin."""
    return _briefly(find_record(source, args.id))


def existing_handoffs(source: RowSource, args: ByIds) -> Answer:
    """Return ``{"handoffs": {id: …}}``, each as ``handoffs.facts`` answers; unknown ids are left out."""
    return {"handoffs": {name: _briefly(record) for name, record in records_of(source, args.ids).items()}}


def _briefly(record: HandoffRecord) -> dict[str, Any]:
    fields = _fields(record)
    return {name: fields[name] for name in _BRIEFLY}


def _fields(record: HandoffRecord) -> dict[str, Any]:
    row = msgspec.structs.asdict(row_of_handoff(record))
    return {_NAMES.get(name, name): value for name, value in row.items()}
