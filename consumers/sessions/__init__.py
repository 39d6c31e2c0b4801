"""Sessions that nobody closed, and reports that nobody made: one call puts both right (seed 004, "Risks").

    from consumers.sessions.sweeping import sweep

    swept = sweep(author, answer, report, now_ms=now_ms, older_than_ms=24 * 3_600_000)
    print(len(swept.ended), "ended,", len(swept.reported), "reports made")
    for one in swept.unmade:
        print(one.session_id, one.error.message)

The words used here: a session is *idle* since the last event in its stream, by the ledger's clock; a report is
*missing* when a POSTFLIGHT, or a CHECK of a session that has ended, has no report behind it.
"""
