"""The needs-me queue: *given these facts of a handoff, expect these waits*; and the same from SQL, on a real ledger."""

from __future__ import annotations

import contextlib
import random
from typing import get_args

import msgspec
import pytest
from building import START_MS
from fresh_fold import Prefix

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events import review
from deedbook.ledger.events.authority import AgentRemoved, KeyCompromised
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.question import QuestionAnswered, QuestionAsked, QuestionSettled
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status, is_lapsed, is_unlocked
from deedbook.projections.answers.reader import Reader
from deedbook.projections.handoffs.answers import Action
from deedbook.projections.handoffs.facts import HandoffFacts, OpenQuestion
from deedbook.projections.handoffs.waits import WAITS, Case, waiting

ITEM = {
    "kind",
    "id",
    "title",
    "action",
    "agent",
    "status",
    "from",
    "author",
    "to",
    "reviewer",
    "version",
    "since_index",
    "since_ms",
    "why",
    "act",
    "arguments",
    "reasoning_refs",
    "is_imported",
}


def waits_for(facts):
    """Return the agents that a handoff waits for, each with the action."""
    return [(agent, wait.action) for agent, wait in waiting(facts)]


def facts(status, **fields):
    """Return the facts of a handoff from alice to bob with the reviewer rita."""
    parties = {"id": "h", "sender": "alice", "receiver": "bob", "reviewer": "rita"}
    return HandoffFacts(**(parties | {"status": status} | fields))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts("pending"), [("rita", "approve")]),
        (facts("pending", reviewer="alice"), [("alice", "approve")]),
        (facts("pending", reviewer="bob"), []),
        (facts("pending", reviewer=""), []),
        (facts("approved"), [("bob", "claim")]),
        (facts("approved", is_unlocked=False), []),
        (facts("approved", receiver=""), []),
        (facts("in_progress"), [("bob", "continue")]),
        (facts("in_progress", reason="too slow"), [("bob", "continue")]),
        (facts("in_progress", is_lapsed=True), [("bob", "claim")]),
        (facts("in_progress", is_lapsed=True, reason="too slow"), [("bob", "claim")]),
        (facts("in_progress", is_lapsed=True, is_unlocked=False), []),
        (facts("blocked", reason="no disk"), [("rita", "unblock"), ("alice", "unblock")]),
        (facts("blocked", reviewer="alice"), [("alice", "unblock")]),
        (facts("blocked", sender="bob"), [("rita", "unblock")]),
        (facts("completed"), [("rita", "verify")]),
        (facts("pending", reviewer_removed=9), [("alice", "amend")]),
        (facts("approved", reviewer_removed=9), [("bob", "claim")]),
        (facts("completed", reviewer_removed=9), [("alice", "amend")]),
        (facts("pending", reviewer_removed=9, stuck_on="x"), [("alice", "amend")]),
        (facts("verified"), []),
        (facts("rejected"), []),
        (facts("cancelled"), []),
        (facts("superseded"), []),
    ],
)
def test_a_handoff_waits_for(given, expected):
    assert waits_for(given) == expected


def queue(reader, agent=None, **arguments):
    """Return the items of an agent's queue."""
    items = reader.answer("handoffs.next", {"agent": agent, "limit": 500, **arguments})["items"]
    assert all(item.keys() - {"compromised"} == ITEM for item in items)
    return items


def short(items):
    """Return the id and the action of each item."""
    return [(item["id"], item["action"]) for item in items]


def only(reader, agent):
    """Return the one item that waits for an agent."""
    (item,) = queue(reader, agent)
    return item


def test_a_handoff_waits_for_one_after_the_other(ledger, reader):
    data = ledger.hand_over("h", title="修復", criteria=["green", "門檻"])
    item = only(reader, "rita")
    assert item == {
        "kind": "handoff",
        "is_imported": False,
        "id": "h",
        "title": "修復",
        "action": "approve",
        "agent": "rita",
        "status": "pending",
        "from": "alice",
        "author": "alice",
        "to": "bob",
        "reviewer": "rita",
        "version": compute_version("alice", data),
        "since_index": ledger.start,
        "since_ms": START_MS,
        "why": "alice hands it to bob, and it is not approved",
        "act": "approve",
        "arguments": {},
        "reasoning_refs": [],
    }
    ledger.clock.advance(5)
    ledger.approve("h", data)
    item = only(reader, "bob")
    assert (item["action"], item["since_index"], item["since_ms"]) == ("claim", ledger.start + 1, START_MS + 5000)
    assert (item["act"], item["arguments"]) == ("claim", {})
    assert queue(reader, "rita") == queue(reader, "alice") == []
    ledger.claim("h")
    item = only(reader, "bob")
    assert (item["action"], item["since_index"]) == ("continue", ledger.start + 2)
    assert item["why"] == "open criteria: 1. green, 2. 門檻"
    assert (item["act"], item["arguments"]) == ("check", {"criterion_numbers": [1]})
    for position in range(2):
        ledger.emit("bob", "handoff/h", kinds.HandoffCriterionChecked(position=position))
    item = only(reader, "bob")
    assert (item["why"], item["since_index"]) == ("every criterion is met: complete it", ledger.start + 2)
    assert (item["act"], item["arguments"]) == ("complete", {})
    ledger.emit("bob", "handoff/h", kinds.HandoffCompleted(summary="完成"))
    item = only(reader, "rita")
    assert (item["action"], item["since_index"]) == ("verify", ledger.start + 5)
    assert item["why"] == "bob has completed it: 完成"
    ledger.send_back("rita", "h", "too slow", "too big")
    item = only(reader, "bob")
    assert (item["action"], item["why"]) == (
        "continue",
        "changes requested: too slow; too big; open criteria: 1. green, 2. 門檻",
    )
    assert item["since_index"] == ledger.start + 6
    ledger.emit("bob", "handoff/h", kinds.HandoffLogged(text="on it"))
    assert only(reader, "bob")["since_index"] == ledger.start + 6
    ledger.clock.advance(1)
    for position in range(2):
        ledger.emit("bob", "handoff/h", kinds.HandoffCriterionChecked(position=position))
    ledger.emit("bob", "handoff/h", kinds.HandoffCompleted())
    ledger.verify("rita", "h")
    assert queue(reader) == []


def test_a_blocked_handoff_waits_for_its_reviewer_and_its_sender_knows(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h")
    ledger.emit("bob", "handoff/h", kinds.HandoffBlocked(reason="no disk"))
    item = only(reader, "rita")
    assert (item["action"], item["why"], item["since_index"]) == ("unblock", "bob is blocked: no disk", ledger.size - 1)
    assert item["act"] == "unblock"
    told = only(reader, "alice")
    assert told["action"] == "unblock"
    assert told["why"] == "bob is blocked: no disk (for information: rita can unblock it)"
    assert told["act"] == "show"
    assert queue(reader, "bob") == []
    ledger.emit("rita", "handoff/h", kinds.HandoffUnblocked())
    assert (only(reader, "bob")["action"], only(reader, "bob")["since_index"]) == ("continue", ledger.size - 1)


def test_work_whose_changes_were_requested_keeps_their_reasons_when_it_is_unblocked(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h")
    ledger.emit("bob", "handoff/h", kinds.HandoffCompleted())
    result = reader.answer("handoffs.show", {"id": "h"})["result"]
    requested = kinds.HandoffChangesRequested(reasons=["add a test", "say why"], result=result)
    ledger.emit("rita", "handoff/h", requested)
    ledger.emit("bob", "handoff/h", kinds.HandoffBlocked(reason="no disk"))
    assert reader.answer("handoffs.show", {"id": "h"})["reason"] == "no disk"
    ledger.emit("bob", "handoff/h", kinds.HandoffUnblocked())
    assert only(reader, "bob")["why"].startswith("changes requested: add a test; say why")
    assert reader.answer("handoffs.show", {"id": "h"})["reason"] == "add a test; say why"
    ledger.emit("bob", "handoff/h", kinds.HandoffCompleted(summary="with a test"))
    assert reader.answer("handoffs.show", {"id": "h"})["reason"] == ""


@pytest.mark.parametrize(("sender", "reviewer"), [("rita", None), ("bob", "rita")])
def test_a_sender_who_reviews_or_works_is_told_once(ledger, reader, sender, reviewer):
    data = ledger.hand_over("own", sender=sender, reviewer=reviewer)
    if reviewer is not None:
        ledger.approve("own", data, sender=sender)
    item = only(reader, "bob")
    assert (item["action"], item["since_index"]) == ("claim", ledger.size - 1)
    ledger.claim("own")
    ledger.emit("bob", "handoff/own", kinds.HandoffBlocked(reason="no disk"))
    assert [(one["agent"], one["action"]) for one in queue(reader)] == [("rita", "unblock")]


@pytest.mark.parametrize("unlock_at", ["completed", "verified"])
def test_a_claim_waits_since_what_unlocked_it(ledger, reader, unlock_at):
    ledger.approve("next", ledger.hand_over("next", depends_on=["first"], unlock_at=unlock_at))
    assert queue(reader, "bob") == []
    ledger.finish("first")
    completed = ledger.size - 1
    if unlock_at == "verified":
        assert queue(reader, "bob") == []
        ledger.verify("rita", "first")
    item = only(reader, "bob")
    assert (item["id"], item["since_index"]) == ("next", ledger.size - 1)
    if unlock_at == "completed":
        ledger.verify("rita", "first")
        assert only(reader, "bob")["since_index"] == completed  # the completion, not the verification, unlocked it


def test_a_claim_waits_since_its_own_approval_or_release(ledger, reader):
    ledger.finish("first")
    ledger.approve("next", ledger.hand_over("next", depends_on=["first"]))
    assert only(reader, "bob")["since_index"] == ledger.size - 1
    ledger.claim("next")
    ledger.emit("bob", "handoff/next", kinds.HandoffReleased(reason="no time"))
    assert only(reader, "bob")["since_index"] == ledger.size - 1
    assert only(reader, "bob")["action"] == "claim"


def test_a_lapsed_lease_is_claimed_anew(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h", lease_seconds=60)  # expired for the reader: the ledger's clock is hours behind the reader's
    item = only(reader, "bob")
    assert (item["action"], item["why"], item["since_index"]) == ("claim", "the lease of bob expired", ledger.size - 1)
    with Prefix(reader.client, reader.settings, ledger.size) as then:
        assert only(then, "bob")["action"] == "continue"


def test_an_amended_handoff_waits_for_approval_since_it_was_amended(ledger, reader):
    data = ledger.hand_over("h")
    ledger.approve("h", data)
    content = msgspec.structs.asdict(kinds.content_of(data)) | {"title": "more", "reason": "more work"}
    ledger.emit("alice", "handoff/h", kinds.HandoffAmended(**content))
    item = only(reader, "rita")
    assert (item["action"], item["title"], item["since_index"]) == ("approve", "more", ledger.size - 1)
    assert queue(reader, "bob") == []


@pytest.mark.parametrize(
    ("status", "said"), [("approved (02-14)", " as 'approved (02-14)'"), ("approved", " as 'approved'"), (None, "")]
)
def test_an_imported_handoff_is_to_be_confirmed(ledger, reader, status, said):
    record = RecordImported(
        original="blake3:" + "7" * 64,
        source="memory/handoffs/h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "修復", "to": "bob", "reviewer": "rita"},
        claimed_author="Kuro / Alex",
        claims={"status": status},
    )
    ledger.emit("alice", "handoff/h", record)
    item = only(reader, "rita")
    assert (item["action"], item["from"], item["is_imported"]) == ("approve", "Kuro / Alex", True)
    assert item["why"] == f"it was imported{said}, and nobody here has approved or verified it: confirm it"
    assert (item["act"], item["arguments"]) == ("approve", {})
    ledger.emit("alice", "handoff/other", msgspec.structs.replace(record, mapped={"title": "nobody's"}))
    assert short(queue(reader)) == [("h", "approve")]  # no registered agent can confirm "other"
    ledger.hand_over("live")
    assert short(queue(reader, "rita")) == [("live", "approve"), ("h", "approve")]  # live work precedes imports


def test_an_import_by_its_own_reviewer_waits_for_another_reviewer(ledger, reader):
    ledger.register("ruth", "reviewer")
    record = RecordImported(
        original="blake3:" + "7" * 64,
        source="memory/handoffs/h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "修復", "to": "bob", "reviewer": "ruth"},
    )
    ledger.emit("ruth", "handoff/h", record)
    item = only(reader, "ruth")
    assert (item["action"], item["act"]) == ("amend", "show")  # the gate refuses her approval and her verification
    assert item["why"] == "its reviewer ruth sent or imported it, and cannot confirm it: amend it to name another"
    why = reader.answer("handoffs.why", {"id": "h"})
    assert [wait["act"] for wait in why["waits"]] == ["show"]
    with pytest.raises(Refused) as refused:
        ledger.emit("ruth", "handoff/h", kinds.HandoffApproved(version=why["version"]))
    assert refused.value.code == "SELF_APPROVAL"
    assert "`deed handoff amend h --reviewer OTHER --as ruth`" in refused.value.message


def test_the_sender_replaces_a_reviewer_who_was_removed(ledger, reader):
    ledger.register("rolf", "human", "reviewer")
    ledger.hand_over("h", reviewer="rolf")
    ledger.finish("done", reviewer="rolf")
    assert queue(reader, "alice") == []
    removed = ledger.emit("root", "agent/rolf", AgentRemoved(agent="rolf")).index
    text = f"its reviewer rolf was removed at entry {removed}"
    items = [(item["id"], item["since_index"], item["why"]) for item in queue(reader)]
    done = f"{text}: cancel it and hand it over again"
    assert items == [("done", removed, done), ("h", removed, f"{text}: amend it to name another")]
    assert {item["agent"] for item in queue(reader)} == {"alice"}
    why = {name: reader.answer("handoffs.why", {"id": name})["sentence"] for name in ("h", "done")}
    assert why == {
        "h": f"h is not ready: {text}: amend it to name another.",
        "done": f"done is completed: {done}.",
    }
    ledger.emit("alice", "handoff/h", kinds.HandoffAmended(title="h", to="bob", reviewer="rita"))
    assert short(queue(reader, "rita")) == [("h", "approve")]
    assert short(queue(reader, "alice")) == [("done", "amend")]


def test_the_sender_reads_why_a_dependency_will_never_be_done(ledger, reader):
    for name, on in (("a", "missing"), ("b", "cancelled"), ("c", "old")):
        ledger.approve(name, ledger.hand_over(name, depends_on=[on]))
    for name in ("cancelled", "old", "other"):
        ledger.hand_over(name)
    ledger.emit("alice", "handoff/cancelled", kinds.HandoffCancelled(reason="no need"))
    ledger.emit("alice", "handoff/old", kinds.HandoffSuperseded(by="other"))
    assert [(item["id"], item["why"]) for item in queue(reader, "alice")] == [
        ("a", "it waits for missing, which does not exist: amend its dependencies"),
        (
            "b",
            "it waits for cancelled, which is cancelled (no need) and will never unlock it: amend its dependencies",
        ),
        (
            "c",
            "it waits for old, which is superseded (by other) and will never unlock it: amend its dependencies",
        ),
    ]


def test_reviews_wait_for_every_human(ledger, reader):
    ledger.register("hugo", "human")
    ledger.ask("v1", question="Darf es?")
    ledger.hand_over("h")
    assert short(queue(reader, "rita")) == [("v1", "review"), ("h", "approve")]
    item = only(reader, "hugo")
    assert (item["kind"], item["status"], item["title"], item["from"]) == ("review", "open", "Darf es?", "bob")
    assert item["why"] == "bob asks a human, by the rule high_impact"
    assert (item["act"], item["arguments"]) == ("answer", {"approve": True})
    assert item["since_ms"] == START_MS
    assert short(queue(reader, "bob")) == []
    ledger.emit("rita", "review/v1", review.ReviewAnswered(verdict="approved"))
    assert queue(reader, "hugo") == []


def test_the_most_urgent_comes_first_and_then_the_oldest(ledger, reader):
    ledger.approve("ready", ledger.hand_over("ready"))
    ledger.approve("begun", ledger.hand_over("begun"))
    ledger.claim("begun")
    ledger.finish("back")
    ledger.send_back("rita", "back", "no")
    ledger.approve("later", ledger.hand_over("later"))
    assert short(queue(reader, "bob")) == [
        ("back", "continue"),
        ("begun", "continue"),
        ("ready", "claim"),
        ("later", "claim"),
    ]
    ledger.finish("done")
    ledger.hand_over("new")
    ledger.hand_over("newer")
    ledger.ask("v1")
    ledger.emit("bob", "handoff/begun", kinds.HandoffBlocked(reason="no disk"))
    assert short(queue(reader, "rita")) == [
        ("begun", "unblock"),
        ("v1", "review"),
        ("done", "verify"),
        ("new", "approve"),
        ("newer", "approve"),
    ]
    everybody = queue(reader)
    assert [item["agent"] for item in everybody] == ["alice", *["bob"] * 3, *["rita"] * 5]
    assert everybody == [*queue(reader, "alice"), *queue(reader, "bob"), *queue(reader, "rita")]


@pytest.mark.parametrize("agent", [None, "rita"])
def test_pages_follow_each_other_without_gap_or_repeat(ledger, reader, agent):
    for number in range(7):
        ledger.approve(f"a{number}", ledger.hand_over(f"a{number}"))
        ledger.hand_over(f"p {number}", depends_on=["a0"])
    ledger.finish("done")
    whole = queue(reader, agent)
    seen, after = [], None
    while True:
        page = reader.answer("handoffs.next", {"agent": agent, "limit": 3, "after": after})
        assert page["total"] == len(whole)
        seen += page["items"]
        after = page["next"]
        if after is None:
            break
        assert len(page["items"]) == 3
    assert seen == whole


def imported(ledger, name, title, status="approved"):
    """Import a handoff from alice to bob that waits for rita."""
    mapped = {"title": title, "to": "bob", "reviewer": "rita"}
    original = ledger.put_blob("alice", f"# {title}\n".encode())
    record = RecordImported(
        original=original,
        source=f"{name}.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped=mapped,
        claimed_author="alice",
        claims={"status": status},
    )
    ledger.emit("alice", f"handoff/{name}", record)


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request, ledger):
    """A reader of the ledger's views, in either store."""
    store = request.getfixturevalue("database") if request.param == "postgres" else None
    with Reader(ledger.reads, ledger.settings(), store=store) as made:
        yield made


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"action": "approve"}, ["p1", "p2", "old"]),
        ({"action": "review"}, ["r"]),
        ({"from": "bob"}, ["r", "p2"]),
        ({"text": "ROTATE"}, ["p1"]),
        ({"text": "100%"}, ["old"]),
        ({"text": "%"}, ["old"]),
        ({"imported": True}, ["old"]),
        ({"imported": False, "from": "alice"}, ["p1"]),
        ({"text": "old", "imported": False}, []),
    ],
)
def test_a_queue_is_filtered_by_action_sender_text_and_origin(ledger, stored, filters, ids):
    ledger.emit("bob", "review/r", review.ReviewRequested(question="May it run?", rule="low_fidelity"))
    ledger.hand_over("p1", title="Rotate keys")
    ledger.hand_over("p2", sender="bob", to="alice", title="Write it down")
    imported(ledger, "old", "100% of it")
    imported(ledger, "over", "Long ago", "done")
    assert [item["id"] for item in queue(stored, "rita", **filters)] == ids
    assert stored.answer("handoffs.next", {"agent": "rita", "limit": 1, **filters})["total"] == len(ids)


def test_a_queue_is_counted_and_each_count_leaves_out_its_own_filter(ledger, stored):
    ledger.hand_over("p1")
    ledger.hand_over("p2", sender="bob", to="alice")
    ledger.finish("done")
    imported(ledger, "old", "once")

    def counts(**filters):
        answer = stored.answer("handoffs.counts", {"agent": "rita", **filters})
        return answer["total"], answer["actions"], answer["senders"], answer["imported"]

    assert counts() == (4, {"approve": 3, "verify": 1}, {"alice": 3, "bob": 1}, 1)
    assert counts(action="approve") == (3, {"approve": 3, "verify": 1}, {"alice": 2, "bob": 1}, 1)
    assert counts(**{"from": "bob"}) == (1, {"approve": 1}, {"alice": 3, "bob": 1}, 0)
    assert counts(imported=True) == (1, {"approve": 1}, {"alice": 1}, 1)
    assert counts(text="once") == (1, {"approve": 1}, {"alice": 1}, 1)


@pytest.mark.parametrize(
    "after", ["", "x", "rita/1", "[]", '["rita",0,0]', f'["rita",{2**63},0,"h"]', '["\\ud800",0,0,""]']
)
def test_a_cursor_that_no_page_gave_is_refused(ledger, reader, after):
    ledger.hand_over("h")
    with pytest.raises(Refused) as refused:
        reader.answer("handoffs.next", {"after": after})
    assert refused.value.code == "INVALID_FIELD"


def test_an_unknown_agent_is_refused(reader):
    for agent, code in (("zed", "AGENT_UNKNOWN"), ("No Name", "INVALID_FIELD")):
        with pytest.raises(Refused) as refused:
            reader.answer("handoffs.next", {"agent": agent})
        assert refused.value.code == code


def test_many_open_criteria_are_counted(ledger, reader):
    ledger.approve("h", ledger.hand_over("h", criteria=[f"c{number}" for number in range(1, 9)]))
    ledger.claim("h")
    assert only(reader, "bob")["why"] == "open criteria: 1. c1, 2. c2, 3. c3, 4. c4, 5. c5, and 3 more"


def test_a_waiver_that_is_asked_for_waits_for_the_reviewer_and_then_for_the_receiver(ledger, reader):
    ledger.approve("h", ledger.hand_over("h", criteria=["runs on macOS"]))
    ledger.claim("h")
    ledger.emit("bob", "handoff/h", kinds.HandoffWaiverAsked(position=0, reason="there is no Mac"))
    item = only(reader, "rita")
    assert (item["action"], item["act"], item["arguments"]) == ("waive", "waive", {"criterion_numbers": [1]})
    assert item["why"] == "bob asks to waive criterion 1. runs on macOS: there is no Mac"
    assert item["since_index"] == ledger.size - 1
    assert (only(reader, "bob")["act"], only(reader, "bob")["why"]) == (
        "show",
        "open criteria: 1. runs on macOS (a waiver is requested)",
    )
    ledger.emit("rita", "handoff/h", kinds.HandoffCriterionWaived(position=0, reason="no"))
    assert queue(reader, "rita") == []
    assert only(reader, "bob")["act"] == "complete"


def test_question_waits_for_who_was_asked_and_its_answer_for_who_asked(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h")
    ledger.emit("rita", "handoff/h", kinds.HandoffQuestionAsked(to="bob", question="Which port?", place="a.py:3"))
    ledger.emit("rita", "handoff/h", kinds.HandoffQuestionAsked(to="bob", question="Why?"))
    asked, works = queue(reader, "bob")
    assert (asked["action"], asked["act"], asked["arguments"]) == ("answer", "answer", {"question_numbers": [1]})
    assert asked["why"] == "rita asks about a.py:3: Which port? (and 1 more)"
    assert asked["since_index"] == ledger.size - 2
    assert (works["act"], works["why"]) == ("answer", "open questions to bob: 1, 2")
    ledger.emit("bob", "handoff/h", kinds.HandoffQuestionAnswered(position=0, answer="8080"))
    settles = only(reader, "rita")
    assert (settles["act"], settles["arguments"]) == ("settle", {"question_numbers": [1]})
    assert settles["why"] == "bob answers question 1: 8080"
    assert settles["since_index"] == ledger.size - 1
    for position in (0, 1):
        ledger.emit("rita", "handoff/h", kinds.HandoffQuestionSettled(position=position))
    assert queue(reader, "rita") == []
    assert only(reader, "bob")["act"] == "complete"


def test_reviewer_settles_questions_of_others_that_alone_hold_the_completion(ledger, reader):
    ledger.register("carl")
    ledger.approve("h", ledger.hand_over("h", criteria=["green"]))
    ledger.claim("h")
    for author, question in (("rita", "Which host?"), ("carl", "Which port?"), ("carl", "Why?")):
        ledger.emit(author, "handoff/h", kinds.HandoffQuestionAsked(to="bob", question=question))
    assert queue(reader, "rita") == []
    ledger.emit("bob", "handoff/h", kinds.HandoffCriterionChecked(position=0))
    held = only(reader, "rita")
    assert (held["action"], held["act"], held["arguments"]) == ("settle", "settle", {"question_numbers": [2, 3]})
    assert held["why"] == "it holds the completion that carl asks: Which port? (bob has not answered) (and 1 more)"
    assert held["since_index"] == ledger.size - 3
    ledger.emit("bob", "handoff/h", kinds.HandoffQuestionAnswered(position=0, answer="localhost"))
    assert only(reader, "rita")["arguments"] == {"question_numbers": [1]}  # first she settles her own question
    ledger.emit("rita", "handoff/h", kinds.HandoffQuestionSettled(position=0))
    for position in (1, 2):
        ledger.emit("rita", "handoff/h", kinds.HandoffQuestionSettled(position=position))
    assert queue(reader, "rita") == []


def test_questions_come_before_everything_else(ledger, reader):
    ledger.hand_over("old")
    ledger.hand_over("h")
    ledger.emit("bob", "handoff/h", kinds.HandoffQuestionAsked(to="rita", question="Which port?"))
    assert short(queue(reader, "rita")) == [("h", "answer"), ("old", "approve"), ("h", "approve")]


def test_question_about_no_handoff_waits_for_its_answer_and_then_for_its_asker(ledger, reader):
    ledger.hand_over("h")
    ledger.emit("bob", "question/q", QuestionAsked(to="rita", question="Which port?", place="a.py:3"))
    item, _ = queue(reader, "rita")
    assert (item["kind"], item["id"], item["action"], item["act"], item["status"]) == (
        "question",
        "q",
        "answer",
        "answer",
        "open",
    )
    assert (item["title"], item["why"], item["since_index"]) == (
        "Which port?",
        "bob asks about a.py:3",
        ledger.size - 1,
    )
    assert queue(reader, "rita", tag="security") == []
    ledger.emit("rita", "question/q", QuestionAnswered(answer="8080"))
    assert short(queue(reader, "rita")) == [("h", "approve")]
    item = only(reader, "bob")
    assert (item["action"], item["why"], item["author"]) == ("settle", "rita answers: 8080", "rita")
    assert item["since_index"] == ledger.size - 1
    unread = reader.answer("handoffs.unread", {"agent": "bob", "after": ledger.size - 2})["items"]
    assert [(line["stream"], line["text"]) for line in unread] == [("question/q", "answers: 8080")]
    ledger.emit("rita", "question/q", QuestionSettled())
    assert queue(reader, "bob") == []


def test_question_waits_since_it_was_asked_of_this_agent(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    for to in ("bob", "alice"):
        ledger.emit("rita", "handoff/h", kinds.HandoffQuestionAsked(to=to, question="Why?"))
    since = {item["agent"]: item["since_index"] for item in queue(reader) if item["action"] == "answer"}
    assert since == {"bob": ledger.size - 2, "alice": ledger.size - 1}


def test_receiver_whose_answer_is_not_accepted_yet_can_only_look(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    ledger.claim("h")
    ledger.emit("rita", "handoff/h", kinds.HandoffQuestionAsked(to="bob", question="Which port?"))
    ledger.emit("bob", "handoff/h", kinds.HandoffQuestionAnswered(position=0, answer="later"))
    assert only(reader, "bob")["act"] == "show"


def test_every_case_waits_for_somebody_with_every_action():
    assert {wait.case for wait in WAITS} == set(get_args(Case))
    assert {wait.action for wait in WAITS} == set(get_args(Action))


@pytest.mark.parametrize("status", [status for status in get_args(Status) if status not in FINAL])
def test_a_handoff_that_is_not_over_waits_for_somebody(status):
    assert waits_for(facts(status)) != []


def _counted(state, since):
    """Return the status of a dependency without decisions from the entry ``since`` on: a stolen key signed those."""
    is_forged = state.verification is not None and state.verification.index >= since
    status = "completed" if state.status == "verified" and is_forged else state.status
    pairs = zip(state.criteria, state.waivers, strict=True)
    is_open = any(mark == "waived" and waiver.index >= since for mark, waiver in pairs)
    return "in_progress" if status == "completed" and is_open else status


def test_sql_finds_exactly_what_the_decision_says(ledger, reader):
    chance = random.Random(20260212)
    names = [f"h{number}" for number in range(60)]
    ledger.register("carl")
    half = 0
    for at, name in enumerate(names):
        half = ledger.head()[0] if at == 30 else half
        wanted = chance.sample(names[:at], min(at, chance.randrange(3)))
        unlock_at = chance.choice(["completed", "verified"])
        to = "carl" if at % 7 == 0 else "bob"
        criteria = ["c"] if at % 5 == 0 else []
        _lead(ledger, name, chance.randrange(12), depends_on=wanted, unlock_at=unlock_at, to=to, criteria=criteria)
    removed = ledger.emit("root", "agent/carl", AgentRemoved(agent="carl")).index
    stolen = KeyCompromised(key=ledger.keys["rita"].public.hex(), since=half)
    reported_by = ledger.emit("root", "agent/rita", stolen).index
    expected = set()
    for name in names:
        state = ledger.handoff(name)
        unlocks = all(is_unlocked(_counted(ledger.handoff(on), half), state.unlock_at) for on in state.depends_on)
        is_forged = state.verification is not None and state.verification.index >= half
        found = HandoffFacts(
            id=name,
            status=state.status,
            sender=state.sender,
            receiver=state.receiver,
            reviewer=state.reviewer,
            reason=state.reason,
            is_unlocked=unlocks,
            is_waiver_asked="asked" in state.criteria,
            questions=tuple(
                OpenQuestion(number, asked.by, asked.to, mark == "answered")
                for number, (mark, asked) in enumerate(zip(state.questions, state.asked, strict=True), 1)
            ),
            is_lapsed=is_lapsed(state.status, state.lease, 2**60),
            approval_index=state.approval_index,
            compromised_approval=reported_by if (state.approval_index or 0) >= half else None,
            compromised_verification=reported_by if is_forged else None,
            receiver_removed=removed if state.receiver == "carl" else None,
        )
        expected |= {(agent, action, name) for agent, action in waits_for(found)}
    items = queue(reader)
    assert {(item["agent"], item["action"], item["id"]) for item in items} == expected
    assert len(items) == len(expected)
    assert {action for _, action, _ in expected} == {wait.action for wait in WAITS}


def _lead(ledger, name, steps, **fields):
    """Create a handoff, and try the first ``steps`` steps of a varied life; the gate refuses some of them."""
    data = ledger.hand_over(name, **fields)
    stream = f"handoff/{name}"
    life = [
        lambda: ledger.approve(name, data),
        lambda: ledger.claim(name, lease_seconds=60 if int(name[1:]) % 3 else None),
        lambda: ledger.emit("bob", stream, kinds.HandoffBlocked(reason="no disk")),
        lambda: ledger.emit("rita", stream, kinds.HandoffUnblocked()),
        lambda: ledger.emit("bob", stream, kinds.HandoffWaiverAsked(position=0, reason="cannot")),
        lambda: ledger.emit("rita", stream, kinds.HandoffQuestionAsked(to="alice", question="why")),
        lambda: ledger.emit("alice", stream, kinds.HandoffQuestionAnswered(position=0, answer="so")),
        lambda: ledger.emit("bob", stream, kinds.HandoffCompleted()),
        lambda: ledger.send_back("rita", name, "no"),
        lambda: ledger.emit("bob", stream, kinds.HandoffCompleted(summary="again")),
        lambda: ledger.verify("rita", name),
    ]
    for step in life[:steps]:
        with contextlib.suppress(Refused):
            step()


def test_work_without_criteria_is_not_said_to_meet_them(ledger, reader):
    ledger.approve("h", ledger.hand_over("h", criteria=[]))
    ledger.claim("h")
    assert only(reader, "bob")["why"] == "it has no criterion: complete it"
