"""The rules: which agent may append which kind in which state. A kind without a rule is refused.

The tables of ``proto/rules`` decide most families (``lifecycle.machine``), and packages bring the rules of others. A
rule raises ``Refused`` or returns the new state of the event's stream. Rules depend on the log alone; their only
clock is ``accepted_ms``. A changed rule for a published kind would make old entries invalid: add a new kind instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from deedbook.ledger.admission import authority, declared
from deedbook.ledger.admission.authority import Rule
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.events.body import Event
from deedbook.ledger.families import Family
from deedbook.ledger.format.forms import is_own
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
)
from deedbook.ledger.lifecycle.authority import Agents, has_role
from deedbook.ledger.lifecycle.machine import WORKING, StateMachine, Transition, check_roles
from deedbook.ledger.log.keys import dependents_key
from deedbook.ledger.log.records import StreamState
from deedbook.ledger.packages import families_cached_max, family_of, part_of


def check_working_role(agents: Agents, name: str) -> None:
    """Refuse an agent without a valid working role. Raises Refused: ``NOT_AUTHORIZED``."""
    if not has_role(agents, name, WORKING):
        message = f"{name} needs the role agent, reviewer, human or service: ask an admin to grant one"
        raise Refused("NOT_AUTHORIZED", message, name=name)


def _by_machine(machine: StateMachine[Any] | Transition[Any]) -> Rule:
    def rule(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
        after: StreamState = machine.decide(current, event, state)  # type: ignore[arg-type]  # the state is the machine's
        return after

    return rule


def _handoff(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """Decide by the state machine, then update the numbers of dependents, which the search for cycles uses."""
    assert current is None or isinstance(current, handoff.HandoffState)  # noqa: S101 - its stream's type determines it
    before, after = () if current is None else current.depends_on, handoff.MACHINE.decide(current, event, state)
    if after.depends_on != before:
        for name in sorted({*after.depends_on} ^ {*before}):
            change = 1 if name in after.depends_on else -1
            state.put(dependents_key(name), state.dependents(name) + change)
    return after


def _imported(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """Decide a record of another tool by the rules of its stream."""
    return _OF_STREAM[event.stream.partition("/")[0]](event, state, current)


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
    **{family: _by_machine(machine) for family, machine in MACHINES.items()},
    "handoff": _handoff,
}
OF_KIND: Final = {**authority.OF_KIND, **declared.OF_KIND}
"""The rules of the kinds of authority."""
_OF_CORE: Final[dict[str, Rule]] = {
    name: rule
    for name, kind in CORE_KINDS.items()
    if (rule := OF_KIND.get(name) or _OF_STREAM.get(kind.stream)) is not None
} | {"record.imported": _imported}


def rule_of(kind: str) -> Rule | None:
    """Return the rule that decides events of a kind: declared, of the core, or of a family. None if there is none.

    Raises Refused: ``FAMILY_UNUSABLE``.
    """
    if is_own(kind):
        return declared.published
    return _OF_CORE.get(kind) or _of_family(kind.partition(".")[0])


@lru_cache(families_cached_max)
def _of_family(name: str) -> Rule | None:
    machine = machine_of(name)
    return None if machine is None else _by_machine(machine)


def machine_of(stream_type: str) -> StateMachine[Any] | Transition[Any] | None:
    """Return the state machine of the streams ``stream_type/ID``; None if they have none.

    Raises Refused: ``FAMILY_UNUSABLE``.
    """
    machine = MACHINES.get(stream_type)
    if machine is None and (family := family_of(stream_type)) is not None:
        return load_rules(family)
    return machine


def unread(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """Decide an event of a family that an audit cannot read: its author needs a working role, as in all families."""
    check_roles(WORKING, event, state)
    return current


def load_rules(family: Family) -> StateMachine[Any] | Transition[Any]:
    """Return the rules that a family's package brings. Raises Refused: ``FAMILY_UNUSABLE``."""
    rules = part_of(family, family.rules)
    if not isinstance(rules, StateMachine | Transition):
        message = f"the family {family.name}: {family.rules} is no StateMachine and no Transition: update its package"
        raise Refused("FAMILY_UNUSABLE", message, family=family.name)
    return rules


# Events of these kinds make cached keys and roles outdated. They are all kinds with a rule of their own.
AUTHORITY_KINDS: Final = frozenset(OF_KIND)
