"""The gate: every event passes here before it is in the log (DESIGN §5).

Order: size → strict JSON → schema → id → signature → duplicate → key valid at this index → ledger → idempotency →
stream version → the kind's rule. The first five need nothing but the bytes (``check``); the others need the state of
the log (``decide`` on ``state``, ``rules``). All rules are replayable: they depend on the log alone, so an auditor
runs the same code over the same entries and must come to the same answer.

- ``check``: bytes → candidates, in any thread
- ``rules``: one table kind → rule; a kind without one is refused. The larger families have rooms of their own
  (``authority_rules``, ``handoff_rules``), and ``conditions`` what several ask
- ``decide``: candidates → entries, on a layer over the state, so that a refusal leaves no trace
- ``gate``: the write transaction; decides all of a group first, writes after
- ``committer``: the one writer thread, for many callers at once
"""
