"""The fields of a handoff's state after events; the cases of ``proto/cases`` check only the state's name."""

from __future__ import annotations

import msgspec
import pytest
from building import GIVEN_MS
from event_examples import smallest
from machine_runner import tell

from deedbook.ledger.events.handoff import HandoffContent, HandoffCreated
from deedbook.ledger.lifecycle.handoff import HandoffState, compute_version
from deedbook.ledger.lifecycle.handoff_status import is_lapsed

CREATED = HandoffCreated(title="Work", to="bob", reviewer="rita", tasks=["item 1"], criteria=["item 1"])
CLAIMS = 'claims={"status":"completed ✅ (tests green)","tasks":[1],"criteria":[0],"done":"02-15"}'
IMPORTED = (
    f'scribe record.imported h1 as=handoff.created from="Kuro + Alex" to=bob reviewer=rita tasks=2 criteria=2 {CLAIMS}'
)


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
    version = compute_version("alice", CREATED)
    assert compute_version("alice", msgspec.structs.replace(CREATED, **change)) != version
    assert compute_version("carl", CREATED) != version


def test_version_holds_the_content_and_neither_the_claims_nor_the_reason_of_an_amendment() -> None:
    title, items = smallest("handoff.created")["title"], ["item 1", "item 2"]
    content = HandoffContent(title=title, to="bob", reviewer="rita", tasks=items, criteria=items)
    amended = "alice handoff.amended h1 content=current reason=wider"
    for lines, sender in (([IMPORTED], "Kuro + Alex"), (["pending"], "alice"), (["pending", amended], "alice")):
        assert tell("handoff", *lines).version == compute_version(sender, content)


def test_imported_file_is_pending_with_its_claims_beside() -> None:
    state = tell("handoff", IMPORTED)
    assert state == HandoffState(
        sender="Kuro + Alex",
        receiver="bob",
        reviewer="rita",
        status="pending",
        version=state.version,
        depends_on=(),
        unlock_at="completed",
        tasks=("open", "done"),
        criteria=("claimed", "open"),
        importer="scribe",
        claimed_status="completed ✅ (tests green)",
        completion=state.completion,
        waivers=(None, None),
    )
    assert tell("handoff", IMPORTED, "scribe handoff.logged h1") == state
    again = "scribe record.imported h1 as=handoff.created from=dora to=carl"
    assert msgspec.structs.replace(tell("handoff", IMPORTED, again), completion="") == msgspec.structs.replace(
        tell("handoff", again), completion=""
    )


def test_lease_holds_until_its_end_and_ends_with_the_work() -> None:
    leased = tell("handoff", "approved", "bob handoff.claimed h1 lease_seconds=60")
    start_ms = GIVEN_MS + 2
    ends_ms = [start_ms + 59_999, start_ms + 60_000]
    assert [is_lapsed(leased.status, leased.lease, now_ms) for now_ms in ends_ms] == [False, True]
    for kind in ("released", "blocked"):
        assert (
            tell("handoff", "approved", "bob handoff.claimed h1 lease_seconds=60", f"bob handoff.{kind} h1").lease
            is None
        )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["pending", 'rita handoff.rejected h1 reason="not now"'], "not now"),
        (["in_progress", 'bob handoff.blocked h1 reason="a password is missing"'], "a password is missing"),
        (["pending", 'alice handoff.cancelled h1 reason="it is not needed"'], "it is not needed"),
        (["superseded"], "by h2"),
        (
            ["completed", 'rita handoff.changes_requested h1 result=current reasons=["add a test","name it"]'],
            "add a test; name it",
        ),
    ],
)
def test_reasons_are_kept_for_whoever_asks_why(lines: list[str], reason: str) -> None:
    assert tell("handoff", *lines).reason == reason
