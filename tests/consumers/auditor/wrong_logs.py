"""Logs that are validly signed and wrong, one for each rule of admission: what a gate that lets it pass would keep.

The last entry is the wrong one, but where a case names another. ``replayed`` is false for the rules of a kind's own
machine, which the program in the bundle says that it does not replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from building import NO_EVENT
from event_examples import EXAMPLES
from forge import SESSION, Forge

from ledger.author import Draft
from ledger.envelope import pae
from ledger.events.authority import (
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    ClockSet,
    EpochStarted,
    KeyCompromised,
    KeyDelegated,
    KeyRevoked,
    KeyRotated,
    LedgerCreated,
    RoleGranted,
    RoleRevoked,
)
from ledger.events.handoff import (
    HandoffAmended,
    HandoffApproved,
    HandoffCompleted,
    HandoffCreated,
    HandoffLogged,
    HandoffReady,
    HandoffSuperseded,
    HandoffTaskChecked,
    HandoffVerified,
)
from ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from ledger.events.review import ReviewAnswered, ReviewRequested
from ledger.events.session import FindingLogged, SessionEnded, SessionStarted
from ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT
from ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.events import EventData
    from ledger.identity import Key

DAY_S: Final = 86_400
NKEY: Final = "U" + "A" * 55
FINDING: Final = FindingLogged(finding="the cache is cold")
ASKED: Final = ReviewRequested(question="is it safe?", rule="risk")


class WrongLog(NamedTuple):
    """One case: the rule that is broken, the code of its refusal, and how it is made."""

    rule: str
    code: str
    make: Callable[[Forge], Any]
    replayed: bool = True
    index: int | None = -1
    is_begun: bool = True


def registered(forge: Forge, author: str, name: str, *, stream: str = "", key: Key | None = None, **data: Any) -> None:
    """Register a name, by default with a good proof of a new key."""
    key = key or forge.new_key(name)
    fields: dict[str, Any] = {"name": name, "key": key.public.hex(), "proof": key.prove_possession(forge.id, name)}
    made = AgentRegistered(**(fields | {"roles": ["agent"]} | data))
    forge.emit(author, stream or f"agent/{name}", made)
    forge.keys.setdefault(name, key)


def rotated(forge: Forge, author: str, name: str, *, key: Key | None = None, **data: Any) -> Key:
    """Replace the key of a name; return the new one."""
    key = key or forge.new_key(f"{name}'s second")
    fields: dict[str, Any] = {"agent": name, "key": key.public.hex(), "proof": key.prove_possession(forge.id, name)}
    forge.emit(author, f"agent/{name}", KeyRotated(**(fields | data)))
    return key


def checkpoint_rotated(forge: Forge, author: str = ROOT, *, name: str = CHECKPOINT) -> Key:
    """Replace the key of checkpoints; return the new one."""
    key = forge.new_key("checkpoint")
    proof = key.prove_possession(forge.id, name)
    forge.emit(author, "ledger", CheckpointKeyRotated(key=key.public.hex(), proof=proof))
    return key


def amended(data: HandoffCreated, reviewer: str, *, hands_over: bool = True) -> HandoffAmended:
    """Return the amendment that names another reviewer and leaves everything else."""
    return HandoffAmended(**msgspec.structs.asdict(data) | {"reviewer": reviewer}, hands_over=hands_over)


def session(forge: Forge, name: str = "alice", **scope: Any) -> Key:
    """Delegate a session key and return it."""
    return forge.delegate(name, forge.new_key("session"), **scope)


def ended(forge: Forge, author: str, name: str, of: str | None = None, how: type[EventData] = KeyRevoked) -> None:
    """Revoke the key of a name, or call it compromised."""
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
    """Log a finding, by default where it may be."""
    forge.emit(author, stream, FINDING, key=key, **draft)


def example(forge: Forge, author: str, stream: str, kind: str) -> None:
    """Append the published example of a kind."""
    forge.submit(forge.sign(author, Draft(stream=stream, kind=kind, data=EXAMPLES[kind])))


def compromised(forge: Forge, author: str, name: str, since: int) -> None:
    """Call the key of a name compromised since an entry."""
    data = KeyCompromised(key=forge.keys[name].public.hex(), since=since)
    forge.emit(author, f"agent/{name}", data)


def delegated(forge: Forge, author: str, stream: str, *, key: Key, proof: str, seconds: float = 60) -> None:
    """Delegate a key as it should not be."""
    data = KeyDelegated(key=key.public.hex(), proof=proof, expires_at=forge.clock.text(seconds))
    forge.emit(author, stream, data)


def created(forge: Forge, *, author: str = ROOT, key: str = ROOT, **changes: Any) -> None:
    """Append what a ledger begins with, changed."""
    fields: dict[str, str] = {
        "origin": forge.checkpoint_key.origin,
        "root": forge.keys[ROOT].public.hex(),
        "checkpoint_key": forge.keys[CHECKPOINT].public.hex(),
        "node_key": forge.keys[NODE].public.hex(),
    }
    forge.emit(author, "ledger", LedgerCreated(**(fields | changes)), key=forge.keys[key])


def then(*steps: Callable[[Forge], Any]) -> Callable[[Forge], Any]:
    """Do several things in order."""

    def make(forge: Forge) -> None:
        for step in steps:
            step(forge)

    return make


def forged_approval(forge: Forge) -> None:
    """Register a second key for rita as mallory, who is a mere agent, and approve with it."""
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
    """Sign with a session key that was granted under a clock which the root set back since."""
    forge.clock.advance(DAY_S)
    key = session(forge, seconds=DAY_S)
    forge.clock.advance(-DAY_S)
    forge.emit(ROOT, "ledger", ClockSet(time=forge.clock.text(), reason="it stood wrong"))
    finding(forge, key=key)


def signed_by_session_of_ended(forge: Forge, end: Callable[[Forge], Any]) -> None:
    """Sign with a session key after the identity key that delegated it has ended."""
    key = session(forge)
    end(forge)
    finding(forge, key=key)


def jumped(forge: Forge) -> None:
    """Let the clock jump ahead."""
    forge.clock.advance(31 * DAY_S)
    finding(forge)


def went_back(forge: Forge) -> None:
    """Let the clock go back."""
    forge.clock.advance(-1)
    finding(forge)
    finding(forge, "alice", corr="again")


def batch_of_two_times(forge: Forge) -> None:
    """Keep two events of one batch at two times."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "ab"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)):
        forge.store(body, key, sig, (place, 2), accepted_ms=forge.clock.now_ms + place)


def batch_cut_short(forge: Forge) -> None:
    """Keep the first two events of a batch of three."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "abc"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)[:2]):
        forge.store(body, key, sig, (place, 3))


def twice(forge: Forge) -> None:
    """Keep the very same event twice."""
    body = forge.body("alice", SESSION, FINDING)
    forge.raw("alice", body)
    forge.raw("alice", body)


def ready(forge: Forge) -> None:
    """Let an agent say what only the router says."""
    data = forge.hand_over("x")
    forge.approve("x", data)
    forge.emit("alice", "handoff/x", HandoffReady(to="bob", version=compute_version("alice", data)))


def stored(**changes: Any) -> Callable[[Forge], Any]:
    """Store a finding as an entry with other fields than a gate would write."""
    return lambda forge: forge.raw("alice", forge.body("alice", SESSION, FINDING), **changes)


def counted(**more: int) -> Callable[[Forge], Any]:
    """Store a finding whose counts are by so many more than they are."""

    def make(forge: Forge) -> None:
        counts = {"stream_version": forge.streams[SESSION] + 1, "authority_version": forge.authority}
        stored(**{name: counts[name] + more[name] for name in more})(forge)

    return make


def spelled(old: bytes, new: bytes) -> Callable[[Forge], Any]:
    """Store a finding whose entry is the same in another spelling of msgpack."""

    def make(forge: Forge) -> None:
        finding(forge)
        assert forge.entries[-1].startswith(old)
        forge.entries[-1] = new + forge.entries[-1].removeprefix(old)

    return make


def ended_with(more: bytes) -> Callable[[Forge], Any]:
    """Store a finding with bytes behind its entry."""

    def make(forge: Forge) -> None:
        finding(forge)
        forge.entries[-1] += more

    return make


def batch_swapped(forge: Forge) -> None:
    """Keep the events of a batch in another order than was signed."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "ab"]
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)[::-1]):
        forge.store(body, key, sig, (place, 2))


def malleable(forge: Forge) -> None:
    """Sign with the same signature plus the order of the group (RFC 8032 §5.1.7)."""
    body = forge.body("alice", SESSION, FINDING)
    sig = forge.keys["alice"].sign(pae(body))
    other = int.from_bytes(sig[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    forge.store(body, forge.keys["alice"].public, sig[:32] + other.to_bytes(32, "little"))


def checkpoint_signed_with(key: str) -> Callable[[Forge], Any]:
    """Let another key sign the checkpoint."""

    def make(forge: Forge) -> None:
        forge.checkpoint_with = forge.keys[key]

    return make


def deep(forge: Forge) -> None:
    """Nest an imported record deeper than anything may be."""
    forge.edited(
        "alice", "record/x", imported(), '"format":"x"', '"claims":{"a":' + "[" * 31 + "]" * 31 + '},"format":"x"'
    )


def imported(**fields: Any) -> EventData:
    """Return a record of another tool."""
    from ledger.events.imported import RecordImported

    return RecordImported(**({"original": "blake3:" + "1" * 64, "source": "x", "format": "x"} | fields))


def odd(rule: str, code: str, old: str, new: str) -> WrongLog:
    """Return the case of a finding with a piece of its text exchanged before it was signed."""
    return WrongLog(
        rule, code, lambda forge: forge.edited("alice", SESSION, FindingLogged(finding="x", impact=0.5), old, new)
    )


def free(rule: str, code: str, value: str) -> WrongLog:
    """Return the case of a value that stands where a kind allows any."""

    def make(forge: Forge) -> None:
        data = EXAMPLES["tot.nodes_added"]
        body = forge.body("alice", "tot/tot-20260212-100000-abcdef", data, kind="tot.nodes_added")
        forge.raw("alice", body.replace(b'"depth"', b'"metadata":{"x":%b},"depth"' % value.encode(), 1))

    return WrongLog(rule, code, make)


def of_kind(rule: str, code: str, make: Callable[[Forge], Any]) -> WrongLog:
    """Return the case of a rule that a kind's own machine has."""
    return WrongLog(rule, code, make, replayed=False)


def reasoning(*steps: int, author: str = "alice") -> Callable[[Forge], Any]:
    """Begin a reasoning and add steps to it."""

    def make(forge: Forge) -> None:
        forge.emit("alice", "reasoning/r", ReasoningStarted(task="why"))
        for number in steps:
            step = Step(step_number=number, type="assumption", content="because")
            forge.emit(author, "reasoning/r", ReasoningExtended(steps=[step]))

    return make


def handed(name: str, sender: str = "alice", **fields: Any) -> Callable[[Forge], Any]:
    """Hand work over."""
    return lambda forge: forge.hand_over(name, sender=sender, **fields)


WHO_REGISTERS: Final = (
    WrongLog("a name is registered once, by an admin", "NOT_AUTHORIZED", forged_approval, index=-3),
    WrongLog("an agent registers nobody", "NOT_AUTHORIZED", lambda f: registered(f, "alice", "eve")),
    WrongLog("an admin registers a name once", "AGENT_EXISTS", lambda f: registered(f, "ada", "alice")),
    *(
        WrongLog(f"nobody is registered as {name}", "AGENT_EXISTS", lambda f, name=name: registered(f, "ada", name))
        for name in (ROOT, NODE, CHECKPOINT)
    ),
    WrongLog("the node registers services only", "NOT_AUTHORIZED", lambda f: registered(f, NODE, "eve")),
    WrongLog(
        "the node registers nobody who is a service among others",
        "NOT_AUTHORIZED",
        lambda f: registered(f, NODE, "eve", roles=["service", "human"]),
    ),
    WrongLog(
        "a service registers no service",
        "NOT_AUTHORIZED",
        lambda f: registered(f, "router", "eve", roles=["service"]),
    ),
    WrongLog(
        "an admin whose role was taken registers nobody",
        "NOT_AUTHORIZED",
        then(
            lambda f: f.emit(ROOT, "agent/ada", RoleRevoked(agent="ada", role="admin")),
            lambda f: registered(f, "ada", "eve"),
        ),
    ),
    WrongLog(
        "a key proves that its holder wants the name",
        "SIGNATURE_INVALID",
        lambda f: registered(f, "ada", "eve", proof=f.keys["bob"].prove_possession(f.id, "eve")),
    ),
    WrongLog(
        "a proof is for one name",
        "SIGNATURE_INVALID",
        lambda f: registered(f, "ada", "eve", proof=f.new_key("eve").prove_possession(f.id, "adam")),
    ),
    WrongLog(
        "a proof is for one ledger",
        "SIGNATURE_INVALID",
        lambda f: registered(f, "ada", "eve", proof=f.new_key("eve").prove_possession("0" * 32, "eve")),
    ),
    WrongLog("a key is of one name", "KEY_EXISTS", lambda f: registered(f, "ada", "eve", key=f.keys["bob"])),
    WrongLog(
        "a checkpoint key is of no name", "KEY_EXISTS", lambda f: registered(f, "ada", "eve", key=f.keys[CHECKPOINT])
    ),
    WrongLog(
        "a bus key is of one name",
        "KEY_EXISTS",
        then(*(lambda f, name=name: registered(f, "ada", name, nkey=NKEY) for name in ("eve", "adam"))),
    ),
    WrongLog(
        "a registration stands on the stream of its name",
        "INVALID_FIELD",
        lambda f: registered(f, "ada", "eve", stream="agent/adam"),
    ),
    WrongLog(
        "the name of who was removed is never given again",
        "AGENT_EXISTS",
        then(removed, lambda f: registered(f, "ada", "bob", key=f.new_key("b"))),
    ),
)

WHO_HOLDS_WHICH_ROLE: Final = (
    WrongLog("an agent grants no role", "NOT_AUTHORIZED", lambda f: role(f, "alice", "alice")),
    WrongLog("the node grants no role", "NOT_AUTHORIZED", lambda f: role(f, NODE, NODE)),
    WrongLog("nobody has a role who is not registered", "AGENT_UNKNOWN", lambda f: role(f, "ada", "eve")),
    WrongLog("nobody has a role who was removed", "AGENT_UNKNOWN", then(removed, lambda f: role(f, "ada", "bob"))),
    WrongLog(
        "a role is granted on the stream of who has it",
        "INVALID_FIELD",
        lambda f: role(f, "ada", "alice", stream="agent/bob"),
    ),
    WrongLog(
        "the root keeps its role",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "agent/root", RoleRevoked(agent=ROOT, role="admin")),
    ),
    WrongLog("an agent removes nobody", "NOT_AUTHORIZED", lambda f: removed(f, author="alice")),
    WrongLog("the root is not removed", "NOT_AUTHORIZED", lambda f: removed(f, ROOT)),
    WrongLog("the node is not removed", "NOT_AUTHORIZED", lambda f: removed(f, NODE)),
    WrongLog("who was removed is not removed again", "AGENT_UNKNOWN", then(removed, removed)),
    WrongLog(
        "who was removed signs nothing",
        "KEY_REVOKED",
        then(removed, lambda f: f.emit("bob", "session/b", SessionStarted(task="x"))),
    ),
    WrongLog(
        "an admin alone does no work",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "session/ada", SessionStarted(task="x")),
    ),
    WrongLog(
        "the node does no work", "NOT_AUTHORIZED", lambda f: f.emit(NODE, "session/node", SessionStarted(task="x"))
    ),
    WrongLog(
        "a reviewer confirms",
        "NOT_AUTHORIZED",
        lambda f: f.emit("router", "handoff/open", HandoffVerified(version=NO_EVENT, completion=NO_EVENT)),
    ),
    WrongLog(
        "a service says what is ready",
        "NOT_AUTHORIZED",
        ready,
    ),
    WrongLog(
        "a human answers a review",
        "NOT_AUTHORIZED",
        then(
            lambda f: f.emit("alice", "review/v", ASKED),
            lambda f: f.emit("bob", "review/v", ReviewAnswered(verdict="approved")),
        ),
    ),
    WrongLog(
        "a service writes a brief",
        "NOT_AUTHORIZED",
        then(reasoning(1), lambda f: example(f, "alice", "reasoning/r", "reasoning.briefed")),
    ),
)

WHICH_KEY_SIGNS: Final = (
    WrongLog("a key signs for its own name", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys["bob"])),
    WrongLog("the node's key signs for nobody else", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys[NODE])),
    WrongLog("the root's key signs for nobody else", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys[ROOT])),
    WrongLog("a key signs that was registered", "KEY_UNKNOWN", lambda f: finding(f, key=f.new_key("eve"))),
    WrongLog("a checkpoint key signs no event", "AUTHOR_MISMATCH", lambda f: finding(f, CHECKPOINT)),
    WrongLog("a session key expires", "KEY_EXPIRED", signed_late),
    WrongLog("a session key holds from when it was granted", "KEY_EXPIRED", signed_before_it_was_granted),
    WrongLog(
        "a session key signs the kinds of its scope",
        "KEY_OUT_OF_SCOPE",
        lambda f: finding(f, key=session(f, kinds=["handoff.*", "finding.log"])),
    ),
    WrongLog(
        "a session key signs on the streams of its scope",
        "KEY_OUT_OF_SCOPE",
        lambda f: finding(f, key=session(f, streams=["session/other*"])),
    ),
    WrongLog(
        "a session key signs as many events as it may",
        "KEY_EXHAUSTED",
        lambda f: [finding(f, key=key, corr=text) for key in [session(f, max_events=2)] for text in "abc"],
    ),
    WrongLog(
        "a session key approves nothing",
        "KEY_OUT_OF_SCOPE",
        lambda f: f.emit(
            "rita",
            "handoff/two",
            HandoffApproved(version=compute_version("alice", f.hand_over("two"))),
            key=session(f, "rita"),
        ),
    ),
    WrongLog(
        "a session key hands nothing over without a reviewer",
        "KEY_OUT_OF_SCOPE",
        lambda f: f.emit("rita", "handoff/alone", HandoffCreated(title="t", to="bob"), key=session(f, "rita")),
    ),
    WrongLog(
        "a session key gives no review away",
        "KEY_OUT_OF_SCOPE",
        lambda f: f.emit("rita", "handoff/given", amended(f.hand_over("given"), "ruth"), key=session(f, "rita")),
    ),
    WrongLog(
        "a session key delegates nothing",
        "KEY_OUT_OF_SCOPE",
        lambda f: f.submit(f.sign("alice", f.delegated("alice", f.new_key("third")), key=session(f))),
    ),
    WrongLog(
        "a session key of an admin registers nobody",
        "KEY_OUT_OF_SCOPE",
        lambda f: f.submit(f.sign("ada", f.registered("eve", ["agent"]), key=session(f, "ada"))),
    ),
    WrongLog(
        "a session key ends with the revoked key that delegated it",
        "KEY_REVOKED",
        lambda f: signed_by_session_of_ended(f, lambda f: ended(f, "ada", "alice")),
    ),
    WrongLog(
        "a session key ends with the replaced key that delegated it",
        "KEY_REVOKED",
        lambda f: signed_by_session_of_ended(f, lambda f: rotated(f, "alice", "alice")),
    ),
    WrongLog(
        "a session key ends with the compromised key that delegated it",
        "KEY_REVOKED",
        lambda f: signed_by_session_of_ended(f, lambda f: compromised(f, "ada", "alice", 3)),
    ),
    WrongLog(
        "a session key ends with its agent",
        "KEY_REVOKED",
        lambda f: signed_by_session_of_ended(f, lambda f: removed(f, "alice")),
    ),
    WrongLog("a revoked key signs nothing", "KEY_REVOKED", then(lambda f: ended(f, "ada", "alice"), finding)),
    WrongLog("a replaced key signs nothing", "KEY_REVOKED", then(lambda f: rotated(f, "alice", "alice"), finding)),
    WrongLog(
        "a compromised key signs nothing", "KEY_REVOKED", then(lambda f: compromised(f, "ada", "alice", 3), finding)
    ),
)

WHO_CHANGES_KEYS: Final = (
    WrongLog(
        "a session key is delegated for a time to come",
        "KEY_EXPIRED",
        lambda f: session(f, seconds=-1),
    ),
    WrongLog(
        "a delegated key proves whose it is",
        "SIGNATURE_INVALID",
        lambda f: delegated(f, "alice", "agent/alice", key=f.new_key("s"), proof="00" * 64),
    ),
    WrongLog(
        "a key is delegated on the stream of its agent",
        "INVALID_FIELD",
        lambda f: delegated(
            f, "alice", "agent/bob", key=f.new_key("s"), proof=f.new_key("s").prove_possession(f.id, "alice")
        ),
    ),
    WrongLog("a key is delegated once", "KEY_EXISTS", then(session, session)),
    WrongLog("an agent revokes no other's key", "NOT_AUTHORIZED", lambda f: ended(f, "alice", "bob")),
    WrongLog("the root key is not revoked", "NOT_AUTHORIZED", lambda f: ended(f, "ada", ROOT)),
    WrongLog("the node's key is not revoked", "NOT_AUTHORIZED", lambda f: ended(f, ROOT, NODE)),
    WrongLog("a checkpoint key is not revoked", "NOT_AUTHORIZED", lambda f: ended(f, ROOT, CHECKPOINT)),
    WrongLog(
        "a key is revoked that is there",
        "KEY_UNKNOWN",
        lambda f: f.emit("ada", "agent/eve", KeyRevoked(key=f.new_key("eve").public.hex())),
    ),
    WrongLog("a key is revoked on its stream", "INVALID_FIELD", lambda f: ended(f, "ada", "bob", of="alice")),
    WrongLog("a key is revoked once", "KEY_REVOKED", then(*[lambda f: ended(f, "ada", "bob")] * 2)),
    WrongLog("an agent replaces no other's key", "NOT_AUTHORIZED", lambda f: rotated(f, "alice", "bob")),
    WrongLog("an admin replaces no reviewer's key", "NOT_AUTHORIZED", lambda f: rotated(f, "ada", "rita")),
    WrongLog("an admin does not replace the root key", "NOT_AUTHORIZED", lambda f: rotated(f, "ada", ROOT)),
    WrongLog("an admin does not replace the node's key", "NOT_AUTHORIZED", lambda f: rotated(f, "ada", NODE)),
    WrongLog("the node replaces no agent's key", "NOT_AUTHORIZED", lambda f: rotated(f, NODE, "bob")),
    WrongLog("a new key proves whose it is", "SIGNATURE_INVALID", lambda f: rotated(f, "bob", "bob", proof="00" * 64)),
    WrongLog("a key does not replace itself", "KEY_EXISTS", lambda f: rotated(f, "bob", "bob", key=f.keys["bob"])),
    WrongLog("a removed agent has no new key", "AGENT_UNKNOWN", then(removed, lambda f: rotated(f, ROOT, "bob"))),
    WrongLog(
        "a bus key does not become another's",
        "KEY_EXISTS",
        then(lambda f: registered(f, "ada", "eve", nkey=NKEY), lambda f: rotated(f, "bob", "bob", nkey=NKEY)),
    ),
    WrongLog("the root alone replaces the checkpoint key", "NOT_AUTHORIZED", lambda f: checkpoint_rotated(f, "ada")),
    WrongLog("a checkpoint key proves what it is for", "SIGNATURE_INVALID", lambda f: checkpoint_rotated(f, name=NODE)),
    WrongLog(
        "an agent calls no other's key compromised", "NOT_AUTHORIZED", lambda f: compromised(f, "alice", "bob", 3)
    ),
    WrongLog(
        "an admin does not call the node's key compromised",
        "NOT_AUTHORIZED",
        then(lambda f: rotated(f, NODE, NODE), lambda f: compromised(f, "ada", NODE, 3)),
    ),
    WrongLog(
        "the node's key is replaced before it is called compromised",
        "NOT_AUTHORIZED",
        lambda f: compromised(f, ROOT, NODE, 3),
    ),
    WrongLog(
        "a key is compromised since an entry that is there", "INVALID_FIELD", lambda f: compromised(f, "ada", "bob", 99)
    ),
    WrongLog(
        "a compromise is declared again for an earlier entry only",
        "TRANSITION_NOT_ALLOWED",
        then(lambda f: compromised(f, "ada", "bob", 3), lambda f: compromised(f, "ada", "bob", 4)),
    ),
)

WHAT_THE_LEDGER_SAYS: Final = (
    WrongLog("a ledger is created once", "NOT_AUTHORIZED", created),
    WrongLog(
        "a ledger is created by who holds its root key",
        "NOT_AUTHORIZED",
        lambda f: created(f, key="bob"),
        index=0,
        is_begun=False,
    ),
    WrongLog(
        "a ledger is created by its root",
        "NOT_AUTHORIZED",
        lambda f: created(f, author="alice", key=ROOT),
        index=0,
        is_begun=False,
    ),
    WrongLog(
        "the keys of a ledger differ",
        "INVALID_FIELD",
        lambda f: created(f, node_key=f.keys[ROOT].public.hex()),
        index=0,
        is_begun=False,
    ),
    WrongLog(
        "a ledger's id is that of its root key",
        "WRONG_LEDGER",
        lambda f: f.raw(ROOT, f.body(ROOT, "ledger", f.created().data).replace(f.id.encode(), b"0" * 32)),
        index=0,
        is_begun=False,
    ),
    WrongLog("a log begins with its ledger", "CORRUPTED", finding, index=None, is_begun=False),
    WrongLog(
        "an event is for this ledger",
        "WRONG_LEDGER",
        lambda f: f.raw("alice", f.body("alice", SESSION, FINDING).replace(f.id.encode(), b"0" * 32)),
    ),
    WrongLog(
        "the root alone starts an epoch",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "ledger", EpochStarted(abandoned_size=9, abandoned_root="9f" * 32, reason="x")),
    ),
    WrongLog(
        "an epoch gives up a log that had entries",
        "INVALID_FIELD",
        lambda f: f.emit(ROOT, "ledger", EpochStarted(abandoned_size=0, abandoned_root="9f" * 32, reason="x")),
    ),
    WrongLog(
        "the root alone sets the clock",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "ledger", ClockSet(time=f.clock.text(), reason="x")),
    ),
    WrongLog(
        "the clock is set to the time that was signed",
        "INVALID_FIELD",
        lambda f: f.emit(ROOT, "ledger", ClockSet(time=f.clock.text(60), reason="x")),
    ),
    WrongLog("the clock does not jump ahead", "CLOCK_JUMPED", jumped),
    WrongLog("the clock does not go back", "VERIFICATION_FAILED", went_back, index=-2),
    WrongLog("an event is kept once", "PARTIAL_RETRY", twice),
    WrongLog(
        "an idempotency key is used once",
        "IDEMPOTENCY_CONFLICT",
        then(lambda f: finding(f, idem="k"), lambda f: finding(f, idem="k", corr="other")),
    ),
    WrongLog("a stream is where its author thought", "STREAM_CONFLICT", lambda f: finding(f, expect=7)),
    WrongLog("the events of a batch have one time", "VERIFICATION_FAILED", batch_of_two_times),
    WrongLog("a batch is kept whole", "VERIFICATION_FAILED", batch_cut_short, index=-2),
)

WHAT_AN_EVENT_IS: Final = (
    odd("a JSON key stands once", "DUPLICATE_KEY", '"finding":"x"', '"finding":"y","finding":"x"'),
    odd(
        "a JSON key stands once, however spelled", "DUPLICATE_KEY", '"finding":"x"', '"finding":"y","f\\u0069nding":"x"'
    ),
    odd("an integer is one that all readers hold", "INTEGER_OUT_OF_RANGE", "0.5", "9007199254740993"),
    odd("a number is finite", "INVALID_FORMAT", "0.5", "1e999"),
    odd("NaN is no number", "INVALID_FORMAT", "0.5", "NaN"),
    odd("a text is whole Unicode", "INVALID_FORMAT", '"finding":"x"', '"finding":"\\ud800"'),
    WrongLog(
        "JSON is UTF-8",
        "INVALID_FORMAT",
        lambda f: f.raw("alice", f.body("alice", SESSION, FINDING).replace(b"cold", b"\xff")),
    ),
    WrongLog("JSON is no deeper than its limit", "NESTING_TOO_DEEP", deep),
    odd("a field is known", "UNKNOWN_FIELD", '"finding":"x"', '"finding":"x","more":1'),
    odd("a kind is known", "UNKNOWN_KIND", "finding.logged", "finding.logged2"),
    odd("a field is of its type", "INVALID_FIELD", "0.5", '"0.5"'),
    odd("a field is in its range", "INVALID_FIELD", "0.5", "1.5"),
    odd("a field is not empty", "INVALID_FIELD", '"finding":"x"', '"finding":""'),
    odd("a field is there", "INVALID_FIELD", '"finding":"x",', ""),
    odd("a kind stands on streams of its family", "INVALID_FIELD", f'"stream":"{SESSION}"', '"stream":"handoff/x"'),
    odd("a day is in the calendar", "INVALID_FIELD", '"at":"20', '"at":"2026-02-30T10:00:00Z","corr":"20'),
    odd("a cause is a ref", "INVALID_FIELD", '"causes":[]', '"causes":["blake3:1"]'),
    odd("a name is of its form", "INVALID_FIELD", '"author":"alice"', '"author":"alice\\n"'),
    odd("a stream's name has an end", "TOO_LARGE", f'"stream":"{SESSION}"', '"stream":"session/' + "x" * 400 + '"'),
    WrongLog(
        "a body is no larger than its limit",
        "TOO_LARGE",
        lambda f: f.raw(
            "alice",
            f.body("alice", SESSION, FINDING) + b" " * (48 * 1024 - 128 - len(f.body("alice", SESSION, FINDING)) + 1),
        ),
    ),
    free("an integer is one that all readers hold, wherever it stands", "INTEGER_OUT_OF_RANGE", "9007199254740993"),
    free("a number is finite, wherever it stands", "INVALID_FORMAT", "-1e999"),
    free("a key stands once, wherever it stands", "DUPLICATE_KEY", '{"a":1,"\\u0061":2}'),
    free("nothing is nested deeper than its limit, wherever it stands", "NESTING_TOO_DEEP", "[" * 28 + "]" * 28),
    WrongLog("a blob's upload is no entry", "TRANSITION_NOT_ALLOWED", lambda f: f.submit(f.intent("alice", b"blob"))),
    WrongLog(
        "a record maps to what can be imported",
        "INVALID_FIELD",
        lambda f: f.emit("alice", "record/x", imported(mapped_kind="agent.registered")),
    ),
    WrongLog(
        "a record maps to the fields of its kind",
        "UNKNOWN_FIELD",
        lambda f: f.emit("alice", "session/x", imported(mapped_kind="session.started", mapped={"tasks": "x"})),
    ),
    WrongLog(
        "a record kept aside maps to nothing",
        "INVALID_FIELD",
        lambda f: f.emit("alice", "record/x", imported(mapped={"task": "x"})),
    ),
)

WHAT_AN_ENTRY_IS: Final = (
    WrongLog("an entry counts its stream, and not more", "VERIFICATION_FAILED", counted(stream_version=1)),
    WrongLog("an entry counts its stream, and not less", "VERIFICATION_FAILED", counted(stream_version=-1)),
    WrongLog("an entry counts authority, and not more", "VERIFICATION_FAILED", counted(authority_version=1)),
    WrongLog("an entry counts authority, and not less", "VERIFICATION_FAILED", counted(authority_version=-1)),
    WrongLog("counts begin with one", "INVALID_FORMAT", stored(stream_version=0)),
    WrongLog("an entry is of a known version", "UNSUPPORTED_VERSION", stored(version=2)),
    WrongLog("a signature is of a known algorithm", "UNSUPPORTED_VERSION", stored(alg=2)),
    WrongLog("a time has a date", "INVALID_FORMAT", stored(accepted_ms=253_402_300_800_000)),
    WrongLog("an event is within its batch", "INVALID_FORMAT", stored(batch_index=1)),
    WrongLog("a batch has a limit", "INVALID_FORMAT", stored(batch_size=257)),
    WrongLog("a key has its length", "INVALID_FORMAT", stored(key=bytes(31))),
    WrongLog("a signature has its length", "INVALID_FORMAT", stored(sig=bytes(65))),
    WrongLog("a number has one spelling", "INVALID_FORMAT", spelled(b"\x9a\x01", b"\x9a\xcc\x01")),
    WrongLog("an entry has ten items", "INVALID_FORMAT", spelled(b"\x9a", b"\x99")),
    WrongLog("an entry has one spelling", "INVALID_FORMAT", spelled(b"\x9a", b"\xdc\x00\x0a")),
    WrongLog("an event is signed", "SIGNATURE_INVALID", stored(sig=bytes(64))),
    WrongLog("a signature has one form", "SIGNATURE_INVALID", malleable),
    WrongLog("a batch is in the order that was signed", "SIGNATURE_INVALID", batch_swapped, index=-2),
    WrongLog("nothing follows an entry", "INVALID_FORMAT", ended_with(b"\0")),
    WrongLog("an entry has numbers where numbers belong", "INVALID_FORMAT", spelled(b"\x9a\x01", b"\x9a\xc4\x01\x01")),
    WrongLog("a checkpoint is signed by its key", "VERIFICATION_FAILED", checkpoint_signed_with("root"), index=None),
    WrongLog("a replaced checkpoint key signs no checkpoint", "VERIFICATION_FAILED", checkpoint_rotated, index=None),
)

WHAT_A_KIND_ALLOWS: Final = (
    of_kind("a handoff is created once", "TRANSITION_NOT_ALLOWED", handed("open")),
    of_kind("nobody reviews his own handoff", "SELF_APPROVAL", handed("self", "rita")),
    of_kind("a reviewer is one who may review", "NOT_AUTHORIZED", handed("x", reviewer="ada")),
    of_kind("a handoff of no human has a reviewer", "REVIEWER_REQUIRED", handed("x", reviewer=None)),
    of_kind("a handoff is for somebody who is there", "AGENT_UNKNOWN", handed("x", to="eve")),
    of_kind(
        "an approval is of the present version",
        "VERSION_MISMATCH",
        then(handed("x"), lambda f: f.emit("rita", "handoff/x", HandoffApproved(version="blake3:" + "1" * 64))),
    ),
    of_kind("a handoff is claimed after its approval", "NOT_APPROVED", then(handed("x"), lambda f: f.claim("x"))),
    of_kind("a handoff is claimed by its receiver", "NOT_AUTHORIZED", lambda f: f.claim("open", by="alice")),
    of_kind("a handoff is claimed once", "ALREADY_CLAIMED", then(lambda f: f.claim("open"), lambda f: f.claim("open"))),
    of_kind(
        "a handoff is completed when its criteria are met",
        "CRITERIA_OPEN",
        then(lambda f: f.claim("open"), lambda f: f.emit("bob", "handoff/open", HandoffCompleted())),
    ),
    of_kind(
        "a handoff waits for what it depends on",
        "DEPENDENCY_PENDING",
        then(lambda f: f.approve("late", f.hand_over("late", depends_on=["open"])), lambda f: f.claim("late")),
    ),
    of_kind(
        "handoffs do not wait for each other",
        "DEPENDENCY_CYCLE",
        then(handed("a", depends_on=["b"]), handed("b", depends_on=["a"])),
    ),
    of_kind(
        "a handoff gives its place to one that is there",
        "NOT_FOUND",
        lambda f: f.emit("alice", "handoff/open", HandoffSuperseded(by="nothing")),
    ),
    of_kind(
        "a log is of a handoff",
        "TRANSITION_NOT_ALLOWED",
        lambda f: f.emit("bob", "handoff/no", HandoffLogged(text="x")),
    ),
    of_kind(
        "a reviewer is dropped by nobody",
        "NOT_AUTHORIZED",
        lambda f: f.emit("alice", "handoff/kept", amended(f.hand_over("kept"), "ada", hands_over=False)),
    ),
    of_kind(
        "work is verified as it was handed in last",
        "VERSION_MISMATCH",
        then(
            lambda f: f.finish("done"),
            lambda f: f.emit("rita", "handoff/done", HandoffVerified(version=NO_EVENT, completion=NO_EVENT)),
        ),
    ),
    of_kind(
        "a tick changes something",
        "NOTHING_CHANGED",
        then(
            lambda f: f.approve("ticked", f.hand_over("ticked", tasks=["do"])),
            lambda f: f.claim("ticked"),
            lambda f: f.emit("bob", "handoff/ticked", HandoffTaskChecked(position=0, checked=False)),
        ),
    ),
    of_kind(
        "work is verified once it is done",
        "TRANSITION_NOT_ALLOWED",
        lambda f: f.emit("rita", "handoff/open", HandoffVerified(version=NO_EVENT, completion=NO_EVENT)),
    ),
    of_kind(
        "a session is started once",
        "TRANSITION_NOT_ALLOWED",
        lambda f: f.emit("alice", SESSION, SessionStarted(task="x")),
    ),
    of_kind("a session is its owner's", "NOT_AUTHORIZED", lambda f: finding(f, "bob")),
    of_kind(
        "a session ends", "TRANSITION_NOT_ALLOWED", then(lambda f: f.emit("alice", SESSION, SessionEnded()), finding)
    ),
    of_kind("a session is started first", "TRANSITION_NOT_ALLOWED", lambda f: finding(f, stream="session/none")),
    of_kind("a reasoning is its owner's", "NOT_AUTHORIZED", reasoning(1, author="bob")),
    of_kind("a step is added once", "STEP_CONFLICT", reasoning(1, 1)),
    of_kind(
        "a conclusion rests on steps",
        "TRANSITION_NOT_ALLOWED",
        then(reasoning(), lambda f: f.emit("alice", "reasoning/r", ReasoningConcluded(conclusion="x"))),
    ),
    of_kind(
        "a snapshot is taken once",
        "TRANSITION_NOT_ALLOWED",
        then(*[lambda f: example(f, "alice", "snapshot/s", "snapshot.taken")] * 2),
    ),
    of_kind(
        "a review is answered once",
        "TRANSITION_NOT_ALLOWED",
        then(
            lambda f: f.emit("alice", "review/v", ASKED),
            *[lambda f: f.emit("rita", "review/v", ReviewAnswered(verdict="approved"))] * 2,
        ),
    ),
    of_kind(
        "a search begins with its start",
        "TRANSITION_NOT_ALLOWED",
        lambda f: example(f, "alice", f"tot/{EXAMPLES['tot.decompose_task']['task_id']}", "tot.decompose_task"),
    ),
)

WRONG_LOGS: Final = (
    *WHO_REGISTERS, *WHO_HOLDS_WHICH_ROLE, *WHICH_KEY_SIGNS, *WHO_CHANGES_KEYS, *WHAT_THE_LEDGER_SAYS,
    *WHAT_AN_EVENT_IS, *WHAT_AN_ENTRY_IS, *WHAT_A_KIND_ALLOWS,
)  # fmt: skip
