"""Handoffs: given these events, expect these rows."""

from __future__ import annotations

import msgspec
import pytest
from event_examples import smallest
from folding import facts, rows_of, state_after
from given import fact

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.handoffs.fold import _TEXTS, HANDLED, log_text
from deedbook.projections.handoffs.fold import VIEW as HANDOFF_VIEW
from deedbook.projections.handoffs.next import criteria_of

CREATED = kinds.HandoffCreated(
    title="Event bus",
    to="bob",
    reviewer="rita",
    tasks=["建立 event-bus.ts", "寫單元測試"],
    criteria=["typecheck", "tests"],
    depends_on=["phase-1"],
    task="Build it",
)
REF = "sha256:" + "1" * 64
APPROVED = kinds.HandoffApproved(version=compute_version("alice", CREATED), comment="go")


def handoff(*authored):
    """Return the rows after alice handed work to bob, and after further events."""
    return rows_of(HANDOFF_VIEW, "h", facts("handoff/h", ("alice", CREATED), *authored))


def test_a_new_handoff_waits_for_its_reviewer():
    (row,) = handoff()["handoffs"]
    expected = {"id": "h", "status": "pending", "sender": "alice", "receiver": "bob", "reviewer": "rita"}
    expected |= {"version": compute_version("alice", CREATED), "created": "2026-02-12", "unlock_at": "completed"}
    expected |= {"tasks_done": 0, "tasks_total": 2, "criteria_done": 0, "criteria_total": 2, "created_index": 0}
    assert {name: row[name] for name in expected} == expected


def test_a_day_given_by_the_author_is_the_created_day():
    data = kinds.HandoffCreated(title="t", to="bob", reviewer="rita", created="2025-01-31")
    (row,) = rows_of(HANDOFF_VIEW, "h", facts("handoff/h", ("alice", data)))["handoffs"]
    assert row["created"] == "2025-01-31"


def test_ticks_count_and_can_be_taken_back():
    ticked = (
        ("rita", APPROVED),
        ("bob", kinds.HandoffClaimed()),
        ("bob", kinds.HandoffTaskChecked(position=0)),
        ("bob", kinds.HandoffTaskChecked(position=1)),
        ("bob", kinds.HandoffTaskChecked(position=0, checked=False)),
        ("bob", kinds.HandoffCriterionChecked(position=0, evidence="ci.log:3")),
        ("rita", kinds.HandoffCriterionWaived(position=1, reason="no tests there yet")),
    )
    record = state_after(HANDOFF_VIEW, "h", facts("handoff/h", ("alice", CREATED), *ticked))
    assert record.lifecycle.tasks == ("open", "done")
    assert [(row.mark, row.evidence, row.waiver_reason) for row in criteria_of(record)] == [
        ("checked", "ci.log:3", ""),
        ("waived", "", "no tests there yet"),
    ]
    (row,) = handoff(*ticked)["handoffs"]
    assert (row["tasks_done"], row["criteria_done"], row["claimed_index"], row["approved_index"]) == (1, 2, 2, 1)


def test_a_claim_that_was_released_or_has_lapsed_is_no_claim():
    claimed = (("rita", APPROVED), ("bob", kinds.HandoffClaimed(lease_seconds=2)))
    (row,) = handoff(*claimed)["handoffs"]
    assert (row["status"], row["claimed_index"]) == ("in_progress", 2)
    for after in (
        (("bob", kinds.HandoffReleased()),),
        (("alice", kinds.HandoffLogged(text="waiting")), ("alice", kinds.HandoffLogged(text="still waiting"))),
    ):
        (row,) = handoff(*claimed, *after)["handoffs"]
        assert (row["status"], row["claimed_index"]) == ("approved", None)


def test_a_completed_handoff_holds_its_result_until_changes_are_requested():
    done = (
        ("rita", APPROVED),
        ("bob", kinds.HandoffClaimed()),
        ("bob", kinds.HandoffCriterionChecked(position=0)),
        ("bob", kinds.HandoffCriterionChecked(position=1)),
        ("bob", kinds.HandoffCompleted(summary="built", artifacts=["src/event-bus.ts"])),
    )
    (row,) = handoff(*done)["handoffs"]
    assert (row["status"], row["summary"], row["artifacts"], row["completed_index"]) == (
        "completed",
        "built",
        '["src/event-bus.ts"]',
        5,
    )
    changes = kinds.HandoffChangesRequested(result=row["result"], reasons=["faster"])
    (row,) = handoff(*done, ("rita", changes))["handoffs"]
    assert (row["status"], row["reason"], row["completed_index"]) == ("in_progress", "faster", None)


def test_every_event_renders_one_log_line():
    rows = handoff(
        ("rita", APPROVED),
        ("bob", kinds.HandoffClaimed(lease_seconds=60)),
        ("bob", kinds.HandoffTaskChecked(position=1)),
        ("bob", kinds.HandoffBlocked(reason="no access")),
        ("bob", kinds.HandoffUnblocked()),
        ("bob", kinds.HandoffLogged(text="完成了一半")),
    )
    assert [f"- {row['day']} [{row['author']}] {row['text']}" for row in rows["handoff_log"]] == [
        "- 2026-02-12 [alice] created the handoff to bob",
        f"- 2026-02-12 [rita] approved: go (version {APPROVED.version[:19]})",
        "- 2026-02-12 [bob] claimed for 60 s",
        "- 2026-02-12 [bob] task done: 寫單元測試",
        "- 2026-02-12 [bob] blocked: no access",
        "- 2026-02-12 [bob] unblocked",
        "- 2026-02-12 [bob] 完成了一半",
    ]


def test_a_kind_without_words_of_its_own_logs_its_name_and_what_was_said():
    content, version = kinds.HandoffContent(title="t"), "blake3:" + "0" * 64
    logged = [
        (kinds.HandoffApproved(version=version, comment="go"), "approved: go (version blake3:000000000000)"),
        (kinds.HandoffRejected(reason="no"), "rejected: no"),
        (kinds.HandoffReleased(), "released"),
        (kinds.HandoffBlocked(reason="no key"), "blocked: no key"),
        (kinds.HandoffUnblocked(comment="here"), "unblocked: here"),
        (kinds.HandoffCompleted(summary="all"), "completed: all"),
        (kinds.HandoffCompleted(reasoning_refs=[REF]), f"completed (Reasoning: {REF})"),
        (kinds.HandoffVerified(result=version), "verified (result blake3:000000000000)"),
        (kinds.HandoffCancelled(reason="late"), "cancelled: late"),
        (kinds.HandoffAmended(title="t", to="bob", reason="clearer"), "amended: clearer"),
    ]
    for data, text in logged:
        assert log_text(fact("bob", data, stream="handoff/h"), content) == text
    for kind in HANDLED - {KIND_OF[data] for data in (*_TEXTS, *(type(data) for data, _ in logged))}:
        (remark,) = smallest(kind).values()
        data = msgspec.convert(smallest(kind), KINDS[kind].data)
        assert log_text(fact("bob", data, stream="handoff/h"), content).endswith(f": {remark}")


def test_the_view_refuses_what_the_gate_refuses():
    with pytest.raises(Refused) as refused:
        handoff(("bob", kinds.HandoffClaimed()))
    assert refused.value.code == "NOT_APPROVED"
