"""Hooks of families: the parts that a family adds to interfaces, found by the name of the hook.

| hook | its object | it is used by |
|---|---|---|
| `entry` | `interfaces.mcp.entries.FamilyEntry` | MCP: a type of entries of `record_reasoning` |
| `slash_command` | the path of a Markdown file | `deed setup`: a command of the harness, `/NAME` |
| `erased_copies` | a function of a client, the ledger's folder and a stream's id | `deed redact`, on each machine |
| `demo` | a function of a `demo.life.Life` | `deed demo` |

If a family cannot be used, its hooks are left out, and `deed doctor` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from deedbook.ledger.errors import Refused
from deedbook.ledger.families import installed
from deedbook.ledger.packages import part_of


def family_hooks(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the name of each family with a hook of this name, and the hook's object."""
    for family in installed():
        if name in family.hooks:
            with suppress(Refused):
                yield family.name, part_of(family, family.hooks[name])
