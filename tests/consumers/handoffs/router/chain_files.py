"""Files of chains for tests, and the possible facts of an event."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.consumers.handoffs.router.chains import Chain
from deedbook.consumers.handoffs.router.chains_file import read_chains
from deedbook.consumers.handoffs.router.plans import Facts

EVENT: Final = "event:" + "ab" * 32

STORY: Final = b"""
[[chain]]
name = "validate"
when = "handoff.verified"
where = {to = "minimax", title = "Tests*"}

[chain.then]
to = "claude"
title = "Validate: {title}"
task = \"\"\"
minimax verified {id} on {day}:

{summary}
\"\"\"
tasks = ["Read {artifacts}", "Run them again"]
criteria = ["Every test fails when the code is broken"]
depends_on = ["{id}"]
unlock_at = "verified"

[[chain]]
name = "optimize"
when = ["handoff.completed", "handoff.verified"]
where = {chain = "validate", kind = "handoff.verified"}
then = {to = "gemini", title = "Optimize after {id}", depends_on = ["{id}"], answers = "{id}"}
"""


def chain(text: str = "", *, name: str = "c", when: str = "handoff.verified", then: str | None = None) -> Chain:
    """Return the one chain, with the addition ``text``."""
    step = then or 'to = "bob"\ntitle = "Go on: {title}"'
    content = f'[[chain]]\nname = "{name}"\nwhen = "{when}"\n{text}\n[chain.then]\n{step}\n'
    (found,) = read_chains(content.encode())
    return found


def facts(**given: Any) -> Facts:
    """Return the facts of a handoff from alice to minimax that rita verified."""
    made: dict[str, Any] = {
        "event_id": EVENT,
        "index": 9,
        "kind": "handoff.verified",
        "author": "rita",
        "day": "2026-02-12",
        "id": "t1",
        "title": "Tests of the bus",
        "sender": "alice",
        "receiver": "minimax",
        "reviewer": "rita",
    }
    return msgspec.convert(made | given, Facts) if "lineage" not in given else Facts(**(made | given))
