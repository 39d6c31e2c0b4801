"""The state machine of a question outside of handoffs: asked, answered by the asked agent, settled by its author.

Its rules are ``proto/rules/question.json``.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.lifecycle.machine import (
    asks_another,
    author_is_owner_or_reviewer,
    owned_machine,
    receiver_is_registered,
)

MACHINE: Final = owned_machine(
    "question",
    {"asks_another": asks_another},
    {"author_is_owner_or_reviewer": author_is_owner_or_reviewer, "receiver_is_registered": receiver_is_registered},
)
