"""The state machine of a decision: it is in force until its author, a reviewer or a human replaces or withdraws it.

Its rules are ``proto/rules/decision.json``.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.lifecycle.machine import (
    author_is_owner_or_reviewer,
    owned_machine,
    replacement_exists,
    replacement_is_another,
)

MACHINE: Final = owned_machine(
    "decision",
    {"replacement_is_another": replacement_is_another},
    {"author_is_owner_or_reviewer": author_is_owner_or_reviewer, "replacement_exists": replacement_exists},
)
