"""The fold of questions about no handoff: a row for each, with its last answer."""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.ledger.events import question as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.machine import OwnedState
from deedbook.ledger.lifecycle.question import MACHINE
from deedbook.projections.views.projection import Projection, Row, Table, kinds_of, names_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class QuestionRow(Row, frozen=True):
    """A question after its events."""

    id: str
    status: str = ""
    author: str = ""
    receiver: str = ""
    question: str = ""
    place: str | None = None
    asked_index: int = -1
    asked_ms: int = 0
    answer: str = ""
    answered_index: int | None = None
    answered_ms: int | None = None
    comment: str = ""
    settled_by: str | None = None
    settled_index: int | None = None
    settled_ms: int | None = None


QUESTIONS: Final = Table(
    "questions",
    QuestionRow,
    primary_key=("id",),
    owner="id",
    indexes=(("receiver", "status"), ("author", "status"), ("asked_index",)),
    long=("receiver", "author"),
)


def fold(state: QuestionRow, event: Event) -> QuestionRow:
    """Return the question after one more of its events."""
    before = OwnedState(state.author, state.status, state.receiver) if state.status else None
    status = MACHINE.decide(before, event).status
    match event.data:
        case kinds.QuestionAsked() as data:
            return msgspec.structs.replace(
                state,
                status=status,
                author=event.author,
                receiver=data.to,
                question=data.question,
                place=data.place,
                asked_index=event.index,
                asked_ms=event.accepted_ms,
            )
        case kinds.QuestionAnswered() as data:
            return msgspec.structs.replace(
                state,
                status=status,
                answer=data.answer,
                answered_index=event.index,
                answered_ms=event.accepted_ms,
            )
        case kinds.QuestionSettled() as data:
            return msgspec.structs.replace(
                state,
                status=status,
                comment=data.comment,
                settled_by=event.author,
                settled_index=event.index,
                settled_ms=event.accepted_ms,
            )
        case _:  # no other kind is handled
            return state


VIEW: Final = Projection(
    name="questions",
    version=VIEW_VERSIONS["questions"],
    handles=kinds_of("question"),
    tables=(QUESTIONS,),
    state=QuestionRow,
    keys=names_of("question"),
    fold=fold,
    rows=lambda question: (question,) if question.status else (),
)
