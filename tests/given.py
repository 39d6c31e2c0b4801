"""For tests of the form *given these events, expect this state*: events without a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import GIVEN_MS

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    State = TypeVar("State")


def fact(author: str, data: EventData, *, at_s: float = 0, stream: str | None = None, index: int = 0) -> Event:
    """Return the event with which ``author`` states ``data``, ``at_s`` seconds after the start."""
    kind = KIND_OF[type(data)]
    return Event(
        index=index,
        id=f"event:{index:064x}",
        accepted_ms=GIVEN_MS + int(at_s * 1000),
        key="00" * 32,
        ledger="0" * 32,
        kind=kind,
        stream=stream or f"{KINDS[kind].stream}/x",
        author=author,
        at="2026-02-12T10:00:00Z",
        causes=[],
        data=data,
    )


def fold(transition: Callable[[State | None, Event], State], *events: Event) -> State:
    """Return the state after events that must all be allowed."""
    state: State | None = None
    for event in events:
        state = transition(state, event)
    assert state is not None
    return state


def refusal(transition: Callable[[State | None, Event], State], state: State | None, event: Event) -> Refused:
    """Return the refusal of an event that is not allowed in this state."""
    with pytest.raises(Refused) as refused:
        transition(state, event)
    return refused.value
