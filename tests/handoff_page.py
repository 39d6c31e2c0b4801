"""``proto/HANDOFF.md``, generated from the rules of handoffs and the table of their operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deedbook.consumers.handoffs.operations import OPERATIONS, spelled
from deedbook.ledger.lifecycle.rules import NONE, rules_of

_HEAD: Final = """# The statuses and operations of a handoff

Generated: `make contract`, from [rules/handoff.json](rules/README.md) and the table of operations. The *sender* creates
a handoff, the *reviewer* approves exactly one version of its content, and the *receiver* does the work.
"""
_NOTES: Final = """\
Four things are not in this table. `create` and `amend` lead to `approved` only if a human signs and names no reviewer.
After its lease has expired, a handoff can be claimed, amended and approved like an approved one. `approve` in the
status `approved` is possible only if the earlier approval has a compromised signature. A reviewer can also verify an
imported handoff that is `pending`.
"""


def handoff_page() -> str:
    """Return the page."""
    rules = rules_of("handoff")
    states = {name: state for name, state in rules.states.items() if name != NONE and state.status is None}
    statuses = [(f"`{name}`", state.meaning, state.next or "–") for name, state in states.items()]
    operations = []
    for verb, operation in OPERATIONS.items():
        befores = [f"`{name}`" for name in operation.from_statuses]
        afters = dict.fromkeys(f"`{after}`" for row in operation.rows if (after := rules.status_after(row)))
        before = "in any status" if len(befores) == len(states) else ", ".join(befores) or "–"
        operations.append((f"`{spelled(verb)}`", ", ".join(operation.by), before, " or ".join(afters) or "–"))
    return (
        "\n".join(
            [
                _HEAD,
                *table(("status", "meaning", "next"), statuses),
                "",
                *table(("operation", "by", "while the handoff is", "then it is"), operations),
                "",
                _NOTES,
            ]
        ).rstrip("\n")
        + "\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
