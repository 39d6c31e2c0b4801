"""Chains as values: when an event meets conditions, then these handoffs. And every limit that a file of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from consumers.handoffs.router.templates import Template

CHAINS_FILE: Final = "chains.toml"

chains_size_max_bytes: Final = 256 * 1024
chains_max: Final = 64
steps_max: Final = 16
conditions_values_max: Final = 64
lines_max: Final = 64
hops_default: Final = 8
hops_limit: Final = 64

# The limits of the fields of ``handoff.created`` (ledger.events.fields), which a template must not exceed either.
label_max_chars: Final = 200
line_max_chars: Final = 2000
text_max_chars: Final = 40_000

CONDITIONS: Final = ("from", "to", "reviewer", "author", "id", "title", "kind", "chain")


class Condition(NamedTuple):
    """What one property of an event or its handoff must be: any of the patterns, in which ``*`` is any text."""

    name: str
    patterns: tuple[str, ...]

    def is_met_by(self, value: str) -> bool:
        """Whether a value is one of the condition's."""
        return any(fits(pattern, value) for pattern in self.patterns)


class Step(NamedTuple):
    """One handoff of a chain, as templates."""

    to: Template
    title: Template
    reviewer: Template | None
    id: Template | None
    task: Template | None
    context: Template | None
    proposal: Template | None
    answers: Template | None
    tasks: tuple[Template, ...]
    criteria: tuple[Template, ...]
    depends_on: tuple[Template, ...]
    unlock_at: Literal["completed", "verified"]


class Chain(NamedTuple):
    """When an event of one of ``kinds`` meets every condition, each step becomes a handoff."""

    name: str
    kinds: frozenset[str]
    where: tuple[Condition, ...]
    steps: tuple[Step, ...]
    hops_max: int


class Chains(NamedTuple):
    """All chains of a file, in its order."""

    chains: tuple[Chain, ...] = ()


def fits(pattern: str, text: str) -> bool:
    """Return whether ``text`` is ``pattern``, in which each ``*`` is any text; letters count as they are written."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        found = text.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return len(text) - len(last) >= position and text.endswith(last)
