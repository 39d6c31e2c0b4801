"""The fold of decisions: a row for each, and one for each path that it is about."""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.ledger.events import decision as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.decision import MACHINE
from deedbook.ledger.lifecycle.machine import OwnedState
from deedbook.projections.decisions.paths import keys_of
from deedbook.projections.views.projection import Projection, Row, Rows, Table, json_text, kinds_of, names_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class DecisionRow(Row, frozen=True):
    """A decision after its events; ``paths`` is JSON."""

    id: str
    status: str = ""
    author: str = ""
    text: str = ""
    why: str = ""
    paths: str = "[]"
    contract: bool = False
    made_index: int = -1
    made_ms: int = 0
    superseded_by: str | None = None
    reason: str = ""
    ended_by: str | None = None
    ended_index: int | None = None
    ended_ms: int | None = None


class DecisionPathRow(Row, frozen=True):
    """A file or folder that a decision is about, as ``paths.path_key`` writes it."""

    decision_id: str
    path: str


DECISIONS: Final = Table(
    "decisions",
    DecisionRow,
    primary_key=("id",),
    owner="id",
    indexes=(("made_index",), ("made_ms",), ("superseded_by",), ("ended_index",)),
)
PATHS: Final = Table(
    "decision_paths",
    DecisionPathRow,
    primary_key=("decision_id", "path"),
    owner="decision_id",
    indexes=(("path",),),
    long=("path",),
)


def fold(state: DecisionRow, event: Event) -> DecisionRow:
    """Return the decision after one more of its events."""
    lifecycle = MACHINE.decide(OwnedState(state.author, state.status) if state.status else None, event)
    match event.data:
        case kinds.DecisionMade() as data:
            return msgspec.structs.replace(
                state,
                status=lifecycle.status,
                author=lifecycle.owner,
                text=data.text,
                why=data.why,
                paths=json_text(data.paths),
                contract=data.contract,
                made_index=event.index,
                made_ms=event.accepted_ms,
            )
        case kinds.DecisionWithdrawn() as data:
            return msgspec.structs.replace(
                state,
                status=lifecycle.status,
                superseded_by=data.by or None,
                reason=data.reason,
                ended_by=event.author,
                ended_index=event.index,
                ended_ms=event.accepted_ms,
            )
        case _:  # no other kind is handled
            return state


def rows_of(state: DecisionRow) -> Rows:
    """Return the rows of a decision that exists."""
    keys = keys_of(msgspec.json.decode(state.paths))
    return (state, *(DecisionPathRow(state.id, key) for key in keys)) if state.status else ()


VIEW: Final = Projection(
    name="decisions",
    version=VIEW_VERSIONS["decisions"],
    handles=kinds_of("decision"),
    tables=(DECISIONS, PATHS),
    state=DecisionRow,
    keys=names_of("decision"),
    fold=fold,
    rows=rows_of,
)
