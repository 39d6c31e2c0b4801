"""The gate: every event passes here before it is in the log.

Order: size → strict JSON → schema → id → signature → duplicate → key valid at this index → ledger → idempotency →
stream version → the kind's rule. The first five need nothing but the bytes (``check``); the others need the state of
the log (``decide`` on ``state``, ``rules``). All rules are replayable: they depend on the log alone, so an auditor
runs the same code over the same entries and must come to the same answer.

- ``check``: bytes → candidates, in any thread
- ``rules``: who may append which kind in which state; a kind without a rule is refused
- ``decide``: candidates → entries, on a layer over the state, so that a refusal leaves no trace
- ``gate``: the write transaction; decides all of a group first, writes after
- ``committer``: the one writer thread, for many callers at once
"""
