"""Every row of the handoff's table, and every way it can be refused: who, when, in which version."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from building import NO_EVENT, accepting
from given import GIVEN_MS, fact, fold, refusal

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.lifecycle.handoff import MACHINE, HandoffState, compute_version
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status, is_lapsed, is_unlocked

CREATED = kinds.HandoffCreated(title="verify", to="bob", reviewer="rita", tasks=["read", "run"], criteria=["a", "b"])
VERSION = compute_version("alice", CREATED)
ANOTHER_VERSION = "sha256:" + "0" * 64

CREATE = fact("alice", CREATED)
APPROVE = fact("rita", kinds.HandoffApproved(version=VERSION))
REJECT = fact("rita", kinds.HandoffRejected(reason="no"))
CLAIM = fact("bob", kinds.HandoffClaimed())
BLOCK = fact("bob", kinds.HandoffBlocked(reason="no access"))
COMPLETE = fact("bob", kinds.HandoffCompleted())
VERIFY = fact("rita", kinds.HandoffVerified(version=VERSION, completion=NO_EVENT))
CANCEL = fact("alice", kinds.HandoffCancelled(reason="obsolete"))
SUPERSEDE = fact("alice", kinds.HandoffSuperseded(by="y"))
CRITERIA = [fact("bob", kinds.HandoffCriterionChecked(position=position)) for position in (0, 1)]

GIVEN: dict[Status, list[object]] = {
    "pending": [CREATE],
    "approved": [CREATE, APPROVE],
    "rejected": [CREATE, REJECT],
    "in_progress": [CREATE, APPROVE, CLAIM],
    "blocked": [CREATE, APPROVE, CLAIM, BLOCK],
    "completed": [CREATE, APPROVE, CLAIM, *CRITERIA, COMPLETE],
    "verified": [CREATE, APPROVE, CLAIM, *CRITERIA, COMPLETE, VERIFY],
    "cancelled": [CREATE, CANCEL],
    "superseded": [CREATE, SUPERSEDE],
}
STATES = {status: fold(MACHINE.decide, *events) for status, events in GIVEN.items()}  # type: ignore[arg-type]

STEPS: dict[str, EventData] = {
    "approve": kinds.HandoffApproved(version=VERSION),
    "reject": kinds.HandoffRejected(reason="no"),
    "claim": kinds.HandoffClaimed(),
    "check task": kinds.HandoffTaskChecked(position=1),
    "check criterion": kinds.HandoffCriterionChecked(position=1),
    "waive": kinds.HandoffCriterionWaived(position=1, reason="known"),
    "ask waiver": kinds.HandoffWaiverAsked(position=1, reason="no such machine"),
    "release": kinds.HandoffReleased(reason="out of time"),
    "block": kinds.HandoffBlocked(reason="no access"),
    "unblock": kinds.HandoffUnblocked(),
    "complete": kinds.HandoffCompleted(),
    "request changes": kinds.HandoffChangesRequested(completion=NO_EVENT, reasons=["add a test"]),
    "verify": kinds.HandoffVerified(version=VERSION, completion=NO_EVENT),
    "cancel": kinds.HandoffCancelled(reason="obsolete"),
    "log": kinds.HandoffLogged(text="half done"),
    "amend": kinds.HandoffAmended(title="verify", to="bob", reviewer="rita", reason="wider"),
    "supersede": kinds.HandoffSuperseded(by="y"),
    "announce": kinds.HandoffReady(to="bob", version=VERSION),
}

# The table: step → (who may, from which status to which); what is not here is refused.
ANY: dict[Status, Status] = {status: status for status in STATES}
TABLE: dict[str, tuple[set[str], dict[Status, Status]]] = {
    "approve": ({"rita"}, {"pending": "approved", "approved": "approved"}),  # again: if the rules about keys let it
    "reject": ({"rita"}, {"pending": "rejected"}),
    "claim": ({"bob"}, {"approved": "in_progress"}),
    "check task": ({"bob"}, {"in_progress": "in_progress"}),
    "check criterion": ({"bob"}, {"in_progress": "in_progress"}),
    "waive": ({"rita"}, {"in_progress": "in_progress", "completed": "completed"}),
    "ask waiver": ({"bob"}, {"in_progress": "in_progress"}),
    "release": ({"bob"}, {"in_progress": "approved"}),
    "block": ({"bob"}, {"in_progress": "blocked"}),
    "unblock": ({"bob", "rita"}, {"blocked": "in_progress"}),
    "complete": ({"bob"}, {"in_progress": "completed"}),
    "request changes": ({"rita"}, {"completed": "in_progress"}),
    "verify": ({"rita"}, {"completed": "verified"}),
    "cancel": ({"alice", "rita"}, {status: "cancelled" for status in STATES if status not in FINAL}),
    "log": ({"alice", "bob", "rita"}, ANY),
    "amend": ({"alice"}, {"pending": "pending", "approved": "pending"}),
    "supersede": ({"alice"}, {status: "superseded" for status in STATES if status not in FINAL}),
    # Who may announce is a matter of roles (admission.rules): the machine knows only the parties.
    "announce": ({"alice", "bob", "rita", "eve"}, {"approved": "approved"}),
}
REVIEWS = {"approve", "reject", "waive", "request changes", "verify"}


def ready(status: Status, step: str) -> HandoffState:
    """Return a handoff in a status, its criteria met where completing asks for that."""
    state = STATES[status]
    return msgspec.structs.replace(state, criteria=("checked", "waived")) if step == "complete" else state


def test_table_names_every_step_that_exists() -> None:
    assert {type(data) for data in STEPS.values()} | {kinds.HandoffCreated} == {
        one for one in vars(kinds).values() if isinstance(one, type) and issubclass(one, EventData)
    } - {EventData, kinds.HandoffContent, kinds.HandoffClaims, kinds.ReceiverNotes}
    assert TABLE.keys() == STEPS.keys()


@pytest.mark.parametrize(("step", "status"), list(itertools.product(STEPS, STATES)))
def test_step_leads_where_the_table_says_and_nowhere_else(step: str, status: Status) -> None:
    who, leads = TABLE[step]
    for author in ("alice", "bob", "rita", "eve"):
        event = fact(author, STEPS[step])
        if author in who and status in leads:
            assert MACHINE.decide(ready(status, step), event).status == leads[status]
        else:
            code = refusal(MACHINE.decide, ready(status, step), event).code
            if author in who:
                assert code in {"TRANSITION_NOT_ALLOWED", "NOT_APPROVED", "ALREADY_CLAIMED"}
            else:
                assert code == ("SELF_APPROVAL" if step in REVIEWS and author != "eve" else "NOT_AUTHORIZED")


@pytest.mark.parametrize("step", STEPS)
def test_step_before_creation_is_refused(step: str) -> None:
    assert refusal(MACHINE.decide, None, fact("rita", STEPS[step])).code == "NOT_FOUND"


@pytest.mark.parametrize("status", STATES)
def test_handoff_is_created_once(status: Status) -> None:
    assert refusal(MACHINE.decide, STATES[status], CREATE).code == "TRANSITION_NOT_ALLOWED"


def test_new_handoff_waits_for_its_reviewer_with_everything_open() -> None:
    assert fold(MACHINE.decide, CREATE) == HandoffState(
        sender="alice",
        receiver="bob",
        reviewer="rita",
        status="pending",
        version=VERSION,
        depends_on=(),
        unlock_at="completed",
        tasks=("open", "open"),
        criteria=("open", "open"),
    )


def test_sender_without_a_reviewer_reviews_and_needs_no_approval() -> None:
    data = kinds.HandoffCreated(title="t", to="bob")
    done = fold(MACHINE.decide, fact("rita", data), CLAIM, COMPLETE)
    done = MACHINE.decide(done, fact("rita", accepting(done)))
    assert (done.reviewer, done.status) == ("rita", "verified")


@pytest.mark.parametrize("reviewer", ["alice", "bob"])
def test_reviewer_is_never_sender_or_receiver(reviewer: str) -> None:
    data = kinds.HandoffCreated(title="t", to="bob", reviewer=reviewer)
    assert refusal(MACHINE.decide, None, fact("alice", data)).code == "SELF_APPROVAL"


def test_work_for_oneself_needs_somebody_else_to_review_it() -> None:
    alone = kinds.HandoffCreated(title="t", to="rita")
    assert refusal(MACHINE.decide, None, fact("rita", alone)).code == "SELF_APPROVAL"
    watched = kinds.HandoffCreated(title="t", to="alice", reviewer="rita")
    assert fold(MACHINE.decide, fact("alice", watched)).status == "pending"


def test_approval_binds_one_version() -> None:
    refused = refusal(MACHINE.decide, STATES["pending"], fact("rita", kinds.HandoffApproved(version=ANOTHER_VERSION)))
    assert refused.code == "VERSION_MISMATCH"
    assert refused.details == {"version": VERSION, "named": ANOTHER_VERSION}


@pytest.mark.parametrize(
    "change",
    [
        {"title": "verify it"},
        {"to": "carl"},
        {"reviewer": "ruth"},
        {"task": "more"},
        {"tasks": ["run", "read"]},
        {"criteria": ["a"]},
        {"depends_on": ["h0"]},
        {"unlock_at": "verified"},
        {"context": "new"},
    ],
)
def test_version_changes_with_everything_that_is_approved(change: dict[str, object]) -> None:
    assert compute_version("alice", msgspec.structs.replace(CREATED, **change)) != VERSION
    assert compute_version("carl", CREATED) != VERSION


def test_version_stays_whatever_is_done() -> None:
    assert {state.version for state in STATES.values()} == {VERSION}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("pending", "NOT_APPROVED"),
        ("rejected", "NOT_APPROVED"),
        ("in_progress", "ALREADY_CLAIMED"),
        ("blocked", "ALREADY_CLAIMED"),
        ("completed", "TRANSITION_NOT_ALLOWED"),
        ("verified", "TRANSITION_NOT_ALLOWED"),
        ("cancelled", "TRANSITION_NOT_ALLOWED"),
    ],
)
def test_claim_that_comes_at_the_wrong_time_says_why(status: Status, code: str) -> None:
    assert refusal(MACHINE.decide, STATES[status], CLAIM).code == code


def test_lapsed_lease_can_be_claimed_again_and_an_unlapsed_one_not() -> None:
    leased = fold(MACHINE.decide, CREATE, APPROVE, fact("bob", kinds.HandoffClaimed(lease_seconds=60), at_s=10))
    assert refusal(MACHINE.decide, leased, fact("bob", kinds.HandoffClaimed(), at_s=69.999)).code == "ALREADY_CLAIMED"
    again = MACHINE.decide(leased, fact("bob", kinds.HandoffClaimed(lease_seconds=5), at_s=70))
    assert again.status == "in_progress"
    assert [is_lapsed(again.status, again.lease, now_ms) for now_ms in (GIVEN_MS + 74_999, GIVEN_MS + 75_000)] == [
        False,
        True,
    ]


def test_holder_of_a_lapsed_lease_must_claim_again_before_he_goes_on() -> None:
    leased = fold(MACHINE.decide, CREATE, APPROVE, fact("bob", kinds.HandoffClaimed(lease_seconds=60), at_s=10))
    late = refusal(MACHINE.decide, leased, fact("bob", kinds.HandoffCompleted(), at_s=70))
    assert (late.code, late.details["status"]) == ("TRANSITION_NOT_ALLOWED", "in_progress")


def test_claim_without_a_lease_never_lapses() -> None:
    claimed = STATES["in_progress"]
    assert not is_lapsed(claimed.status, claimed.lease, 2**62)


@pytest.mark.parametrize("step", ["release", "block", "complete"])
def test_lease_ends_with_the_work(step: str) -> None:
    leased = fold(MACHINE.decide, CREATE, APPROVE, fact("bob", kinds.HandoffClaimed(lease_seconds=60)), *CRITERIA)
    assert MACHINE.decide(leased, fact("bob", STEPS[step])).lease is None


def test_completing_names_every_open_criterion() -> None:
    refused = refusal(MACHINE.decide, STATES["in_progress"], COMPLETE)
    assert (refused.code, refused.details) == ("CRITERIA_OPEN", {"criterion_numbers": [1, 2]})
    one = MACHINE.decide(STATES["in_progress"], CRITERIA[0])
    assert refusal(MACHINE.decide, one, COMPLETE).details == {"criterion_numbers": [2]}
    waived = MACHINE.decide(one, fact("rita", kinds.HandoffCriterionWaived(position=1, reason="known")))
    assert MACHINE.decide(waived, COMPLETE).status == "completed"


def test_ticks_can_be_taken_back() -> None:
    checked = fold(MACHINE.decide, *GIVEN["in_progress"], *CRITERIA, fact("bob", STEPS["check task"]))  # type: ignore[arg-type]
    assert (checked.tasks, checked.criteria) == (("open", "done"), ("checked", "checked"))
    back = MACHINE.decide(checked, fact("bob", kinds.HandoffCriterionChecked(position=0, checked=False)))
    back = MACHINE.decide(back, fact("bob", kinds.HandoffTaskChecked(position=1, checked=False)))
    assert (back.tasks, back.criteria) == (("open", "open"), ("open", "checked"))
    assert refusal(MACHINE.decide, back, COMPLETE).code == "CRITERIA_OPEN"


@pytest.mark.parametrize(
    ("author", "data"),
    [
        ("bob", kinds.HandoffTaskChecked(position=2)),
        ("bob", kinds.HandoffCriterionChecked(position=2)),
        ("rita", kinds.HandoffCriterionWaived(position=2, reason="x")),
    ],
)
def test_mark_beyond_the_list_is_refused(author: str, data: EventData) -> None:
    assert refusal(MACHINE.decide, STATES["in_progress"], fact(author, data)).code == "INVALID_FIELD"


def test_reasons_are_kept_for_whoever_asks_why() -> None:
    assert STATES["rejected"].reason == "no"
    assert STATES["blocked"].reason == "no access"
    assert STATES["cancelled"].reason == "obsolete"
    changes = kinds.HandoffChangesRequested(completion=NO_EVENT, reasons=["add a test", "name it"])
    assert MACHINE.decide(STATES["completed"], fact("rita", changes)).reason == "add a test; name it"


def test_work_that_needs_changes_is_completed_anew() -> None:
    again = MACHINE.decide(STATES["completed"], fact("rita", STEPS["request changes"]))
    assert fold(lambda state, event: MACHINE.decide(state or again, event), COMPLETE, VERIFY).status == "verified"


@pytest.mark.parametrize("status", sorted(FINAL))
def test_final_handoffs_stay_as_they_are(status: Status) -> None:
    for author, (step, data) in itertools.product(("alice", "bob", "rita"), STEPS.items()):
        if step != "log":
            with pytest.raises(Refused):
                MACHINE.decide(STATES[status], fact(author, data))


@pytest.mark.parametrize(
    ("unlock_at", "status", "expected"),
    [
        ("completed", "completed", True),
        ("completed", "verified", True),
        ("verified", "completed", False),
        ("verified", "verified", True),
        ("completed", "in_progress", False),
        ("completed", "cancelled", False),
        ("completed", None, False),
    ],
)
def test_dependency_unlocks_at_the_status_that_was_asked_for(
    unlock_at: kinds.UnlockAt, status: Status | None, expected: bool
) -> None:
    assert is_unlocked(status, unlock_at) is expected


ASK = fact("bob", kinds.HandoffWaiverAsked(position=1, reason="no such machine"))
WORKING = [CREATE, APPROVE, CLAIM, CRITERIA[0]]


def test_an_asked_waiver_leaves_the_gate_as_strict_until_it_is_granted() -> None:
    asked = fold(MACHINE.decide, *WORKING, ASK)
    assert asked.criteria == ("checked", "asked")
    assert refusal(MACHINE.decide, asked, COMPLETE).code == "CRITERIA_OPEN"
    granted = MACHINE.decide(asked, fact("rita", kinds.HandoffCriterionWaived(position=1, reason="so be it")))
    assert MACHINE.decide(granted, COMPLETE).status == "completed"


def test_a_refused_waiver_is_open_again_and_may_be_asked_again() -> None:
    refused = fact("rita", kinds.HandoffCriterionWaived(position=1, reason="it can be run", granted=False))
    state = fold(MACHINE.decide, *WORKING, ASK, refused)
    assert state.criteria == ("checked", "open")
    assert refusal(MACHINE.decide, state, refused).code == "NOTHING_CHANGED"  # nobody asks any more
    none = fact("rita", kinds.HandoffCriterionWaived(position=2, reason="it can be run", granted=False))
    assert refusal(MACHINE.decide, state, none).code == "INVALID_FIELD"
    assert MACHINE.decide(state, ASK).criteria == ("checked", "asked")


def test_a_waiver_is_asked_once_and_only_of_what_is_open() -> None:
    assert refusal(MACHINE.decide, fold(MACHINE.decide, *WORKING, ASK), ASK).code == "NOTHING_CHANGED"
    assert refusal(MACHINE.decide, fold(MACHINE.decide, *WORKING, CRITERIA[1]), ASK).code == "NOTHING_CHANGED"
