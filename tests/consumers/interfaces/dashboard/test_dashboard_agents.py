"""The agents of a ledger, and the names that imported records claim."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec

from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import ReportGenerated, SessionStarted
from deedbook.projections.agents import queries

if TYPE_CHECKING:
    from looking import Viewer

STATUSES = {1: "overconfident", 2: "not_assessable"}  # claimed by another tool, and less precise than its values
REPORT = {
    "report_type": "complete",
    "ai_id": "x",
    "key_findings": ["f"],
    "epistemic_deltas": {"know": 0.4, "uncertainty": -0.9},
}


def imported(viewer: Viewer, name: str, number: int) -> None:
    """Let alice import a report that claims this author."""
    data = RecordImported(
        original=viewer.ledger.put_blob("alice", f"{name} {number}".encode()),
        source="notes/x",
        format="empirica/report",
        mapped_kind="report.generated",
        mapped=REPORT | {"task_summary": f"task {number}", "ai_id": name, "calibration_status": STATUSES[number]},
        claimed_author=name,
        claimed_at=f"2025-06-0{number}T10:00:00Z",
    )
    viewer.ledger.emit("alice", f"session/{name}-{number}", data)


def test_a_claimed_name_has_a_section_and_a_page_with_its_sessions_and_calibration(viewer: Viewer) -> None:
    for number in (1, 2):
        imported(viewer, "<i>qwen</i>", number)
    (row,) = viewer.data("/agents")["claimed"]["items"]
    assert (row["name"], row["records"], row["sessions"], row["is_registered"]) == ("<i>qwen</i>", 2, 2, False)
    assert row["first_ms"] < row["last_ms"]
    assert "&lt;i&gt;qwen" in viewer.page("/agents")
    shown = viewer.data("/a/%3Ci%3Eqwen%3C%2Fi%3E")["claimed"]
    assert [session["id"] for session in shown["sessions"]["items"]] == ["<i>qwen</i>-2", "<i>qwen</i>-1"]
    (calibration,) = shown["calibration"]
    assert (calibration["claimed"], calibration["total"], len(calibration["points"])) == (2, 2, 2)
    page = viewer.page("/a/%3Ci%3Eqwen%3C%2Fi%3E")
    assert "No agent of this ledger has this name" in page
    assert "Calibration, as 2 imported reports claim" in page


def test_the_table_says_which_agents_were_overconfident_lately(viewer: Viewer) -> None:
    for number, status in enumerate(("overconfident", "well_calibrated", "overconfident", "not_assessable")):
        report = REPORT | {"task_summary": "t", "calibration_status": status}
        for data in (SessionStarted(task="t", ai_id="b"), msgspec.convert(report, ReportGenerated)):
            viewer.ledger.emit("bob", f"session/s{number}", data)
    imported(viewer, "alice", 1)
    rows = {row["name"]: row["calibration"] for row in viewer.data("/agents")["agents"]}
    assert rows["bob"] == {"overconfident": 2, "well_calibrated": 1, "not_assessable": 1}
    assert rows["alice"] == {}  # an imported report does not count for the agent that imported it
    assert "2 overconfident" in viewer.page("/agents")
    with patch.object(queries, "judged_ms", 0):
        viewer.ledger.clock.advance(1)
        viewer.ledger.emit("alice", "session/s", SessionStarted(task="t", ai_id="a"))  # views have the log's time
        assert not any(row["calibration"] for row in viewer.data("/agents")["agents"])


def test_an_agent_with_a_claimed_name_is_not_mixed_with_it(viewer: Viewer) -> None:
    imported(viewer, "bob", 1)
    assert viewer.data("/agents")["claimed"]["items"][0]["is_registered"]
    shown = viewer.data("/a/bob")
    assert (shown["sessions"]["items"], shown["calibration"], shown["claimed"]["records"]) == ([], [], 1)
    assert "prove nothing about bob" in viewer.page("/a/bob")
    assert viewer.data("/a/alice")["claimed"] is None
    assert viewer.get("/a/nobody").status_code == 404
