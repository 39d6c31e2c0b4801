"""Sessions of work: their findings become a signed report, and the next agent resumes from it.

    from deedbook.consumers.sessions.api import bootstrap_session, generate_handoff_report, resume_previous_session

    session_id = bootstrap_session("Find the leak", ai_id="minimax")        # signed by DEEDBOOK_AGENT
    submit_preflight_assessment(session_id, {"know": 0.6, "uncertainty": 0.5})
    submit_postflight_assessment(session_id, {"know": 0.9, "uncertainty": 0.2}, "Found it")
    generate_handoff_report(session_id, "Found the leak", key_findings=["The pool is never closed"])
    print(resume_previous_session(ai_id="minimax", detail_level="detailed")["sessions"][0]["next_steps"])

A session is *started*, its phases are *executed* with text and *assessed* with vectors (``report``). A report is
*generated* from the author's inputs and the session's events (``generator``), *published* as a signed event
(``report``) and copied to git notes and files (``copies``). *Resuming* reads sessions within a number of tokens
(``resume``); *sweeping* ends sessions that nobody closed and makes missing reports (``open_sessions``).
"""
