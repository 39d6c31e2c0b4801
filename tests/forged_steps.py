"""The steps of somebody who forges a log: each step signs an event and stores it as a gate would.

A ``WrongLog`` is a case made of such steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from event_examples import EXAMPLES
from forge import ORIGINAL_REF, SESSION, Forge

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.authority import (
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    ClockSet,
    KeyCompromised,
    KeyDelegated,
    KeyRevoked,
    KeyRotated,
    LedgerCreated,
    RoleGranted,
)
from deedbook.ledger.events.handoff import HandoffApproved
from deedbook.ledger.events.reasoning import ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.envelope import commitment_to, signed_bytes
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT
from deedbook.ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key

DAY_S: Final = 86_400
NKEY: Final = "U" + "A" * 55
FINDING: Final = FindingLogged(finding="the cache is cold")
ASKED: Final = ReviewRequested(question="is it safe?", rule="risk")


class WrongLog(NamedTuple):
    """A case: the rule that a log breaks, the code of the refusal, and the steps that make the log."""

    rule: str
    code: str
    make: Callable[[Forge], Any]
    index: int | None = -1
    is_begun: bool = True


def registered(forge: Forge, author: str, name: str, *, stream: str = "", key: Key | None = None, **data: Any) -> None:
    """Register a name, by default with a new key and a valid proof of its possession."""
    key = key or forge.new_key(name)
    fields: dict[str, Any] = {"name": name, "key": key.public.hex(), "proof": key.prove_possession(forge.id, name)}
    made = AgentRegistered(**(fields | {"roles": ["agent"]} | data))
    forge.emit(author, stream or f"agent/{name}", made)
    forge.keys.setdefault(name, key)


def rotated(forge: Forge, author: str, name: str, *, key: Key | None = None, stream: str = "", **data: Any) -> Key:
    """Replace the key of a name; return the new one."""
    new = key or forge.new_key(f"{name}'s second")
    fields: dict[str, Any] = {"agent": name, "key": new.public.hex(), "proof": new.prove_possession(forge.id, name)}
    forge.emit(author, stream or f"agent/{name}", KeyRotated(**(fields | data)))
    return new


def checkpoint_rotated(forge: Forge, author: str = ROOT, *, name: str = CHECKPOINT) -> Key:
    """Replace the key that signs checkpoints; return the new one."""
    key = forge.new_key("checkpoint")
    proof = key.prove_possession(forge.id, name)
    forge.emit(author, "ledger", CheckpointKeyRotated(key=key.public.hex(), proof=proof))
    return key


def session(forge: Forge, name: str = "alice", **scope: Any) -> Key:
    """Delegate a session key and return it."""
    return forge.delegate(name, forge.new_key("session"), **scope)


def ended(forge: Forge, author: str, name: str, of: str | None = None, how: type[EventData] = KeyRevoked) -> None:
    """Revoke the key of a name, or report it as compromised."""
    data: dict[str, Any] = {"key": forge.keys[name].public.hex()} | ({"since": 1} if how is KeyCompromised else {})
    forge.emit(author, f"agent/{of or name}", how(**data))


def removed(forge: Forge, name: str = "bob", author: str = "ada") -> None:
    """Remove an agent."""
    forge.emit(author, f"agent/{name}", AgentRemoved(agent=name))


def role(forge: Forge, author: str, name: str, *, stream: str = "") -> None:
    """Grant the role of a reviewer."""
    forge.emit(author, stream or f"agent/{name}", RoleGranted(agent=name, role="reviewer"))


def finding(
    forge: Forge, author: str = "alice", *, key: Key | None = None, stream: str = SESSION, **draft: Any
) -> None:
    """Log a finding, by default in a stream where it is allowed."""
    forge.emit(author, stream, FINDING, key=key, **draft)


def example(forge: Forge, author: str, stream: str, kind: str) -> None:
    """Append the published example of a kind."""
    forge.submit(forge.sign(author, Draft(stream=stream, kind=kind, data=EXAMPLES[kind])))


def compromised(forge: Forge, author: str, name: str, since: int) -> None:
    """Report that the key of a name is compromised since an entry."""
    data = KeyCompromised(key=forge.keys[name].public.hex(), since=since)
    forge.emit(author, f"agent/{name}", data)


def delegated(forge: Forge, author: str, stream: str, *, key: Key, proof: str, seconds: float = 60) -> None:
    """Delegate a key with any author, stream and proof, which may be wrong."""
    data = KeyDelegated(key=key.public.hex(), proof=proof, expires_at=forge.clock.text(seconds))
    forge.emit(author, stream, data)


def delegated_after_its_end(forge: Forge) -> None:
    """Revoke a session key, then delegate it again."""
    key = session(forge)
    forge.emit("alice", "agent/alice", KeyRevoked(key=key.public.hex()))
    session(forge, seconds=61)


def created(forge: Forge, *, author: str = ROOT, key: str = ROOT, **changes: Any) -> None:
    """Append the first event of a ledger, with ``changes`` to its fields."""
    fields: dict[str, str] = {
        "origin": forge.checkpoint_key.origin,
        "root": forge.keys[ROOT].public.hex(),
        "checkpoint_key": forge.keys[CHECKPOINT].public.hex(),
        "node_key": forge.keys[NODE].public.hex(),
    }
    forge.emit(author, "ledger", LedgerCreated(**(fields | changes)), key=forge.keys[key])


def then(*steps: Callable[[Forge], Any]) -> Callable[[Forge], Any]:
    """Return a step that does these steps in order."""

    def make(forge: Forge) -> None:
        for step in steps:
            step(forge)

    return make


def forged_approval(forge: Forge) -> None:
    """Let mallory, an ordinary agent, register a second key for rita, and approve with this key."""
    forge.register("mallory")
    registered(forge, "mallory", "rita", key=forge.new_key("mallory's"), roles=["human", "reviewer"])
    data = forge.hand_over("evil", sender="mallory")
    version = compute_version("mallory", data)
    forge.emit("rita", "handoff/evil", HandoffApproved(version=version), key=forge.new_key("mallory's"))


def signed_late(forge: Forge) -> None:
    """Sign with a session key after it has expired."""
    key = session(forge, seconds=60)
    forge.clock.advance(61)
    finding(forge, key=key)


def signed_before_it_was_granted(forge: Forge) -> None:
    """Sign with a session key before the time of its grant: root has set the clock back since."""
    forge.clock.advance(DAY_S)
    key = session(forge, seconds=DAY_S)
    forge.clock.advance(-DAY_S)
    forge.emit(ROOT, "ledger", ClockSet(time=forge.clock.text(), reason="it stood wrong"))
    finding(forge, key=key)


def signed_by_session_of_ended(forge: Forge, end: Callable[[Forge], Any]) -> None:
    """Sign with a session key after ``end`` has ended the identity key that delegated it."""
    key = session(forge)
    end(forge)
    finding(forge, key=key)


def jumped(forge: Forge) -> None:
    """Append an event after the clock has jumped 31 days ahead."""
    forge.clock.advance(31 * DAY_S)
    finding(forge)


def went_back(forge: Forge) -> None:
    """Append an event after the clock has gone back."""
    forge.clock.advance(-1)
    finding(forge)
    finding(forge, "alice", corr="again")


def clock_set_in_a_batch(forge: Forge) -> None:
    """Set the clock in one batch with another event."""
    setting = forge.body(ROOT, "ledger", ClockSet(time=forge.clock.text(), reason="it stood wrong"))
    grant = forge.body(ROOT, "agent/alice", RoleGranted(agent="alice", role="human"))
    for place, (body, key, sig) in enumerate(forge.batch(ROOT, setting, grant)):
        forge.store(body, key, sig, (place, 2))


def batch_of_two_times(forge: Forge) -> None:
    """Store two events of one batch with different times."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "ab"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)):
        forge.store(body, key, sig, (place, 2), accepted_ms=forge.clock.now_ms + place)


def batch_cut_short(forge: Forge) -> None:
    """Store the first two events of a batch of three."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "abc"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)[:2]):
        forge.store(body, key, sig, (place, 3))


def twice(forge: Forge) -> None:
    """Store the same event twice."""
    body = forge.body("alice", SESSION, FINDING)
    forge.raw("alice", body)
    forge.raw("alice", body)


def stored(**changes: Any) -> Callable[[Forge], Any]:
    """Return a step that stores a finding in an entry with other fields than a gate would write."""
    return lambda forge: forge.raw("alice", forge.body("alice", SESSION, FINDING), **changes)


def counted(**more: int) -> Callable[[Forge], Any]:
    """Return a step that stores a finding; the counts in its entry are too high by these numbers."""

    def make(forge: Forge) -> None:
        counts = {"stream_version": forge.streams[SESSION] + 1, "authority_version": forge.authority}
        stored(**{name: counts[name] + more[name] for name in more})(forge)

    return make


def spelled(old: bytes, new: bytes) -> Callable[[Forge], Any]:
    """Return a step that stores a finding whose entry encodes the same msgpack value in another way."""

    def make(forge: Forge) -> None:
        finding(forge)
        assert forge.entries[-1].startswith(old)
        forge.entries[-1] = new + forge.entries[-1].removeprefix(old)

    return make


def ended_with(more: bytes) -> Callable[[Forge], Any]:
    """Return a step that stores a finding with more bytes after its entry."""

    def make(forge: Forge) -> None:
        finding(forge)
        forge.entries[-1] += more

    return make


def batch_of(count: int, size: int) -> Callable[[Forge], Any]:
    """Return a step that stores a batch of ``count`` findings whose bodies have ``size`` bytes."""

    def make(forge: Forge) -> None:
        bodies = [forge.body("alice", SESSION, FINDING, corr=str(number)) for number in range(count)]
        for place, (body, key, sig) in enumerate(forge.batch("alice", *(body.ljust(size) for body in bodies))):
            forge.store(body, key, sig, (place, count))

    return make


def batch_swapped(forge: Forge) -> None:
    """Store the events of a batch in another order than the signed one."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "ab"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)[::-1]):
        forge.store(body, key, sig, (place, 2))


def malleable(forge: Forge) -> None:
    """Add the order of the group to the S of a valid signature, which verifiers must refuse (RFC 8032 §5.1.7)."""
    body = forge.body("alice", SESSION, FINDING)
    sig = forge.keys["alice"].sign(signed_bytes([commitment_to(body)]))
    other = int.from_bytes(sig[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    forge.store(body, forge.keys["alice"].public, sig[:32] + other.to_bytes(32, "little"))


def checkpoint_signed_with(key: str) -> Callable[[Forge], Any]:
    """Return a step that lets another key sign the checkpoint."""

    def make(forge: Forge) -> None:
        forge.checkpoint_with = forge.keys[key]

    return make


def deep(forge: Forge) -> None:
    """Nest the values of an imported record deeper than the limit."""
    forge.edited(
        "alice", "record/x", imported(), '"format":"x"', '"claims":{"a":' + "[" * 31 + "]" * 31 + '},"format":"x"'
    )


def imported(**fields: Any) -> EventData:
    """Return a record of another tool."""
    from deedbook.ledger.events.imported import RecordImported

    return RecordImported(**({"original": ORIGINAL_REF, "source": "x", "format": "x"} | fields))


def odd(rule: str, code: str, old: str, new: str) -> WrongLog:
    """Return the case of a finding with a part of its text replaced before it was signed."""
    return WrongLog(
        rule, code, lambda forge: forge.edited("alice", SESSION, FindingLogged(finding="x", impact=0.5), old, new)
    )


def free(rule: str, code: str, value: str) -> WrongLog:
    """Return the case of an invalid value in a field that allows values of any type."""

    def make(forge: Forge) -> None:
        data = EXAMPLES["tot.nodes_added"]
        body = forge.body("alice", "tot/tot-20260212-100000-abcdef", data, kind="tot.nodes_added")
        forge.raw("alice", body.replace(b'"depth"', b'"metadata":{"x":%b},"depth"' % value.encode(), 1))

    return WrongLog(rule, code, make)


def reasoning(*steps: int, author: str = "alice") -> Callable[[Forge], Any]:
    """Return a step that begins a reasoning and adds steps to it."""

    def make(forge: Forge) -> None:
        forge.emit("alice", "reasoning/r", ReasoningStarted(task="why"))
        for number in steps:
            step = Step(step_number=number, type="assumption", content="because")
            forge.emit(author, "reasoning/r", ReasoningExtended(steps=[step]))

    return make


def handed(name: str, sender: str = "alice", **fields: Any) -> Callable[[Forge], Any]:
    """Return a step that creates a handoff."""
    return lambda forge: forge.hand_over(name, sender=sender, **fields)
