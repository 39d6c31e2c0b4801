"""Keys, agents and roles, as the authority events define them in the order of the log, and the redactions.

Each event is checked completely before it changes anything, so a refused event leaves no trace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.declared import KINDS_MAX
from deedbook.ledger.bundle.standalone.form import Event, Kinds, to_ms
from deedbook.ledger.bundle.standalone.proofs import JOINING, POSSESSION, is_signed, need, pae, vkey

RESERVED = ("root", "node", "checkpoint")
AUTHORITY = (
    "ledger.created",
    "ledger.history_reset",
    "ledger.clock_set",
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
    "entry.redaction_proposed",
    "entry.redacted",
    "kind.declared",
)
ALONE = ("ledger.clock_set", "entry.redaction_proposed", "entry.redacted")  # never in a batch with other events
CHECKPOINTS = "the checkpoints"  # the owner of checkpoint keys and of invitation keys; not an agent's name
END = 2**53  # after every entry
WORKERS = {"agent", "reviewer", "human", "service"}
TRUSTED = {"admin", "human", "reviewer"}


@dataclass
class Key:
    """A key: its owner and the entry that registered it. A session key has a delegating key, a time and a scope.

    ``events_left`` is the number of events that a session key may still sign, None without a limit.
    ``has_passphrase``: the program that registered the identity key claimed that a passphrase seals it.
    """

    owner: str
    since: int
    delegated_by: Key | None = None
    from_ms: int = 0
    until_ms: int = 0
    kinds: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    events_left: int | None = None
    ended_at: int | None = None
    compromised_since: int | None = None
    has_passphrase: bool = False

    def end(self, index: int) -> None:
        """End the key: it must sign no entry after ``index``."""
        self.ended_at = index if self.ended_at is None else self.ended_at

    def is_compromised(self, index: int) -> bool:
        """Return whether the key's signature at this index, or the signature that delegated the key, is compromised."""
        if self.compromised_since is not None and index >= self.compromised_since:
            return True
        return self.delegated_by is not None and self.delegated_by.is_compromised(self.since)


@dataclass
class Grant:
    """A role that an agent got: the entry, the key and the author of the grant, and the entry that ended it."""

    role: str
    index: int
    key: Key
    author: str
    ended_at: int | None = None


@dataclass
class Agent:
    """An agent: its identity key, its roles, and all grants of roles in order (none for the agents of entry 0)."""

    key: Key
    roles: set[str]
    is_removed: bool = False
    grants: list[Grant] = field(default_factory=list)

    def grant_at(self, role: str, index: int) -> Grant | None:
        """Return the last grant of a role that the agent had just before an entry."""
        held = [
            grant
            for grant in self.grants
            if grant.role == role and grant.index < index and (grant.ended_at is None or index <= grant.ended_at)
        ]
        return held[-1] if held else None

    def end_grants(self, index: int, roles: set[str]) -> None:
        """End the grants of some roles."""
        for grant in self.grants:
            if grant.role in roles and grant.ended_at is None:
                grant.ended_at = index


def covers(patterns: list[str], name: str) -> bool:
    """Return whether a delegation covers a kind or stream: no patterns cover all names, ``x*`` covers a prefix."""
    is_prefixed = any(pattern[-1] == "*" and name.startswith(pattern[:-1]) for pattern in patterns)
    return not patterns or name in patterns or is_prefixed


@dataclass
class Invitation:
    """An invitation: its author with their key, its index, the key of its token, its roles and its time.

    ``is_ended``: the invitation was used or revoked.
    """

    author: str
    author_key: Key
    index: int
    token_key: str
    roles: list[str]
    from_ms: int
    until_ms: int
    is_ended: bool = False


@dataclass
class Redaction:
    """The redaction of one entry: the event that proposed it, the event that did it, and what the log holds.

    ``found`` is the id of the erased event and the digest of its remnant, until an event names them. ``is_authority``:
    only root may name this remnant. ``is_here``: the log holds a remnant.
    """

    is_here: bool = False
    found: tuple[str, str] | None = None
    is_authority: bool = False
    proposal: Event | None = None
    done: Event | None = None


class Authority:
    """Keys, agents and roles after the events so far."""

    def __init__(self) -> None:
        """Begin without any event."""
        self.keys: dict[str, Key] = {}
        self.agents: dict[str, Agent] = {}
        self.bus_keys: set[str] = set()
        self.origin = self.ledger = self.root = ""
        self.checkpoints: list[tuple[str, int, bytes]] = []
        self.checkpoint_ends: dict[bytes, int] = {}
        self.invitations: dict[str, Invitation] = {}
        self.vkeys: list[str] = []
        self.signed: list[tuple[int, Key]] = []
        self.is_trial = self.is_closed = False
        self.closed_since = 0
        self.redactions: dict[int, Redaction] = {}
        self.declared: dict[str, Any] = {}

    def check_signer(self, event: Event, *, is_decision: bool) -> None:
        """Check that the key may sign this event at its index. A session key must not sign a decision."""
        is_first = event.index == 0 and event.kind == "ledger.created"
        is_joining = event.kind == "agent.registered" and bool(event.data.get("token_proof"))
        if not is_first and not is_joining:
            key = self.keys.get(event.entry.key.hex())
            need(key is not None, f"the key that signed as {event.author} is not registered", "KEY_UNKNOWN")
            self.check_key(key or Key("", 0), event, is_decision=is_decision)
        if not is_first and event.body.get("allow_secret"):
            self.check_allows_secret(event)
        is_ours = is_first or event.body["ledger"] == self.ledger
        need(is_ours, "the event is for another ledger", "WRONG_LEDGER")

    def check_allows_secret(self, event: Event) -> None:
        """Check that a human allows the secret in an event, with their identity key."""
        is_human = "human" in self.roles_of(event.author)
        need(is_human, f"{event.author} may not allow a secret: only a human may", "NOT_AUTHORIZED")
        key = self.keys.get(event.entry.key.hex())
        is_identity = key is not None and key.delegated_by is None
        need(is_identity, f"a session key of {event.author} may not allow a secret", "KEY_OUT_OF_SCOPE")

    def check_key(self, key: Key, event: Event, *, is_decision: bool) -> None:
        """Check that a key belongs to the author and has not ended, and the limits of a session key."""
        need(key.owner == event.author, f"the key is {key.owner}'s, not {event.author}'s", "AUTHOR_MISMATCH")
        for valid in (key, key.delegated_by or key):
            need(valid.ended_at is None, f"the key of {key.owner} ended at entry {valid.ended_at}", "KEY_REVOKED")
        if key.delegated_by is None:
            return
        is_current = key.from_ms <= event.entry.accepted_ms < key.until_ms
        need(is_current, "the session key has expired", "KEY_EXPIRED")
        is_allowed = not is_decision and event.kind not in AUTHORITY
        message = f"{event.kind} decides or approves, and a session key must not sign that"
        need(is_allowed, message, "KEY_OUT_OF_SCOPE")
        is_covered = covers(key.kinds, event.kind) and covers(key.streams, event.stream)
        need(is_covered, f"the session key is not for {event.kind} on {event.stream}", "KEY_OUT_OF_SCOPE")
        need(key.events_left != 0, "the session key has signed all its events", "KEY_EXHAUSTED")

    def apply(self, event: Event) -> None:
        """Check an event of authority, then apply its changes."""
        getattr(self, event.kind.replace(".", "_"))(event, event.data)
        is_closed = not self.is_trial and not self.unprotected()
        if is_closed and not self.is_closed:
            self.closed_since = event.index
        self.is_closed = is_closed

    def count(self, event: Event) -> None:
        """Count an accepted event for the key that signed it."""
        key = self.keys[event.entry.key.hex()]
        key.events_left = None if key.events_left is None else key.events_left - 1
        self.signed.append((event.index, key))

    def compromised_signatures(self) -> list[int]:
        """Return the indexes of entries with a compromised signature, by all reports in the bundle."""
        return [index for index, key in self.signed if key.is_compromised(index)]

    def compromised_owners(self) -> list[str]:
        """Return the agents whose keys made the compromised signatures."""
        return sorted({key.owner for index, key in self.signed if key.is_compromised(index)})

    def unprotected(self) -> list[str]:
        """Return the agents that approve, or register those who do, with a valid key that has no passphrase."""
        trusted = {name: agent.key for name, agent in self.agents.items() if agent.roles & TRUSTED}
        return sorted(name for name, key in trusted.items() if key.ended_at is None and not key.has_passphrase)

    def gate(self) -> str:
        """Return the state of the gate: whether a passphrase must be entered before anything is approved."""
        names = self.unprotected()
        if self.is_closed:
            return f"closed since entry {self.closed_since}" if self.closed_since else "closed"
        if self.is_trial:
            return "open (trial)"
        if len(names) == 1:
            return f"open ({names[0]}'s key has no passphrase)"
        listed = names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]
        return f"open (the keys of {', '.join(listed[:-1])} and {listed[-1]} have no passphrase)"

    def roles_of(self, name: str) -> set[str]:
        """Return the roles of an agent that count; none if it is not registered, or was removed."""
        roles = self.agents[name].roles if name in self.agents else set()
        return {role for role in roles if self.role_counts(name, role, END)}

    def role_counts(self, name: str, role: str, index: int) -> bool:
        """Return whether an agent had a role just before an entry, by grants without a compromised signature."""
        agent = self.agents[name]
        grant = agent.grant_at(role, index)
        if grant is None:  # root has its role by entry 0
            return role in agent.roles and role not in {grant.role for grant in agent.grants}
        while grant is not None:
            if grant.key.is_compromised(grant.index):
                return False
            author = self.agents[grant.author]
            grant = author.grant_at("admin", grant.index) or author.grant_at("node", grant.index)
        return True

    def decision_counts(self, index: int, key: str, roles: set[str]) -> bool:
        """Return whether the signature of a decision is not compromised, and its author had one of the roles."""
        record = self.keys[key]
        has_role = any(self.role_counts(record.owner, role, index) for role in roles)
        return has_role and not record.is_compromised(index)

    def is_admin(self, event: Event) -> bool:
        """Return whether the author is an admin."""
        return "admin" in self.roles_of(event.author)

    def ledger_created(self, event: Event, data: Any) -> None:
        """Apply entry 0. The root key that it names must sign it."""
        names = [data["root"], data["node_key"], data["checkpoint_key"]]
        is_first = event.index == 0 and event.author == "root" and event.entry.key.hex() == data["root"]
        need(is_first, "ledger.created must be entry 0, signed by the root key that it names", "NOT_AUTHORIZED")
        ledger = blake3(event.entry.key).hexdigest(length=16)
        need(event.body["ledger"] == ledger, "the ledger's id does not match its root key", "WRONG_LEDGER")
        need(len(set(names)) == 3, "the root, node and checkpoint keys must differ", "INVALID_FIELD")
        self.ledger, self.root, self.origin = ledger, data["root"], data["origin"]
        self.agents["root"] = Agent(self.add_identity_key("root", names[0], 0, data.get("root_protection")), {"admin"})
        self.agents["node"] = Agent(self.add_key("node", names[1], 0), set())
        self.add_checkpoint_key(event, "node", data["checkpoint_key"])
        self.is_trial = data.get("trial", False)

    def ledger_history_reset(self, event: Event, data: Any) -> None:
        """Check a history reset: only root abandons entries."""
        need(event.author == "root", "only root may reset the history", "NOT_AUTHORIZED")
        need(data["abandoned_size"] > 0, "a history reset must abandon at least one entry", "INVALID_FIELD")

    def ledger_clock_set(self, event: Event, data: Any) -> None:
        """Check a clock setting: only root sets the clock, and the entry has exactly the signed time."""
        need(event.author == "root", "only root may set the clock", "NOT_AUTHORIZED")
        is_same = event.entry.accepted_ms == to_ms(data["time"])
        need(is_same, "the entry's time is not the time that root signed", "INVALID_FIELD")

    def agent_invited(self, event: Event, data: Any) -> None:
        """Apply an invitation by an admin, or by root for a node. The keys of its token must be new."""
        name = data["name"]
        self.check_may_register(event, data["roles"])
        self.check_name_is_new(event, name)
        until_ms = to_ms(data["expires_at"])
        need(until_ms > event.entry.accepted_ms, "the invitation is already expired", "INVALID_FIELD")
        is_new = data["token_key"] not in self.keys and data["nkey"] not in self.bus_keys
        need(is_new, "the keys of the invitation are already in use", "KEY_EXISTS")
        self.bus_keys.add(data["nkey"])
        self.keys[data["token_key"]] = Key(CHECKPOINTS, event.index)
        signer, from_ms = self.keys[event.entry.key.hex()], event.entry.accepted_ms
        self.invitations[name] = Invitation(
            event.author, signer, event.index, data["token_key"], data["roles"], from_ms, until_ms
        )

    def agent_invitation_revoked(self, event: Event, data: Any) -> None:
        """Apply the revocation of an unused invitation by an admin."""
        name = data["name"]
        need(self.is_admin(event), "only an admin may revoke an invitation", "NOT_AUTHORIZED")
        self.check_stream(event, name)
        need(name in self.invitations, f"{name} was not invited", "NOT_INVITED")
        is_open = not self.invitations[name].is_ended
        need(is_open, f"the invitation of {name} was used or revoked already", "TRANSITION_NOT_ALLOWED")
        self.invitations[name].is_ended = True

    def agent_registered(self, event: Event, data: Any) -> None:
        """Apply a registration by an admin, by a node for a service, or by an invited agent itself."""
        name, roles, is_joining = data["name"], data["roles"], bool(data.get("token_proof"))
        if is_joining:
            self.check_invitation(event, data)
        elif roles != ["service"] or not self.is_node(event.author):
            self.check_may_register(event, roles)
        self.check_name_is_new(event, name)
        self.check_possession(event, name, data)
        key, proof = data.get("checkpoint_key"), data.get("checkpoint_proof") or ""
        is_consistent = bool(key) == ("node" in roles)
        need(is_consistent, "a node must have a checkpoint key, and no other agent may have one", "INVALID_FIELD")
        if key:
            need(key != data["key"], "a key is registered twice", "KEY_EXISTS")
            self.check_possession(event, f"checkpoint/{name}", {"key": key, "proof": proof})
        if is_joining:
            invitation = self.invitations[name]
            source = (invitation.index, invitation.author_key, invitation.author)
        else:
            source = (event.index, self.keys[event.entry.key.hex()], event.author)
        identity_key = self.add_identity_key(name, data["key"], event.index, data.get("protection"))
        self.agents[name] = Agent(identity_key, set(roles))
        self.agents[name].grants = [Grant(role, *source) for role in roles]
        self.add_bus_key(data)
        if is_joining:
            self.invitations[name].is_ended = True
        if key:
            self.add_checkpoint_key(event, name, key)

    def check_invitation(self, event: Event, data: Any) -> None:
        """Check that an open invitation names the agent and its roles, and that its token signed the agent's key."""
        name, key, roles = data["name"], data["key"], data["roles"]
        is_own = event.author == name and event.entry.key.hex() == key
        need(is_own, f"{name} must register itself, with its own key", "AUTHOR_MISMATCH")
        need(name in self.invitations, f"{name} was not invited", "NOT_INVITED")
        invitation = self.invitations[name]
        is_open = invitation.from_ms <= event.entry.accepted_ms < invitation.until_ms and not invitation.is_ended
        need(is_open, f"the invitation of {name} was used, was revoked, or has expired", "NOT_INVITED")
        inviter = self.agents[invitation.author]
        is_admin = "admin" in self.roles_of(invitation.author) and inviter.key.ended_at is None
        is_trusted = is_admin and not invitation.author_key.is_compromised(invitation.index)
        need(is_trusted, f"{invitation.author}, who invited {name}, may no longer invite agents", "NOT_INVITED")
        is_same = set(roles) == set(invitation.roles) and len(roles) == len(set(roles))
        need(is_same, f"{name} was invited with other roles", "NOT_INVITED")
        text = pae(JOINING, f"{event.body['ledger']}\n{name}\n{key}".encode())
        is_by_token = is_signed(bytes.fromhex(invitation.token_key), text, bytes.fromhex(data["token_proof"]))
        need(is_by_token, f"the token of {name}'s invitation did not sign for this key", "SIGNATURE_INVALID")

    def agent_removed(self, event: Event, data: Any) -> None:
        """Apply the removal of an agent by an admin. Root and the first node cannot be removed."""
        need(self.is_admin(event), "only an admin may remove an agent", "NOT_AUTHORIZED")
        agent = self.active_agent(event, data["agent"])
        need(data["agent"] not in RESERVED, f"nobody may remove {data['agent']}", "NOT_AUTHORIZED")
        agent.key.end(event.index)
        if "node" in agent.roles:
            self.end_checkpoint_key(event, data["agent"])
        agent.end_grants(event.index, agent.roles)
        agent.roles, agent.is_removed = set(), True

    def role_granted(self, event: Event, data: Any) -> None:
        """Apply a role that an admin grants."""
        need(self.is_admin(event), "only an admin may grant a role", "NOT_AUTHORIZED")
        agent, role = self.active_agent(event, data["agent"]), data["role"]
        is_allowed = "node" not in {role, *agent.roles}
        need(is_allowed, "a node has only the role of its registration", "NOT_AUTHORIZED")
        agent.roles.add(role)
        agent.grants.append(Grant(role, event.index, self.keys[event.entry.key.hex()], event.author))

    def role_revoked(self, event: Event, data: Any) -> None:
        """Apply the revocation of a role by an admin. Root keeps its role."""
        need(self.is_admin(event), "only an admin may revoke a role", "NOT_AUTHORIZED")
        agent = self.active_agent(event, data["agent"])
        need(data["agent"] != "root", "nobody may revoke a role of root", "NOT_AUTHORIZED")
        need("node" not in {data["role"], *agent.roles}, "a node keeps its role until its removal", "NOT_AUTHORIZED")
        agent.end_grants(event.index, {data["role"]})
        agent.roles.discard(data["role"])

    def key_delegated(self, event: Event, data: Any) -> None:
        """Apply a delegation: another key may sign for the agent, for a time and within a scope."""
        self.check_stream(event, event.author)
        until_ms = to_ms(data["expires_at"])
        need(until_ms > event.entry.accepted_ms, "the delegated session key is already expired", "KEY_EXPIRED")
        self.check_possession(event, event.author, data)
        key = self.add_key(event.author, data["key"], event.index)
        key.delegated_by = self.keys[event.entry.key.hex()]
        key.from_ms, key.until_ms = event.entry.accepted_ms, until_ms
        key.kinds, key.streams = data.get("kinds", []), data.get("streams", [])
        key.events_left = data.get("max_events")

    def key_revoked(self, event: Event, data: Any) -> None:
        """Apply a revocation by the owner or an admin. Keys of root and nodes are replaced, never revoked."""
        key = self.named_key(event, data["key"])
        is_allowed = self.is_admin(event) or event.author == key.owner
        need(is_allowed, f"{event.author} may not revoke a key of {key.owner}", "NOT_AUTHORIZED")
        is_revocable = key.owner not in RESERVED and not self.is_node(key.owner)
        need(is_revocable, f"a key of {key.owner} cannot be revoked", "NOT_AUTHORIZED")
        need(key.ended_at is None, f"this key of {key.owner} has ended already", "KEY_REVOKED")
        key.end(event.index)

    def key_rotated(self, event: Event, data: Any) -> None:
        """Apply a new key by its agent, by root, or by an admin for an agent without a privileged role."""
        name, author = data["agent"], event.author
        agent = self.active_agent(event, name)
        is_worker = name not in RESERVED and not agent.roles & {"admin", "human", "reviewer", "node"}
        is_allowed = author in ("root", name) or (self.is_admin(event) and is_worker)
        need(is_allowed, f"{author} may not replace the key of {name}", "NOT_AUTHORIZED")
        self.check_possession(event, name, data)
        agent.key.end(event.index)
        agent.key = self.add_identity_key(name, data["key"], event.index, data.get("protection"))
        self.add_bus_key(data)

    def key_compromised(self, event: Event, data: Any) -> None:
        """Apply a report by the owner or an admin; only root reports keys of root and of the first node.

        A key of root or of a node must be replaced first.
        """
        key, since = self.named_key(event, data["key"]), data["since"]
        is_own = event.author == key.owner or self.is_admin(event)
        is_allowed = event.author == "root" or (is_own and key.owner not in RESERVED)
        need(is_allowed, f"{event.author} may not report this key of {key.owner}", "NOT_AUTHORIZED")
        must_be_replaced = key.owner in RESERVED or self.is_node(key.owner)
        is_ended = key.ended_at is not None
        need(is_ended or not must_be_replaced, f"the key of {key.owner} must be replaced first", "NOT_AUTHORIZED")
        need(since <= event.index, "a key is reported compromised since a later entry", "INVALID_FIELD")
        is_earlier = key.compromised_since is None or since < key.compromised_since
        message = "a key is reported compromised again, but not since an earlier entry"
        need(is_earlier, message, "TRANSITION_NOT_ALLOWED")
        key.end(event.index)
        key.compromised_since = since

    def checkpoint_key_rotated(self, event: Event, data: Any) -> None:
        """Apply a replacement of the first node's checkpoint key by root."""
        need(event.author == "root", "only root may replace the checkpoint key", "NOT_AUTHORIZED")
        self.check_possession(event, "checkpoint", data)
        self.end_checkpoint_key(event, "node")
        self.add_checkpoint_key(event, "node", data["key"])

    def kind_declared(self, event: Event, data: Any) -> None:
        """Apply the declaration of a kind by an admin. A declared kind never changes."""
        self.check_stream(event, data["name"])
        need(self.is_admin(event), "only an admin may declare a kind", "NOT_AUTHORIZED")
        need(data["name"] not in self.declared, f"{data['name']} was declared already", "KIND_EXISTS")
        need(len(self.declared) < KINDS_MAX, f"more than {KINDS_MAX} kinds are declared", "TOO_LARGE")
        self.declared[data["name"]] = data

    def check_published(self, event: Event, kinds: Kinds) -> None:
        """Check an event of a declared kind: its stream, its fields unless they were erased, and its author's roles."""
        kind = self.declared.get(event.kind)
        need(kind is not None, f"the kind {event.kind} is not declared", "UNKNOWN_KIND")
        declared = kind or {}
        is_on_stream = event.stream.partition("/")[0] == declared["stream"]
        need(is_on_stream, f"{event.kind} does not belong on {event.stream}", "INVALID_FIELD")
        if not event.entry.is_erased:
            kinds.check(event.data, declared["schema"], "$.data")
        may_publish = self.roles_of(event.author) & set(declared["roles"])
        need(may_publish, f"{event.author} may not publish {event.kind}", "NOT_AUTHORIZED")

    def find_erased(self, event: Event) -> None:
        """Note an entry whose body is erased: a later entry must name its remnant."""
        remnant = "sha256:" + hashlib.sha256(event.entry.stored).hexdigest()
        self.redactions[event.index] = Redaction(
            is_here=True, found=(event.id, remnant), is_authority=event.kind in AUTHORITY
        )

    def unconfirmed(self) -> list[int]:
        """Return the indexes of the erased entries that no redaction names."""
        return [index for index, record in sorted(self.redactions.items()) if record.found is not None]

    def erased_blobs(self) -> set[str]:
        """Return the blobs that were erased with entries."""
        return {ref for record in self.redactions.values() if record.done for ref in record.done.data.get("blobs", [])}

    def redaction_of(self, event: Event, data: Any) -> Redaction:
        """Return the record of the redaction of an entry that an event names. The entry must not be erased yet."""
        need(data["entry"] < event.index, "it names no earlier entry", "INVALID_FIELD")
        record = self.redactions.setdefault(data["entry"], Redaction())
        need(record.done is None, f"entry {data['entry']} was erased already", "NOTHING_CHANGED")
        return record

    def entry_redaction_proposed(self, event: Event, data: Any) -> None:
        """Apply a human's proposal to erase an entry."""
        need("human" in self.roles_of(event.author), "only a human may propose to erase an entry", "NOT_AUTHORIZED")
        self.redaction_of(event, data).proposal = event

    def entry_redacted(self, event: Event, data: Any) -> None:
        """Apply the redaction of an entry by root, or by a human if another one proposed exactly the same.

        If it names another event or remnant than the log holds, or a human names an entry of authority, the entry
        remains without a redaction.
        """
        is_root = event.author == "root"
        is_human = is_root or "human" in self.roles_of(event.author)
        need(is_human, "only root or a human may erase an entry", "NOT_AUTHORIZED")
        record = self.redaction_of(event, data)
        if not is_root:
            self.check_proposal(record.proposal, event, data)
        is_named = record.found == (data["event"], data["remnant"]) and (is_root or not record.is_authority)
        record.found, record.done = None if is_named else record.found, event

    def check_proposal(self, proposal: Event | None, event: Event, data: Any) -> None:
        """Check that another human proposed exactly this redaction, with a key and role that no compromise affects."""
        index = data["entry"]
        key = "" if proposal is None else proposal.entry.key.hex()
        is_there = proposal is not None and self.decision_counts(proposal.index, key, {"human"})
        need(is_there, f"no human has proposed to erase entry {index}", "NOT_AUTHORIZED")
        is_other = proposal is not None and proposal.author != event.author
        need(is_other, f"the same human proposed to erase entry {index}", "NOT_AUTHORIZED")
        names = ("entry", "event", "remnant")
        wanted = {} if proposal is None else proposal.data
        is_same = all(wanted.get(name) == data[name] for name in names)
        is_same = is_same and wanted.get("blobs", []) == data.get("blobs", [])
        is_same = is_same and wanted.get("versions", {}) == data.get("versions", {})
        need(is_same, "the proposal names another event, remnant, blobs or versions", "NOT_AUTHORIZED")

    def active_agent(self, event: Event, name: str) -> Agent:
        """Return a registered agent that was not removed. The event must be on the agent's stream."""
        self.check_stream(event, name)
        need(self.is_registered(name), f"{name} is not a registered agent", "AGENT_UNKNOWN")
        return self.agents[name]

    def is_registered(self, name: str) -> bool:
        """Return whether an agent of this name is registered and was not removed."""
        return name in self.agents and not self.agents[name].is_removed

    def named_key(self, event: Event, key: str) -> Key:
        """Return a key that an event names. It must be a key that signs events, and the event on its owner's stream."""
        need(key in self.keys, "the event names a key that is not registered", "KEY_UNKNOWN")
        is_signer = self.keys[key].owner != CHECKPOINTS
        need(is_signer, "the event names a key that does not sign events", "NOT_AUTHORIZED")
        self.check_stream(event, self.keys[key].owner)
        return self.keys[key]

    def is_node(self, name: str) -> bool:
        """Return whether a name belongs to the first node or a registered one."""
        return name == "node" or (name in self.agents and "node" in self.agents[name].roles)

    def check_may_register(self, event: Event, roles: list[str]) -> None:
        """Check that an admin registers or invites an agent. Only root does so for a node, which has no other role."""
        if "node" not in roles:
            need(self.is_admin(event), "only an admin may register or invite an agent", "NOT_AUTHORIZED")
            return
        need(event.author == "root", "only root may register or invite a node", "NOT_AUTHORIZED")
        need(roles == ["node"], "a node has no other role", "INVALID_FIELD")

    def check_name_is_new(self, event: Event, name: str) -> None:
        """Check that a name was never registered. The event must be on the stream of that name."""
        self.check_stream(event, name)
        is_new = name not in self.agents and name not in RESERVED
        need(is_new, f"the name {name} is registered already", "AGENT_EXISTS")

    def check_stream(self, event: Event, name: str) -> None:
        """Check that an event about an agent or kind is on the stream of this name."""
        message = f"{event.kind} about {name} must not be on {event.stream}"
        need(event.stream.partition("/")[2] == name, message, "INVALID_FIELD")

    def check_possession(self, event: Event, name: str, data: Any) -> None:
        """Check that a key is new, and that its holder signed the proof of possession for this name."""
        key = data["key"]
        need(key not in self.keys, "a key is registered twice", "KEY_EXISTS")
        text = pae(POSSESSION, f"{event.body['ledger']}\n{name}\n{key}".encode())
        proof = bytes.fromhex(data["proof"])
        is_held = is_signed(bytes.fromhex(key), text, proof)
        need(is_held, f"the proof that {name} holds the key is not valid", "SIGNATURE_INVALID")
        need(data.get("nkey") not in self.bus_keys, "a bus key is used twice", "KEY_EXISTS")

    def add_bus_key(self, data: Any) -> None:
        """Add the bus key of an event, if it has one. Nobody else may use it."""
        self.bus_keys |= {data["nkey"]} if data.get("nkey") else set()

    def add_key(self, name: str, key: str, index: int) -> Key:
        """Add a key that may sign for a name."""
        self.vkeys.append(vkey(name, bytes.fromhex(key)))
        return self.keys.setdefault(key, Key(name, index))

    def add_identity_key(self, name: str, key: str, index: int, protection: str | None) -> Key:
        """Add an identity key, and note how it is stored."""
        added = self.add_key(name, key, index)
        added.has_passphrase = protection == "passphrase"
        return added

    def add_checkpoint_key(self, event: Event, node: str, key: str) -> None:
        """Add a key of a node that may sign checkpoints of all trees that contain this entry."""
        self.keys[key] = Key(CHECKPOINTS, event.index)
        self.checkpoints.append((node, event.index, bytes.fromhex(key)))

    def end_checkpoint_key(self, event: Event, node: str) -> None:
        """End the checkpoint key of a node: it must sign no tree that contains this entry."""
        for name, _, key in self.checkpoints:
            if name == node:
                self.keys[key.hex()].end(event.index)
                self.checkpoint_ends.setdefault(key, event.index)

    def checkpoint_keys(self, size: int) -> list[bytes]:
        """Return the keys that may sign the checkpoint of a tree of this size."""
        return [key for _, since, key in self.checkpoints if since < size <= self.checkpoint_ends.get(key, size)]
