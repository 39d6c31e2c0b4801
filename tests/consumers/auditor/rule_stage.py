"""A forge on which every row of ``proto/rules`` can be played: streams in each state, and a good event of each row.

``Row`` is a row of a table as it is in the file. ``Play`` is one row in one state: the stream, the author who may sign,
and the data that the rules allow there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from building import NO_EVENT
from event_examples import EXAMPLES
from forge import Forge

from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.authority import RoleGranted, RoleRevoked
from deedbook.ledger.events.handoff import HandoffApproved, HandoffVerified
from deedbook.ledger.format.envelope import decode_entry, event_id, pae
from deedbook.ledger.lifecycle.rules import FAMILIES, read_rules

TABLES: Final[dict[str, dict[str, Any]]] = {family: msgspec.json.decode(read_rules(family)) for family in FAMILIES}
CONTENT: Final[dict[str, Any]] = {
    "title": "the work",
    "to": "bob",
    "reviewer": "rita",
    "tasks": ["do it", "test it"],
    "criteria": ["it is checked", "it is fast"],
}
STEP: Final = {"type": "assumption", "content": "because"}
RECORD: Final = {"original": "blake3:" + "1" * 64, "source": "x", "format": "x"}
WORKING: Final = ("agent", "reviewer", "human", "service")


class Row(NamedTuple):
    """A row of a table, with its family and its number there."""

    family: str
    number: int
    row: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of its events."""
        return str(self.row["kind"])

    @property
    def when(self) -> dict[str, Any]:
        """The values of the data that it is for."""
        return dict(self.row.get("when", {}))

    def __str__(self) -> str:
        return f"{self.family}-{self.number}-{self.kind}"


ROWS: Final = [Row(family, number, row) for family in FAMILIES for number, row in enumerate(TABLES[family]["rows"])]


class Play(NamedTuple):
    """An event that the rules allow: its stream, author, kind and data."""

    stream: str
    author: str
    kind: str
    data: dict[str, Any]

    def emit(self, stage: Stage, **changes: Any) -> None:
        """Append it, with changes to its author, key or data."""
        data = self.data | changes.pop("data", {})
        draft = Draft(stream=self.stream, kind=self.kind, data=data)
        stage.submit(stage.sign(changes.pop("author", self.author), draft, **changes))


class Stage(Forge):
    """A forge with more agents. It knows what its streams remember."""

    def __init__(self) -> None:
        super().__init__()
        self.register("carl", "agent", "reviewer")
        self.register("dora", "agent")
        self.register("rick", "reviewer", "human")
        self.register("hugo", "agent", "human")
        self._part, self._fed = PartialReplay(), 0

    def state(self, stream: str) -> Any:
        """Return the state of a stream, or None."""
        for index in range(self._fed, len(self.entries)):
            self._part.feed(index, self.entries[index], is_verified=True)
        self._fed = len(self.entries)
        record = self._part.state.stream(stream)
        return None if record is None else record.state

    def agents(self) -> dict[str, frozenset[str]]:
        """Return the roles of the agents that have a key here."""
        self.state("ledger")
        records = {name: self._part.state.agent(name) for name in self.keys}
        return {name: record.roles for name, record in records.items() if record is not None}

    def draft(self, author: str, stream: str, kind: str, data: dict[str, Any]) -> None:
        """Append an event of a kind."""
        self.submit(self.sign(author, Draft(stream=stream, kind=kind, data=data)))

    def lose_roles(self, name: str, *roles: str) -> None:
        """Take roles of an agent; without any, all that let it work."""
        for role in roles or WORKING:
            self.emit("ada", f"agent/{name}", RoleRevoked(agent=name, role=role))

    def gain_role(self, name: str, role: Any) -> None:
        """Grant a role to an agent."""
        self.emit("ada", f"agent/{name}", RoleGranted(agent=name, role=role))


def mapped(kind: str, data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the data of an imported record that is mapped to a kind."""
    return RECORD | {"mapped_kind": kind, "mapped": data} | fields


class Handoff:
    """The way of one handoff into each state. ``content`` are changes to ``CONTENT``."""

    def __init__(self, stage: Stage, name: str, sender: str = "alice", **content: Any) -> None:
        self.stage, self.stream, self.sender = stage, f"handoff/{name}", sender
        self.content = {field: value for field, value in (CONTENT | content).items() if value is not None}
        self.reviewer = self.content.get("reviewer", sender)

    def reach(self, state: str) -> None:
        """Bring the handoff into a state, on the shortest way."""
        if state != "none":
            getattr(self, state)()

    def act(self, author: str, kind: str, **data: Any) -> None:
        """Append an event of the handoff."""
        self.stage.draft(author, self.stream, f"handoff.{kind}", data)

    def pending(self) -> None:
        """Create it."""
        self.stage.draft(self.sender, self.stream, "handoff.created", self.content)

    def imported(self) -> None:
        """Import it; its sender is not registered here."""
        data = mapped("handoff.created", self.content, claimed_author="eve", claims={"status": "open", "criteria": [0]})
        self.stage.draft(self.sender, self.stream, "record.imported", data)

    def approved(self) -> None:
        """Approve it."""
        if self.stage.state(self.stream) is None:
            self.pending()
        if self.stage.state(self.stream).status == "pending":
            version = self.stage.state(self.stream).version
            self.stage.emit(self.reviewer, self.stream, HandoffApproved(version=version))

    def in_progress(self) -> None:
        """Claim it."""
        self.approved()
        self.act("bob", "claimed")

    def lapsed(self) -> None:
        """Claim it for a minute, and let that pass."""
        self.approved()
        self.act("bob", "claimed", lease_seconds=60)
        self.stage.clock.advance(60)

    def blocked(self) -> None:
        """Block it."""
        self.in_progress()
        self.act("bob", "blocked", reason="it rains")

    def completed(self) -> None:
        """Meet its criteria, and complete it."""
        self.in_progress()
        for position in range(len(self.content["criteria"])):
            self.act("bob", "criterion_checked", position=position)
        self.act("bob", "completed")

    def verified(self) -> None:
        """Verify it."""
        self.completed()
        state = self.stage.state(self.stream)
        data = HandoffVerified(version=state.version, completion=state.completion)
        self.stage.emit(self.reviewer, self.stream, data)

    def rejected(self) -> None:
        """Reject it."""
        self.pending()
        self.act(self.reviewer, "rejected", reason="no")

    def cancelled(self) -> None:
        """Cancel it."""
        self.pending()
        self.act(self.sender, "cancelled", reason="no")

    def superseded(self) -> None:
        """Let another take its place."""
        self.pending()
        self.act(self.sender, "superseded", by="open")

    def mark(self, items: str, mark: str) -> None:
        """Bring it into work, and give its first item a mark."""
        if mark == "claimed":
            self.imported()
        self.in_progress()
        steps: dict[str, tuple[str, str, dict[str, Any]]] = {
            "done": ("bob", "task_checked", {}),
            "asked": ("bob", "waiver_asked", {"reason": "it cannot run here"}),
            "checked": ("bob", "criterion_checked", {}),
            "waived": (self.reviewer, "criterion_waived", {"reason": "it need not"}),
        }
        if mark in steps:
            author, kind, data = steps[mark]
            self.act(author, kind, position=0, **data)
        assert getattr(self.stage.state(self.stream), items)[0] == mark


def owned(stage: Stage, family: str, name: str, state: str) -> str:
    """Bring a stream of another family into a state; return its name."""
    stream = f"{family}/{name}"
    started = f"{family}.started"
    steps: dict[tuple[str, str], list[tuple[str, str, dict[str, Any]]]] = {
        ("review", "open"): [("alice", "review.requested", EXAMPLES["review.requested"])],
        ("review", "answered"): [("rita", "review.answered", {"verdict": "approved"})],
        ("session", "open"): [("alice", started, {"task": "x"})],
        ("session", "ended"): [("alice", "session.ended", {})],
        ("session", "imported"): [("alice", "record.imported", mapped(started, {"task": "x"}))],
        ("reasoning", "open"): [
            ("alice", started, {"task": "x"}),
            ("alice", "reasoning.extended", {"steps": [STEP | {"step_number": 1}]}),
        ],
        ("reasoning", "concluded"): [("alice", "reasoning.concluded", {"conclusion": "so"})],
        ("reasoning", "imported"): [
            ("alice", "record.imported", mapped(started, {"task": "x"})),
            ("alice", "record.imported", mapped("reasoning.extended", {"steps": [STEP | {"step_number": 1}]})),
        ],
        ("snapshot", "taken"): [("alice", "snapshot.taken", EXAMPLES["snapshot.taken"])],
        ("record", "imported"): [("alice", "record.imported", RECORD)],
    }
    if state in ("answered", "ended", "concluded"):
        owned(stage, family, name, "open")
    for author, kind, data in steps.get((family, state), []):
        stage.draft(author, stream, kind, data)
    return stream


def play(stage: Stage, row: Row, name: str, state: str = "", **content: Any) -> Play:
    """Return the event of a row that its rules allow, after its stream was brought into a state that it is for.

    With a ``state`` the stream is brought into that one, whether the row is for it or not.
    """
    if row.family == "handoff":
        return _handoff_play(stage, row, name, state, content)
    stream = owned(stage, row.family, name, state or row.row["from"][0])
    author = {"review.answered": "rita", "reasoning.briefed": "router", "reasoning.validated": "rita"}.get(row.kind)
    return Play(stream, author or "alice", row.kind, _owned_data(stage, row, stream))


def _owned_data(stage: Stage, row: Row, stream: str) -> dict[str, Any]:
    wanted = row.when.get("mapped_kind")
    if row.family == "reasoning" and row.kind == "record.imported":
        data = {
            "reasoning.started": {"task": "x"},
            "reasoning.extended": {"steps": [STEP | {"step_number": 2}]},
            "reasoning.concluded": {"conclusion": "so"},
        }[wanted or "reasoning.concluded"]
        return mapped(wanted or "reasoning.concluded", data)
    if row.kind == "record.imported":
        return mapped("session.started", {"task": "y"}) if row.family == "session" else dict(RECORD)
    if row.kind == "reasoning.extended":
        return {"steps": [STEP | {"step_number": 2}], "dependencies": {"2": [1]}}
    data = dict(EXAMPLES[row.kind])
    if "target" in data and stage.state(stream) is not None:
        data["target"] = event_id(pae(decode_entry(stage.entries[-1]).body))
    return data


def _handoff_play(stage: Stage, row: Row, name: str, state: str, content: dict[str, Any]) -> Play:
    is_approving = row.when == {"reviewer": None}
    content = ({"sender": "hugo"} if is_approving else {}) | content
    handoff = Handoff(stage, name, **content)
    mark = row.row.get("mark")
    if state or mark is None:
        handoff.reach(state or row.row["from"][0])
    else:
        handoff.mark(mark["list"], mark["from"][0])
    if is_approving and row.kind == "handoff.amended" and not state:
        stage.lose_roles("rita", "human", "reviewer")  # so that nobody needs to hand the review over
    if row.kind == "handoff.completed" and not state:
        for position in range(len(handoff.content["criteria"])):
            handoff.act("bob", "criterion_checked", position=position)
    present = stage.state(handoff.stream)
    data, author = handoff_data(row, handoff.content, handoff.sender, present)
    author = {"sender": handoff.sender, "receiver": "bob", "reviewer": handoff.reviewer}.get(author, author)
    return Play(handoff.stream, author, row.kind, data)


def handoff_data(row: Row, content: dict[str, Any], sender: str, present: Any) -> tuple[dict[str, Any], str]:
    """Return the data that a row allows now, and the party or agent that signs it."""
    version = NO_EVENT if present is None else present.version
    completion = (None if present is None else present.completion) or NO_EVENT
    alone = {field: value for field, value in content.items() if field != "reviewer"}
    is_approving, is_open = row.when == {"reviewer": None}, {"reason": "so"}
    amended = alone if is_approving else content | ({"reviewer": "rick", "hands_over": True} if row.when else {})
    imported = mapped("handoff.created", content | {"title": "again"}, claimed_author="eve", claims={"tasks": [0]})
    marked: dict[str, Any] = {"position": 0} | {key: value for key, value in row.when.items() if value is not None}
    evidence = {} if row.when else {"evidence": "see the log"}
    return {
        "handoff.created": (alone if is_approving else content, "sender"),
        "record.imported": (imported, "sender"),
        "handoff.amended": (amended, "reviewer" if row.when == {"hands_over": True} else "sender"),
        "handoff.approved": ({"version": version}, "reviewer"),
        "handoff.rejected": (is_open, "reviewer"),
        "handoff.claimed": ({}, "receiver"),
        "handoff.task_checked": (marked, "receiver"),
        "handoff.criterion_checked": (marked | evidence, "receiver"),
        "handoff.waiver_asked": (marked | is_open, "receiver"),
        "handoff.criterion_waived": (marked | is_open, "reviewer"),
        "handoff.released": ({}, "receiver"),
        "handoff.blocked": (is_open, "receiver"),
        "handoff.unblocked": ({}, "receiver"),
        "handoff.completed": ({}, "receiver"),
        "handoff.changes_requested": ({"completion": completion, "reasons": ["slow"]}, "reviewer"),
        "handoff.verified": ({"version": version, "completion": completion}, "reviewer"),
        "handoff.cancelled": (is_open, "sender"),
        "handoff.superseded": ({"by": "open"}, "sender"),
        "handoff.logged": ({"text": "hello"}, "sender"),
        "handoff.ready": ({"to": "bob", "version": version}, "router"),
    }[row.kind]
