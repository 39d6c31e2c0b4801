"""A handoff starts when what it depends on has unlocked it, and no handoffs ever wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from building import Ledger


def refused(ledger: Ledger, action: Any, *arguments: Any, **fields: Any) -> Refused:
    """Return the refusal of an action that leaves no trace."""
    before = ledger.head()
    with pytest.raises(Refused) as caught:
        action(*arguments, **fields)
    assert ledger.head() == before
    return caught.value


def approved(ledger: Ledger, name: str, **fields: Any) -> None:
    """Create and approve a handoff."""
    ledger.approve(name, ledger.hand_over(name, **fields))


def test_claim_names_the_dependency_that_does_not_exist(ledger: Ledger) -> None:
    approved(ledger, "h1", depends_on=["ghost"])
    answer = refused(ledger, ledger.claim, "h1")
    assert (answer.code, answer.details, answer.recoverable) == ("DEPENDENCY_MISSING", {"on": "ghost"}, True)


def test_claim_names_the_dependency_that_is_pending(ledger: Ledger) -> None:
    ledger.finish("done")
    approved(ledger, "open")
    approved(ledger, "h1", depends_on=["done", "open"])
    answer = refused(ledger, ledger.claim, "h1")
    assert (answer.code, answer.details) == ("DEPENDENCY_PENDING", {"on": "open", "status": "approved"})


def test_claim_is_taken_once_all_dependencies_are_completed(ledger: Ledger) -> None:
    approved(ledger, "h1", depends_on=["one", "two"])
    ledger.finish("one")
    ledger.finish("two", verify=True)
    ledger.claim("h1")
    assert ledger.handoff("h1").status == "in_progress"


def test_dependency_may_have_to_be_verified(ledger: Ledger) -> None:
    ledger.finish("one")
    approved(ledger, "h1", depends_on=["one"], unlock_at="verified")
    assert refused(ledger, ledger.claim, "h1").details == {"on": "one", "status": "completed"}
    ledger.verify("rita", "one")
    ledger.claim("h1")
    assert ledger.handoff("h1").status == "in_progress"


def test_approval_is_asked_for_before_dependencies(ledger: Ledger) -> None:
    ledger.hand_over("h1", depends_on=["ghost"])
    assert refused(ledger, ledger.claim, "h1").code == "NOT_APPROVED"


def test_handoff_that_depends_on_itself_is_refused(ledger: Ledger) -> None:
    answer = refused(ledger, ledger.hand_over, "h1", depends_on=["h1"])
    assert (answer.code, answer.details["cycle"]) == ("DEPENDENCY_CYCLE", ["h1", "h1"])


def test_cycle_is_named_in_the_order_of_its_path(ledger: Ledger) -> None:
    ledger.hand_over("a", depends_on=["b"])
    ledger.hand_over("b", depends_on=["x", "c"])
    ledger.hand_over("x", depends_on=["y"])
    answer = refused(ledger, ledger.hand_over, "c", depends_on=["y", "a"])
    assert (answer.code, answer.details["cycle"]) == ("DEPENDENCY_CYCLE", ["c", "a", "b", "c"])
    assert "c → a → b → c" in answer.message


def test_shared_dependencies_are_no_cycle(ledger: Ledger) -> None:
    ledger.hand_over("left", depends_on=["base"])
    ledger.hand_over("right", depends_on=["base"])
    ledger.hand_over("top", depends_on=["left", "right", "base"])
    before = ledger.head()[0]
    ledger.hand_over("base")
    assert ledger.head()[0] == before + 1
    assert ledger.handoff("top").depends_on == ("left", "right", "base")


def test_long_chain_is_walked_to_its_end(ledger: Ledger) -> None:
    for number in range(60):
        ledger.hand_over(f"h{number}", depends_on=[f"h{number + 1}"])
    assert len(refused(ledger, ledger.hand_over, "h60", depends_on=["h0"]).details["cycle"]) == 62


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
        ledger.clock.advance(1)  # the same words again are another event, not a repeat
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
