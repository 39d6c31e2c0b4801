"""The rules: which agent may append which kind in which state. A kind without a rule is refused.

A rule raises ``Refused`` or returns the new state of the event's stream. Rules depend on the log alone; their only
clock is ``accepted_ms``. A changed rule for a published kind would make old entries invalid: add a new kind instead.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Final, TypeVar

from deedbook.ledger.admission.authority import OF_KIND, Rule, known_agent, require_role, typed
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS, handoff
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import Correction
from deedbook.ledger.lifecycle import handoff as handoff_machine
from deedbook.ledger.lifecycle import reasoning, review, session, snapshot, tot
from deedbook.ledger.lifecycle.authority import AgentRecord, compromised_at
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.handoff_status import is_unlocked
from deedbook.ledger.log.keys import stream_key
from deedbook.ledger.log.records import StreamState

S = TypeVar("S", bound=StreamState)

_REVIEWING: Final = frozenset({"reviewer", "human"})
_WORKING: Final = frozenset({"agent", "reviewer", "human", "service"})

# The search for a cycle visits at most so many handoffs. Beyond it the handoff is refused, never half-checked.
dependencies_walked_max: Final = 100_000


def _require_working_role(event: Event, state: Layer) -> None:
    check_working_role(state.agent(event.author), event.author)


def check_working_role(agent: AgentRecord | None, name: str) -> None:
    """Refuse an agent without a working role; ``admin`` is not a working role. Raises Refused: ``NOT_AUTHORIZED``."""
    if agent is None or _WORKING.isdisjoint(agent.roles):
        message = f"{name} needs the role agent, reviewer, human or service: ask an admin to grant one"
        raise Refused("NOT_AUTHORIZED", message, name=name)


def _typed_state(current: StreamState | None, state_type: type[S]) -> S | None:
    assert current is None or isinstance(current, state_type)  # noqa: S101 - a stream's type determines the type of its state
    return current


def _handoff(event: Event, state: Layer, current: StreamState | None) -> HandoffState:
    """The state machine decides on the state; this rule checks agents, roles, keys and dependencies."""
    _require_working_role(event, state)
    before = _typed_state(current, HandoffState)
    after = handoff_machine.transition(before, event)
    match event.data:
        case handoff.HandoffCreated() | handoff.HandoffAmended():
            _check_parties(event, event.data, state)
            if isinstance(event.data, handoff.HandoffAmended) and event.data.hands_over:
                _require_reviewing_role(state, event.author)
            _require_same_reviewer(before, after, event, state)
            _check_cycle(event, after.depends_on, state)
        case RecordImported():
            _check_cycle(event, after.depends_on, state)
        case handoff.HandoffClaimed():
            _require_approval_that_counts(after, event, state)
            _check_dependencies(event, after, state)
        case handoff.HandoffReady():
            require_role(event, state, "service")
            _require_approval_that_counts(after, event, state)
            _check_dependencies(event, after, state)
        case handoff.HandoffSuperseded():
            if _handoff_state(state, event.data.by) is None:
                raise Refused("NOT_FOUND", f"there is no handoff {event.data.by} to supersede it", by=event.data.by)
        case (
            handoff.HandoffApproved()
            | handoff.HandoffRejected()
            | handoff.HandoffCriterionWaived()
            | handoff.HandoffVerified()
            | handoff.HandoffChangesRequested()
        ):
            _require_reviewing_role(state, event.author)
            if isinstance(event.data, handoff.HandoffApproved):
                _require_approval_missing(before, event, state)
            _require_no_import_of_ones_own(event, after, state)
        case _:  # any other kind of a handoff: the state machine alone decides
            pass
    return after


def _compromised_approval(current: HandoffState, state: Layer) -> int | None:
    """Return the entry that calls the key of a handoff's approval compromised, or None. No claim may rest on it."""
    if current.approval_index is None:
        return None
    return compromised_at(state.key, current.approval_key, current.approval_index)


def _require_approval_that_counts(current: HandoffState, event: Event, state: Layer) -> None:
    reported_by = _compromised_approval(current, state)
    if reported_by is not None:
        message = f"the approval of {event.name} (entry {current.approval_index}) does not count: entry {reported_by} \
reports its key as compromised: {current.reviewer} must approve again (`deed handoff approve {quote(event.name)}`)"
        raise Refused("NOT_APPROVED", message, status=current.status, compromised=reported_by)


def _require_approval_missing(before: HandoffState | None, event: Event, state: Layer) -> None:
    """Refuse to approve a handoff twice, unless its first approval does not count."""
    if before is not None and before.status != "pending" and _compromised_approval(before, state) is None:
        message = f"handoff {event.name} is already approved: its receiver can claim it"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status="approved")


def _require_reviewing_role(state: Layer, name: str) -> None:
    if not known_agent(state, name).roles & _REVIEWING:
        message = f"{name} does not have the role reviewer or human: name an agent that has it"
        raise Refused("NOT_AUTHORIZED", message, name=name)


def _require_no_import_of_ones_own(event: Event, after: HandoffState, state: Layer) -> None:
    """The importer of a handoff acts for its sender: only a human may confirm their own import (or their own work)."""
    if after.importer and event.author in after.senders and "human" not in known_agent(state, event.author).roles:
        message = f"{event.author} sent or imported {event.name}: another reviewer or a human must confirm it"
        raise Refused("SELF_APPROVAL", message, reviewer=after.reviewer)


def _check_parties(event: Event, data: handoff.HandoffCreated | handoff.HandoffAmended, state: Layer) -> None:
    known_agent(state, data.to)
    if data.reviewer is not None:
        _require_reviewing_role(state, data.reviewer)
    elif "human" not in known_agent(state, event.author).roles:
        message = f"{event.author} is not a human and must name a reviewer"
        raise Refused("REVIEWER_REQUIRED", message, author=event.author)


def _require_same_reviewer(before: HandoffState | None, after: HandoffState, event: Event, state: Layer) -> None:
    """Refuse an amendment that drops the reviewer: only they hand the review over, while they are a reviewer here."""
    if before is None or before.reviewer in (*before.senders, after.reviewer, event.author):
        return
    named = state.agent(before.reviewer)
    if named is not None and named.roles & _REVIEWING:
        reviewer = before.reviewer
        command = f"`deed handoff amend {quote(event.name)} --reviewer OTHER --as {reviewer}`"
        message = (
            f"only {reviewer} may replace the reviewer of {event.name}: ask {reviewer} to run {command}, or cancel it"
        )
        raise Refused("NOT_AUTHORIZED", message, reviewer=reviewer)


def _check_dependencies(event: Event, after: HandoffState, state: Layer) -> None:
    for wanted in after.depends_on:
        dependency = _handoff_state(state, wanted)
        if dependency is None:
            message = f"{event.name} depends on {wanted}, which does not exist: create it, or amend {event.name}"
            raise Refused("DEPENDENCY_MISSING", message, on=wanted)
        if not is_unlocked(dependency.status, after.unlock_at):
            message = (
                f"{event.name} waits for {wanted}, which is {dependency.status}: it must be {after.unlock_at} first"
            )
            raise Refused("DEPENDENCY_PENDING", message, on=wanted, status=dependency.status)


def _check_cycle(event: Event, depends_on: tuple[str, ...], state: Layer) -> None:
    """Refuse a handoff that would wait for itself.

    The search reads unverified records (``glance``). Before it decides, it reads the verified records: those of the
    cycle for a refusal, because a cycle is one whatever else there is, and otherwise all that it visited.
    """
    came_from: dict[str, str] = {}
    walked = [event.name]
    for name in walked:  # the list grows meanwhile
        if came_from:
            record = state.glance(stream_key(f"handoff/{name}"))
            dependency = None if record is None else _typed_state(record.state, HandoffState)
            depends_on = () if dependency is None else dependency.depends_on
        for wanted in depends_on:
            if wanted not in came_from:
                came_from[wanted] = name
                walked.append(wanted)
        if event.name in came_from:
            cycle = _path_back(came_from, event.name)
            for member in cycle[1:-1]:
                _handoff_state(state, member)
            message = f"these handoffs would wait for each other: {' → '.join(cycle)}"
            raise Refused("DEPENDENCY_CYCLE", message, cycle=cycle)
        if len(came_from) > dependencies_walked_max:
            break
    for dependency_name in came_from:
        _handoff_state(state, dependency_name)
    if len(came_from) > dependencies_walked_max:
        raise Refused("TOO_LARGE", f"{event.name} depends on more than {dependencies_walked_max} handoffs")


def _handoff_state(state: Layer, name: str) -> HandoffState | None:
    """Return the state of a handoff; None if there is none, or if no entry of its stream counts."""
    record = state.stream(f"handoff/{name}")
    return None if record is None else _typed_state(record.state, HandoffState)


def _path_back(came_from: dict[str, str], name: str) -> list[str]:
    path = [name]
    while (parent := came_from[path[-1]]) != name:
        path.append(parent)
    path.append(name)
    return path[::-1]


def _by_machine(state_type: type[S], transition: Callable[[S | None, Event], S]) -> Rule:
    """Return a stream's rule: agents with a working role may do what the state machine allows."""

    def rule(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
        if roles := _ROLES.get(event.kind):
            require_role(event, state, *roles)
        else:
            _require_working_role(event, state)
        return transition(_typed_state(current, state_type), event)

    return rule


_session_by_machine: Final = _by_machine(session.SessionState, session.transition)


def _session(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """The state machine decides; this rule checks corrections: only the owner or an admin, of an event of this session.

    The state does not hold the kinds of events, because it would grow with each of them. A correction that does not
    fit the kind of its target changes no view.
    """
    before = _typed_state(current, session.SessionState) if isinstance(event.data, Correction) else None
    if before is None:
        return _session_by_machine(event, state, current)
    if event.author == before.owner:
        _require_working_role(event, state)
    elif "admin" not in known_agent(state, event.author).roles:
        message = f"only {before.owner} or an admin may correct session {event.name}: log a finding of your own instead"
        raise Refused("NOT_AUTHORIZED", message, role="admin")
    if state.index_of(event.stream, event.data.target) is None:
        command = f"`deed session show {quote(event.name)}`"
        message = f"session {event.name} has no event {event.data.target}: {command} lists its events"
        raise Refused("NOT_FOUND", message, asked=event.data.target)
    return session.transition(before, event)


def _imported(event: Event, state: Layer, current: StreamState | None) -> StreamState | None:
    """A record of another tool: the rule of its mapped kind's stream decides, or it is unmapped."""
    if typed(event, RecordImported).mapped_kind is not None:
        return _OF_STREAM[event.stream.partition("/")[0]](event, state, current)
    _require_working_role(event, state)
    if state.stream(event.stream) is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} is already imported", status="imported")
    return None


def _upload_intent(event: Event, _state: Layer, _: StreamState | None) -> StreamState | None:
    """The intent of an upload is stored beside its blob, because nothing can be deleted from the log."""
    message = f"{event.kind} begins an upload and cannot be appended to the log: run `deed blob put FILE`"
    raise Refused("TRANSITION_NOT_ALLOWED", message, kind=event.kind)


# Kinds that need one of these roles, instead of any working role.
_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "reasoning.briefed": ("service",),
    "reasoning.validated": ("service", "reviewer", "human"),
    "review.answered": ("human",),
}
_OF_STREAM: Final[dict[str, Rule]] = {
    "blob": _upload_intent,
    "handoff": _handoff,
    "reasoning": _by_machine(reasoning.ReasoningState, reasoning.transition),
    "record": _imported,
    "review": _by_machine(review.ReviewState, review.transition),
    "session": _session,
    "snapshot": _by_machine(snapshot.SnapshotState, snapshot.transition),
    "tot": _by_machine(tot.TotState, tot.transition),
}
RULES: Final[dict[str, Rule]] = {
    name: rule for name, kind in KINDS.items() if (rule := OF_KIND.get(name) or _OF_STREAM.get(kind.stream)) is not None
}

# Kinds after which cached keys and roles are stale: all kinds with a rule of their own.
AUTHORITY_KINDS: Final = frozenset(OF_KIND)
