"""The three stores by name: thin names for existing functions of ledger, git and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from repositories import git, repository
from usage_examples import FINDINGS, run_session

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sessions.api import (
    DatabaseHandoffStorage,
    EpistemicHandoffReportGenerator,
    GitHandoffStorage,
    MarkdownHandoffStorage,
    bootstrap_session,
    end_session,
    generate_handoff_report,
)
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

REPORT = {
    "session_id": "test-456",
    "ai_id": "claude",
    "timestamp": "2025-11-02T10:00:00Z",
    "task_summary": "Test task",
    "epistemic_deltas": {"know": 0.25},
    "key_findings": ["Finding 1"],
    "remaining_unknowns": [],
    "next_session_context": "Continue",
    "recommended_next_steps": ["Step 1"],
    "calibration_status": "well_calibrated",
    "compressed_json": '{"test": "data"}',
    "markdown": "# Test Report",
}


def test_git_stores_notes_and_finds_them_wherever_head_is(tmp_path: Path) -> None:
    folder = repository(tmp_path / "project")
    storage = GitHandoffStorage(folder)
    assert storage.load_handoff("test-456") is None
    assert storage.store_handoff("test-456", REPORT) == git(folder, "rev-parse", "refs/notes/empirica/handoff/test-456")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "another")
    assert storage.load_handoff("test-456", format="json") == {"test": "data"}
    loaded = storage.load_handoff("test-456", format="markdown")
    assert loaded == {"markdown": "# Test Report"}


def test_files_are_stored_for_people_and_never_over_their_words(tmp_path: Path) -> None:
    storage = MarkdownHandoffStorage(tmp_path / "handoffs")
    assert storage.load_handoff("test-456", "claude") is None
    assert [one.status for one in storage.store_handoff("test-456", REPORT)] == ["written", "written"]
    loaded = storage.load_handoff("test-456", "claude")
    assert loaded is not None
    assert (loaded["markdown"].startswith("# Test Report"), loaded["compressed"]) == (True, {"test": "data"})
    (tmp_path / "handoffs" / "claude" / "test-456.md").write_text("mine")
    assert storage.store_handoff("test-456", REPORT)[0].status == "skipped"


@pytest.mark.usefixtures("agents_home")
def test_what_the_database_stores_is_a_signed_report_of_its_session() -> None:
    storage = DatabaseHandoffStorage()
    assert storage.load_handoff("test-456") is None
    assert storage.store_handoff("test-456", REPORT).startswith("event:")
    loaded = storage.load_handoff("test-456")
    assert loaded is not None
    assert (loaded["key_findings"], "Test task" in loaded["markdown"]) == (["Finding 1"], True)
    (found,) = storage.query_handoffs(ai_id="claude", limit=1)
    assert (found["ai_id"], found["session_id"]) == ("claude", "test-456")
    assert storage.query_handoffs(since="2099-01-01") == []


@pytest.mark.usefixtures("agents_home")
def test_a_generated_report_stands_alike_in_each_store_and_its_session_ends(tmp_path: Path) -> None:
    session_id = run_session("minimax", "Find the leak", FINDINGS)
    made = EpistemicHandoffReportGenerator().generate_handoff_report(session_id, "Found the leak", FINDINGS)
    database = DatabaseHandoffStorage()
    event = database.store_handoff(session_id, made)
    # The same report again: one event.
    assert generate_handoff_report(session_id, "Found the leak", FINDINGS)["report_id"] == event
    stored = database.load_handoff(session_id)
    assert stored is not None
    folder = repository(tmp_path / "project")
    GitHandoffStorage(folder).store_handoff(session_id, stored)
    MarkdownHandoffStorage(tmp_path / "files").store_handoff(session_id, stored)
    in_git = GitHandoffStorage(folder).load_handoff(session_id)
    in_files = MarkdownHandoffStorage(tmp_path / "files").load_handoff(session_id, "minimax")
    assert in_files is not None
    assert in_git == in_files["compressed"]
    end_session(session_id, "done")
    with Ledger() as ledger:
        assert ledger.ask("sessions.list", status="open")["total"] == 0
    with pytest.raises(Refused):
        end_session(session_id)
    with pytest.raises(Refused):
        end_session("never-started")
    end_session(bootstrap_session("Another"))
