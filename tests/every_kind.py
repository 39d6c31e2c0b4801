"""A ledger with events of every kind, all valid, for tests that need all kinds."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec
import tot_story
from building import key_named
from event_examples import smallest
from invitations import invite, join

from deedbook.consumers.thoughts import events as thoughts
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS, authority, decision, handoff, imported, question, reasoning, review, session
from deedbook.ledger.events.blob import BLOB_STORED
from deedbook.ledger.events.subject import SubjectErased
from deedbook.ledger.home.home import CHECKPOINT
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from view_ledger import ViewLedger

    from deedbook.ledger.events.fields import EventData

# The signed event that says who uploaded a blob is stored beside the blob, not in the log.
IN_A_LOG: Final = KINDS.keys() - {BLOB_STORED}
PAUSED: Final = "tot-20270212-110000-b4f7b2"


def live(ledger: ViewLedger) -> None:
    """Let agents work in parallel, set the clock back, and report a stolen key, until every kind is in the log."""
    ledger.tell("every kind", partial(_live, ledger))


def _live(ledger: ViewLedger) -> None:
    _act(ledger)
    _hand_over_in_vain(ledger)
    _pause_and_resume(ledger)
    _redact(ledger)
    _administer(ledger)
    for kind in sorted(kind for kind in _missing(ledger) if KINDS[kind].stream == "handoff"):
        _try(ledger, kind)
    missing = _missing(ledger)
    assert not missing, f"let somebody do this too: {', '.join(sorted(missing))}"


def _missing(ledger: ViewLedger) -> set[str]:
    return IN_A_LOG - {ledger.event(index).kind for index in range(ledger.size)}


def _try(ledger: ViewLedger, kind: str) -> None:
    """Let the first agent that may sign a kind about a handoff sign its published example."""
    for author, name in product(("alice", "bob", "rita"), "defgh"):
        with suppress(Refused):
            _emit(ledger, author, f"handoff/{name}", msgspec.convert(smallest(kind), KINDS[kind].data))
            return


def _emit(ledger: ViewLedger, author: str, stream: str, *data: EventData) -> None:
    ledger.clock.advance(60)
    for one in data:
        ledger.emit(author, stream, one)


def _act(ledger: ViewLedger) -> None:
    emit = partial(_emit, ledger)
    first = ledger.hand_over("e", tasks=["one", "two", "three"], criteria=["green", "quick"])
    ledger.approve("e", first)
    ledger.claim("e", lease_seconds=900)
    emit("bob", "session/s2", session.SessionStarted(task="Count the zebras", ai_id="bob-2"))
    ledger.fill()
    emit("bob", "handoff/e", handoff.HandoffTaskChecked(position=0), handoff.HandoffLogged(text="zebra begun"))
    emit("bob", "session/s2", session.FindingLogged(finding="A zebra is striped", evidence=["z.py:1"], impact=0.5))
    finding = ledger.event(-1).id
    created = ledger.hand_over("d", depends_on=["e"], tasks=["after e"])
    amended = {name: getattr(created, name) for name in created.__struct_fields__ if name != "importer"}
    fields = {name: amended[name] for name in handoff.HandoffAmended.__struct_fields__ if name in amended}
    emit("alice", "handoff/d", handoff.HandoffAmended(**fields | {"title": "Four zebras", "reason": "one more"}))
    emit("bob", "handoff/e", handoff.HandoffBlocked(reason="no zebra"), handoff.HandoffUnblocked(comment="there"))
    emit("root", "agent/bob", authority.RoleGranted(agent="bob", role="reviewer"))
    ledger.register("carol", "agent")
    ledger.delegate("carol", key_named("carol's session"))
    emit("carol", "session/s3", session.SessionStarted(task="Help", ai_id="carol-1"))
    ledger.reason("r2", steps=5)
    ledger.clock.advance(2 * 86_400)
    ledger.ask("v2")
    emit("rita", "review/v1", review.ReviewAnswered(verdict="approved", comment="go on"))
    emit("bob", "session/s2", session.UnknownLogged(unknown="Where is the herd"))
    unknown = ledger.event(-1).id
    ledger.clock.advance(-2 * 86_400)
    emit("root", "ledger", authority.ClockSet(time=ledger.clock.text(60), reason="it was ahead"))
    emit("bob", "session/s2", session.UnknownResolved(target=unknown, answer="At the water"))
    emit("bob", "session/s2", session.FindingRetracted(target=finding, reason="It was a horse"))
    emit("bob", "handoff/e", handoff.HandoffReleased(reason="another day"))
    ledger.claim("e")
    emit("bob", "handoff/e", *(handoff.HandoffCriterionChecked(position=place, evidence="z.py:1") for place in (0, 1)))
    emit("bob", "handoff/e", handoff.HandoffCompleted(summary="all zebras counted"))
    ledger.send_back("rita", "e", "count again")
    emit("alice", "handoff/d", handoff.HandoffCancelled(reason="enough zebras"))
    ledger.report("s2")
    emit("root", "agent/bob", authority.RoleRevoked(agent="bob", role="reviewer"))
    emit("bob", "session/s2", session.SessionEnded(summary="counted"))
    ledger.report("s2", task_summary="Counted again")
    carol = ledger.keys["carol"].public.hex()
    emit("root", "agent/carol", authority.KeyCompromised(key=carol, since=0, reason="lost"))
    emit("root", "agent/carol", authority.AgentRemoved(agent="carol"))


def _hand_over_in_vain(ledger: ViewLedger) -> None:
    """Append a rejection, a replacement, a waived criterion, questions, decisions, and a dead end that is retracted."""
    emit = partial(_emit, ledger)
    ledger.hand_over("f")
    emit("rita", "handoff/f", handoff.HandoffRejected(reason="No zebra is wanted"))
    ledger.approve("h", ledger.hand_over("h", criteria=["striped", "tame"]))
    ledger.hand_over("g")
    emit("alice", "handoff/g", handoff.HandoffSuperseded(by="h", reason="All in one"))
    version = ledger.handoff("h").version
    emit("scribe", "handoff/h", handoff.HandoffReady(to="bob", version=version))
    ledger.claim("h")
    emit("bob", "handoff/h", handoff.HandoffWaiverAsked(position=1, reason="Zebras are wild"))
    emit("rita", "handoff/h", handoff.HandoffCriterionWaived(position=1, reason="So they are"))
    emit("rita", "handoff/h", handoff.HandoffQuestionAsked(to="bob", question="Do zebras kick?"))
    emit("bob", "handoff/h", handoff.HandoffQuestionAnswered(position=0, answer="Zebras do"))
    emit("rita", "handoff/h", handoff.HandoffQuestionSettled(position=0, comment="Zebras, then"))
    emit("alice", "decision/herd", decision.DecisionMade(text="Zebras are white", paths=["zoo/**"], contract=True))
    emit("rita", "decision/coat", decision.DecisionMade(text="Zebras are black", why="The stripes are white"))
    emit("alice", "decision/herd", decision.DecisionWithdrawn(reason="Rita looked at zebras", by="coat"))
    emit("rita", "question/herd", question.QuestionAsked(to="bob", question="How many zebras?", place="zoo/herd.py:3"))
    emit("bob", "question/herd", question.QuestionAnswered(answer="Four zebras"))
    emit("rita", "question/herd", question.QuestionSettled(comment="Enough zebras"))
    emit("bob", "session/s4", session.SessionStarted(task="Tame a zebra", ai_id="bob-3"))
    emit("bob", "session/s4", session.DeadEndLogged(approach="Sugar", why_failed="It bites", basis="tried"))
    target = ledger.event(-1).id
    emit("bob", "session/s4", session.DeadEndRetracted(target=target, reason="It was hungry"))
    old = imported.RecordImported(
        original=ledger.put_blob("alice", b"# Zebras of old"),
        source="notes/zebras.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "Zebras of old", "tasks": ["count"]},
        claimed_author="Kuro",
        claimed_at="2025-06-01T00:00:00Z",
        claims=handoff.HandoffClaims(status="done", tasks=[0]),
    )
    emit("alice", "handoff/zebras-of-old", old)
    with Reader(ledger.reads, ledger.settings()) as reader:
        ledger.brief("r1", reader.answer("reasoning.show", {"id": "r1"})["ref"])
    ledger.reason("r-zebra")
    emit("bob", "reasoning/r-zebra", reasoning.StepRetracted(step=3, reason="That was a horse"))


def _pause_and_resume(ledger: ViewLedger) -> None:
    """Let a search pause after one answer of a model, and continue with another model."""
    said = tot_story.opening(PAUSED)
    at = len(said)
    said.append(tot_story.Said("explorer", tot_story.generate(tot_story.ROOT, PAUSED), (at - 2,)))
    paid = thoughts.TotModelAnswered(
        sender="generator", task_id=PAUSED, prompt_sha256="1" * 64, model="m", answer={}, usage=tot_story.USAGE
    )
    busy = thoughts.Failure(code="LLM_UNAVAILABLE", message="429", recoverable=True, retry_after_s=60)
    pause = thoughts.TotPaused(sender="explorer", task_id=PAUSED, error=busy)
    resumed = thoughts.TotResumed(sender="orchestrator", task_id=PAUSED, thinker="llm:other")
    said += [
        tot_story.Said("generator", paid, (at,)),
        tot_story.Said("explorer", pause, (at,)),
        tot_story.Said("orchestrator", resumed),
    ]
    tot_story.play(ledger, said, PAUSED)


def _redact(ledger: ViewLedger) -> None:
    """Propose to erase a finding; then erase it, a reasoning's step and start, and a handoff's content and result."""
    emit = partial(_emit, ledger)
    kinds = ("finding.logged", "reasoning.extended", "reasoning.started", "handoff.created", "handoff.completed")
    entries = [
        next(index for index in reversed(range(ledger.size)) if ledger.event(index).kind == kind) for kind in kinds
    ]
    proposed = ledger.redaction(entries[0], "a zebra's name")
    emit("rita", "ledger", authority.RedactionProposed(**msgspec.structs.asdict(proposed)))
    for entry in entries:
        with Reader(ledger.reads, ledger.settings()) as reader:
            versions = reader.answer("redactions.versions", {"entry": entry})["versions"]
        data = ledger.redaction(
            entry, "a zebra's name", versions={int(number): ref for number, ref in versions.items()}
        )
        emit(ROOT, "ledger", data)
        finish_erasures(ledger.log)


def _administer(ledger: ViewLedger) -> None:
    """Replace and revoke keys, erase a subject, invite agents, and report that a disk was lost."""
    emit = partial(_emit, ledger)
    ended = ledger.delegate("bob", key_named("bob's session"))
    emit("bob", "agent/bob", authority.KeyRevoked(key=ended.public.hex(), reason="The session is over"))
    emit(ROOT, "subject/customer-4711", SubjectErased(reason="The customer asked for it"))
    invite(ledger, "dora")
    emit(ROOT, "agent/dora", authority.AgentInvitationRevoked(name="dora"))
    join(ledger, invite(ledger, "n2", "node"))
    fresh, checkpoint = key_named("alice anew"), key_named("checkpoint anew")
    proof = fresh.prove_possession(ledger.id, "alice")
    rotated = authority.KeyRotated(agent="alice", key=fresh.public.hex(), proof=proof)
    emit("alice", "agent/alice", rotated)
    ledger.keys["alice"] = fresh
    proof = checkpoint.prove_possession(ledger.id, CHECKPOINT)
    emit(ROOT, "ledger", authority.CheckpointKeyRotated(key=checkpoint.public.hex(), proof=proof))
    ledger.keys[CHECKPOINT] = checkpoint
    lost = authority.HistoryReset(abandoned_size=10_000, abandoned_root="9f" * 32, reason="the disk failed")
    emit(ROOT, "ledger", lost)
    for name in ("alice", CHECKPOINT):
        ledger.home.key_file(name).unlink(missing_ok=True)
    ledger.write_keys()
