"""A past out of the present views is what a fresh fold of the prefix gives, for every query."""

from __future__ import annotations

import random
from typing import Any

import pytest
from building import key_named
from faults import times
from fresh_fold import Prefix
from test_reader import ARGUMENTS

from ledger.errors import BatonError
from ledger.events import authority, handoff, review, session
from projections import QUERIES, Reader, store

FAR = 40
# The same of other things, and lists that are cut, or hold one sort alone.
MORE: list[tuple[str, dict[str, Any]]] = [
    *((f"handoffs.{query}", {"id": name}) for query in ("show", "facts", "why") for name in ("b", "d", "e", "zz")),
    *(("catalog.find", {"kind": kind}) for kind in ("finding.logged", "handoff.created")),
    ("catalog.find", {"newest": True, "limit": 3, "author": "bob"}), ("catalog.find", {"stream": "session/s2"}),
    ("handoffs.list", {"status": "open"}), ("handoffs.list", {"limit": 2}), ("handoffs.next", {"agent": "bob"}),
    ("handoffs.next", {"agent": "rita"}), ("handoffs.graph", {"all": True}), ("handoffs.board", {"all": True}),
    ("sessions.show", {"id": "s2"}), ("sessions.list", {"limit": 1}), ("snapshots.show", {"id": "zz"}),
    ("reasoning.show", {"id": "r2"}), ("catalog.show", {"ref": str(FAR)}), ("catalog.why", {"ref": str(FAR)}),
    ("agents.show", {"name": "carol"}), ("agents.show", {"name": "zz"}), ("reports.list", {"limit": 1}),
    ("reviews.list", {}), ("search.find", {"text": "zebra"}), ("sessions.trajectory", {"id": "s2"}),
]  # fmt: skip
ASKED = [*((query, ARGUMENTS.get(query, {})) for query in sorted(QUERIES)), *MORE]
# Ranked by how rare words are in all that was ever written: the hits are those of then, their order is that of now.
RANKED = {"search.find", "search.related", "search.similar", "reports.overlap"}


@pytest.fixture
def stretched(monkeypatch):
    """Boundaries that lie close together."""
    monkeypatch.setattr(store, "stretch_events", 13)


@pytest.fixture
def lived(stretched, ledger):
    """A ledger with every kind that somebody acts with, some of it twice, and one thing under way all the time."""
    live(ledger)
    return ledger


def live(ledger) -> None:
    """Let agents act on many things at once, under a clock that was set back, and lose a key."""

    def emit(author, stream, *data):
        ledger.clock.advance(60)
        for one in data:
            ledger.emit(author, stream, one)

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
    ledger.ask("v2")
    emit("rita", "review/v1", review.ReviewAnswered(verdict="approved", comment="go on"))
    emit("bob", "session/s2", session.UnknownLogged(unknown="Where is the herd"))
    unknown = ledger.event(-1).id
    ledger.clock.advance(-20 * 86_400)
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


def answer_of(reader, query, arguments, *as_of):
    try:
        return reader.answer(query, arguments, *as_of)
    except BatonError as error:
        return error.to_dict()


def without_marks(value):
    """Return an answer without the marks of what is suspect by what is known today."""
    if isinstance(value, dict):
        return {name: without_marks(one) for name, one in value.items() if name != "suspect"}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


def compare(reader: Reader, index: int, asked: Any = ASKED) -> None:
    """Compare what a past answers with what a fresh fold of its prefix does."""
    with Prefix(reader.client, reader.settings, index + 1) as fresh:
        for query, arguments in asked:
            expected, given = answer_of(fresh, query, arguments), answer_of(reader, query, arguments, index)
            if query == "agents.suspects":
                assert given == reader.answer(query)  # what is known now
            elif query not in RANKED:
                assert without_marks(given) == without_marks(expected), (index, query, arguments)
            elif query == "search.find" and expected.get("holds") == "all":
                assert given["total"] == expected["total"]
                assert sorted(hit["event_index"] for hit in given["hits"]) == sorted(
                    hit["event_index"] for hit in expected["hits"]
                )


def test_every_query_answers_of_a_random_past_what_a_fresh_fold_of_the_prefix_answers(lived, reader):
    chosen = random.Random(18)
    for _ in range(times(25, 200)):
        compare(reader, chosen.randrange(lived.size))
