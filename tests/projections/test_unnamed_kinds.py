"""A fold refuses data of an unknown kind, instead of folding it as another kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_examples import EXAMPLES
from given import fact

from deedbook.ledger.events import KINDS
from deedbook.ledger.events.fields import EventData
from deedbook.projections.agents import fold as agents
from deedbook.projections.reasoning import fold as reasoning
from deedbook.projections.sessions import fold as sessions
from deedbook.projections.views.projection import Projection


class Unnamed(EventData, frozen=True):
    """Data of a kind that no fold handles."""


@pytest.mark.parametrize(
    ("view", "started"),
    [(agents.VIEW, "agent.registered"), (reasoning.VIEW, "reasoning.started"), (sessions.VIEW, "session.started")],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_fold_refuses_data_that_it_does_not_name(view: Projection[Any], started: str) -> None:
    first = fact("claude", msgspec.convert(EXAMPLES[started], KINDS[started].data))
    state = view.fold(view.state(first.name), first)
    with pytest.raises(NotImplementedError, match="has no case for it"):
        view.fold(state, msgspec.structs.replace(first, data=Unnamed()))
