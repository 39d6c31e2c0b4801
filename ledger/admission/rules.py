"""Who may append which kind, in which state: one table, denied by default.

A rule sees the event and the state before it, raises ``Refused``, or returns the new life of the event's stream.
Rules depend on the log alone: no clock but ``accepted_ms``, no disk, no network. Changing what a rule decides for a
published kind would make old entries invalid: it needs a new kind, or a new entry version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from ledger.admission.dependencies import check_cycle, check_dependencies
from ledger.errors import Refused
from ledger.events import authority, handoff
from ledger.events.fields import EventData
from ledger.events.imported import RecordImported
from ledger.identity import ledger_id, possession, verify
from ledger.lifecycle import handoff as handoff_life
from ledger.lifecycle import reasoning as reasoning_life
from ledger.lifecycle import review as review_life
from ledger.lifecycle import session as session_life
from ledger.lifecycle import snapshot as snapshot_life
from ledger.lifecycle import tot as tot_life
from ledger.lifecycle.authority import NODE, RESERVED_NAMES, ROOT, AgentRecord, KeyRecord, delegated, to_ms
from ledger.lifecycle.handoff import HandoffState
from ledger.lifecycle.reasoning import ReasoningState
from ledger.lifecycle.review import ReviewState
from ledger.lifecycle.session import SessionState
from ledger.lifecycle.snapshot import SnapshotState
from ledger.lifecycle.tot import TotState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.admission.state import Layer
    from ledger.events.body import Event

T = TypeVar("T", bound=EventData)
Life: TypeAlias = "HandoffState | ReasoningState | ReviewState | SessionState | SnapshotState | TotState | None"
Rule: TypeAlias = "Callable[[Event, Layer, Life], Life]"


def _created(event: Event, state: Layer, _life: Life) -> Life:
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
    return None


def _registered(event: Event, state: Layer, _life: Life) -> Life:
    data = _typed(event, authority.AgentRegistered)
    if event.author != NODE or data.roles != ["service"]:
        _require_role(event, state, "admin")
    _require_stream(event, data.name)
    if data.name in RESERVED_NAMES or state.agent(data.name) is not None:
        raise Refused("AGENT_EXISTS", f"there is an agent {data.name} already", name=data.name)
    _require_new_key(event, state, data.name, data.key, data.proof)
    state.put_agent(AgentRecord(data.name, data.key, frozenset(data.roles), data.nkey, data.ai_id))
    state.put_key(data.key, KeyRecord(data.name, is_identity=True, since_index=event.index))
    return None


def _role_granted(event: Event, state: Layer, _life: Life) -> Life:
    data = _typed(event, authority.RoleGranted)
    _require_role(event, state, "admin")
    _require_stream(event, data.agent)
    agent = _agent(state, data.agent)
    state.put_agent(msgspec.structs.replace(agent, roles=agent.roles | {data.role}))
    return None


def _role_revoked(event: Event, state: Layer, _life: Life) -> Life:
    data = _typed(event, authority.RoleRevoked)
    _require_role(event, state, "admin")
    _require_stream(event, data.agent)
    agent = _agent(state, data.agent)
    if data.agent == ROOT:
        raise Refused("NOT_AUTHORIZED", "the root keeps its role", name=ROOT)
    state.put_agent(msgspec.structs.replace(agent, roles=agent.roles - {data.role}))
    return None


def _key_delegated(event: Event, state: Layer, _life: Life) -> Life:
    data = _typed(event, authority.KeyDelegated)
    _require_stream(event, event.author)
    if to_ms(data.expires_at) <= event.accepted_ms:
        raise Refused("KEY_EXPIRED", "the session key would be expired already", expires_at=data.expires_at)
    _require_new_key(event, state, event.author, data.key, data.proof)
    state.put_key(data.key, delegated(event.author, event.index, data))
    return None


def _key_revoked(event: Event, state: Layer, _life: Life) -> Life:
    data = _typed(event, authority.KeyRevoked)
    record = state.key(data.key)
    if record is None:
        raise Refused("KEY_UNKNOWN", "this key is not registered in this ledger", key=data.key)
    _require_stream(event, record.agent)
    if record.agent != event.author:
        _require_role(event, state, "admin")
    if record.agent in RESERVED_NAMES:
        raise Refused("NOT_AUTHORIZED", f"the key of {record.agent} cannot be revoked", name=record.agent)
    if record.revoked_index is not None:
        raise Refused("KEY_REVOKED", f"the key was revoked at entry {record.revoked_index}", key=data.key)
    state.put_key(data.key, msgspec.structs.replace(record, revoked_index=event.index))
    return None


def _session(event: Event, state: Layer, life: Life) -> Life:
    _require_registered_role(event, state)
    assert life is None or isinstance(life, SessionState)  # noqa: S101 - a stream's sort fixes its life
    return session_life.transition(life, event)


def _reasoning(event: Event, state: Layer, life: Life) -> Life:
    if event.kind == "reasoning.briefed":
        _require_role(event, state, "service")
    elif event.kind == "reasoning.validated":
        _require_role(event, state, "service", "reviewer", "human")
    else:
        _require_registered_role(event, state)
    assert life is None or isinstance(life, ReasoningState)  # noqa: S101 - a stream's sort fixes its life
    return reasoning_life.transition(life, event)


def _snapshot(event: Event, state: Layer, life: Life) -> Life:
    _require_registered_role(event, state)
    assert life is None or isinstance(life, SnapshotState)  # noqa: S101 - a stream's sort fixes its life
    return snapshot_life.transition(life, event)


def _tot(event: Event, state: Layer, life: Life) -> Life:
    _require_registered_role(event, state)
    assert life is None or isinstance(life, TotState)  # noqa: S101 - a stream's sort fixes its life
    return tot_life.transition(life, event)


def _review(event: Event, state: Layer, life: Life) -> Life:
    if event.kind == "review.answered":
        _require_role(event, state, "human")
    else:
        _require_registered_role(event, state)
    assert life is None or isinstance(life, ReviewState)  # noqa: S101 - a stream's sort fixes its life
    return review_life.transition(life, event)


def _handoff(event: Event, state: Layer, life: Life) -> Life:
    _require_registered_role(event, state)
    assert life is None or isinstance(life, HandoffState)  # noqa: S101 - a stream's sort fixes its life
    after = handoff_life.transition(life, event)
    match event.data:
        case handoff.HandoffCreated() | handoff.HandoffAmended():
            _check_parties(event, event.data, state)
            check_cycle(event, after.depends_on, state)
        case RecordImported():
            check_cycle(event, after.depends_on, state)
        case handoff.HandoffClaimed():
            check_dependencies(event, after, state)
        case handoff.HandoffReady():
            _require_role(event, state, "service")
            check_dependencies(event, after, state)
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
        case _:
            pass  # the machine alone decides
    return after


def _imported(event: Event, state: Layer, life: Life) -> Life:
    """A record of another tool: on the stream of what it stands for, by that stream's machine; else kept aside."""
    if _typed(event, RecordImported).mapped_kind is not None:
        sorts = {"handoff": _handoff, "session": _session, "reasoning": _reasoning}
        return sorts[event.stream.partition("/")[0]](event, state, life)
    _require_registered_role(event, state)
    if state.stream(event.stream) is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} was imported already", status="imported")
    return None


RULES: Final[dict[str, Rule]] = {
    "ledger.created": _created,
    "record.imported": _imported,
    "agent.registered": _registered,
    "role.granted": _role_granted,
    "role.revoked": _role_revoked,
    "key.delegated": _key_delegated,
    "key.revoked": _key_revoked,
    "session.started": _session,
    "assessment.recorded": _session,
    "finding.logged": _session,
    "unknown.logged": _session,
    "dead_end.logged": _session,
    "tool.used": _session,
    "report.generated": _session,
    "session.ended": _session,
    "reasoning.started": _reasoning,
    "reasoning.extended": _reasoning,
    "reasoning.concluded": _reasoning,
    "reasoning.briefed": _reasoning,
    "reasoning.validated": _reasoning,
    "snapshot.taken": _snapshot,
    "review.requested": _review,
    "review.answered": _review,
    "tot.started": _tot,
    "tot.decompose_task": _tot,
    "tot.decomposition_result": _tot,
    "tot.initialize_search": _tot,
    "tot.generate_thoughts": _tot,
    "tot.generated_thoughts": _tot,
    "tot.nodes_added": _tot,
    "tot.evaluate_thoughts": _tot,
    "tot.evaluation_results": _tot,
    "tot.nodes_marked": _tot,
    "tot.backtracked": _tot,
    "tot.synthesize_solution": _tot,
    "tot.final_solution": _tot,
    "tot.search_complete": _tot,
    "tot.error": _tot,
    "tot.log_written": _tot,
    "handoff.created": _handoff,
    "handoff.amended": _handoff,
    "handoff.approved": _handoff,
    "handoff.rejected": _handoff,
    "handoff.claimed": _handoff,
    "handoff.task_checked": _handoff,
    "handoff.criterion_checked": _handoff,
    "handoff.criterion_waived": _handoff,
    "handoff.released": _handoff,
    "handoff.logged": _handoff,
    "handoff.blocked": _handoff,
    "handoff.unblocked": _handoff,
    "handoff.completed": _handoff,
    "handoff.changes_requested": _handoff,
    "handoff.verified": _handoff,
    "handoff.cancelled": _handoff,
    "handoff.superseded": _handoff,
    "handoff.ready": _handoff,
}

# Kinds after which cached keys and roles are stale.
AUTHORITY_KINDS: Final = frozenset(
    {"ledger.created", "agent.registered", "role.granted", "role.revoked", "key.delegated", "key.revoked"}
)


def _typed(event: Event, wanted: type[T]) -> T:
    assert isinstance(event.data, wanted)  # noqa: S101 - the table pairs each kind with its data type
    return event.data


def _require_role(event: Event, state: Layer, *roles: str) -> None:
    agent = state.agent(event.author)
    if agent is None or agent.roles.isdisjoint(roles):
        wanted = " or ".join(roles)
        raise Refused("NOT_AUTHORIZED", f"{event.kind} needs the role {wanted}; {event.author} lacks it", role=wanted)


def _require_registered_role(event: Event, state: Layer) -> None:
    agent = state.agent(event.author)
    if agent is None or not agent.roles & {"agent", "reviewer", "human", "service"}:
        raise Refused("NOT_AUTHORIZED", f"{event.author} has no role that works: grant it `agent`", name=event.author)


def _require_stream(event: Event, name: str) -> None:
    if event.name != name:
        raise Refused("INVALID_FIELD", f"{event.kind} about {name} belongs on agent/{name}", path="$.stream")


def _require_new_key(event: Event, state: Layer, agent: str, key: str, proof: str) -> None:
    if state.key(key) is not None:
        raise Refused("KEY_EXISTS", "this key is registered already", key=key)
    public = bytes.fromhex(key)
    if not verify(public, possession(event.ledger, agent, public), bytes.fromhex(proof)):
        raise Refused("SIGNATURE_INVALID", f"the key does not prove that it belongs to {agent}", path="$.data.proof")


def _agent(state: Layer, name: str) -> AgentRecord:
    agent = state.agent(name)
    if agent is None:
        raise Refused("AGENT_UNKNOWN", f"there is no agent {name}: run `baton agent add {name}`", name=name)
    return agent


def _require_reviewing_role(state: Layer, name: str) -> None:
    if not _agent(state, name).roles & {"reviewer", "human"}:
        raise Refused("NOT_AUTHORIZED", f"{name} is neither reviewer nor human", name=name)


def _require_no_import_of_ones_own(event: Event, after: HandoffState, state: Layer) -> None:
    """Who imported a handoff acts for its sender: only a human may confirm his own import (as he may his own work)."""
    if after.importer and event.author in after.senders and "human" not in _agent(state, event.author).roles:
        raise Refused(
            "SELF_APPROVAL",
            f"{event.author} sent or imported {event.name}: another reviewer, or a human, must confirm it",
            reviewer=after.reviewer,
        )


def _check_parties(event: Event, data: handoff.HandoffCreated | handoff.HandoffAmended, state: Layer) -> None:
    _agent(state, data.to)
    if data.reviewer is not None:
        _require_reviewing_role(state, data.reviewer)
    elif "human" not in _agent(state, event.author).roles:
        raise Refused("REVIEWER_REQUIRED", f"{event.author} is no human: name a reviewer", author=event.author)
