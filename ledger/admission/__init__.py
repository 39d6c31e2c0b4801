"""The gate: every event passes here before it is in the log.

Order: size → strict JSON → schema → id → signature → duplicate → key valid at this index → ledger → idempotency →
stream version → the kind's rule. The first five need nothing but the bytes (``check``); the others need the state of
the log (``decide`` on ``state``, ``rules``). All rules are replayable: they depend on the log alone, so an auditor
runs the same code over the same entries and must come to the same answer.
"""
