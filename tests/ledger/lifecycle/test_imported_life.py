"""Given an imported file, what its record makes of it: content and claims, and no state that anybody reached here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from building import NO_EVENT, accepting
from given import fact, fold, refusal

from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle.handoff import MACHINE, HandoffState, compute_version

CONTENT: dict[str, Any] = {"title": "t", "to": "bob", "reviewer": "rita", "tasks": ["a", "b"], "criteria": ["c", "d"]}
CLAIMS: dict[str, Any] = {"status": "completed ✅ (tests green)", "tasks": [1], "criteria": [0], "done": "02-15"}
RECORD = RecordImported(
    original="sha256:" + "1" * 64,
    source="memory/handoffs/x.md",
    format="handoff/v2",
    mapped_kind="handoff.created",
    mapped=CONTENT,
    claimed_author="Kuro + Alex",
    claims=CLAIMS,
)
VERSION = compute_version("Kuro + Alex", kinds.HandoffContent(**CONTENT))


def imported(author: str = "scribe", **change: Any) -> Any:
    """Return the event with which somebody imports the file, something about it changed."""
    return fact(author, msgspec.structs.replace(RECORD, **change), stream="handoff/x")


def by(author: str, data: EventData) -> Any:
    """Return another event of the handoff."""
    return fact(author, data, stream="handoff/x")


def test_imported_file_is_pending_with_its_claims_beside() -> None:
    assert fold(MACHINE.decide, imported()) == HandoffState(
        sender="Kuro + Alex",
        receiver="bob",
        reviewer="rita",
        status="pending",
        version=VERSION,
        depends_on=(),
        unlock_at="completed",
        tasks=("open", "done"),
        criteria=("claimed", "open"),
        importer="scribe",
        claimed_status="completed ✅ (tests green)",
        completion=NO_EVENT,
    )


@pytest.mark.parametrize("status", ["verified", "approved", "in_progress", "rejected", "", None])
def test_claimed_status_never_becomes_the_status(status: str | None) -> None:
    claims = CLAIMS | {"status": status} if status else {name: CLAIMS[name] for name in ("tasks", "criteria")}
    state = fold(MACHINE.decide, imported(claims=claims))
    assert (state.status, state.claimed_status) == ("pending", status or "")


def test_version_holds_the_content_and_none_of_the_claims() -> None:
    assert fold(MACHINE.decide, imported(claims={})).version == VERSION
    assert fold(MACHINE.decide, imported(mapped=CONTENT | {"title": "u"})).version != VERSION
    assert fold(MACHINE.decide, imported(claimed_author="Kuro")).version != VERSION


def test_same_content_created_here_has_the_version_of_the_file() -> None:
    created = fold(MACHINE.decide, by("kuro", kinds.HandoffCreated(**CONTENT)))
    assert fold(MACHINE.decide, imported(claimed_author="kuro")).version == created.version


def test_file_without_names_leaves_them_open() -> None:
    state = fold(MACHINE.decide, imported(mapped={"title": "t"}, claimed_author=None, claims={}))
    assert (state.sender, state.receiver, state.reviewer) == ("", "", "")
    assert state.senders == ("scribe",)


@pytest.mark.parametrize("claims", [{"tasks": [2]}, {"criteria": [2]}, {"tasks": [0, 1, 5]}])
def test_claim_about_an_item_that_is_not_there_is_refused(claims: dict[str, Any]) -> None:
    assert refusal(MACHINE.decide, None, imported(claims=claims)).code == "INVALID_FIELD"


def test_claims_may_name_an_item_twice() -> None:
    assert fold(MACHINE.decide, imported(claims={"tasks": [0, 0], "criteria": [1, 1]})).criteria == ("open", "claimed")


def test_claimed_criterion_is_open_for_completing_and_can_be_checked_waived_or_opened() -> None:
    approved = by("rita", kinds.HandoffApproved(version=VERSION))
    work = fold(MACHINE.decide, imported(), approved, by("bob", kinds.HandoffClaimed()))
    assert refusal(MACHINE.decide, work, by("bob", kinds.HandoffCompleted())).details == {"criterion_numbers": [1, 2]}
    for data, mark in (
        (kinds.HandoffCriterionChecked(position=0), "checked"),
        (kinds.HandoffCriterionChecked(position=0, checked=False), "open"),
    ):
        assert MACHINE.decide(work, by("bob", data)).criteria == (mark, "open")
    waived = kinds.HandoffCriterionWaived(position=0, reason="seen")
    assert MACHINE.decide(work, by("rita", waived)).criteria == ("waived", "open")


@pytest.mark.parametrize(
    ("author", "data", "status"),
    [
        ("rita", kinds.HandoffApproved(version=VERSION), "approved"),
        ("rita", kinds.HandoffVerified(version=VERSION, completion=NO_EVENT), "verified"),
        ("rita", kinds.HandoffRejected(reason="no"), "rejected"),
        ("rita", kinds.HandoffCancelled(reason="no"), "cancelled"),
        ("scribe", kinds.HandoffCancelled(reason="no"), "cancelled"),
        ("scribe", kinds.HandoffSuperseded(by="y"), "superseded"),
        ("Kuro + Alex", kinds.HandoffSuperseded(by="y"), "superseded"),
        ("scribe", kinds.HandoffAmended(title="t", to="bob", reviewer="rita"), "pending"),
    ],
)
def test_whatever_is_decided_here_ends_the_claims(author: str, data: EventData, status: str) -> None:
    state = fold(MACHINE.decide, imported(), by(author, data))
    assert (state.status, state.claimed_status) == (status, None)
    assert refusal(MACHINE.decide, state, imported(mapped=CONTENT | {"title": "u"})).code == "TRANSITION_NOT_ALLOWED"


def test_note_ends_no_claims() -> None:
    state = fold(MACHINE.decide, imported(), by("bob", kinds.HandoffLogged(text="found")))
    assert state == fold(MACHINE.decide, imported())


def test_amending_an_import_takes_its_ticks_back_and_keeps_sender_and_importer() -> None:
    amended = kinds.HandoffAmended(**CONTENT, reason="ours now")
    state = fold(MACHINE.decide, imported(), by("scribe", amended))
    assert (state.tasks, state.criteria) == (("open", "open"), ("open", "open"))
    assert (state.sender, state.importer, state.version) == ("Kuro + Alex", "scribe", VERSION)


def test_imported_again_it_is_as_if_it_were_imported_once() -> None:
    other = {"mapped": {"title": "u", "to": "carl"}, "claims": {}, "claimed_author": "dora"}
    again = fold(MACHINE.decide, imported(), imported(**other))
    assert again == fold(MACHINE.decide, imported(**other))


def test_import_that_would_change_nothing_is_refused() -> None:
    state = fold(MACHINE.decide, imported(), by("scribe", kinds.HandoffLogged(text="seen")))
    assert refusal(MACHINE.decide, state, imported(source="elsewhere.md")).code == "NOTHING_CHANGED"
    assert MACHINE.decide(state, imported(claims=CLAIMS | {"tasks": []})).tasks == ("open", "open")


def test_import_that_names_no_reviewer_leads_to_an_amendment() -> None:
    state = fold(MACHINE.decide, imported(mapped=CONTENT | {"reviewer": None}, claimed_author=None))
    for author, code in (("scribe", "SELF_APPROVAL"), ("eve", "NOT_AUTHORIZED")):
        refused = refusal(MACHINE.decide, state, by(author, accepting(state)))
        assert refused.code == code
        assert "scribe must name a reviewer with `deed handoff amend x --reviewer OTHER`" in refused.message


def test_only_its_importer_imports_it_again() -> None:
    refused = refusal(MACHINE.decide, fold(MACHINE.decide, imported()), imported("eve"))
    assert (refused.code, refused.details) == ("NOT_AUTHORIZED", {"owner": "scribe"})
    assert "only scribe may import it again" in refused.message


def test_import_that_was_made_again_since_is_not_verified() -> None:
    read = fold(MACHINE.decide, imported())
    again = MACHINE.decide(read, fact("scribe", imported(claims={"status": "all done"}).data, index=7))
    assert again.version == read.version
    assert refusal(MACHINE.decide, again, by("rita", accepting(read))).code == "VERSION_MISMATCH"
    assert MACHINE.decide(again, by("rita", accepting(again))).status == "verified"


@pytest.mark.parametrize("author", ["bob", "scribe", "Kuro + Alex", "eve"])
@pytest.mark.parametrize(
    "data", [kinds.HandoffVerified(version=VERSION, completion=NO_EVENT), kinds.HandoffApproved(version=VERSION)]
)
def test_nobody_but_the_reviewer_confirms(author: str, data: EventData) -> None:
    refused = refusal(MACHINE.decide, fold(MACHINE.decide, imported()), by(author, data))
    assert refused.code == ("NOT_AUTHORIZED" if author == "eve" else "SELF_APPROVAL")
