"""The same functions with a server: sessions, reports with long texts, and resuming, by an agent without the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from serving import CAROL, ServeProcess, make_home

from consumers.sessions import (
    bootstrap_session,
    generate_handoff_report,
    load_handoff,
    query_handoff_reports,
    resume_previous_session,
    submit_postflight_assessment,
    submit_preflight_assessment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def carols(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A node in another process, and how carol names it."""
    monkeypatch.chdir(home.parent if home.parent.exists() else "/")
    settings = make_home(home)
    node = ServeProcess(settings)
    try:
        yield {"home": settings.home, "server": node.url, "agent": CAROL}
    finally:
        node.stop()


def test_a_session_is_reported_and_resumed_over_the_bus(carols: dict[str, Any]) -> None:
    session_id = bootstrap_session("Find the leak", ai_id="minimax", **carols)
    submit_preflight_assessment(session_id, {"know": 0.4, "uncertainty": 0.6}, **carols)
    submit_postflight_assessment(session_id, {"know": 0.9, "uncertainty": 0.1}, generate_handoff=False, **carols)
    findings = [f"Finding {number}: " + "it goes on and on. " * 600 for number in range(5)]
    made = generate_handoff_report(session_id, "Found it", findings, **carols)
    assert generate_handoff_report(session_id, "Found it", findings, **carols)["report_id"] == made["report_id"]
    resumed = resume_previous_session("minimax", detail_level="detailed", **carols)
    assert resumed["sessions"][0]["session_id"] == session_id
    assert resumed["token_estimate"] <= 800
    loaded = load_handoff(session_id, "markdown", **carols)
    assert loaded is not None
    assert all(text.strip() in loaded["markdown"] for text in findings)
    assert query_handoff_reports(since="1 day ago", task_pattern="found", **carols)["total_found"] == 1
