"""No agent gets ahead with more or larger requests, and a full queue drops requests of the flooder."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.service.fair_queue import FairQueue, Share, request_cost_bytes

WIDE = Share(
    waiting_max=1000,
    waiting_max_bytes=10**9,
    running_max=1000,
    running_max_bytes=10**9,
    all_waiting_max_bytes=10**9,
    all_running_max=10**6,
)


def serve_next(queue: FairQueue[str]) -> str | None:
    """Serve the next request and return its agent; None when none may run."""
    taken = queue.take()
    if taken is None:
        return None
    agent, item = taken
    queue.finish(agent, int(item))
    return agent


def order(queue: FairQueue[str]) -> list[str]:
    """Serve the requests one after the other and return their agents."""
    return list(iter(lambda: serve_next(queue), None))


def waiting(share: Share = WIDE, **sizes: list[int]) -> FairQueue[str]:
    """Return a queue in which requests of these sizes (in bytes) wait."""
    queue: FairQueue[str] = FairQueue(share)
    for agent, many in sizes.items():
        for size in many:
            assert queue.put(agent, str(size), size) == []
    return queue


def test_one_request_does_not_wait_behind_a_hundred() -> None:
    assert order(waiting(flood=[10] * 100, quiet=[10]))[:3].count("quiet") == 1


def test_large_requests_get_no_more_bytes_than_small_ones() -> None:
    served = order(waiting(large=[100 * request_cost_bytes] * 3, small=[0] * 400))
    assert 95 <= served[: served.index("large", 2)].count("small") <= 105


def test_idle_agent_saves_no_turns_up() -> None:
    queue = waiting(busy=[10] * 50)
    for _ in range(20):
        assert queue.take() == ("busy", "10")
        queue.finish("busy", 10)
    for _ in range(20):
        queue.put("idle", "10", 10)
    assert 8 <= order(queue)[:20].count("idle") <= 12


def test_agent_held_back_by_its_window_saves_no_turns_up() -> None:
    queue = waiting(replace(WIDE, running_max=1), slow=[10] * 20, quick=[10] * 40)
    assert [taken for _ in range(2) if (taken := queue.take())] == [("slow", "10"), ("quick", "10")]
    for _ in range(10):
        queue.finish("quick", 10)
        assert queue.take() == ("quick", "10")
    queue.finish("quick", 10)
    queue.finish("slow", 10)
    assert order(queue)[:10].count("slow") <= 6


def test_window_of_one_agent_is_bounded_and_leaves_room_for_others() -> None:
    queue = waiting(replace(WIDE, running_max=2), flood=[1] * 5, quiet=[1])
    assert sorted(agent for _ in range(4) if (taken := queue.take()) for agent in taken[:1]) == ["flood"] * 2 + [
        "quiet"
    ]
    queue = waiting(replace(WIDE, running_max_bytes=25), flood=[10] * 5, giant=[100])
    assert sorted(agent for _ in range(4) if (taken := queue.take()) for agent in taken[:1]) == ["flood"] * 2 + [
        "giant"
    ]
    queue = waiting(replace(WIDE, all_running_max=1), flood=[1] * 2)
    assert [queue.take(), queue.take()] == [("flood", "1"), None]


def test_full_queue_sheds_what_comes_and_only_of_that_agent() -> None:
    for share in (replace(WIDE, waiting_max=2), replace(WIDE, waiting_max_bytes=25)):
        queue = waiting(share, flood=[10, 10])
        assert queue.put("flood", "new", 10) == [("flood", "new")]
        assert queue.put("quiet", "10", 10) == []
        assert order(queue).count("quiet") == 1


def test_longest_queue_gives_way_when_all_together_are_too_long() -> None:
    queue = waiting(replace(WIDE, all_waiting_max_bytes=100), flood=[30, 31, 32])
    assert queue.put("quiet", "20", 20) == [("flood", "32")]
    assert sorted(order(queue)) == ["flood", "flood", "quiet"]


def test_request_that_comes_back_is_neither_shed_nor_dropped() -> None:
    queue = waiting(replace(WIDE, waiting_max=1), agent=[1])
    assert queue.take() == ("agent", "1")
    queue.finish("agent", 1)
    queue.put("agent", "2", 2)
    queue.put_back("agent", "1", 1)
    queue.drop("agent")
    assert [queue.take(), queue.take(), queue.waiting_bytes] == [("agent", "1"), None, 0]


def test_ten_thousand_agents_that_each_come_once_are_forgotten_while_another_is_busy() -> None:
    queue = waiting(busy=[10] * 10)
    most = 0
    for number in range(10_000):
        queue.put("busy", "10", 10)
        queue.put(f"agent-{number}", "10", 10)
        for _ in range(2):
            serve_next(queue)
        most = max(most, len(queue._accounts))
    assert most <= 4
    order(queue)
    assert queue._accounts == {}


def test_ten_thousand_agents_whose_requests_overlap_are_forgotten_when_nothing_waits() -> None:
    queue = waiting()
    for number in range(10_000):
        queue.put(f"agent-{number}", "10", 10)
        assert queue.take() == (f"agent-{number}", "10")
        if number:
            queue.finish(f"agent-{number - 1}", 10)
        assert len(queue._accounts) <= 2


def test_shed_and_dropped_requests_leave_no_account() -> None:
    queue = waiting(replace(WIDE, waiting_max_bytes=25))
    for number in range(100):
        assert len(queue.put(f"large-{number}", "26", 26)) == 1
        queue.put(f"dropped-{number}", "10", 10)
        queue.drop(f"dropped-{number}")
    assert queue._accounts == {}


def test_agent_that_sends_one_large_request_after_the_other_is_not_forgotten_in_between() -> None:
    cost = 100 * request_cost_bytes
    queue = waiting(large=[cost], small=[0] * 400)
    served = list[str | None]()
    while served.count("large") < 3:
        served.append(serve_next(queue))
        if served[-1] == "large":
            queue.put("large", str(cost), cost)
    assert 190 <= served.count("small") <= 210


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2000)), max_size=60), st.integers(1, 3))
def test_every_request_is_served_once_or_shed_and_each_agents_own_order_is_kept(
    requests: list[tuple[str, int]], running_max: int
) -> None:
    share = Share(5, 4000, running_max, 3000, 8000, 4)
    queue: FairQueue[int] = FairQueue(share)
    sizes = [size for _, size in requests]
    shed: list[tuple[str, int]] = []
    served: list[tuple[str, int]] = []
    for number, (agent, size) in enumerate(requests):
        shed += queue.put(agent, number, size)
        assert queue.waiting_bytes <= share.all_waiting_max_bytes
        if number % 3 == 0 and (taken := queue.take()) is not None:
            served.append(taken)
            assert queue.running <= share.all_running_max
            queue.finish(taken[0], sizes[taken[1]])
    while (taken := queue.take()) is not None:
        served.append(taken)
        queue.finish(taken[0], sizes[taken[1]])
    assert sorted([*served, *shed], key=lambda pair: pair[1]) == [(agent, n) for n, (agent, _) in enumerate(requests)]
    for agent in "abc":
        numbers = [number for whose, number in served if whose == agent]
        assert numbers == sorted(numbers)
    assert (queue.running, queue.waiting_bytes, queue._accounts) == (0, 0, {})
