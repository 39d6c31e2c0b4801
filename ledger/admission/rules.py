"""Who may append which kind, in which state: by the kind's stream, with exceptions, and denied by default.

A rule raises ``Refused`` or returns the new life of the event's stream. Rules depend on the log alone: no clock but
``accepted_ms``. To decide otherwise about a published kind would make old entries invalid: that needs a new kind.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Final, TypeVar

from deedbook.ledger.admission.authority import OF_KIND, Life, Rule, known_agent, require_role, typed
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS, handoff
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import Correction
from deedbook.ledger.lifecycle import handoff as handoff_life
from deedbook.ledger.lifecycle import reasoning, review, session, snapshot, tot
from deedbook.ledger.lifecycle.authority import AgentRecord, suspect_at
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.handoff_status import is_unlocked
from deedbook.ledger.log.keys import stream_key
from deedbook.ledger.log.records import StreamState

S = TypeVar("S", bound=StreamState)

_REVIEWING: Final = frozenset({"reviewer", "human"})
_WORKING: Final = frozenset({"agent", "reviewer", "human", "service"})

# The walk over dependencies that looks for a cycle; beyond it the handoff is refused, never half-checked.
dependencies_walked_max: Final = 100_000


def _require_working_role(event: Event, state: Layer) -> None:
    check_working_role(state.agent(event.author), event.author)


def check_working_role(agent: AgentRecord | None, name: str) -> None:
    """Refuse an agent who has no role but that of an admin. Raises Refused: ``NOT_AUTHORIZED``."""
    if agent is None or _WORKING.isdisjoint(agent.roles):
        raise Refused("NOT_AUTHORIZED", f"{name} has no role that works: grant it `agent`", name=name)


def _life(life: Life, wanted: type[S]) -> S | None:
    assert life is None or isinstance(life, wanted)  # noqa: S101 - what a stream is of fixes its life
    return life


def _handoff(event: Event, state: Layer, life: Life) -> HandoffState:
    """The machine decides on the state, this rule on who exists, has which role, and waits for whom."""
    _require_working_role(event, state)
    before = _life(life, HandoffState)
    after = handoff_life.transition(before, event)
    match event.data:
        case handoff.HandoffCreated() | handoff.HandoffAmended():
            _check_parties(event, event.data, state)
            if isinstance(event.data, handoff.HandoffAmended) and event.data.hands_over:
                _require_reviewing_role(state, event.author)
            _require_reviewer_kept(before, after, event, state)
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
                raise Refused("NOT_FOUND", f"there is no handoff {event.data.by} to take its place", by=event.data.by)
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
        case _:  # any other step of a handoff's life: the machine alone decides
            pass
    return after


def _suspect_approval(life: HandoffState, state: Layer) -> int | None:
    """Return the entry that makes the approval of a handoff suspect, which then does not count for a later claim."""
    if life.approval_index is None:
        return None
    return suspect_at(state.key, life.approval_key, life.approval_index)


def _require_approval_that_counts(life: HandoffState, event: Event, state: Layer) -> None:
    suspect = _suspect_approval(life, state)
    if suspect is not None:
        message = f"the approval of {event.name} (entry {life.approval_index}) was signed with a key that entry \
{suspect} calls compromised: {life.reviewer} approves it again (`deed handoff approve {quote(event.name)}`)"
        raise Refused("NOT_APPROVED", message, status=life.status, suspect=suspect)


def _require_approval_missing(before: HandoffState | None, event: Event, state: Layer) -> None:
    """Refuse to approve again what is approved, unless that approval does not count."""
    if before is not None and before.status != "pending" and _suspect_approval(before, state) is None:
        message = f"{event.kind} cannot follow: handoff {event.name} is approved already, and waits for its receiver"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status="approved")


def _require_reviewing_role(state: Layer, name: str) -> None:
    if not known_agent(state, name).roles & _REVIEWING:
        raise Refused("NOT_AUTHORIZED", f"{name} is neither reviewer nor human: name one who is", name=name)


def _require_no_import_of_ones_own(event: Event, after: HandoffState, state: Layer) -> None:
    """Who imported a handoff acts for its sender: only a human may confirm his own import (as he may his own work)."""
    if after.importer and event.author in after.senders and "human" not in known_agent(state, event.author).roles:
        message = f"{event.author} sent or imported {event.name}: another reviewer, or a human, must confirm it"
        raise Refused("SELF_APPROVAL", message, reviewer=after.reviewer)


def _check_parties(event: Event, data: handoff.HandoffCreated | handoff.HandoffAmended, state: Layer) -> None:
    known_agent(state, data.to)
    if data.reviewer is not None:
        _require_reviewing_role(state, data.reviewer)
    elif "human" not in known_agent(state, event.author).roles:
        raise Refused("REVIEWER_REQUIRED", f"{event.author} is no human: name a reviewer", author=event.author)


def _require_reviewer_kept(before: HandoffState | None, after: HandoffState, event: Event, state: Layer) -> None:
    """Refuse an amendment that drops a reviewer: he hands the review over, unless he is none here (any more)."""
    if before is None or before.reviewer in (*before.senders, after.reviewer, event.author):
        return
    named = state.agent(before.reviewer)
    if named is not None and named.roles & _REVIEWING:
        who, way = before.reviewer, f"deed handoff amend {quote(event.name)} --reviewer OTHER --as {before.reviewer}"
        message = f"{who} stays the reviewer of {event.name}, unless {who} hands it over (`{way}`): or cancel it"
        raise Refused("NOT_AUTHORIZED", message, reviewer=who)


def _check_dependencies(event: Event, after: HandoffState, state: Layer) -> None:
    for wanted in after.depends_on:
        life = _handoff_state(state, wanted)
        if life is None:
            raise Refused("DEPENDENCY_MISSING", f"{event.name} depends on {wanted}, which does not exist", on=wanted)
        if not is_unlocked(life.status, after.unlock_at):
            message = f"{event.name} waits for {wanted}, which is {life.status}"
            raise Refused("DEPENDENCY_PENDING", message, on=wanted, status=life.status)


def _check_cycle(event: Event, depends_on: tuple[str, ...], state: Layer) -> None:
    """Refuse a handoff that would wait for itself.

    The walk glances. What follows from it rests on records that were held against their entries: a refusal on those of
    the cycle, which is one whatever else there is, and everything else on all that were walked.
    """
    came_from: dict[str, str] = {}
    walked = [event.name]
    for name in walked:  # which grows meanwhile
        if came_from:
            record = state.glance(stream_key(f"handoff/{name}"))
            life = None if record is None else _life(record.state, HandoffState)
            depends_on = () if life is None else life.depends_on
        for wanted in depends_on:
            if wanted not in came_from:
                came_from[wanted] = name
                walked.append(wanted)
        if event.name in came_from:
            cycle = _path_back(came_from, event.name)
            for each in cycle[1:-1]:
                _handoff_state(state, each)
            message = f"the handoffs would wait for each other: {' → '.join(cycle)}"
            raise Refused("DEPENDENCY_CYCLE", message, cycle=cycle)
        if len(came_from) > dependencies_walked_max:
            break
    for each in came_from:
        _handoff_state(state, each)
    if len(came_from) > dependencies_walked_max:
        raise Refused("TOO_LARGE", f"{event.name} depends on more than {dependencies_walked_max} handoffs")


def _handoff_state(state: Layer, name: str) -> HandoffState | None:
    """Return where a handoff stands; None also when no entry of its stream counts."""
    record = state.stream(f"handoff/{name}")
    return None if record is None else _life(record.state, HandoffState)


def _path_back(came_from: dict[str, str], name: str) -> list[str]:
    path = [name]
    while (parent := came_from[path[-1]]) != name:
        path.append(parent)
    path.append(name)
    return path[::-1]


def _by_machine(state_type: type[S], transition: Callable[[S | None, Event], S]) -> Rule:
    """Return the rule of a stream on which agents with a role that works do what its machine allows."""

    def rule(event: Event, state: Layer, life: Life) -> Life:
        if roles := _ROLES.get(event.kind):
            require_role(event, state, *roles)
        else:
            _require_working_role(event, state)
        return transition(_life(life, state_type), event)

    return rule


_session_by_machine: Final = _by_machine(session.SessionState, session.transition)


def _session(event: Event, state: Layer, life: Life) -> Life:
    """The machine decides, this rule on who corrects what: the owner, or an admin, an event of this very session.

    Of which kind the target is, no state says, because it would grow with every event: a correction of another kind
    than its target's changes no view.
    """
    before = _life(life, session.SessionState) if isinstance(event.data, Correction) else None
    if before is None:
        return _session_by_machine(event, state, life)
    if event.author == before.owner:
        _require_working_role(event, state)
    elif "admin" not in known_agent(state, event.author).roles:
        message = f"session {event.name} belongs to {before.owner}, who alone corrects it, or an admin: say otherwise \
in a finding of your own"
        raise Refused("NOT_AUTHORIZED", message, role="admin")
    if state.index_of(event.stream, event.data.target) is None:
        shown = f"`deed session show {quote(event.name)}`"
        message = f"session {event.name} has no event {event.data.target}: {shown} has them"
        raise Refused("NOT_FOUND", message, asked=event.data.target)
    return session.transition(before, event)


def _imported(event: Event, state: Layer, life: Life) -> Life:
    """A record of another tool: on the stream of what it stands for, by that stream's rule; else kept aside."""
    if typed(event, RecordImported).mapped_kind is not None:
        return _OF_STREAM[event.stream.partition("/")[0]](event, state, life)
    _require_working_role(event, state)
    if state.stream(event.stream) is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} was imported: nothing is left", status="imported")
    return None


def _kept_beside(event: Event, _state: Layer, _: Life) -> Life:
    """The intent of an upload is kept beside its blob, because the log can never be cleaned of it."""
    message = f"{event.kind} begins an upload and is no entry of the log: run `deed blob put FILE`"
    raise Refused("TRANSITION_NOT_ALLOWED", message, kind=event.kind)


# Kinds that need one of these roles, instead of any role that works.
_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "reasoning.briefed": ("service",),
    "reasoning.validated": ("service", "reviewer", "human"),
    "review.answered": ("human",),
}
_OF_STREAM: Final[dict[str, Rule]] = {
    "blob": _kept_beside,
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

# Kinds after which cached keys and roles are stale: all that have a rule of their own.
AUTHORITY_KINDS: Final = frozenset(OF_KIND)
