"""Sessions at work: what one learned becomes a signed report, and the next agent resumes from it.

    from consumers.sessions import bootstrap_session, generate_handoff_report, resume_previous_session

    session_id = bootstrap_session("Find the leak", ai_id="minimax")        # signed by DEEDBOOK_AGENT, into DEEDBOOK_HOME
    submit_preflight_assessment(session_id, {"know": 0.6, "uncertainty": 0.5})
    submit_postflight_assessment(session_id, {"know": 0.9, "uncertainty": 0.2}, "Found it")
    generate_handoff_report(session_id, "Found the leak", key_findings=["The pool is never closed"])
    print(resume_previous_session(ai_id="minimax", detail_level="detailed")["sessions"][0]["next_steps"])

A session is *started*, its phases are *executed* with words and *assessed* with vectors (``report``); a report is
*generated* of what was given and recorded (``generator``), *published* as a signed event (``report``) and copied to git
notes and files (``copies``). To *resume* is to read sessions within a number of tokens (``resume``), to *sweep* to end
what nobody closed and report what nobody did (``open_sessions``).
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.sessions.api import DatabaseHandoffStorage as DatabaseHandoffStorage
    from consumers.sessions.api import EpistemicHandoffReportGenerator as EpistemicHandoffReportGenerator
    from consumers.sessions.api import GitHandoffStorage as GitHandoffStorage
    from consumers.sessions.api import MarkdownHandoffStorage as MarkdownHandoffStorage
    from consumers.sessions.api import bootstrap_session as bootstrap_session
    from consumers.sessions.api import end_session as end_session
    from consumers.sessions.api import execute_postflight as execute_postflight
    from consumers.sessions.api import execute_preflight as execute_preflight
    from consumers.sessions.api import generate_handoff_report as generate_handoff_report
    from consumers.sessions.api import load_handoff as load_handoff
    from consumers.sessions.api import query_handoff_reports as query_handoff_reports
    from consumers.sessions.api import query_handoffs as query_handoffs
    from consumers.sessions.api import resume_previous_session as resume_previous_session
    from consumers.sessions.api import submit_postflight_assessment as submit_postflight_assessment
    from consumers.sessions.api import submit_preflight_assessment as submit_preflight_assessment
else:
    __getattr__, __dir__ = front_door(__name__)
