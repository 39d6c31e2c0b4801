"""The fold of declared kinds: a row for each, and the line in words of each of their events."""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.declared import DeclaredData, KindDeclared
from deedbook.ledger.format.forms import OWN, is_own
from deedbook.ledger.lifecycle.declared import KindRecord, check_published, schema_of
from deedbook.projections.kinds.words import line_of
from deedbook.projections.views.projection import Logged, Projection, Row, Rows, Table, json_text
from deedbook.projections.views.registry import VIEW_VERSIONS


class KindRow(Row, frozen=True):
    """A declared kind; ``roles`` and ``schema`` are JSON, ``schema`` with its properties in the declared order.

    ``phrase`` says in words what happened, and ``stream_type`` is the type of the streams.
    """

    name: str
    phrase: str = ""
    title: str = ""
    description: str = ""
    stream_type: str = ""
    roles: str = "[]"
    schema: str = "{}"
    author: str = ""
    declared_index: int = -1
    declared_ms: int = 0


class KindEventRow(Row, frozen=True):
    """An event of a declared kind in words: the kind's phrase, and the fields by the titles of the schema."""

    event_index: int
    phrase: str
    line: str


KINDS: Final = Table("kinds", KindRow, primary_key=("name",), owner="name", indexes=(("declared_index",),))
KIND_EVENTS: Final = Table("kind_events", KindEventRow, primary_key=("event_index",))


def keys(event: Event) -> tuple[str, ...]:
    """Return the declared kind: the one that the event declares, or the kind of the event."""
    return (event.kind,) if is_own(event.kind) else (event.name,)


def fold(state: KindRow, event: Event) -> KindRow:
    """Return the kind after its declaration. Its events change nothing. Raises Refused: no gate admits the event."""
    is_declared = state.declared_index >= 0
    if not isinstance(event.data, KindDeclared):
        if not is_declared:
            raise Refused("UNKNOWN_KIND", f"the kind {event.kind} is not declared", kind=event.kind)
        record = KindRecord(state.name, state.declared_index, state.stream_type, (), state.schema)
        check_published(record, event)
        return state
    if is_declared:
        raise Refused("KIND_EXISTS", f"{state.name} was declared at entry {state.declared_index}", kind=state.name)
    data = event.data
    return KindRow(
        name=data.name,
        phrase=data.phrase,
        title=data.title,
        description=data.description,
        stream_type=data.stream,
        roles=json_text(data.roles),
        schema=msgspec.json.encode(data.schema).decode(),
        author=event.author,
        declared_index=event.index,
        declared_ms=event.accepted_ms,
    )


def added(state: KindRow | None, logged: Logged) -> Rows:
    """Return the line of an event of a declared kind."""
    data = logged.event.data
    if state is None or not isinstance(data, DeclaredData):
        return ()
    return (KindEventRow(logged.event.index, state.phrase, line_of(data.fields, schema_of(state.schema))),)


def rows(state: KindRow) -> Rows:
    """Return the row of a kind that is declared."""
    return (state,) if state.declared_index >= 0 else ()


VIEW: Final = Projection(
    name="kinds",
    version=VIEW_VERSIONS["kinds"],
    handles=frozenset({"kind.declared", OWN}),
    tables=(KINDS, KIND_EVENTS),
    state=KindRow,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
