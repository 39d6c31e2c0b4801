"""Logs with valid signatures but wrong events: wrong names, roles or keys, or wrong statements about the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forge import SESSION
from forged_steps import (
    FINDING,
    NKEY,
    WrongLog,
    batch_cut_short,
    batch_of_two_times,
    checkpoint_rotated,
    clock_set_in_a_batch,
    compromised,
    created,
    delegated,
    delegated_after_its_end,
    ended,
    finding,
    forged_approval,
    jumped,
    registered,
    removed,
    role,
    rotated,
    session,
    signed_before_it_was_granted,
    signed_by_session_of_ended,
    signed_late,
    then,
    twice,
    went_back,
)
from invitations import invite, join

from deedbook.ledger.events.authority import ClockSet, HistoryReset, KeyCompromised, KeyRevoked, RoleRevoked
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT

if TYPE_CHECKING:
    from forge import Forge


def stolen(forge: Forge) -> None:
    """Report the key of the admin ada as stolen since the beginning."""
    compromised(forge, ROOT, "ada", 1)


def begins(forge: Forge) -> None:
    """Let eve start a session."""
    forge.emit("eve", "session/eve", SessionStarted(task="x"))


def joins_when_its_inviter_counts_no_more(forge: Forge) -> None:
    """Let eve join with the invitation of an admin who was registered with a stolen key."""
    registered(forge, "ada", "zoe", roles=["admin"])
    invitation = invite(forge, "eve", by="zoe")
    stolen(forge)
    join(forge, invitation)


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
    WrongLog(
        "an agent whom a stolen key registered signs nothing more",
        "NOT_AUTHORIZED",
        then(lambda f: registered(f, "ada", "eve"), stolen, begins),
    ),
    WrongLog(
        "an agent whom a stolen key invited signs nothing more",
        "NOT_AUTHORIZED",
        then(lambda f: join(f, invite(f, "eve", by="ada")), stolen, begins),
    ),
    WrongLog(
        "an admin whom a stolen key registered registers nobody more",
        "NOT_AUTHORIZED",
        then(lambda f: registered(f, "ada", "eve", roles=["admin"]), stolen, lambda f: registered(f, "eve", "zoe")),
    ),
    WrongLog(
        "an agent whom such an admin registered signs nothing more",
        "NOT_AUTHORIZED",
        then(
            lambda f: registered(f, "ada", "zoe", roles=["admin"]),
            lambda f: registered(f, "zoe", "eve"),
            stolen,
            begins,
        ),
    ),
    WrongLog(
        "an invitation ends when the role of its inviter does not count",
        "NOT_INVITED",
        joins_when_its_inviter_counts_no_more,
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
)

WHICH_KEY_SIGNS: Final = (
    WrongLog("a key signs for its own name", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys["bob"])),
    WrongLog("the node's key signs for nobody else", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys[NODE])),
    WrongLog("the root's key signs for nobody else", "AUTHOR_MISMATCH", lambda f: finding(f, key=f.keys[ROOT])),
    WrongLog("a key signs that was registered", "KEY_UNKNOWN", lambda f: finding(f, key=f.new_key("eve"))),
    WrongLog("a checkpoint key signs no event", "AUTHOR_MISMATCH", lambda f: finding(f, CHECKPOINT)),
    WrongLog("a session key signs for nobody else", "AUTHOR_MISMATCH", lambda f: finding(f, "bob", key=session(f))),
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
    WrongLog("an agent allows no secret", "NOT_AUTHORIZED", lambda f: finding(f, allow_secret=True)),
    WrongLog("an admin allows no secret", "NOT_AUTHORIZED", lambda f: finding(f, "ada", allow_secret=True)),
    WrongLog(
        "a human whose role was taken allows no secret",
        "NOT_AUTHORIZED",
        then(
            lambda f: f.emit(ROOT, "agent/rita", RoleRevoked(agent="rita", role="human")),
            lambda f: finding(f, "rita", allow_secret=True),
        ),
    ),
    WrongLog(
        "a session key of a human allows no secret",
        "KEY_OUT_OF_SCOPE",
        lambda f: finding(f, "rita", key=session(f, "rita"), allow_secret=True),
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
    *(
        WrongLog(
            f"the key of {name} is not delegated",
            "KEY_EXISTS",
            lambda f, name=name: delegated(
                f, "alice", "agent/alice", key=f.keys[name], proof=f.keys[name].prove_possession(f.id, "alice")
            ),
        )
        for name in ("alice", "bob")
    ),
    WrongLog(
        "a proof of a session key is for one ledger",
        "SIGNATURE_INVALID",
        lambda f: delegated(
            f, "alice", "agent/alice", key=f.new_key("s"), proof=f.new_key("s").prove_possession("0" * 32, "alice")
        ),
    ),
    WrongLog("a revoked session key is not delegated anew", "KEY_EXISTS", delegated_after_its_end),
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
    *(
        WrongLog(
            f"a new key is not that of {name}",
            "KEY_EXISTS",
            lambda f, name=name: rotated(f, "bob", "bob", key=f.keys[name]),
        )
        for name in ("bob", "alice", ROOT, CHECKPOINT)
    ),
    WrongLog(
        "no key comes back",
        "KEY_EXISTS",
        then(lambda f: rotated(f, "bob", "bob"), lambda f: rotated(f, ROOT, "bob", key=f.keys["bob"])),
    ),
    WrongLog(
        "a key is replaced on the stream of its agent",
        "INVALID_FIELD",
        lambda f: rotated(f, "alice", "alice", stream="agent/bob"),
    ),
    WrongLog(
        "a proof of a new key is for one name",
        "SIGNATURE_INVALID",
        lambda f: rotated(f, "bob", "bob", proof=f.new_key("bob's second").prove_possession(f.id, "alice")),
    ),
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
        "the node's key is replaced before it is reported compromised",
        "NOT_AUTHORIZED",
        lambda f: compromised(f, ROOT, NODE, 3),
    ),
    WrongLog(
        "a checkpoint key is not reported compromised",
        "NOT_AUTHORIZED",
        lambda f: compromised(f, ROOT, CHECKPOINT, 0),
    ),
    WrongLog(
        "a key is reported compromised that is there",
        "KEY_UNKNOWN",
        lambda f: f.emit(ROOT, "agent/alice", KeyCompromised(key="ab" * 32, since=0)),
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
        "the root alone starts a history reset",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "ledger", HistoryReset(abandoned_size=9, abandoned_root="9f" * 32, reason="x")),
    ),
    WrongLog(
        "a history reset gives up a log that had entries",
        "INVALID_FIELD",
        lambda f: f.emit(ROOT, "ledger", HistoryReset(abandoned_size=0, abandoned_root="9f" * 32, reason="x")),
    ),
    WrongLog(
        "the root alone sets the clock",
        "NOT_AUTHORIZED",
        lambda f: f.emit("ada", "ledger", ClockSet(time=f.clock.text(), reason="x")),
    ),
)

HOW_A_LOG_IS_KEPT: Final = (
    WrongLog("the clock is set by an event that is in no batch", "INVALID_FIELD", clock_set_in_a_batch, index=-2),
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
