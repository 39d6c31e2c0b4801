"""The state machine of an unmapped record: imported once. Its rules are ``proto/rules/record.json``."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.lifecycle.machine import owned_machine

MACHINE: Final = owned_machine("record")
