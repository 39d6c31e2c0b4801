"""Takes and receives snapshots: an agent takes one, and the next receives it with a decision how far to act on it.

    snapshot = take_snapshot(author, reader.answer, session="s1", reasoning="audit")
    decision = act_on(reader.answer, snapshot, author=receiver, task="Rotate the JWT secret")
    print(decision.action, decision.rule, decision.prompt.prompt)

To *take* a snapshot is to sign one of a session and a reasoning; to *receive* it is to read it at a level.
"""
