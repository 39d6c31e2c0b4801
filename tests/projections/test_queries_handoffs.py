"""Queries about handoffs, on a real ledger: list, show, why."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"


def why(reader, name):
    """Return the sentence and the reasons' codes."""
    answer = reader.answer("handoffs.why", {"id": name})
    return answer["sentence"], [reason["code"] for reason in answer["reasons"]]


def test_a_pending_handoff_waits_for_its_reviewer(ledger, reader):
    ledger.hand_over("a")
    assert why(reader, "a") == ("a is not ready: it waits for the approval of rita.", ["NOT_APPROVED"])


def test_an_approved_handoff_is_ready(ledger, reader):
    ledger.approve("a", ledger.hand_over("a"))
    assert why(reader, "a") == ("a is ready: bob can claim it.", [])


def test_a_dependency_is_named_with_its_state(ledger, reader):
    ledger.approve("a", ledger.hand_over("a"))
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.claim("a")
    assert why(reader, "b") == (
        "b is not ready: it waits for a, which is in progress with bob.",
        ["DEPENDENCY_PENDING"],
    )
    ledger.emit("bob", "handoff/a", kinds.HandoffBlocked(reason="no access"))
    assert why(reader, "b")[0] == "b is not ready: it waits for a, which is blocked (no access)."


def test_a_chain_is_followed_to_the_one_that_can_be_moved(ledger, reader):
    ledger.hand_over("a")
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.approve("c", ledger.hand_over("c", depends_on=["b"]))
    answer = reader.answer("handoffs.why", {"id": "c"})
    assert answer["sentence"] == (
        "c is not ready: it waits for b, which is approved and waits for a, "
        "which is pending (the approval of rita is missing)."
    )
    assert answer["reasons"][0]["chain"] == ["b", "a"]


def test_an_unknown_dependency_is_named_directly_and_at_the_end_of_a_chain(ledger, reader):
    ledger.approve("b", ledger.hand_over("b", depends_on=["ghost"]))
    ledger.approve("c", ledger.hand_over("c", depends_on=["b"]))
    assert why(reader, "b") == ("b is not ready: it depends on ghost, which does not exist.", ["DEPENDENCY_MISSING"])
    assert why(reader, "c")[0].endswith("which is approved and waits for ghost, which does not exist.")
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 0


def test_a_cancelled_dependency_never_unlocks(ledger, reader):
    ledger.hand_over("a")
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.emit("alice", "handoff/a", kinds.HandoffCancelled(reason="not needed"))
    assert why(reader, "b")[0] == "b is not ready: it waits for a, which is cancelled and will never unlock it."


@pytest.mark.parametrize("unlock_at", ["completed", "verified"])
def test_a_completed_dependency_unlocks_by_what_was_asked(ledger, reader, unlock_at):
    ledger.finish("a")
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"], unlock_at=unlock_at))
    is_ready = unlock_at == "completed"
    assert reader.answer("handoffs.why", {"id": "b"})["is_ready"] is is_ready
    listed = reader.answer("handoffs.list", {"ready": True})["items"]
    assert [one["id"] for one in listed] == (["b"] if is_ready else [])
    ledger.verify("rita", "a")
    assert reader.answer("handoffs.why", {"id": "b"})["is_ready"]


def test_claimed_blocked_rejected_and_done_handoffs_say_so(ledger, reader):
    ledger.approve("a", ledger.hand_over("a", tasks=["t", "u", "v"], criteria=["c"]))
    ledger.claim("a")
    ledger.emit("bob", "handoff/a", kinds.HandoffTaskChecked(position=1))
    sentence, codes = why(reader, "a")
    assert re.fullmatch(
        r"a is in progress: bob works on it since \d{4}-\d\d-\d\d \d\d:\d\d UTC; tasks 1, 3 and criterion 1 are open\.",
        sentence,
    )
    assert codes == ["ALREADY_CLAIMED"]
    assert reader.answer("handoffs.why", {"id": "a"})["left"] == {"tasks": [1, 3], "criteria": [1], "questions": []}
    ledger.emit("bob", "handoff/a", kinds.HandoffBlocked(reason="no access"))
    assert re.match(
        r"a is blocked: bob works on it since .*, but cannot continue \(no access\); tasks 1, 3 and ",
        why(reader, "a")[0],
    )
    ledger.hand_over("b")
    ledger.emit("rita", "handoff/b", kinds.HandoffRejected(reason="too risky"))
    sentence, codes = why(reader, "b")
    assert re.fullmatch(
        rf"b is rejected: rita rejected it at {TIME} \(too risky\); nothing comes next: create another\.", sentence
    )
    assert codes == ["NOT_APPROVED"]


def test_work_that_is_over_says_by_whom_and_since_when_and_what_comes_next(ledger, reader):
    ledger.finish("a")
    ledger.clock.advance(60_000)
    ledger.send_back("rita", "a", "too slow")
    ledger.clock.advance(60_000)
    accepted = ledger.emit("bob", "handoff/a", kinds.HandoffCompleted(summary="faster"))
    at = datetime.fromtimestamp(accepted.accepted_ms // 1000, UTC)
    (reason,) = reader.answer("handoffs.why", {"id": "a"})["reasons"]
    assert (reason["code"], reason["by"]) == ("TRANSITION_NOT_ALLOWED", "rita")
    assert why(reader, "a")[0] == (
        f"a is completed: bob completed it at {at:%Y-%m-%d %H:%M} UTC; rita verifies it or requests changes."
    )
    ledger.verify("rita", "a")
    sentence, codes = why(reader, "a")  # does not mention the requested changes, which were made since
    assert re.fullmatch(rf"a is verified: rita verified it at {TIME}; nothing is left to do\.", sentence)
    assert codes == ["TRANSITION_NOT_ALLOWED"]
    ledger.hand_over("b")
    ledger.emit("alice", "handoff/b", kinds.HandoffCancelled(reason="no need"))
    sentence, codes = why(reader, "b")
    assert re.fullmatch(rf"b is cancelled: alice cancelled it at {TIME} \(no need\); nothing is left to do\.", sentence)
    assert codes == ["TRANSITION_NOT_ALLOWED"]


@pytest.mark.parametrize("state", ["pending", "missing", "waiting", "claimed", "done"])
def test_the_answer_is_the_code_with_which_the_gate_refuses_the_claim(ledger, reader, state):
    data = ledger.hand_over("h", depends_on={"missing": ["ghost"], "waiting": ["a"]}.get(state, []))
    ledger.hand_over("a")
    if state != "pending":
        ledger.approve("h", data)
    if state in ("claimed", "done"):
        ledger.claim("h")
    if state == "done":
        ledger.emit("bob", "handoff/h", kinds.HandoffCompleted())
    ledger.clock.advance(1)  # otherwise the claim would be the same event again
    with pytest.raises(Refused) as refused:
        ledger.claim("h")
    assert why(reader, "h")[1] == [refused.value.code]


def test_a_lapsed_lease_makes_it_ready_again(ledger, reader):
    ledger.approve("a", ledger.hand_over("a"))
    ledger.claim("a", lease_seconds=60)  # expired for the reader: the ledger's clock is hours behind the reader's
    assert reader.answer("handoffs.why", {"id": "a"})["is_ready"]
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 1
    assert not reader.answer("handoffs.why", {"id": "a"}, ledger.size - 1)["is_ready"]


def test_list_filters_before_the_limit_and_pages_by_cursor(ledger, reader):
    for number in range(7):
        ledger.hand_over(f"h{number}")
    ledger.hand_over("other", sender="bob", to="alice")
    first = reader.answer("handoffs.list", {"from": "alice", "limit": 3})
    assert ([one["id"] for one in first["items"]], first["total"]) == (["h6", "h5", "h4"], 7)
    second = reader.answer("handoffs.list", {"from": "alice", "limit": 3, "after": first["next"]})
    third = reader.answer("handoffs.list", {"from": "alice", "limit": 3, "after": second["next"]})
    assert [one["id"] for one in second["items"] + third["items"]] == ["h3", "h2", "h1", "h0"]
    assert (third["next"], third["total"]) == (None, 7)


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"status": "pending"}, ["c"]),
        ({"status": "verified"}, ["a"]),
        ({"to": "bob", "status": "approved"}, ["b"]),
        ({"to": "alice"}, []),
        ({"reviewer": "rita"}, ["c", "b", "a"]),
        ({"ready": True}, ["b"]),
        ({"ready": False}, ["c", "a"]),
    ],
)
def test_list_filters(ledger, reader, filters, ids):
    ledger.fill()
    answer = reader.answer("handoffs.list", filters)
    assert ([one["id"] for one in answer["items"]], answer["total"]) == (ids, len(ids))


def test_show_tells_everything_of_one_handoff(ledger, reader):
    ledger.fill()
    shown = reader.answer("handoffs.show", {"id": "b"})
    assert (shown["from"], shown["to"], shown["status"], shown["is_ready"]) == ("alice", "bob", "approved", True)
    assert shown["tasks"] == [
        {"position": 0, "text": "one", "done": False, "evidence": ""},
        {"position": 1, "text": "two", "done": False, "evidence": ""},
    ]
    assert shown["criteria"][0]["mark"] == "open"
    assert shown["depends_on"] == [{"id": "a", "status": "verified"}]
    assert shown["dependents"] == [{"id": "c", "status": "pending"}]
    day = ledger.clock.text()[:10]
    assert [line["line"] for line in shown["log"]] == [
        f"- {day} [alice] created the handoff to bob",
        f"- {day} [rita] approved (version {shown['version'][:19]})",
    ]


def test_an_id_may_have_its_file_ending_its_stream_or_be_shortened(ledger, reader):
    ledger.hand_over("2026-02-12-phase-2a")
    ledger.hand_over("2026-02-12-phase-2b")
    ledger.hand_over("odd.md")
    for asked in ("2026-02-12-phase-2a.md", "handoff/2026-02-12-phase-2a", "2026-02-12-phase-2a"):
        assert reader.answer("handoffs.why", {"id": asked})["id"] == "2026-02-12-phase-2a"
    assert reader.answer("handoffs.why", {"id": "odd"})["id"] == "odd.md"
    with pytest.raises(Refused) as refused:
        reader.answer("handoffs.show", {"id": "2026-02-12-ph"})
    assert refused.value.code == "REF_AMBIGUOUS"
    assert refused.value.details["candidates"] == ["2026-02-12-phase-2a", "2026-02-12-phase-2b"]


@pytest.mark.parametrize("asked", ["ghost", "", "%", "_", "handoff/"])
def test_an_id_that_fits_nothing_is_not_found(ledger, reader, asked):
    ledger.hand_over("abc")
    with pytest.raises(Refused) as refused:
        reader.answer("handoffs.why", {"id": asked})
    assert refused.value.code == "NOT_FOUND"


def test_a_list_names_what_each_depends_on_and_where_that_stands(ledger, reader):
    ledger.finish("a")
    ledger.hand_over("b", depends_on=["ghost", "a"])
    listed = {one["id"]: one["depends_on"] for one in reader.answer("handoffs.list")["items"]}
    assert listed == {"a": [], "b": [{"id": "ghost", "status": None}, {"id": "a", "status": "completed"}]}
