"""The state machine of a review: requested once, and answered once by a human. Rules: ``proto/rules/review.json``."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.lifecycle.machine import owned_machine

MACHINE: Final = owned_machine("review")
