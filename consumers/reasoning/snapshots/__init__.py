"""Snapshots at work: an agent takes one, the next receives it and is told how far it may act on it.

    snapshot = take_snapshot(author, reader.answer, session="s1", reasoning="audit")
    decision = act_on(reader.answer, snapshot, author=receiver, task="Rotate the JWT secret")
    print(decision.action, decision.rule, decision.prompt.prompt)

To *take* is to sign a snapshot of a session and a reasoning, to *receive* is to read one at a level.
"""
