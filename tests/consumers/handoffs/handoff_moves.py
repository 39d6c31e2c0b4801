"""Random operations of agents: mostly their next step in a handoff, to reach deep states; otherwise any operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from building import AGENTS, START_MS
from event_examples import smallest
from handoff_chronicle import Step

from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.handoff import MACHINE
from deedbook.ledger.lifecycle.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from deedbook.ledger.events.authority import Role
    from deedbook.ledger.lifecycle.handoff import HandoffState

NAMES: Final = [f"h{number}" for number in range(8)]
OTHERS: Final = ["carl", "dora", "eve"]
ROUTER: Final = "router"
AGENT_NAMES: Final = [*AGENTS, *OTHERS]
ANYBODY: Final = [*AGENT_NAMES, ROUTER, "stranger", ROOT]
ROLES: Final[list[Role]] = ["agent", "reviewer", "human", "service"]
NO_REF: Final = "sha256:" + "0" * 64
ROWS: Final = [row for row in rules_of("handoff").rows if row.kind not in ("handoff.created", "record.imported")]
KINDS: Final = list(dict.fromkeys(row.kind for row in ROWS))
LIVE: Final = {"pending", "approved", "in_progress", "blocked", "completed"}
RARE: Final = {"handoff.rejected", "handoff.cancelled", "handoff.superseded", "handoff.logged"}


def _record(source: str) -> dict[str, Any]:
    """Return the record of an imported file; the writing process stores no blobs."""
    of = {"source": source, "format": "handoff/v2", "mapped_kind": "handoff.created"}
    return {"original": NO_REF, "only_digest": True} | of


class Known:
    """The gate's knowledge of all handoffs and agents."""

    def __init__(self) -> None:
        self.handoffs: dict[str, HandoffState] = {}
        self.roles: dict[str, frozenset[str]] = {}
        self.revoked: set[str] = set()
        self.last_ms = START_MS


class Moves:
    """Draws random steps by the gate's knowledge."""

    def __init__(self, known: Known, chance: Random) -> None:
        self.known = known
        self.chance = chance
        self.versions: dict[str, None] = {NO_REF: None}

    def is_one_of(self, count: int) -> bool:
        """Return true once in ``count`` times, on average."""
        return self.chance.randrange(count) == 0

    def roles(self) -> list[Role]:
        """Draw a subset of the roles."""
        return [role for role in ROLES if self.is_one_of(2)]

    def name(self) -> str:
        """Draw a handoff: mostly one that is not over."""
        live = [name for name, one in self.known.handoffs.items() if one.status in LIVE]
        return self.chance.choice(NAMES if not live or self.is_one_of(4) else live)

    def movable(self) -> str:
        """Draw a handoff, and follow its dependencies to one that waits for no existing handoff."""
        name = self.name()
        while (handoff := self.known.handoffs.get(name)) is not None and handoff.status in ("pending", "approved"):
            open_ones = [on for on in handoff.depends_on if on in self.known.handoffs]
            open_ones = [on for on in open_ones if self.known.handoffs[on].status in LIVE - {"completed"}]
            if not open_ones:
                break
            name = open_ones[0]
        return name

    def opening(self, name: str, on: list[str]) -> Step:
        """Return a handoff as it should be created."""
        content: dict[str, Any] = {
            "title": "fix",
            "to": "bob",
            "reviewer": "rita",
            "criteria": ["met"],
            "tasks": ["do"],
        }
        content |= {"unlock_at": "verified"} if self.is_one_of(3) else {}
        return Step("alice", "handoff.created", name, content | ({"depends_on": on} if on else {}))

    def new(self) -> Step:
        """Draw a handoff between any two, or an imported file."""
        free = [name for name in NAMES if name not in self.known.handoffs]
        name = self.name() if self.is_one_of(4) or not free else self.chance.choice(free)
        kind, author = self.chance.choice(["handoff.created", "record.imported"]), self.chance.choice(ANYBODY)
        data = self.data(kind, name)
        if kind == "record.imported" and self.is_one_of(3):
            data["mapped"]["reviewer"] = author
        return Step(author, kind, name, data)

    def brought_in(self, name: str) -> Step:
        """Return an imported file as it should be, which claims to be done; its importer may be its reviewer."""
        author = self.chance.choice(["alice", "alice", "rita", *OTHERS])
        mapped = {"title": "fix", "reviewer": self.chance.choice([author, "rita", "rita"]), "criteria": ["met"]}
        mapped |= {} if self.is_one_of(4) else {"to": self.chance.choice(["bob", "bob", "rita"])}
        record = _record("x")
        claims = {"status": "done", "criteria": [0]}
        return Step(author, "record.imported", name, record | {"mapped": mapped, "claims": claims})

    def step(self, name: str, *, to_the_rules: int = 3) -> Step:
        """Draw a step of a handoff: mostly one that the rules allow in its state, and by an agent who may."""
        handoff = self.known.handoffs.get(name)
        kinds = KINDS
        if handoff is not None and not self.is_one_of(to_the_rules):
            state = handoff.status if handoff.claimed_status is None else "imported"
            kinds = list(dict.fromkeys(row.kind for row in ROWS if state in row.from_states))
            kinds = [kind for kind in kinds if kind not in RARE or self.is_one_of(6)]
            if handoff.claimed_status is not None:
                kinds += ["handoff.verified", "record.imported"]
        kind = self.chance.choice(kinds or KINDS)
        return Step(self.author(kind, handoff), kind, name, self.data(kind, name))

    def next_steps(self, name: str) -> list[Step]:
        """Return the steps that the protocol wants next; sometimes without a check that it asks for."""
        handoff = self.known.handoffs.get(name)
        if handoff is None:
            return [self.opening(name, [])]
        left = [at for at, mark in enumerate(handoff.criteria) if mark not in ("checked", "waived")]
        unmet = [] if self.is_one_of(4) else left
        waits_for: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
            "pending": [(handoff.reviewer, "handoff.approved", {"version": handoff.version})],
            "approved": [(handoff.receiver, "handoff.claimed", {})],
            "blocked": [(handoff.receiver, "handoff.unblocked", {})],
            "in_progress": [
                *((handoff.receiver, "handoff.criterion_checked", {"position": at}) for at in unmet),
                (handoff.receiver, "handoff.completed", {}),
            ],
            "completed": [(handoff.reviewer, "handoff.verified", {"result": handoff.result})],
        }
        found = waits_for.get(handoff.status, [])
        if handoff.status == "approved" and handoff.receiver and self.is_one_of(2):
            found = [(ROUTER, "handoff.ready", {"to": handoff.receiver, "version": handoff.version})]
        return [Step(author, kind, name, data) for author, kind, data in found if author in ANYBODY]

    def authority(self) -> Step:
        """Draw a change of roles; now and then somebody's key is revoked."""
        agent = self.chance.choice(AGENT_NAMES)
        if self.is_one_of(20) and agent not in self.known.revoked:
            return Step(ROOT, "key.revoked", agent, {})
        if self.is_one_of(2):
            return Step(ROOT, "role.granted", agent, {"agent": agent, "role": self.chance.choice(ROLES)})
        role = self.chance.choice(["reviewer", "human"] if agent in AGENTS else ROLES)
        return Step(ROOT, "role.revoked", agent, {"agent": agent, "role": role})

    def author(self, kind: str, handoff: HandoffState | None) -> str:
        """Draw an author: mostly a party that the rules let sign this kind, else another party, or anybody."""
        if handoff is None or self.is_one_of(8):
            return self.chance.choice(ANYBODY)
        wanted = {party for row in ROWS if row.kind == kind for party in row.by} or {"sender"}
        wanted = {"sender", "receiver", "reviewer"} if self.is_one_of(5) else wanted
        parties = {name for party in wanted for name in MACHINE.party(handoff, party, None)}
        if kind == "handoff.ready" and not self.is_one_of(5):
            parties = {name for name, roles in self.known.roles.items() if "service" in roles}
        return self.chance.choice(sorted(parties & set(ANYBODY)) or ANYBODY)

    def data(self, kind: str, name: str) -> dict[str, Any]:
        """Draw the data of a kind."""
        handoff = self.known.handoffs.get(name)
        position = {"position": self.chance.choice([0, 0, 0, 1, 2])}
        to = handoff.receiver if handoff and handoff.receiver and not self.is_one_of(5) else "alice"
        drawn: dict[str, Callable[[], dict[str, Any]]] = {
            "handoff.created": self.content,
            "handoff.amended": lambda: self.content() | {"reason": "so"},
            "record.imported": lambda: self.imported(name),
            "handoff.approved": lambda: {"version": self.version(name)},
            "handoff.ready": lambda: {"to": to, "version": self.version(name)},
            "handoff.claimed": lambda: self.chance.choice([{}, {"lease_seconds": 0}, {"lease_seconds": 20}]),
            "handoff.task_checked": lambda: position | self.chance.choice([{}, {}, {"checked": False}]),
            "handoff.criterion_checked": lambda: position | self.chance.choice([{}, {}, {"checked": False}]),
            "handoff.waiver_asked": lambda: smallest(kind) | position,
            "handoff.criterion_waived": lambda: (
                position | {"reason": "known"} | self.chance.choice([{}, {}, {"granted": False}])
            ),
            "handoff.question_asked": lambda: {"to": to, "question": "why"},
            "handoff.question_answered": lambda: smallest(kind) | position,
            "handoff.question_settled": lambda: smallest(kind) | position,
            "handoff.superseded": lambda: {"by": self.chance.choice(NAMES)},
            "handoff.changes_requested": lambda: {"result": self.result(name), "reasons": ["more"]},
            "handoff.verified": lambda: {"result": self.result(name)},
        }
        return drawn[kind]() if kind in drawn else smallest(kind)

    def result(self, name: str) -> str:
        """Draw the result that was reported, or another one."""
        handoff = self.known.handoffs.get(name)
        return NO_REF if handoff is None or not handoff.result or self.is_one_of(8) else handoff.result

    def version(self, name: str) -> str:
        """Draw the present version of a handoff, or any version that some handoff had."""
        handoff = self.known.handoffs.get(name)
        is_other = handoff is None or self.is_one_of(4)
        return self.chance.choice(list(self.versions)) if handoff is None or is_other else handoff.version

    def content(self) -> dict[str, Any]:
        """Draw content; fields with default values are left out."""
        optional: dict[str, Any] = {
            "reviewer": self.chance.choice([*AGENT_NAMES, "rita", "rita", "rita", None, None, None]),
            "depends_on": self.chance.choices([*NAMES, "nowhere"], k=self.chance.choice([0, 0, 1, 2])),
            "unlock_at": self.chance.choice([None, "verified"]),
            "tasks": ["do"] * self.chance.randrange(3),
            "criteria": ["met"] * self.chance.randrange(3),
        }
        must = {
            "title": self.chance.choice(["fix", "修复缓存"]),
            "to": self.chance.choice(["bob", *AGENT_NAMES, "ghost"]),
        }
        return must | {key: value for key, value in optional.items() if value}

    def imported(self, name: str) -> dict[str, Any]:
        """Draw the record of an imported file with any claims and any claimed author, sometimes without a receiver."""
        mapped = self.content()
        if self.is_one_of(6):
            mapped["reviewer"] = mapped["to"]
        if self.is_one_of(6):
            del mapped["to"]
        claims: dict[str, Any] = {
            "status": self.chance.choice([None, "done", "approved", "完成"]),
            "tasks": self.chance.choice([[], [0], [1, 0]]),
            "criteria": self.chance.choice([[], [0], [0, 0]]),
        }
        sender = self.chance.choice([None, "Kuro + Alex", *AGENT_NAMES])
        record = _record(f"{name}.md")
        record |= {"claimed_author": sender} if sender else {}
        return record | {"mapped": mapped, "claims": {key: value for key, value in claims.items() if value}}
