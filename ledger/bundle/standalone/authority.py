"""Who may sign what: keys, agents and roles as the authority events say, in the order of the log.

What an event may change is asked before anything is changed, so that one which is refused leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.form import Event, to_ms
from deedbook.ledger.bundle.standalone.proofs import JOINING, POSSESSION, is_signed, need, pae, vkey

RESERVED = ("root", "node", "checkpoint")
AUTHORITY = (
    "ledger.created",
    "ledger.history_reset",
    "ledger.clock_set",
    "ledger.term_started",
    "agent.invited",
    "agent.invitation_revoked",
    "agent.registered",
    "agent.removed",
    "role.granted",
    "role.revoked",
    "key.delegated",
    "key.revoked",
    "key.rotated",
    "key.compromised",
    "checkpoint_key.rotated",
)
CHECKPOINTS = "the checkpoints"  # whose the checkpoint keys are, and those of invitations: the name of no agent
WORKS = {"agent", "reviewer", "human", "service"}
CORRECTS = {"finding.retracted", "dead_end.retracted", "unknown.resolved"}
CONFIRMS = {"reviewer", "human"}
ROLES = {
    **dict.fromkeys(("handoff.approved", "handoff.rejected", "handoff.criterion_waived"), CONFIRMS),
    **dict.fromkeys(("handoff.verified", "handoff.changes_requested"), CONFIRMS),
    "handoff.ready": {"service"},
    "reasoning.briefed": {"service"},
    "reasoning.validated": {"service", "reviewer", "human"},
    "review.answered": {"human"},
}


@dataclass
class Key:
    """A key, whose it is and since when; a session key was delegated by another, for a time and a scope."""

    owner: str
    since: int
    by: Key | None = None
    from_ms: int = 0
    until_ms: int = 0
    kinds: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    left: int | None = None
    ended: int | None = None
    compromised_since: int | None = None

    def end(self, index: int) -> None:
        """Let it sign nothing from here on."""
        self.ended = index if self.ended is None else self.ended

    def is_compromised(self, index: int) -> bool:
        """Whether what it signed at an index may be somebody else's, as its owner or an admin says."""
        if self.compromised_since is not None and index >= self.compromised_since:
            return True
        return self.by is not None and self.by.is_compromised(self.since)


@dataclass
class Agent:
    """A name, the key it is known by, and what it may do."""

    key: Key
    roles: set[str]
    removed: bool = False


def covers(patterns: list[str], name: str) -> bool:
    """Whether a delegation is for a kind or a stream: for all, for this one, or for all that begin so."""
    return not patterns or any(name.startswith(one[:-1]) if one[-1] == "*" else name == one for one in patterns)


def is_delegable(kind: str) -> bool:
    """Whether a session key may sign a kind: neither what says who signs, nor what a reviewer decides."""
    return kind not in AUTHORITY and ROLES.get(kind) not in (CONFIRMS, {"human"})


def approves(kind: str, data: Any) -> bool:
    """Whether an event approves what it sets: without a reviewer it is approved, and who hands over lets another."""
    return kind in ("handoff.created", "handoff.amended") and (not data.get("reviewer") or bool(data.get("hands_over")))


@dataclass
class Invitation:
    """What lets an agent register itself: its token's key, roles, the time in which it holds, whether it is over.

    And who signed it, where and with which key.
    """

    by: str
    by_key: Key
    index: int
    key: str
    roles: list[str]
    from_ms: int
    until_ms: int
    ended: bool = False


class Authority:
    """Keys and roles after the events so far."""

    def __init__(self) -> None:
        """Start before entry 0."""
        self.keys: dict[str, Key] = {}
        self.agents: dict[str, Agent] = {}
        self.bus_keys: set[str] = set()
        self.origin = self.ledger = self.root = ""
        self.checkpoints: list[tuple[str, int, bytes]] = []
        self.ends: dict[bytes, int] = {}
        self.invitations: dict[str, Invitation] = {}
        self.term = 0
        self.lines: list[str] = []
        self.signed: list[tuple[int, Key]] = []
        self.owners: dict[str, str] = {}

    def check(self, event: Event) -> None:
        """Check that the key may sign this event here, then learn what the event changes."""
        name, author = event.entry.key.hex(), event.author
        if not (event.index == 0 and event.kind == "ledger.created"):
            if event.kind != "agent.registered" or not event.data.get("token_proof"):
                need(name in self.keys, f"the key that signed as {author} is not registered")
                self.may_sign(self.keys[name], event)
            need(event.body["ledger"] == self.ledger, "the event is for another ledger")
        if event.kind in AUTHORITY:
            getattr(self, event.kind.replace(".", "_"))(event, event.data)
        else:
            need(event.kind != "blob.stored", "blob.stored is kept beside its blob and never in a log")
            if event.entry.versions[0] == 1:
                self.owners.setdefault(event.stream, author)
            # Who corrects another's session is an admin, who need not work; where its beginning is missing, either.
            owner = self.owners.get(event.stream)
            is_others = event.kind in CORRECTS and author != owner
            others = {"admin"} if owner else WORKS | {"admin"}
            for roles in (others,) if is_others else (WORKS, ROLES.get(event.kind, WORKS)):
                need(self.agents[author].roles & roles, f"{event.kind} is signed by who is none of {sorted(roles)}")
        key = self.keys[name]
        key.left = None if key.left is None else key.left - 1
        self.signed.append((event.index, key))

    def may_sign(self, key: Key, event: Event) -> None:
        """Check a key's owner, its end, and the limits of a session key."""
        need(key.owner == event.author, f"the key is {key.owner}'s, not {event.author}'s")
        for held in (key, key.by or key):
            need(held.ended is None, f"the key of {key.owner} ended at entry {held.ended}")
        if key.by is None:
            return
        need(key.from_ms <= event.entry.accepted_ms < key.until_ms, "the session key has expired")
        is_own = is_delegable(event.kind) and not approves(event.kind, event.data)
        need(is_own, f"{event.kind} decides or approves, and is signed with a session key")
        is_covered = covers(key.kinds, event.kind) and covers(key.streams, event.stream)
        need(is_covered, f"the session key is not for {event.kind} on {event.stream}")
        need(key.left != 0, "the session key has signed all its events")

    def compromised_signatures(self) -> list[int]:
        """Return the entries whose key was reported compromised before them, as is known at the end."""
        return [index for index, key in self.signed if key.is_compromised(index)]

    def is_admin(self, event: Event) -> bool:
        """Whether the author may say who signs."""
        return "admin" in self.agents[event.author].roles

    def ledger_created(self, event: Event, data: Any) -> None:
        """Entry 0, signed by the root key that it names."""
        names = [data["root"], data["node_key"], data["checkpoint_key"]]
        is_first = event.index == 0 and event.author == "root" and event.entry.key.hex() == data["root"]
        need(is_first, "ledger.created is entry 0, signed by the root key that it names")
        ledger = blake3(event.entry.key).hexdigest(length=16)
        need(event.body["ledger"] == ledger, "the ledger's id is not that of its root key")
        need(len(set(names)) == 3, "root, node and checkpoint keys do not differ")
        self.ledger, self.root, self.origin = ledger, data["root"], data["origin"]
        self.agents["root"] = Agent(self.put("root", names[0], 0), {"admin"})
        self.agents["node"] = Agent(self.put("node", names[1], 0), set())
        self.put_checkpoint_key(event, "node", data["checkpoint_key"])

    def ledger_history_reset(self, event: Event, data: Any) -> None:
        """The root alone gives entries up."""
        need(event.author == "root", "entries are given up by somebody who is not root")
        need(data["abandoned_size"] > 0, "a history reset gives up a log without entries")

    def ledger_clock_set(self, event: Event, data: Any) -> None:
        """The root alone sets the clock, to the very time that it signs."""
        need(event.author == "root", "the clock is not set by the root")
        need(event.entry.accepted_ms == to_ms(data["time"]), "the clock is set to another time than signed")

    def ledger_term_started(self, event: Event, data: Any) -> None:
        """A node begins the next term, in its own name."""
        need(event.author == data["node"] and self.is_node(event.author), "a term begins with somebody who is no node")
        need(data["term"] == self.term + 1, f"the term {data['term']} does not follow the term {self.term}")
        self.term += 1

    def agent_invited(self, event: Event, data: Any) -> None:
        """An admin, for a node root, invites whom he could register; the keys of the token are new."""
        name, until_ms = data["name"], to_ms(data["expires_at"])
        self.may_register(event, data["roles"])
        self.is_free(event, name)
        need(until_ms > event.entry.accepted_ms, "an invitation has expired already")
        is_new = data["token_key"] not in self.keys and data["nkey"] not in self.bus_keys
        need(is_new, "the keys of an invitation are used twice")
        self.bus_keys.add(data["nkey"])
        self.keys[data["token_key"]] = Key(CHECKPOINTS, event.index)
        by = event.author, self.keys[event.entry.key.hex()], event.index
        self.invitations[name] = Invitation(*by, data["token_key"], data["roles"], event.entry.accepted_ms, until_ms)

    def agent_invitation_revoked(self, event: Event, data: Any) -> None:
        """An admin takes back an invitation that was not used."""
        self.on_stream(event, data["name"])
        invitation = self.invitations.get(data["name"])
        may = self.is_admin(event) and invitation is not None and not invitation.ended
        need(may, "an invitation is revoked by no admin, or is none")
        self.invitations[data["name"]].ended = True

    def agent_registered(self, event: Event, data: Any) -> None:
        """An admin registers agents, a node services, who was invited himself; the key proves whose it is."""
        name, roles = data["name"], data["roles"]
        if data.get("token_proof"):
            self.was_invited(event, data)
        elif roles != ["service"] or not self.is_node(event.author):
            self.may_register(event, roles)
        self.is_free(event, name)
        need(
            bool(data.get("checkpoint_key")) == ("node" in roles), "a checkpoint key is of no node, or a node has none"
        )
        self.prove(event, name, data)
        self.agents[name] = Agent(self.put(name, data["key"], event.index), set(roles))
        if data.get("checkpoint_key"):
            key, proof = data["checkpoint_key"], data.get("checkpoint_proof") or ""
            self.prove(event, f"checkpoint/{name}", {"key": key, "proof": proof})
            self.put_checkpoint_key(event, name, key)

    def was_invited(self, event: Event, data: Any) -> None:
        """Check that an open invitation is for this agent, these roles, and by its token for the key that signed."""
        name, key, roles = data["name"], data["key"], data["roles"]
        need(event.author == name and event.entry.key.hex() == key, f"{name} does not register itself")
        need(name in self.invitations, f"{name} was not invited")
        invitation = self.invitations[name]
        is_open = invitation.from_ms <= event.entry.accepted_ms < invitation.until_ms and not invitation.ended
        need(is_open, f"the invitation of {name} was used or revoked, or has expired")
        by = self.agents[invitation.by]
        may = "admin" in by.roles and by.key.ended is None and not invitation.by_key.is_compromised(invitation.index)
        need(may, f"the invitation of {name} is by {invitation.by}, who may invite nobody any more")
        is_same = set(roles) == set(invitation.roles) and len(roles) == len(set(roles))
        need(is_same, f"{name} was invited with other roles")
        text = pae(JOINING, f"{event.body['ledger']}\n{name}\n{key}".encode())
        is_by_token = is_signed(bytes.fromhex(invitation.key), text, bytes.fromhex(data["token_proof"]))
        need(is_by_token, f"the token of the invitation of {name} signed for another key")
        invitation.ended = True

    def agent_removed(self, event: Event, data: Any) -> None:
        """An admin removes an agent, but not those that every ledger has."""
        agent = self.agent(event, data["agent"])
        may = self.is_admin(event) and data["agent"] not in RESERVED
        need(may, f"{data['agent']} is removed by no admin, or cannot be")
        agent.key.end(event.index)
        if "node" in agent.roles:
            self.end_checkpoint_key(event, data["agent"])
        agent.roles, agent.removed = set(), True

    def role_granted(self, event: Event, data: Any) -> None:
        """An admin gives an agent a role."""
        need(self.is_admin(event), "a role is granted by no admin")
        roles = self.agent(event, data["agent"]).roles
        need("node" not in {data["role"], *roles}, "a node has one role, from its registration on")
        roles.add(data["role"])

    def role_revoked(self, event: Event, data: Any) -> None:
        """An admin takes a role back; the root keeps its own."""
        need(self.is_admin(event) and data["agent"] != "root", "a role is revoked by no admin, or of the root")
        roles = self.agent(event, data["agent"]).roles
        need("node" not in {data["role"], *roles}, "a node has one role, until it is removed")
        roles.discard(data["role"])

    def key_delegated(self, event: Event, data: Any) -> None:
        """An agent lets another key sign for it, for a time and a scope."""
        until_ms = to_ms(data["expires_at"])
        self.on_stream(event, event.author)
        need(until_ms > event.entry.accepted_ms, "a session key is delegated that is expired already")
        self.prove(event, event.author, data)
        key = self.put(event.author, data["key"], event.index)
        key.by, key.from_ms, key.until_ms = self.keys[event.entry.key.hex()], event.entry.accepted_ms, until_ms
        key.kinds, key.streams = data.get("kinds", []), data.get("streams", [])
        key.left = data.get("max_events")

    def key_revoked(self, event: Event, data: Any) -> None:
        """An agent ends keys of its own, an admin anybody's; those of root and node are replaced."""
        key = self.key(event, data["key"])
        need(
            self.is_admin(event) or event.author == key.owner,
            f"a key of {key.owner} is revoked by somebody who may not",
        )
        is_held = key.owner in RESERVED or self.is_node(key.owner)
        need(not is_held and key.ended is None, f"a key of {key.owner} cannot be revoked, or was")
        key.end(event.index)

    def key_rotated(self, event: Event, data: Any) -> None:
        """An agent replaces its key, or root does; an admin only of who neither approves, administers nor leads."""
        name, author = data["agent"], event.author
        agent = self.agent(event, name)
        is_worker = name not in RESERVED and not agent.roles & {"admin", "human", "reviewer", "node"}
        may = author == "root" or (author == name != "root") or (self.is_admin(event) and is_worker)
        need(may, f"the key of {name} is replaced by somebody who may not")
        self.prove(event, name, data)
        agent.key.end(event.index)
        agent.key = self.put(name, data["key"], event.index)

    def key_compromised(self, event: Event, data: Any) -> None:
        """Its agent or an admin says so of a key, root alone of those of root and node, once they are replaced."""
        key, since = self.key(event, data["key"]), data["since"]
        is_own = event.author == key.owner and key.owner not in RESERVED
        may = event.author == "root" or (self.is_admin(event) and key.owner not in RESERVED) or is_own
        may &= key.ended is not None or not (key.owner in RESERVED or self.is_node(key.owner))
        need(may, f"a key of {key.owner} is reported compromised by somebody who may not, or before it was replaced")
        need(since <= event.index, "a key is reported compromised since an entry that is not there yet")
        is_news = key.compromised_since is None or since < key.compromised_since
        need(is_news, "a key is reported compromised again, and not since an earlier entry")
        key.end(event.index)
        key.compromised_since = since

    def checkpoint_key_rotated(self, event: Event, data: Any) -> None:
        """The root alone replaces the key of checkpoints."""
        need(event.author == "root", "the checkpoint key is replaced by somebody who is not root")
        self.prove(event, "checkpoint", data)
        self.end_checkpoint_key(event, "node")
        self.put_checkpoint_key(event, "node", data["key"])

    def agent(self, event: Event, name: str) -> Agent:
        """Return an agent that is registered and was not removed; the event is on its stream."""
        self.on_stream(event, name)
        need(name in self.agents and not self.agents[name].removed, f"there is no agent {name}")
        return self.agents[name]

    def key(self, event: Event, name: str) -> Key:
        """Return a key that signs events; the event is on the stream of its owner."""
        need(name in self.keys and self.keys[name].owner != CHECKPOINTS, "an event is of a key that signs no events")
        self.on_stream(event, self.keys[name].owner)
        return self.keys[name]

    def is_node(self, name: str) -> bool:
        """Whether a name is of the first node, or of one that was let in since."""
        return name == "node" or (name in self.agents and "node" in self.agents[name].roles)

    def may_register(self, event: Event, roles: list[str]) -> None:
        """Check that an admin registers or invites agents, and root alone nodes, which have no other role."""
        if "node" in roles:
            need(event.author == "root" and roles == ["node"], "a node is let in by somebody who is not root")
        need(self.is_admin(event), "an agent is registered by no admin")

    def is_free(self, event: Event, name: str) -> None:
        """Check that nobody bears or bore a name; the event is on the stream of that one."""
        self.on_stream(event, name)
        need(name not in self.agents and name not in RESERVED, f"{name} is registered twice")

    def on_stream(self, event: Event, name: str) -> None:
        """Check that an event about an agent is on that one's stream."""
        need(event.stream == f"agent/{name}", f"{event.kind} about {name} is on {event.stream}")

    def prove(self, event: Event, name: str, data: Any) -> None:
        """Check that a key is new, and that its holder wants it to be of this name."""
        key = data["key"]
        need(key not in self.keys, "a key is registered twice")
        text = pae(POSSESSION, f"{event.body['ledger']}\n{name}\n{key}".encode())
        proof = bytes.fromhex(data["proof"])
        need(is_signed(bytes.fromhex(key), text, proof), f"no proof that the key is {name}'s")
        need(data.get("nkey") not in self.bus_keys, "a bus key is used twice")
        self.bus_keys |= {data["nkey"]} if data.get("nkey") else set()  # nothing is asked after this

    def put(self, name: str, key: str, index: int) -> Key:
        """Let a key sign for a name."""
        self.lines.append(vkey(name, bytes.fromhex(key)))
        return self.keys.setdefault(key, Key(name, index))

    def put_checkpoint_key(self, event: Event, node: str, key: str) -> None:
        """Let a key of a node sign the checkpoints of all trees that hold this entry."""
        self.keys[key] = Key(CHECKPOINTS, event.index)
        self.checkpoints.append((node, event.index, bytes.fromhex(key)))

    def end_checkpoint_key(self, event: Event, node: str) -> None:
        """Let the key of a node sign no tree that holds this entry."""
        for name, _, key in self.checkpoints:
            if name == node:
                self.keys[key.hex()].end(event.index)
                self.ends.setdefault(key, event.index)

    def checkpoint_keys(self, size: int) -> list[bytes]:
        """Return the keys that may sign for a tree of a size."""
        return [key for _, since, key in self.checkpoints if since < size <= self.ends.get(key, size)]
