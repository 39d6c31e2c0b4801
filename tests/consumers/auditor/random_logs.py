"""Logs of random operations by random agents, most of them wrong, that no gate has judged.

Half of the operations come from a row of the rules that fits the state and the parties, with right data. Otherwise no
log would get far, and all events would be refused for the same reasons. A *hostile* log comes from a patched node,
which also stores entries that no gate would: unreadable entries, wrong counts and times, events twice, damaged batches.
Sometimes a wrong key signs its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from building import NO_EVENT
from event_examples import EXAMPLES
from forge import is_entry
from forged_steps import FINDING, compromised, removed, rotated
from msgspec.structs import asdict, replace
from rule_stage import CONTENT, ROWS, STEP, TABLES, WORKING, Row, Stage, handoff_data, mapped
from wrong_redactions import erased, redaction

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import RedactionProposed
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.format.envelope import decode_entry, event_id

if TYPE_CHECKING:
    import random

    from deedbook.ledger.format.identity import Key

AGENTS: Final = ("alice", "bob", "rita", "carl", "dora", "rick", "hugo", "router", "ada")
STREAMS: Final = {
    "decision": 3,
    "handoff": 4,
    "question": 2,
    "session": 2,
    "reasoning": 2,
    "review": 2,
    "snapshot": 2,
    "record": 1,
    "subject": 2,
}
SELDOM: Final = {"record.imported", "handoff.logged", "handoff.rejected", "handoff.cancelled", "handoff.superseded"}
SELDOM |= {"handoff.amended", "session.ended"}  # after most of these kinds, few operations on the stream are possible
SNAPSHOT: Final = EXAMPLES["snapshot.taken"]


class RandomLog:
    """A stage, and random operations on it."""

    def __init__(self, chance: random.Random, events: int, *, is_hostile: bool = False, erases: bool = False) -> None:
        self.stage, self.chance = Stage(), chance
        self.session_keys: list[tuple[str, Key]] = []
        self.ids = [NO_EVENT]
        steps = [self.operate] * 40 + [self.change_authority] * 3 + [self.wait, self.delegate]
        if is_hostile:
            steps += [self.store_unreadable, self.miscount, self.misdate, self.store_again, self.store_batch]
            steps += [self.store_damaged, self.store_damaged]
        steps += [self.redact] * 10 if erases else []
        for _ in range(events):
            chance.choice(steps)()
        if is_hostile and self.is_likely(15):
            self.stage.checkpoint_with = self.stage.keys["bob"]

    def is_likely(self, percent: int) -> bool:
        """Return true with this probability."""
        return self.chance.randrange(100) < percent

    def agent(self) -> str:
        """Return an agent."""
        return self.chance.choice(AGENTS)

    def wait(self) -> None:
        """Let time pass: leases of a minute end."""
        self.stage.clock.advance(self.chance.choice((1, 59, 61)))

    def delegate(self) -> None:
        """Delegate a session key, with a scope or without."""
        name, chance = self.agent(), self.chance
        scope = {"kinds": [], "streams": chance.choice(([], ["handoff/*"], ["session/*"]))}
        limit = chance.choice((None, 1, 2))
        key = self.stage.new_key(f"session/{len(self.stage.entries)}")
        self.session_keys.append((name, self.stage.delegate(name, key, seconds=90, max_events=limit, **scope)))

    def change_authority(self) -> None:
        """Change roles or keys, by an admin most of the time."""
        stage, chance, name = self.stage, self.chance, self.agent()
        author = "ada" if self.is_likely(70) else self.agent()
        role = chance.choice((*WORKING, "admin"))
        match chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                self.append(author, f"agent/{name}", "role.granted", {"agent": name, "role": role})
            case 5 | 6 | 7 | 8:
                self.append(author, f"agent/{name}", "role.revoked", {"agent": name, "role": role})
            case 9:
                compromised(stage, author, name, chance.randrange(len(stage.entries) + 2))
            case 10:
                protection = chance.choice(("passphrase", "none"))
                key = stage.new_key(f"{name}/{len(stage.entries)}")
                rotated(stage, author, name, key=key, protection=protection)
                stage.keys[name] = key if self.is_likely(50) else stage.keys[name]
            case _:
                removed(stage, chance.choice(("carl", "dora", "rick")), author)

    def store_unreadable(self) -> None:
        """Store an entry of an unknown kind, or with an unknown field."""
        body = self.stage.body(self.agent(), "session/0", FINDING)
        changes = (b"finding.logged", b"finding.guessed"), (b'"finding":', b'"guess":1,"finding":')
        old, new = self.chance.choice(changes)
        self.stage.raw("alice", body.replace(old, new))

    def store_damaged(self) -> None:
        """Store a finding as bytes that are no entry, with a wrong signature, or with the numbers of another batch."""
        changes = {"version": 2}, {"sig": bytes(64)}, {"batch_size": 2}, {"batch_index": 1, "batch_size": 2}
        author = self.agent()
        self.stage.raw(author, self.stage.body(author, "session/0", FINDING), **self.chance.choice(changes))

    def miscount(self) -> None:
        """Store a finding with counts that do not fit its position."""
        name = self.chance.choice(("stream_version", "authority_version"))
        author = self.agent()
        self.stage.raw(author, self.stage.body(author, "session/0", FINDING), **{name: self.chance.randrange(1, 30)})
        self.stage.clock.advance(0.001)

    def misdate(self) -> None:
        """Store a finding with a time that does not fit its position."""
        author = self.agent()
        wrong_ms = self.stage.clock.now_ms + self.chance.choice((-61_000, -1, 61_000, 31 * 86_400_000))
        self.stage.raw(author, self.stage.body(author, "session/0", FINDING), accepted_ms=wrong_ms)
        self.stage.clock.advance(0.001)

    def store_again(self) -> None:
        """Store an event that is in the log."""
        data = self.chance.choice(self.stage.entries)
        entry = decode_entry(data) if is_entry(data) else None
        if entry is not None and entry.batch_size == 1:
            self.stage.store(entry.body, entry.key, entry.sig)

    def store_batch(self) -> None:
        """Store a batch of findings of several agents, sometimes with one of them spoilt, left out, or at its time."""
        authors = [self.agent() for _ in range(3)]
        bodies = [self.stage.body(author, "session/0", FINDING, corr=str(at)) for at, author in enumerate(authors)]
        if self.is_likely(30):
            bodies[1] = bodies[1].replace(b"finding.logged", b"finding.guessed")
        is_signed = self.is_likely(90)
        left_out = self.chance.randrange(3) if self.is_likely(30) else None
        late_ms = self.chance.choice((1, -1)) if self.is_likely(20) else 0
        for place, (body, key, sig) in enumerate(self.stage.batch(authors[0], *bodies)):
            time_ms = self.stage.clock.now_ms + (late_ms if place == 1 else 0)
            if place != left_out:
                self.stage.store(body, key, sig if is_signed else bytes(64), (place, 3), accepted_ms=time_ms)
        self.stage.clock.advance(0.001)

    def redact(self) -> None:
        """Erase a body and append its redaction, or only one of the two, or a redaction that names another event."""
        stage, chance = self.stage, self.chance
        index = chance.randrange(6, len(stage.entries))
        try:
            data = redaction(stage, index)
        except Refused:
            return  # the entry was erased earlier, with a wrong remnant
        if self.is_likely(80):
            erased(index, chance.choice((ERASED, ERASED, ERASED, "*")))(stage)
        if self.is_likely(85):
            data = redaction(stage, index)
        if self.is_likely(10):
            data = replace(data, event=chance.choice(self.ids))
        if self.is_likely(40):
            proposal = RedactionProposed(**asdict(replace(data, reason="I propose it")))
            author = chance.choice(("rita", "rick", "hugo", self.agent()))
            stage.emit(author, "ledger", proposal)
            data = replace(data, entry=data.entry + 1) if self.is_likely(5) else data
            stage.emit(chance.choice(("rita", "rick", "hugo")), "ledger", data)
        elif self.is_likely(90):
            stage.emit(chance.choice(("root",) * 9 + ("rita",)), "ledger", data)

    def append(self, author: str, stream: str, kind: str, data: dict[str, Any], key: Key | None = None) -> None:
        """Append an event, sometimes with an expected version or an idempotency key."""
        idem = f"i{self.chance.randrange(4)}" if self.is_likely(3) else None
        expect = self.stage.streams[stream] - self.chance.randrange(2) if self.is_likely(5) else None
        draft = Draft(stream=stream, kind=kind, data=data, idem=idem, expect=expect if expect != -1 else None)
        self.stage.submit(self.stage.sign(author, draft, key=key))
        self.ids.append(event_id(decode_entry(self.stage.entries[-1]).commitment))

    def operate(self) -> None:
        """Append an event of a row that fits the state, or of any row."""
        chance = self.chance
        row = chance.choice(ROWS)
        row = row if row.family == "handoff" or self.is_likely(70) else chance.choice(ROWS)
        stream = f"{row.family}/{chance.randrange(STREAMS[row.family])}"
        present = self.stage.state(stream)
        fitting = [other for other in ROWS if other.family == row.family and name_of(present) in other.row["from"]]
        is_fitting = bool(fitting) and self.is_likely(70)
        row = chance.choices(fitting, [1 if row.kind in SELDOM else 6 for row in fitting])[0] if is_fitting else row
        author, data = self.event_of(row, stream, present)
        if not is_fitting and self.is_likely(60):
            author = self.agent()
        key = None
        if self.session_keys and self.is_likely(10):
            author, key = chance.choice(self.session_keys)
        self.append(author, stream, row.kind, data, key)

    def event_of(self, row: Row, stream: str, present: Any) -> tuple[str, dict[str, Any]]:
        """Return an author and data that fit a row most of the time."""
        chance = self.chance
        if row.family == "handoff":
            return self.handoff_event(row, present)
        owner = getattr(present, "owner", "") or self.agent()
        authors = {"reasoning.briefed": "router", "reasoning.validated": "rita", "review.answered": "hugo"}
        author = authors.get(row.kind, owner)
        if row.kind == "reasoning.extended":
            return author, self.extension()
        if row.kind == "record.imported":
            kind = row.when.get("mapped_kind") or chance.choice(("reasoning.concluded", "reasoning.started"))
            data = self.extension() if kind == "reasoning.extended" else {"task": "x"}
            data = {"conclusion": "so"} if kind == "reasoning.concluded" else data
            if row.family == "session":
                return author, mapped("session.started", {"task": "x"})
            return author, mapped(kind, data) if row.family == "reasoning" else mapped("", {}, mapped_kind=None)
        data = dict(EXAMPLES[row.kind])
        if row.kind == "reasoning.assumption_settled":
            return self.agent(), data | {"step": chance.randrange(1, 8), "holds": self.is_likely(50)}
        if row.kind == "reasoning.step_retracted":
            return author, data | {"step": chance.randrange(1, 8)}
        if "target" in data:
            data["target"] = chance.choice(self.ids[-12:])
        author = self.with_reference(row, present, author, data)
        if row.kind == "snapshot.taken" and self.is_likely(60):
            name = chance.choice([name for name in SNAPSHOT if name not in ("vectors", "context_source")])
            data[name] = "" if name == "context_summary" else data[name]
            if name != "context_summary":
                del data[name]
        return author, data

    def with_reference(self, row: Row, present: Any, author: str, data: dict[str, Any]) -> str:
        """Let a decision refer to another one in its data; return the author, who answers a question put to them."""
        if row.kind == "decision.withdrawn":
            data["by"] = "" if row.when else str(self.chance.randrange(STREAMS["decision"] + 1))
        return (getattr(present, "receiver", "") or author) if row.kind == "question.answered" else author

    def extension(self) -> dict[str, Any]:
        """Return an extension of a reasoning, with numbers that are sometimes wrong."""
        chance = self.chance
        first = chance.randrange(1, 8)
        numbers = range(first, first + chance.randrange(3))
        depends = {str(number): [chance.randrange(1, 8)] for number in numbers if self.is_likely(40)}
        steps = [STEP | {"step_number": number} for number in numbers]
        return {"steps": steps, "dependencies": depends}

    def handoff_event(self, row: Row, present: Any) -> tuple[str, dict[str, Any]]:
        """Return an author and data of a handoff."""
        chance = self.chance
        sender = (getattr(present, "importer", "") or getattr(present, "sender", "")) or self.agent()
        others = [str(number) for number in range(STREAMS["handoff"] + 1)]
        content = CONTENT | {
            "to": chance.choice(("bob",) * 8 + (self.agent(), "nobody")),
            "reviewer": chance.choice(("rita",) * 6 + ("rick", self.agent(), "nobody")),
            "depends_on": chance.sample(others, chance.choice((0, 0, 0, 1, 2))),
            "unlock_at": chance.choice(("completed", "verified")),
            "criteria": CONTENT["criteria"][: chance.choice((0, 0, 1, 2))],
        }
        if present is not None and self.is_likely(60):
            content |= {"to": present.receiver or "bob", "reviewer": present.reviewer or "rita"}
        data, party = handoff_data(row, content, sender, present)
        parties = {"sender": sender, "receiver": getattr(present, "receiver", ""), "reviewer": ""}
        parties["reviewer"] = getattr(present, "reviewer", "")
        author = parties.get(party, party)
        if "position" in data:
            data["position"] = chance.choice((0, 0, 1, 2))
        if "by" in data:
            data["by"] = chance.choice(others)
        if "version" in data and self.is_likely(10):
            data["version"] = NO_EVENT
        if "result" in data and self.is_likely(10):
            data["result"] = chance.choice(self.ids)
        if row.kind == "handoff.claimed" and self.is_likely(50):
            data = {"lease_seconds": 60}
        if row.kind == "handoff.ready":
            data["to"] = getattr(present, "receiver", "") or "bob"
        if row.kind == "record.imported":
            data["claimed_author"] = chance.choice(("eve", sender))
            data["claims"] = chance.choice(
                ({}, {"status": "open"}, {"tasks": [0, 1]}, {"criteria": [0]}, {"tasks": [3]})
            )
            data["mapped"] = {
                name: value for name, value in data["mapped"].items() if self.is_likely(90) or name == "title"
            }
        return author if author in AGENTS else self.agent(), data


def name_of(present: Any) -> str:
    """Return the name of a stream's state, as the tables have it."""
    if present is None:
        return "none"
    return "imported" if getattr(present, "claimed_status", None) is not None else str(present.status)


assert set(STREAMS) == set(TABLES)
