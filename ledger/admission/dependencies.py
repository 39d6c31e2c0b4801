"""What spans handoffs: whether those that one waits for have unlocked it, and that none waits for itself (seed 002)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ledger.errors import Refused
from ledger.lifecycle.handoff import HandoffState, is_unlocked

if TYPE_CHECKING:
    from ledger.admission.state import Layer
    from ledger.events.body import Event

# The walk over dependencies that looks for a cycle; beyond it the handoff is refused, never half-checked.
dependencies_walked_max: Final = 100_000


def check_dependencies(event: Event, after: HandoffState, state: Layer) -> None:
    """Refuse a claim that a dependency does not unlock.

    Raises:
        Refused: ``DEPENDENCY_MISSING`` or ``DEPENDENCY_PENDING``.
    """
    for wanted in after.depends_on:
        record = state.stream(f"handoff/{wanted}")
        if record is None:
            raise Refused("DEPENDENCY_MISSING", f"{event.name} depends on {wanted}, which does not exist", on=wanted)
        life = record.state
        if isinstance(life, HandoffState) and not is_unlocked(life.status, after.unlock_at):
            raise Refused(
                "DEPENDENCY_PENDING",
                f"{event.name} waits for {wanted}, which is {life.status}",
                on=wanted,
                status=life.status,
            )


def check_cycle(event: Event, depends_on: tuple[str, ...], state: Layer) -> None:
    """Refuse a handoff that would wait for itself.

    Raises:
        Refused: ``DEPENDENCY_CYCLE``, or ``TOO_LARGE`` beyond ``dependencies_walked_max``.
    """
    came_from: dict[str, str] = {}
    waiting = deque((wanted, event.name) for wanted in depends_on)
    while waiting:
        name, parent = waiting.popleft()
        if name in came_from:
            continue
        came_from[name] = parent
        if name == event.name:
            cycle = _path_back(came_from, name)
            raise Refused(
                "DEPENDENCY_CYCLE", "the handoffs would wait for each other: " + " → ".join(cycle), cycle=cycle
            )
        if len(came_from) > dependencies_walked_max:
            raise Refused("TOO_LARGE", f"{event.name} depends on more than {dependencies_walked_max} handoffs")
        record = state.stream(f"handoff/{name}")
        if record is not None and isinstance(record.state, HandoffState):
            waiting.extend((wanted, name) for wanted in record.state.depends_on)


def _path_back(came_from: dict[str, str], name: str) -> list[str]:
    path = [name]
    while (parent := came_from[path[-1]]) != name:
        path.append(parent)
    path.append(name)
    return path[::-1]
