"""Who may append which kind, in which state: by the kind's stream, with exceptions, and denied by default.

A rule raises ``Refused`` or returns the new life of the event's stream. Rules depend on the log alone: no clock but
``accepted_ms``. To decide otherwise about a published kind would make old entries invalid: that needs a new kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from ledger.errors import Refused
from ledger.events import KINDS, authority, handoff
from ledger.events.body import Event
from ledger.events.fields import EventData
from ledger.events.imported import RecordImported
from ledger.identity import ledger_id, possession, verify
from ledger.lifecycle import handoff as handoff_life
from ledger.lifecycle import reasoning, review, session, snapshot, tot
from ledger.lifecycle.authority import NODE, RESERVED_NAMES, ROOT, AgentRecord, KeyRecord, delegated, to_ms
from ledger.lifecycle.handoff import HandoffState, is_unlocked
from ledger.log.tables import StreamState

if TYPE_CHECKING:
    from ledger.admission.state import Layer

D = TypeVar("D", bound=EventData)
Life: TypeAlias = StreamState | None
Rule: TypeAlias = "Callable[[Event, Layer, Life], Life]"
S = TypeVar("S", bound=StreamState)

# The walk over dependencies that looks for a cycle; beyond it the handoff is refused, never half-checked.
dependencies_walked_max: Final = 100_000


# What several rules ask.


def _typed(event: Event, wanted: type[D]) -> D:
    """Return the event's data as its kind's type."""
    assert isinstance(event.data, wanted)  # noqa: S101 - the table pairs each kind with its data type
    return event.data


def _require_role(event: Event, state: Layer, *roles: str) -> None:
    agent = state.agent(event.author)
    if agent is None or agent.roles.isdisjoint(roles):
        wanted = " or ".join(roles)
        raise Refused("NOT_AUTHORIZED", f"{event.kind} needs the role {wanted}; {event.author} lacks it", role=wanted)


def _require_working_role(event: Event, state: Layer) -> None:
    agent = state.agent(event.author)
    if agent is None or not agent.roles & {"agent", "reviewer", "human", "service"}:
        raise Refused("NOT_AUTHORIZED", f"{event.author} has no role that works: grant it `agent`", name=event.author)


def _known_agent(state: Layer, name: str) -> AgentRecord:
    agent = state.agent(name)
    if agent is None:
        raise Refused("AGENT_UNKNOWN", f"there is no agent {name}: run `baton agent add {name}`", name=name)
    return agent


def _life(life: Life, wanted: type[S]) -> S | None:
    assert life is None or isinstance(life, wanted)  # noqa: S101 - what a stream is of fixes its life
    return life


# Agents, roles and keys.


def _created(event: Event, state: Layer, _: Life) -> None:
    """Entry 0, signed by the root key that it names."""
    data = _typed(event, authority.LedgerCreated)
    if event.index != 0 or event.key != data.root or event.author != ROOT:
        raise Refused("NOT_AUTHORIZED", "ledger.created is entry 0, signed by the root key it names, as root")
    if event.ledger != ledger_id(bytes.fromhex(data.root)):
        raise Refused("WRONG_LEDGER", "the ledger's id is not that of its root key", ledger=event.ledger)
    if len({data.root, data.node_key, data.checkpoint_key}) != len(("root", "node", "checkpoint")):
        raise Refused("INVALID_FIELD", "root, node and checkpoint keys differ from each other", path="$.data")
    state.ledger = event.ledger
    for name, key, roles in ((ROOT, data.root, ("admin",)), (NODE, data.node_key, ())):
        state.put_agent(AgentRecord(name, key, frozenset(roles)))
        state.put_key(key, KeyRecord(name, is_identity=True, since_index=0))


def _epoch_started(event: Event, _state: Layer, _: Life) -> None:
    """The root alone says that acknowledged entries are given up.

    Which head that was cannot be asked of this log, which does not hold it: its size may be smaller than this log's
    (a copy was put back and written to) or larger.
    """
    data = _typed(event, authority.EpochStarted)
    if event.author != ROOT:
        raise Refused("NOT_AUTHORIZED", f"only {ROOT} signs ledger.epoch_started", name=event.author)
    if data.abandoned_size == 0:
        raise Refused("INVALID_FIELD", "a log without entries has no head to abandon", path="$.data.abandoned_size")


def _registered(event: Event, state: Layer, _: Life) -> None:
    """An admin registers agents, and the node service agents; the key proves whose it is."""
    data = _typed(event, authority.AgentRegistered)
    if event.author != NODE or data.roles != ["service"]:
        _require_role(event, state, "admin")
    _require_agent_stream(event, data.name)
    if data.name in RESERVED_NAMES or state.agent(data.name) is not None:
        raise Refused("AGENT_EXISTS", f"there is an agent {data.name} already", name=data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    state.put_agent(AgentRecord(data.name, data.key, frozenset(data.roles), data.nkey, data.ai_id))
    state.put_key(data.key, KeyRecord(data.name, is_identity=True, since_index=event.index))


def _role_changed(event: Event, state: Layer, _: Life) -> None:
    """An admin grants roles and takes them back; the root keeps its own."""
    is_granted = isinstance(event.data, authority.RoleGranted)
    data = event.data if is_granted else _typed(event, authority.RoleRevoked)
    _require_role(event, state, "admin")
    _require_agent_stream(event, data.agent)
    agent = _known_agent(state, data.agent)
    if data.agent == ROOT and not is_granted:
        raise Refused("NOT_AUTHORIZED", "the root keeps its role", name=ROOT)
    roles = agent.roles | {data.role} if is_granted else agent.roles - {data.role}
    state.put_agent(msgspec.structs.replace(agent, roles=roles))


def _key_delegated(event: Event, state: Layer, _: Life) -> None:
    """An agent delegates a key of its own."""
    data = _typed(event, authority.KeyDelegated)
    _require_agent_stream(event, event.author)
    if to_ms(data.expires_at) <= event.accepted_ms:
        raise Refused("KEY_EXPIRED", "the session key would be expired already", expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)
    state.put_key(data.key, delegated(event.author, event.index, data))


def _key_revoked(event: Event, state: Layer, _: Life) -> None:
    """An agent revokes its own keys, an admin anybody's."""
    data = _typed(event, authority.KeyRevoked)
    record = state.key(data.key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered in this ledger", key=data.key)
    _require_agent_stream(event, record.agent)
    if record.agent != event.author:
        _require_role(event, state, "admin")
    if record.agent in RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"the key of {record.agent} cannot be revoked", name=record.agent)
    if record.revoked_index is not None:
        raise Refused("KEY_REVOKED", f"the key was revoked at entry {record.revoked_index}", key=data.key)
    state.put_key(data.key, msgspec.structs.replace(record, revoked_index=event.index))


def _require_agent_stream(event: Event, name: str) -> None:
    if event.name != name:
        raise Refused("INVALID_FIELD", f"{event.kind} about {name} belongs on agent/{name}", path="$.stream")


def _require_new_key(event: Event, state: Layer, agent: str, key: str, proof: str) -> None:
    if state.key(key) is not None:
        raise Refused("KEY_EXISTS", "this key is registered already", key=key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the key does not prove that it belongs to {agent}", path="$.data.proof")


# Handoffs, which wait for each other.


def _handoff(event: Event, state: Layer, life: Life) -> HandoffState:
    """The machine decides on the state, this rule on who exists, has which role, and waits for whom."""
    _require_working_role(event, state)
    after = handoff_life.transition(_life(life, HandoffState), event)
    match event.data:
        case handoff.HandoffCreated() | handoff.HandoffAmended():
            _check_parties(event, event.data, state)
            _check_cycle(event, after.depends_on, state)
        case RecordImported():
            _check_cycle(event, after.depends_on, state)
        case handoff.HandoffClaimed():
            _check_dependencies(event, after, state)
        case handoff.HandoffReady():
            _require_role(event, state, "service")
            _check_dependencies(event, after, state)
        case handoff.HandoffSuperseded():
            if state.stream(f"handoff/{event.data.by}") is None:
                raise Refused("NOT_FOUND", f"there is no handoff {event.data.by} to take its place", by=event.data.by)
        case (
            handoff.HandoffApproved()
            | handoff.HandoffRejected()
            | handoff.HandoffCriterionWaived()
            | handoff.HandoffVerified()
            | handoff.HandoffChangesRequested()
        ):
            _require_reviewing_role(state, event.author)
            _require_no_import_of_ones_own(event, after, state)
        case _:  # any other step of a handoff's life: the machine alone decides
            pass
    return after


def _require_reviewing_role(state: Layer, name: str) -> None:
    if not _known_agent(state, name).roles & {"reviewer", "human"}:
        raise Refused("NOT_AUTHORIZED", f"{name} is neither reviewer nor human", name=name)


def _require_no_import_of_ones_own(event: Event, after: HandoffState, state: Layer) -> None:
    """Who imported a handoff acts for its sender: only a human may confirm his own import (as he may his own work)."""
    if after.importer and event.author in after.senders and "human" not in _known_agent(state, event.author).roles:
        message = f"{event.author} sent or imported {event.name}: another reviewer, or a human, must confirm it"
        raise Refused("SELF_APPROVAL", message, reviewer=after.reviewer)


def _check_parties(event: Event, data: handoff.HandoffCreated | handoff.HandoffAmended, state: Layer) -> None:
    _known_agent(state, data.to)
    if data.reviewer is not None:
        _require_reviewing_role(state, data.reviewer)
    elif "human" not in _known_agent(state, event.author).roles:
        raise Refused("REVIEWER_REQUIRED", f"{event.author} is no human: name a reviewer", author=event.author)


def _check_dependencies(event: Event, after: HandoffState, state: Layer) -> None:
    """Refuse a claim that a dependency does not unlock."""
    for wanted in after.depends_on:
        record = state.stream(f"handoff/{wanted}")
        if record is None:
            raise Refused("DEPENDENCY_MISSING", f"{event.name} depends on {wanted}, which does not exist", on=wanted)
        life = record.state
        if isinstance(life, HandoffState) and not is_unlocked(life.status, after.unlock_at):
            message = f"{event.name} waits for {wanted}, which is {life.status}"
            raise Refused("DEPENDENCY_PENDING", message, on=wanted, status=life.status)


def _check_cycle(event: Event, depends_on: tuple[str, ...], state: Layer) -> None:
    """Refuse a handoff that would wait for itself."""
    came_from: dict[str, str] = {}
    waiting = deque((wanted, event.name) for wanted in depends_on)
    while waiting:
        name, parent = waiting.popleft()
        if name in came_from:
            continue
        came_from[name] = parent
        if name == event.name:
            cycle = _path_back(came_from, name)
            raise Refused(
                "DEPENDENCY_CYCLE", "the handoffs would wait for each other: " + " → ".join(cycle), cycle=cycle
            )
        if len(came_from) > dependencies_walked_max:
            raise Refused("TOO_LARGE", f"{event.name} depends on more than {dependencies_walked_max} handoffs")
        record = state.stream(f"handoff/{name}")
        if record is not None and isinstance(record.state, HandoffState):
            waiting.extend((wanted, name) for wanted in record.state.depends_on)


def _path_back(came_from: dict[str, str], name: str) -> list[str]:
    path = [name]
    while (parent := came_from[path[-1]]) != name:
        path.append(parent)
    path.append(name)
    return path[::-1]


# The streams of one machine each.


def _by_machine(state_type: type[S], transition: Callable[[S | None, Event], S]) -> Rule:
    """Return the rule of a stream on which agents with a role that works do what its machine allows."""

    def rule(event: Event, state: Layer, life: Life) -> Life:
        if roles := _ROLES.get(event.kind):
            _require_role(event, state, *roles)
        else:
            _require_working_role(event, state)
        return transition(_life(life, state_type), event)

    return rule


def _imported(event: Event, state: Layer, life: Life) -> Life:
    """A record of another tool: on the stream of what it stands for, by that stream's rule; else kept aside."""
    if _typed(event, RecordImported).mapped_kind is not None:
        return _OF_STREAM[event.stream.partition("/")[0]](event, state, life)
    _require_working_role(event, state)
    if state.stream(event.stream) is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} was imported already", status="imported")
    return None


# Kinds that need one of these roles, instead of any role that works.
_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "reasoning.briefed": ("service",),
    "reasoning.validated": ("service", "reviewer", "human"),
    "review.answered": ("human",),
}
_OF_STREAM: Final[dict[str, Rule]] = {
    "handoff": _handoff,
    "reasoning": _by_machine(reasoning.ReasoningState, reasoning.transition),
    "record": _imported,
    "review": _by_machine(review.ReviewState, review.transition),
    "session": _by_machine(session.SessionState, session.transition),
    "snapshot": _by_machine(snapshot.SnapshotState, snapshot.transition),
    "tot": _by_machine(tot.TotState, tot.transition),
}
_OF_KIND: Final[dict[str, Rule]] = {
    "ledger.created": _created,
    "ledger.epoch_started": _epoch_started,
    "agent.registered": _registered,
    "role.granted": _role_changed,
    "role.revoked": _role_changed,
    "key.delegated": _key_delegated,
    "key.revoked": _key_revoked,
}

RULES: Final[dict[str, Rule]] = {
    name: rule
    for name, kind in KINDS.items()
    if (rule := _OF_KIND.get(name) or _OF_STREAM.get(kind.stream)) is not None
}

# Kinds after which cached keys and roles are stale: all that have a rule of their own.
AUTHORITY_KINDS: Final = frozenset(_OF_KIND)
