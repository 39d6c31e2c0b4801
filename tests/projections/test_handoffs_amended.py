"""Views of handoffs that were amended, superseded, announced or imported: rows, and answers on a real ledger."""

from __future__ import annotations

from typing import Any

import pytest
from folding import facts, rows_of, state_after

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.handoffs.fold import VIEW as HANDOFF_VIEW
from deedbook.projections.handoffs.fold import keys
from deedbook.projections.handoffs.next import criteria_of
from deedbook.projections.handoffs.record import HandoffRecord

REF = "sha256:" + "1" * 64
SKELETON = "blake3:" + "2" * 64
CREATED = kinds.HandoffCreated(title="old", to="bob", reviewer="rita", tasks=["a"], criteria=["c"], depends_on=["x"])
APPROVED = kinds.HandoffApproved(version=compute_version("alice", CREATED))
AMENDED = kinds.HandoffAmended(
    title="new", to="carl", reviewer="ruth", tasks=["a", "b"], criteria=["c"], depends_on=["y"], reason="wider"
)
FILE: dict[str, Any] = {"title": "旧", "to": "bob", "reviewer": "rita", "tasks": ["a", "b"], "criteria": ["c", "d"]}

CLAIMS: dict[str, Any] = {"status": "done ✅", "tasks": [1], "criteria": [0], "done": "02-15"}


def record(**change: Any) -> RecordImported:
    """Return the record of a file that claims to be completed; with ``mapped``, of one that claims nothing."""
    fields: dict[str, Any] = {
        "original": REF,
        "source": "memory/handoffs/h.md",
        "format": "handoff/v2",
        "mapped_kind": "handoff.created",
        "mapped": FILE,
        "claimed_author": "Kuro + Alex",
        "claimed_at": "02-14",
        "claims": {} if "mapped" in change else CLAIMS,
    }
    return RecordImported(**(fields | change))


def handoff(*authored: tuple[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows after events of one handoff."""
    return rows_of(HANDOFF_VIEW, "h", facts("handoff/h", *authored))


def record_after(*authored: tuple[str, Any]) -> HandoffRecord:
    """Return the state after events of one handoff."""
    after: HandoffRecord = state_after(HANDOFF_VIEW, "h", facts("handoff/h", *authored))
    return after


def row_of(*authored: tuple[str, Any]) -> dict[str, Any]:
    """Return the handoff's own row."""
    (row,) = handoff(*authored)["handoffs"]
    return row


def why(reader, name):
    """Return the sentence and the reasons' codes."""
    answer = reader.answer("handoffs.why", {"id": name})
    return answer["sentence"], [reason["code"] for reason in answer["reasons"]]


# Amended


def test_an_amended_handoff_has_new_content_and_waits_anew() -> None:
    rows = handoff(("alice", CREATED), ("rita", APPROVED), ("alice", AMENDED))
    (row,) = rows["handoffs"]
    expected = {"status": "pending", "title": "new", "sender": "alice", "receiver": "carl", "reviewer": "ruth"}
    expected |= {"version": compute_version("alice", AMENDED), "created_index": 0, "approved_index": None}
    expected |= {"template_index": 2, "updated_index": 2, "created": "2026-02-12", "is_announced": 0}
    assert {name: row[name] for name in expected} == expected
    assert (row["tasks_done"], row["tasks_total"]) == (0, 2)
    assert [one["depends_on"] for one in rows["handoff_dependencies"]] == ["y"]
    assert rows["handoff_log"][-1]["text"] == "amended: wider"


def test_amending_takes_back_marks_and_what_was_said_about_them() -> None:
    amended = (
        ("alice", CREATED),
        ("rita", APPROVED),
        ("bob", kinds.HandoffClaimed()),
        ("bob", kinds.HandoffTaskChecked(position=0)),
        ("bob", kinds.HandoffCriterionChecked(position=0, evidence="ci.log:3")),
        ("bob", kinds.HandoffReleased()),
        ("alice", AMENDED),
    )
    row = row_of(*amended)
    assert (row["tasks_done"], row["tasks_total"], row["criteria_done"], row["claimed_index"]) == (0, 2, 0, None)
    assert [(row.mark, row.evidence) for row in criteria_of(record_after(*amended))] == [("open", "")]


def test_an_amendment_keeps_the_day_unless_it_gives_another() -> None:
    assert row_of(("alice", CREATED), ("alice", AMENDED))["created"] == "2026-02-12"
    dated = kinds.HandoffAmended(title="new", to="bob", reviewer="rita", created="2025-01-31")
    assert row_of(("alice", CREATED), ("alice", dated))["created"] == "2025-01-31"


def test_the_template_is_that_of_the_content_as_it_is_now() -> None:
    amended = kinds.HandoffAmended(title="new", to="bob", reviewer="rita", template=SKELETON)
    assert row_of(("alice", CREATED))["template"] is None
    row = row_of(("alice", CREATED), ("alice", amended), ("alice", kinds.HandoffLogged(text="note")))
    assert (row["template"], row["template_index"]) == (SKELETON, 1)


def test_why_forgets_the_dependencies_that_were_amended_away(ledger, reader):
    ledger.approve("a", ledger.hand_over("a", depends_on=["ghost"]))
    assert why(reader, "a")[1] == ["DEPENDENCY_MISSING"]
    data = kinds.HandoffAmended(title="a", to="bob", reviewer="rita")
    ledger.emit("alice", "handoff/a", data)
    ended = "because the amendment by alice ended the approval of the earlier version"
    assert why(reader, "a") == (f"a is not ready: it waits for the approval of rita, {ended}.", ["NOT_APPROVED"])
    ledger.emit("rita", "handoff/a", kinds.HandoffApproved(version=compute_version("alice", data)))
    assert why(reader, "a") == ("a is ready: bob can claim it.", [])


# Superseded


def test_a_superseded_handoff_names_what_took_its_place() -> None:
    rows = handoff(("alice", CREATED), ("alice", kinds.HandoffSuperseded(by="h2", reason="merged")))
    (row,) = rows["handoffs"]
    assert (row["status"], row["superseded_by"], row["reason"]) == ("superseded", "h2", "merged")
    assert row_of(("alice", CREATED), ("alice", kinds.HandoffSuperseded(by="h2")))["reason"] == "by h2"
    assert "h2" in rows["handoff_log"][-1]["text"]


def test_why_says_that_a_superseded_dependency_never_unlocks_and_what_took_its_place(ledger, reader):
    ledger.hand_over("old")
    ledger.finish("new", verify=True)
    ledger.approve("waiting", ledger.hand_over("waiting", depends_on=["old"]))
    ledger.emit("alice", "handoff/old", kinds.HandoffSuperseded(by="new"))
    sentence, codes = why(reader, "waiting")
    assert "superseded (by new) and will never unlock it: depend on its replacement" in sentence
    assert codes == ["DEPENDENCY_PENDING"]
    sentence, codes = why(reader, "old")
    assert sentence.startswith("old is superseded: alice superseded it at ")
    assert sentence.endswith(" UTC (by new); nothing is left to do.")
    assert codes == ["TRANSITION_NOT_ALLOWED"]
    assert [one["id"] for one in reader.answer("handoffs.list", {"status": "superseded"})["items"]] == ["old"]
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 0


# Announced


def unannounced(reader, **asked):
    """Return the ids of the handoffs that could be announced."""
    return [one["id"] for one in reader.answer("handoffs.unannounced", asked)["handoffs"]]


def announce(ledger, name):
    """Let the service announce a handoff."""
    state = ledger.handoff(name)
    ledger.emit("scribe", f"handoff/{name}", kinds.HandoffReady(to=state.receiver, version=state.version))


def test_what_is_ready_is_unannounced_until_it_is_announced(ledger, reader):
    ledger.approve("a", ledger.hand_over("a"))
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.hand_over("pending")
    answer = reader.answer("handoffs.unannounced")["handoffs"]
    assert answer == [{"id": "a", "to": "bob", "version": ledger.handoff("a").version}]
    announce(ledger, "a")
    assert unannounced(reader) == []
    assert reader.answer("handoffs.show", {"id": "a"})["is_announced"] == 1
    assert reader.answer("handoffs.why", {"id": "a"})["is_ready"]


def test_what_waited_for_another_is_unannounced_when_that_is_completed(ledger, reader):
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.finish("a")
    ledger.approve("c", ledger.hand_over("c"))
    assert unannounced(reader, id="a") == ["b"]
    assert unannounced(reader, id="c") == ["c"]
    assert unannounced(reader, limit=1) == ["b"]


def test_released_work_and_lapsed_claims_are_unannounced_anew(ledger, reader):
    for name in ("a", "b"):
        ledger.approve(name, ledger.hand_over(name))
        announce(ledger, name)
        ledger.claim(name, lease_seconds=None if name == "a" else 60)
    assert unannounced(reader) == ["b"]  # the lease of b has expired for the reader: the ledger's clock is hours behind
    ledger.emit("bob", "handoff/a", kinds.HandoffReleased())
    assert unannounced(reader) == ["a", "b"]


def test_a_lapsed_claim_waits_for_a_dependency_that_was_sent_back(ledger, reader):
    ledger.finish("a")
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    ledger.claim("b", lease_seconds=60)
    ledger.send_back("rita", "a", "add a test")
    ledger.clock.advance(60)
    with pytest.raises(Refused) as refused:
        ledger.claim("b")
    assert why(reader, "b") == ("b is not ready: it waits for a, which is in progress with bob.", [refused.value.code])
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 0


# Imported


def test_an_imported_file_is_shown_with_its_claims_beside_its_state() -> None:
    row = row_of(("scribe", record()))
    expected = {"status": "pending", "title": "旧", "sender": "Kuro + Alex", "receiver": "bob", "reviewer": "rita"}
    expected |= {"importer": "scribe", "claimed_author": "Kuro + Alex", "claimed_at": "02-14"}
    expected |= {"claimed_status": "done ✅", "claimed_done": "02-15", "original": REF}
    expected |= {"source": "memory/handoffs/h.md", "tasks_done": 1, "criteria_done": 0, "criteria_total": 2}
    assert {name: row[name] for name in expected} == expected
    after = record_after(("scribe", record())).lifecycle
    assert after is not None
    assert (after.criteria, after.tasks) == (("claimed", "open"), ("open", "done"))


def test_a_confirmed_import_claims_nothing_any_more_but_keeps_its_source() -> None:
    before = row_of(("scribe", record()))
    verified = kinds.HandoffVerified(result=before["result"])
    row = row_of(("scribe", record()), ("rita", verified))
    assert (row["status"], row["claimed_status"], row["verified_index"]) == ("verified", None, 1)
    assert (row["importer"], row["original"], row["source"]) == ("scribe", REF, "memory/handoffs/h.md")


def test_an_import_again_replaces_every_row() -> None:
    other = record(mapped={"title": "neu"}, claimed_author=None, source="b.md")
    row = row_of(("scribe", record()), ("scribe", other))
    assert (row["title"], row["sender"], row["receiver"], row["importer"]) == ("neu", "", "", "scribe")
    assert (row["source"], row["claimed_status"], row["claimed_done"]) == ("b.md", "", None)
    assert (row["tasks_total"], row["criteria_total"]) == (0, 0)
    assert (row["created_index"], row["template_index"]) == (0, 1)


def test_an_importer_who_sets_the_content_without_a_reviewer_is_shown_as_reviewer() -> None:
    amended = kinds.HandoffAmended(title="t", to="bob")
    row = row_of(("rita", record(mapped={"title": "t", "to": "bob"})), ("rita", amended))
    assert (row["status"], row["sender"], row["reviewer"]) == ("approved", "Kuro + Alex", "rita")
    assert row_of(("rita", kinds.HandoffCreated(title="t", to="bob")))["reviewer"] is None


def test_a_record_that_is_kept_aside_is_no_handoff() -> None:
    aside = RecordImported(original=REF, source="x", format="unknown", reason="no title")
    (event,) = facts("record/1", ("scribe", aside))
    assert keys(event) == ()
    assert rows_of(HANDOFF_VIEW, "1", [event]) == {}


def test_the_view_refuses_an_import_that_the_gate_refuses() -> None:
    with pytest.raises(Refused) as refused:
        handoff(("alice", CREATED), ("scribe", record()))
    assert refused.value.code == "TRANSITION_NOT_ALLOWED"


def test_why_tells_who_can_confirm_an_import(ledger, reader):
    ledger.emit("alice", "handoff/h", record(claims={"status": "approved"}))
    assert why(reader, "h") == (
        "h is not ready: it was imported as 'approved' and waits for rita to confirm it, by approving or verifying.",
        ["NOT_APPROVED"],
    )
    ledger.emit("alice", "handoff/n", record(mapped={"title": "t"}, claimed_author=None))
    assert "waits for a reviewer (its file names none)" in why(reader, "n")[0]


def test_what_waits_for_an_import_waits_whatever_it_claims(ledger, reader):
    ledger.emit("alice", "handoff/h", record())
    ledger.approve("waiting", ledger.hand_over("waiting", depends_on=["h"]))
    assert why(reader, "waiting")[1] == ["DEPENDENCY_PENDING"]
    ledger.verify("rita", "h")
    assert why(reader, "waiting") == ("waiting is ready: bob can claim it.", [])


def test_an_approved_file_that_names_nobody_to_do_it_is_not_ready(ledger, reader):
    ledger.emit("alice", "handoff/h", record(mapped={"title": "t", "reviewer": "rita"}))
    ledger.emit("rita", "handoff/h", kinds.HandoffApproved(version=ledger.handoff("h").version))
    sentence, codes = why(reader, "h")
    assert sentence.startswith("h is not ready: it has no receiver")
    assert codes == ["NOT_AUTHORIZED"]
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 0
    assert not reader.answer("handoffs.list")["items"][0]["is_ready"]
    assert unannounced(reader) == []


def test_an_approved_file_whose_receiver_is_not_registered_is_not_ready(ledger, reader):
    ledger.emit("alice", "handoff/h", record(mapped={"title": "t", "to": "kim", "reviewer": "rita"}))
    ledger.emit("rita", "handoff/h", kinds.HandoffApproved(version=ledger.handoff("h").version))
    sentence = "h is not ready: its receiver kim is not registered: register it, or amend the handoff to name another."
    assert why(reader, "h") == (sentence, ["AGENT_UNKNOWN"])
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 0
    assert unannounced(reader) == []
    ledger.register("kim")
    assert why(reader, "h") == ("h is ready: kim can claim it.", [])
    assert reader.answer("handoffs.list", {"ready": True})["total"] == 1
    assert [item["action"] for item in reader.answer("handoffs.next", {"agent": "kim"})["items"]] == ["claim"]


def test_an_imported_handoff_is_listed_for_its_reviewer_and_receiver(ledger, reader):
    ledger.emit("alice", "handoff/h", record())
    ledger.emit("rita", "handoff/own", record(mapped={"title": "t", "to": "bob"}))
    ledger.emit("rita", "handoff/own", kinds.HandoffAmended(title="t", to="bob"))
    for filters, ids in (
        ({"reviewer": "rita"}, ["own", "h"]),
        ({"to": "bob"}, ["own", "h"]),
        ({"from": "Kuro + Alex"}, ["own", "h"]),
        ({"reviewer": "Kuro + Alex"}, []),
    ):
        answer = reader.answer("handoffs.list", filters | {"history": "shown"})
        assert [row["id"] for row in answer["items"]] == ids
