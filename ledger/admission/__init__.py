"""The gate: every event passes it before it is appended to the log.

Order: size → strict JSON → schema → id → signature → duplicate → key valid at this index → ledger → idempotency →
stream version → the kind's rule. The first five need only the bytes (``check``). The others need the state of the
log (``decide`` on ``state``, ``rules``). All rules are replayable: they depend on the log alone, so an auditor who
runs the same code over the same entries must get the same answer.
"""
