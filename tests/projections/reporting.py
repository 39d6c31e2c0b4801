"""Reports for tests: an example with all fields, some of which a test may replace."""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.events.session import Deltas, FilledGap, ReportGenerated, Vectors
from deedbook.projections.reports.report import Report, report_of

SESSION: Final = "7f3a2b10-aaaa-bbbb-cccc-000000000001"
EVENT: Final = "event:" + "ab12" * 16
AT_MS: Final = 1_770_890_400_123

BEFORE: Final = {"know": 0.70, "do": 0.90, "context": 0.80, "uncertainty": 0.65}
AFTER: Final = {"know": 0.95, "do": 0.95, "context": 0.90, "uncertainty": 0.20}


def generated(**fields: Any) -> ReportGenerated:
    """Return the data of the event of the example report, with ``fields`` replaced."""
    made: dict[str, Any] = {
        "report_type": "complete",
        "ai_id": "minimax",
        "task_summary": "Validated the goal architecture",
        "key_findings": ["All 4 test categories passed", "Performance is excellent: <15ms"],
        "recommended_next_steps": ["Ready for execution - strong epistemic foundation"],
        "calibration_status": "well_calibrated",
        "accomplished": ["Ran every test"],
        "knowledge_gaps_filled": [
            FilledGap(gap="Domain knowledge", before="KNOW: 0.70", after="KNOW: 0.95", confidence_change=0.25)
        ],
        "remaining_unknowns": ["Long-term performance"],
        "investigation_tools": ["pytest"],
        "next_session_context": "Phase 2 needs validation.",
        "artifacts_created": ["docs/RESULTS.md"],
        "epistemic_deltas": Deltas(know=0.25, do=0.05, context=0.1, uncertainty=-0.45, overall_confidence=0.213),
        "preflight": Vectors(**BEFORE),
        "postflight": Vectors(**AFTER),
        "overall_confidence_before": 0.683,
        "overall_confidence_after": 0.896,
        "is_overall_given": True,
        "duration_seconds": 3900,
    }
    return ReportGenerated(**(made | fields))


def report(**fields: Any) -> Report:
    """Return the example report, with ``fields`` replaced."""
    return report_of(SESSION, EVENT, 7, "bob", AT_MS, generated(**fields))
