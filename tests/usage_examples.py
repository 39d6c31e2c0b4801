"""The content of the usage examples of reports, and a session that is recorded with the Python functions."""

from __future__ import annotations

from deedbook.consumers.sessions.api import (
    bootstrap_session,
    generate_handoff_report,
    submit_postflight_assessment,
    submit_preflight_assessment,
)

BEFORE = {"know": 0.70, "do": 0.90, "context": 0.80, "uncertainty": 0.65}
AFTER = {"know": 0.95, "do": 0.95, "context": 0.90, "uncertainty": 0.20}
FINDINGS = [
    "All 4 test categories passed (pytest, MCP tools, input validation, git parsing)",
    "Performance excellent: <15ms for progress tracking",
    "API uses factory pattern: Goal.create() and SubTask.create() with auto-ID",
    "Only 1 minor environmental issue (pytest config, non-blocking)",
    "Production readiness confirmed",
]
UNKNOWNS = [
    "Pytest environment configuration issue (causes silent failure)",
    "Long-term performance with 100+ goals not tested",
    "Production MCP tool response times need monitoring",
]
CONTEXT = (
    "Phase 1 complete and production-ready. Phase 2 (Git Notes Integration) implemented by RovoDev, needs validation."
    " Focus areas: GitProgressQuery class, MCP tool naming, Phase 1+2 integration."
)
ARTIFACTS = ["docs/current_work/GOAL_ARCHITECTURE_TEST_RESULTS.md", "manual_test_goals.py"]


def run_session(ai_id: str, task: str, findings: list[str]) -> str:
    """Run a session of an agent from its start to its report."""
    session_id = bootstrap_session(task, ai_id=ai_id)
    submit_preflight_assessment(session_id, BEFORE)
    submit_postflight_assessment(session_id, AFTER, generate_handoff=False)
    generate_handoff_report(session_id, task, findings)
    return session_id
