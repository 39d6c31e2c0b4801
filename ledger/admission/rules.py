"""The rules: which agent may append which kind in which state. A kind without a rule is refused.

The tables of ``proto/rules`` decide most families (``lifecycle.machine``). A rule raises ``Refused`` or returns the new
state of the event's stream. Rules depend on the log alone; their only clock is ``accepted_ms``. A changed rule for a
published kind would make old entries invalid: add a new kind instead.
"""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.admission.authority import OF_KIND, Rule
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle import (
    decision,
    handoff,
    question,
    reasoning,
    record,
    review,
    session,
    snapshot,
    subject,
    tot,
)
from deedbook.ledger.lifecycle.authority import Agents, has_role
from deedbook.ledger.lifecycle.machine import StateMachine, check_roles
from deedbook.ledger.log.keys import dependents_key
from deedbook.ledger.log.records import StreamState

WORKING: Final = frozenset({"agent", "reviewer", "human", "service"})
"""The roles of which an agent needs one to write; ``admin`` is not a working role."""


def check_working_role(agents: Agents, name: str) -> None:
    """Refuse an agent without a working role that counts. Raises Refused: ``NOT_AUTHORIZED``."""
    if not has_role(agents, name, WORKING):
        message = f"{name} needs the role agent, reviewer, human or service: ask an admin to grant one"
        raise Refused("NOT_AUTHORIZED", message, name=name)


def _by_machine(machine: StateMachine[Any]) -> Rule:
    def rule(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
        after: StreamState = machine.decide(current, event, state)
        return after

    return rule


def _handoff(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """A handoff: its state machine decides. The numbers of dependents follow, for the search for a cycle."""
    assert current is None or isinstance(current, handoff.HandoffState)  # noqa: S101 - as in ``_tot``
    before, after = () if current is None else current.depends_on, handoff.MACHINE.decide(current, event, state)
    if after.depends_on != before:
        for name in sorted({*after.depends_on} ^ {*before}):
            change = 1 if name in after.depends_on else -1
            state.put(dependents_key(name), state.dependents(name) + change)
    return after


def _imported(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """A record of another tool: the rules of the stream that it is on decide."""
    return _OF_STREAM[event.stream.partition("/")[0]](event, state, current)


def _tot(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    check_roles(WORKING, event, state)
    assert current is None or isinstance(current, tot.TotState)  # noqa: S101 - a stream's type determines the type of its state
    return tot.transition(current, event)


def _upload_intent(event: Event, _state: Layer, _: StreamState | None) -> StreamState | None:
    """The intent of an upload is stored beside its blob, because nothing can be deleted from the log."""
    message = f"{event.kind} begins an upload and cannot be appended to the log: run `deed blob put FILE`"
    raise Refused("TRANSITION_NOT_ALLOWED", message, kind=event.kind)


_ALL_MACHINES: Final[tuple[StateMachine[Any], ...]] = (
    decision.MACHINE,
    handoff.MACHINE,
    question.MACHINE,
    reasoning.MACHINE,
    record.MACHINE,
    review.MACHINE,
    session.MACHINE,
    snapshot.MACHINE,
    subject.MACHINE,
)
MACHINES: Final = {machine.family: machine for machine in _ALL_MACHINES}
"""The state machine of each family whose rules are a table in ``proto/rules``."""

_OF_STREAM: Final[dict[str, Rule]] = {
    "blob": _upload_intent,
    "tot": _tot,
    **{family: _by_machine(machine) for family, machine in MACHINES.items()},
    "handoff": _handoff,
}
RULES: Final[dict[str, Rule]] = {
    name: rule for name, kind in KINDS.items() if (rule := OF_KIND.get(name) or _OF_STREAM.get(kind.stream)) is not None
} | {"record.imported": _imported}

# Kinds after which cached keys and roles are stale: all kinds with a rule of their own.
AUTHORITY_KINDS: Final = frozenset(OF_KIND)
