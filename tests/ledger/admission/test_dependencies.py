"""Dependencies in a real gate: no order of handoffs makes a cycle, and a long name slows no other handoff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from building import Ledger


def refused(ledger: Ledger, action: Any, *arguments: Any, **fields: Any) -> Refused:
    """Return the refusal of an action, which must leave the log unchanged."""
    return ledger.refusal_of(lambda: action(*arguments, **fields))


def approved(ledger: Ledger, name: str, **fields: Any) -> None:
    """Create and approve a handoff."""
    ledger.approve(name, ledger.hand_over(name, **fields))


def test_dependency_with_the_longest_name_there_is_costs_nobody_else(ledger: Ledger) -> None:
    # 200 Chinese characters are 600 bytes: more than a stream, or a key of the store, can have.
    approved(ledger, "h1", depends_on=["缓" * 200])
    assert refused(ledger, ledger.claim, "h1").code == "DEPENDENCY_MISSING"
    ledger.finish("h2")
    assert ledger.handoff("h2").status == "completed"


@given(edges=st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(0, 5), max_size=3)), max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_order_of_creation_lets_a_cycle_in(ledger: Ledger, edges: list[tuple[int, set[int]]]) -> None:
    run = ledger.head()[0]  # each example has handoffs of its own
    graph: dict[str, set[str]] = {}
    for number, wanted in edges:
        name, on = f"{run}-{number}", {f"{run}-{other}" for other in wanted}
        ledger.clock.advance(1)  # the same words at a later time are another event, not a repeat
        closes = name in graph or _reaches(graph | {name: on}, name)
        if closes:
            code = refused(ledger, ledger.hand_over, name, depends_on=sorted(on)).code
            assert code == ("TRANSITION_NOT_ALLOWED" if name in graph else "DEPENDENCY_CYCLE")
        else:
            ledger.hand_over(name, depends_on=sorted(on))
            graph[name] = on


def _reaches(graph: dict[str, set[str]], start: str) -> bool:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return False
