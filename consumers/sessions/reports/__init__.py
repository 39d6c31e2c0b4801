"""Handoff reports at work: what a session learned becomes a signed report, and the next agent resumes from it (004).

    from consumers.sessions.reports import bootstrap_session, generate_handoff_report, resume_previous_session

    session_id = bootstrap_session("Find the leak", ai_id="minimax")        # signed by BATON_AGENT, into BATON_HOME
    submit_preflight_assessment(session_id, {"know": 0.6, "uncertainty": 0.5})
    submit_postflight_assessment(session_id, {"know": 0.9, "uncertainty": 0.2}, "Found it")
    generate_handoff_report(session_id, "Found the leak", key_findings=["The pool is never closed"])
    print(resume_previous_session(ai_id="minimax", detail_level="detailed")["sessions"][0]["next_steps"])

The words used here: to *generate* is to make a report of what was given and recorded, to *publish* to sign it as an
event; to *resume* is to read sessions within a number of tokens; to *pack* is to choose what goes into those. Names are
loaded when first asked for.

Refused: prompting the agent for what its events say already; a report as a file that the event copies; counting tokens
by characters; one text field for everything, which a program could not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.sessions.reports.api import (
        bootstrap_session,
        execute_postflight,
        execute_preflight,
        generate_handoff_report,
        load_handoff,
        query_handoff_reports,
        query_handoffs,
        resume_previous_session,
        submit_postflight_assessment,
        submit_preflight_assessment,
    )
    from consumers.sessions.reports.generator import EpistemicHandoffReportGenerator, generate
    from consumers.sessions.reports.inputs import ReportInputs
    from consumers.sessions.reports.publishing import publish_report
    from consumers.sessions.reports.querying import query_reports
    from consumers.sessions.reports.resuming import resume
    from consumers.sessions.reports.since import parse_since

__all__ = [
    "EpistemicHandoffReportGenerator",
    "ReportInputs",
    "bootstrap_session",
    "execute_postflight",
    "execute_preflight",
    "generate",
    "generate_handoff_report",
    "load_handoff",
    "parse_since",
    "publish_report",
    "query_handoff_reports",
    "query_handoffs",
    "query_reports",
    "resume",
    "resume_previous_session",
    "submit_postflight_assessment",
    "submit_preflight_assessment",
]

__getattr__ = front_door(
    __name__,
    {
        "api": (
            "bootstrap_session",
            "execute_postflight",
            "execute_preflight",
            "generate_handoff_report",
            "load_handoff",
            "query_handoff_reports",
            "query_handoffs",
            "resume_previous_session",
            "submit_postflight_assessment",
            "submit_preflight_assessment",
        ),
        "generator": ("EpistemicHandoffReportGenerator", "generate"),
        "inputs": ("ReportInputs",),
        "publishing": ("publish_report",),
        "querying": ("query_reports",),
        "resuming": ("resume",),
        "since": ("parse_since",),
    },
)
