"""The state machine of a family of streams: it decides an event by the family's rules.

A family's module has the conditions as pure functions, and one ``StateMachine`` that names them. The gate, the auditor
and the views all call ``StateMachine.decide``. A view knows only one stream, so it leaves out the checks that read
others (``ledger`` is None): roles, and the conditions in ``ledger_conditions``. The gate made these checks before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from shlex import quote
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.codec import encode_packed, msgpack_decoder
from deedbook.ledger.lifecycle.authority import AgentRecord, KeyRecord, Voided, has_role, voided, why_unregistered
from deedbook.ledger.lifecycle.rules import ADMIN, NONE, Mark, Row, Rules, has_table, rules_of

S = TypeVar("S", bound=msgspec.Struct)


class StreamInLedger(Protocol):
    """The record of a stream: the state after its events that count, or None."""

    @property
    def state(self) -> Any:
        """The state."""


class LedgerState(Protocol):
    """The other streams that a condition may read, as they are before the event.

    ``role_holders`` caches agents that have one of a set of roles by a grant that counts. Any change of authority
    empties it.
    """

    role_holders: set[tuple[str, frozenset[str]]]

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""

    def stream(self, name: str) -> StreamInLedger | None:
        """Return the record of a stream."""

    def unverified_stream(self, name: str) -> StreamInLedger | None:
        """Return the record of a stream as it is stored, perhaps not verified against the entries.

        Before a decision uses the record, call ``stream``, which verifies it.
        """

    def dependents(self, handoff: str) -> int:
        """Return how many handoffs depend on a handoff now, as it is stored, not verified against the entries."""

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""


class Unmet(msgspec.Struct, frozen=True):
    """A condition that does not hold: the message of the refusal, and its details."""

    message: str
    details: dict[str, Any] = {}


class Question(msgspec.Struct, Generic[S], frozen=True):
    """An event that is decided, its ``data`` (that of an imported record is its mapped data), and the state before.

    ``shared`` holds results that several conditions need.
    """

    event: Event
    data: Any
    state: S | None
    shared: dict[str, Any] = {}


Condition = Callable[[Question[S]], Unmet | None]
LedgerCondition = Callable[[Question[S], LedgerState], Unmet | None]


class StateMachine(msgspec.Struct, Generic[S], frozen=True):
    """The code of a family: its conditions, and the functions that read and change its state.

    ``state_name`` is the state that the rules see at the time of an event. ``party`` returns the names of a party;
    without a ledger, all names that may belong to it. ``apply`` returns the state after an event that the row accepts.
    ``read_data`` returns the data of an event. ``hint`` adds advice to a refusal for the wrong author.
    """

    family: str
    state_name: Callable[[S, Event], str]
    party: Callable[[S, str, LedgerState | None], tuple[str, ...]]
    apply: Callable[[Question[S], Row], S]
    conditions: Mapping[str, Condition[S]] = {}
    ledger_conditions: Mapping[str, LedgerCondition[S]] = {}
    marks: Callable[[S, str], tuple[str, ...]] = lambda _state, _list: ()
    read_data: Callable[[Event], Any] = lambda event: event.data
    hint: Callable[[S, Event, LedgerState | None], str] = lambda _state, _event, _ledger: ""

    def decide(self, state: S | None, event: Event, ledger: LedgerState | None = None) -> S:
        """Return the state of a stream after ``event``.

        Without ``ledger``, checks that read other streams are left out. Raises Refused: the codes of the rules.
        """
        rules = rules_of(self.family)
        row = rules.row(event.kind, event.data)
        if row is None:
            raise Refused("UNKNOWN_KIND", f"{event.kind} is not an event of a {self.family}", kind=event.kind)
        name = NONE if state is None else self.state_name(state, event)
        if state is not None and NONE not in row.from_states:
            self._check_author(rules, row, state, event, ledger)
        if name not in row.from_states:
            raise wrong_state(rules, row, name, event.name)
        if ledger is not None:
            check_roles(row.roles or rules.roles, event, ledger)
        question = Question(event, self.read_data(event), state)
        if row.mark is not None and state is not None:
            _check_mark(row.mark, self.marks(state, row.mark.list), question)
        for need in row.needs:
            self._check_condition(need, rules, question, ledger)
        return self.apply(question, row)

    def _check_author(self, rules: Rules, row: Row, state: S, event: Event, ledger: LedgerState | None) -> None:
        author = event.author
        for party in row.by:
            is_able = _is_admin(author, ledger) if party == ADMIN else author in self.party(state, party, ledger)
            if is_able:
                return
        allowed = [name for party in row.by if party != ADMIN for name in self.party(state, party, ledger) if name]
        excluded = [party for party in row.not_by if author in self.party(state, party, ledger)]
        hint = self.hint(state, event, ledger)
        if excluded:
            parties = " and ".join(excluded)
            message = f"{author} is the {parties} of {event.name} and may not {rules.act(event.kind)}{hint}"
            raise Refused("SELF_APPROVAL", message, name=author, allowed=allowed)
        if row.by:
            names = " or ".join((*dict.fromkeys(allowed), *(["an admin"] if ADMIN in row.by else [])))
            able = names or "an agent that is not registered here"
            message = f"{event.name}: only {able} may {rules.act(event.kind)}, not {author}{hint}"
            raise Refused("NOT_AUTHORIZED", message, name=author, allowed=allowed)

    def _check_condition(self, need: str, rules: Rules, question: Question[S], ledger: LedgerState | None) -> None:
        unmet = None
        if need in self.conditions:
            unmet = self.conditions[need](question)
        elif ledger is not None:
            unmet = self.ledger_conditions[need](question, ledger)
        if unmet is not None:
            raise Refused(rules.conditions[need], unmet.message, **unmet.details)


def _is_admin(name: str, ledger: LedgerState | None) -> bool:
    """Return whether an agent is an admin. Without a ledger this is unknown, so the gate decides."""
    if ledger is None:
        return True
    return has_role(ledger, name, {ADMIN})


def wrong_state(rules: Rules, row: Row, name: str, id_: str) -> Refused:
    """Return the refusal of an operation on the stream ``FAMILY/id_`` in a state with this name."""
    state = rules.states[name]
    status = state.status or name
    code = row.refused_as.get(name, "TRANSITION_NOT_ALLOWED")
    if name == NONE:
        return Refused("NOT_FOUND", f"there is no {rules.family} {id_}: {state.next}", status=None)
    advice = "choose another id" if NONE in row.from_states else state.next
    if row.from_states == {NONE}:
        return Refused(code, f"{rules.family} {id_} already exists: {advice}", status=status)
    message = f"{id_} is {status.replace('_', ' ')}: nobody can {rules.act(row.kind)}"
    if state.is_final:
        return Refused(code, f"{message} any more", status=status)
    see = f" ({rules.advice.format(id=quote(id_))})" if rules.advice else ""
    return Refused(code, f"{message} now; {advice}{see}", status=status)


def act_of(event: Event) -> str:
    """Return what the author of an event does, such as "claim it (handoff/h)"."""
    family = event.stream.partition("/")[0]
    act = rules_of(family).act(event.kind) if has_table(family) else f"sign {event.kind}"
    return f"{act} ({event.stream})"


def check_roles(roles: frozenset[str], event: Event, ledger: LedgerState) -> None:
    """Refuse an author that has none of ``roles``. Raises Refused: ``NOT_AUTHORIZED``."""
    holder = (event.author, roles)
    if holder in ledger.role_holders:
        return
    agent = ledger.agent(event.author)
    if agent is None or roles.isdisjoint(agent.roles):
        needed = " or ".join(sorted(roles))
        message = f"to {act_of(event)}, {event.author} needs the role {needed}"
        raise Refused("NOT_AUTHORIZED", f"{message}: `deed agent list` shows the agents that have it", role=needed)
    if (void := voided(ledger, event.author, roles)) is not None:
        message = f"{event.author} may not {act_of(event)}: {void_text(event.author, void)}"
        details = {"role": void.grant.role, "granted": void.grant.index, "compromised": void.report}
        raise Refused("NOT_AUTHORIZED", message, name=event.author, **details)
    ledger.role_holders.add(holder)


def void_text(name: str, void: Voided) -> str:
    """Return why a role does not count, and what makes it count again."""
    role = void.grant.role
    again = f"`deed agent grant-role {name} {role}`"
    return (
        f"its role {role} (entry {void.grant.index}) rests on a key that entry {void.report} reports as compromised. \
An admin who knows {name} grants it again: {again}"
    )


ITEMS: Final = {"tasks": "task", "criteria": "criterion", "questions": "question"}
"""The name of one item, for each list whose items have marks."""


def _check_mark(mark: Mark, marks: tuple[str, ...], question: Question[Any]) -> None:
    position, item = question.data.position, ITEMS[mark.list]
    if position >= len(marks):
        which = f"the last is {len(marks)}" if marks else f"{question.event.name} has none"
        message = f"there is no {item} {position + 1}: {which}"
        raise Refused("INVALID_FIELD", message, path="$.data.position")
    present = marks[position]
    if present not in mark.from_marks:
        code = mark.refused_as.get(present, "NOTHING_CHANGED")
        message = f"{item} {position + 1} of {question.event.name} is {present}: this changes nothing, leave it out"
        raise Refused(code, message, mark=present)


class FamilyState(msgspec.Struct, frozen=True, array_like=True, tag="family"):
    """The packed state of a stream of a package's family. Only a decision loads the package, which knows its type."""

    packed: bytes


class Transition(msgspec.Struct, Generic[S], frozen=True):
    """The rules of a family as one pure function, where a table of rows does not suffice.

    ``step`` returns the state of a stream after an event, or raises Refused. The author needs one of ``roles``.
    ``kept`` returns the part of a state that an erasure must not change: everything except texts and digests of texts.
    An erasure that would change this part, or the validity of other events, is refused.
    """

    state: type[S]
    step: Callable[[S | None, Event], S]
    roles: frozenset[str]
    kept: Callable[[S], Any]

    def decide(self, state: FamilyState | None, event: Event, ledger: LedgerState | None = None) -> FamilyState:
        """Return the state of a stream after ``event``.

        Raises Refused: the codes of the rules; ``FAMILY_UNUSABLE``: the rules failed, so nobody knows what they allow.
        """
        if ledger is not None:
            check_roles(self.roles, event, ledger)
        try:
            return FamilyState(encode_packed(self.step(None if state is None else self.unpack(state), event)))
        except Refused:
            raise
        except Exception as error:  # a package may raise anything, and only its own events may be affected
            family = event.stream.partition("/")[0]
            why = f"{type(error).__name__}: {error}"[:300]
            message = f"the rules of the family {family} failed on {event.kind} ({why}): update its package"
            raise Refused("FAMILY_UNUSABLE", message, family=family) from error

    def unpack(self, state: FamilyState) -> S:
        """Return the state as the family's type."""
        unpacked: S = _decoder_of(self.state).decode(state.packed)
        return unpacked


@cache
def _decoder_of(state: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    return msgpack_decoder(state)


class OwnedState(msgspec.Struct, frozen=True, array_like=True, tag="owned"):
    """The state of a family that stores little: owner, name of the state, and the asked agent of a question."""

    owner: str
    status: str
    receiver: str = ""


def owned_machine(
    family: str,
    conditions: Mapping[str, Condition[OwnedState]] = {},
    ledger_conditions: Mapping[str, LedgerCondition[OwnedState]] = {},
    hint: str = "",
) -> StateMachine[OwnedState]:
    """Return the state machine of a family that stores only an owner, a status, and perhaps a receiver."""
    return StateMachine(
        family=family,
        state_name=lambda state, _event: state.status,
        party=lambda state, party, _ledger: (state.receiver if party == "receiver" else state.owner,),
        apply=_owned_after,
        conditions=conditions,
        ledger_conditions=ledger_conditions,
        hint=lambda _state, _event, _ledger: hint,
    )


def _owned_after(question: Question[OwnedState], row: Row) -> OwnedState:
    state = question.state or OwnedState(question.event.author, "")
    receiver = question.data.to if "addressee" in row.records else state.receiver
    return OwnedState(state.owner, row.to or state.status, receiver)


def import_is_own(question: Question[Any]) -> Unmet | None:
    """Only the agent that imported a stream imports it again; condition ``import_is_own``."""
    event, state = question.event, question.state
    owner = None if state is None else getattr(state, "importer", "") or state.owner
    if owner is None or owner == event.author:
        return None
    message = f"{owner} imported {event.stream}, and only {owner} may import it again"
    return Unmet(message, {"owner": owner})


def asks_another(question: Question[Any]) -> Unmet | None:
    """Nobody asks themselves; condition ``asks_another``."""
    is_own = question.data.to == question.event.author
    return Unmet("nobody asks themselves: name another agent", {"path": "$.data.to"}) if is_own else None


def receiver_is_registered(question: Question[Any], ledger: LedgerState) -> Unmet | None:
    """The agent in ``to`` is registered; condition ``receiver_is_registered``."""
    why = why_unregistered(ledger, question.data.to)
    return None if why is None else Unmet(*why)


def replacement_is_another(question: Question[Any]) -> Unmet | None:
    """Nothing replaces itself; condition ``replacement_is_another``."""
    family, _, name = question.event.stream.partition("/")
    if question.data.by != name:
        return None
    return Unmet(f"{name} cannot replace itself: name another {family}", {"path": "$.data.by"})


def replacement_exists(question: Question[Any], ledger: LedgerState) -> Unmet | None:
    """The stream that ``by`` names, of the same family, has a valid event; condition ``replacement_exists``."""
    (family, _, name), by = question.event.stream.partition("/"), question.data.by
    record = ledger.stream(f"{family}/{by}")
    if record is not None and record.state is not None:
        return None
    return Unmet(f"there is no {family} {by} to replace {name}", {"by": by})


WORKING: Final = frozenset({"agent", "reviewer", "human", "service"})
"""To write, an agent needs one of these roles; ``admin`` is not a working role."""
REVIEWING: Final = frozenset({"reviewer", "human"})
"""A reviewer needs one of these roles."""


def author_is_owner_or_reviewer(question: Question[OwnedState], ledger: LedgerState) -> Unmet | None:
    """The author is the owner, or is a reviewer or human; condition ``author_is_owner_or_reviewer``."""
    state, event = question.state, question.event
    assert state is not None  # noqa: S101 - the rows are from states of a stream that exists
    if event.author == state.owner or has_role(ledger, event.author, REVIEWING):
        return None
    able = f"{state.owner}, a reviewer or a human"
    message = (
        f"{event.name}: only {able} may {rules_of(event.stream.partition('/')[0]).act(event.kind)}, not {event.author}"
    )
    return Unmet(message, {"name": event.author, "allowed": [state.owner]})
