"""Who may sign what: keys, agents and roles as the authority events say, in the order of the log.

What an event may change is asked before anything is changed, so that one which is refused leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from ledger.bundle.standalone.form import Event, to_ms
from ledger.bundle.standalone.proofs import POSSESSION, is_signed, need, pae, vkey

RESERVED = ("root", "node", "checkpoint")
AUTHORITY = (
    "ledger.created", "ledger.epoch_started", "ledger.clock_set", "agent.registered", "agent.removed", "role.granted",
    "role.revoked", "key.delegated", "key.revoked", "key.rotated", "key.compromised", "checkpoint_key.rotated",
)  # fmt: skip
CHECKPOINTS = "the checkpoints"  # whose the checkpoint keys are: the name of no agent
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
    suspect_since: int | None = None

    def end(self, index: int) -> None:
        """Let it sign nothing from here on."""
        self.ended = index if self.ended is None else self.ended

    def is_suspect(self, index: int) -> bool:
        """Whether what it signed at an index may be somebody else's, as its owner or an admin says."""
        if self.suspect_since is not None and index >= self.suspect_since:
            return True
        return self.by is not None and self.by.is_suspect(self.since)


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


class Authority:
    """Keys and roles after the events so far."""

    def __init__(self) -> None:
        """Start before entry 0."""
        self.keys: dict[str, Key] = {}
        self.agents: dict[str, Agent] = {}
        self.bus_keys: set[str] = set()
        self.origin = self.ledger = self.root = ""
        self.checkpoints: list[tuple[int, bytes]] = []
        self.lines: list[str] = []
        self.signed: list[tuple[int, Key]] = []
        self.owners: dict[str, str] = {}

    def check(self, event: Event) -> None:
        """Check that the key may sign this event here, then learn what the event changes."""
        name, author = event.entry.key.hex(), event.author
        if not (event.index == 0 and event.kind == "ledger.created"):
            key = self.keys.get(name)
            need(key, f"the key that signed as {author} is not registered")
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

    def suspects(self) -> list[int]:
        """Return the entries whose key was called compromised before them, as is known at the end."""
        return [index for index, key in self.signed if key.is_suspect(index)]

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
        self.put_checkpoint_key(event, data["checkpoint_key"])

    def ledger_epoch_started(self, event: Event, data: Any) -> None:
        """The root alone gives entries up."""
        need(event.author == "root", "entries are given up by somebody who is not root")
        need(data["abandoned_size"] > 0, "an epoch gives up a log without entries")

    def ledger_clock_set(self, event: Event, data: Any) -> None:
        """The root alone sets the clock, to the very time that it signs."""
        need(event.author == "root", "the clock is not set by the root")
        need(event.entry.accepted_ms == to_ms(data["time"]), "the clock is set to another time than signed")

    def agent_registered(self, event: Event, data: Any) -> None:
        """An admin registers agents, the node services; a name is bound once, to a key that proves whose it is."""
        name = data["name"]
        is_service = event.author == "node" and data["roles"] == ["service"]
        need(self.is_admin(event) or is_service, "an agent is registered by no admin")
        self.on_stream(event, name)
        need(name not in self.agents and name not in RESERVED, f"{name} is registered twice")
        self.prove(event, name, data)
        self.agents[name] = Agent(self.put(name, data["key"], event.index), set(data["roles"]))

    def agent_removed(self, event: Event, data: Any) -> None:
        """An admin removes an agent, but not those that every ledger has."""
        agent = self.agent(event, data["agent"])
        may = self.is_admin(event) and data["agent"] not in RESERVED
        need(may, f"{data['agent']} is removed by no admin, or cannot be")
        agent.key.end(event.index)
        agent.roles, agent.removed = set(), True

    def role_granted(self, event: Event, data: Any) -> None:
        """An admin gives an agent a role."""
        need(self.is_admin(event), "a role is granted by no admin")
        self.agent(event, data["agent"]).roles.add(data["role"])

    def role_revoked(self, event: Event, data: Any) -> None:
        """An admin takes a role back; the root keeps its own."""
        need(self.is_admin(event) and data["agent"] != "root", "a role is revoked by no admin, or of the root")
        self.agent(event, data["agent"]).roles.discard(data["role"])

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
        need(key.owner not in RESERVED and key.ended is None, f"a key of {key.owner} cannot be revoked, or was")
        key.end(event.index)

    def key_rotated(self, event: Event, data: Any) -> None:
        """An agent replaces its key, or root does; an admin only of who neither approves nor administers."""
        name, author = data["agent"], event.author
        agent = self.agent(event, name)
        is_worker = name not in RESERVED and not agent.roles & {"admin", "human", "reviewer"}
        may = author == "root" or (author == name != "root") or (self.is_admin(event) and is_worker)
        need(may, f"the key of {name} is replaced by somebody who may not")
        self.prove(event, name, data)
        agent.key.end(event.index)
        agent.key = self.put(name, data["key"], event.index)

    def key_compromised(self, event: Event, data: Any) -> None:
        """Its agent or an admin says so of a key, root alone of those of root and node, once they are replaced."""
        key, since = self.key(event, data["key"]), data["since"]
        if key.owner in RESERVED:
            may = event.author == "root" and key.ended is not None
        else:
            may = self.is_admin(event) or event.author == key.owner
        need(may, f"a key of {key.owner} is called compromised by somebody who may not, or before it was replaced")
        need(since <= event.index, "a key is called compromised since an entry that is not there yet")
        is_news = key.suspect_since is None or since < key.suspect_since
        need(is_news, "a key is called compromised again, and not since an earlier entry")
        key.end(event.index)
        key.suspect_since = since

    def checkpoint_key_rotated(self, event: Event, data: Any) -> None:
        """The root alone replaces the key of checkpoints."""
        need(event.author == "root", "the checkpoint key is replaced by somebody who is not root")
        self.prove(event, "checkpoint", data)
        self.keys[self.checkpoints[-1][1].hex()].end(event.index)
        self.put_checkpoint_key(event, data["key"])

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

    def put_checkpoint_key(self, event: Event, key: str) -> None:
        """Let a key sign the checkpoints of all trees that hold this entry."""
        self.keys[key] = Key(CHECKPOINTS, event.index)
        self.checkpoints.append((event.index, bytes.fromhex(key)))
