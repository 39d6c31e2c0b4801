"""Python agents publish: events of one call, batches under one signature, tasks and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from calling import Place
from deedbook_use import awaited, fresh, opened, refusal

from deedbook import AsyncLedger, Ledger, Refused
from deedbook.ledger.events.session import FindingLogged, SessionStarted


def test_several_events_of_one_call_share_a_signature_and_a_plain_dict_needs_its_kind(place: Place) -> None:
    stream = f"session/{fresh()}"
    with opened(place) as ledger:
        first, second = ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"), expect=0, idem=stream)
        assert second.index == first.index + 1
        again = ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"), expect=0, idem=stream)
        assert [(one.index, one.is_repeat) for one in again] == [(first.index, True), (second.index, True)]
        ledger.publish(stream, {"finding": "b"}, kind="finding.logged", causes=[first.id], corr="t")
        assert ledger.get(second.index + 1).causes == [first.id]
        for arguments, code in (
            (({"finding": "b"},), "USAGE"),
            ((), "USAGE"),
            ((FindingLogged(finding="c"), {"kind": "nothing.done"}), "USAGE"),
        ):
            assert refusal(lambda given=arguments: ledger.publish(stream, *given)).code == code  # type: ignore[misc]
        assert refusal(lambda: ledger.publish(stream, {}, kind="nothing.done")).code == "UNKNOWN_KIND"
        assert refusal(lambda: ledger.publish(stream, SessionStarted(), expect=0)).code == "STREAM_CONFLICT"


def test_a_batch_is_admitted_whole_under_one_signature_or_not_at_all(place: Place) -> None:
    stream = f"session/{fresh()}"
    with opened(place) as ledger:
        with ledger.batch() as batch:
            assert ledger.publish(stream, SessionStarted()) == []
            ledger.session(stream).finding("a")
        assert [one.is_repeat for one in batch.accepted] == [False, False]
        size = ledger.client.head().size
        refused = refusal(lambda: publish_two(ledger, lambda: ledger.handoff("no-such-handoff").claim()))
        assert [event["position"] for event in refused.details["events"]] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            publish_two(ledger, lambda: 1 // 0)
        with ledger.batch() as empty:
            pass
        assert empty.accepted == []
        with ledger.batch(), pytest.raises(Refused, match="do not nest"), ledger.batch():
            pass
        assert ledger.client.head().size == size


def publish_two(ledger: Ledger, second: Callable[[], object]) -> None:
    """Publish a finding and something else as one batch."""
    with ledger.batch():
        ledger.session("any").finding("b")
        second()


def test_steps_of_a_batch_are_numbered_one_after_the_other_and_an_act_that_reads_it_is_refused(place: Place) -> None:
    name, other = fresh("why"), fresh("work")

    async def go_on(ledger: AsyncLedger) -> None:
        async with ledger.batch():
            await ledger.reasoning(name).step("fifth")
            await ledger.reasoning(name).conclude("done")

    with opened(place) as ledger:
        with ledger.batch():
            ledger.reasoning(name).start("Which?")
            ledger.reasoning(name).step("first")
            ledger.reasoning(name).assume("second")
        with ledger.batch():
            ledger.reasoning(name).step("third", rests_on=[1])
            ledger.reasoning(name).step("fourth", rests_on=[3])
            ledger.handoff(other).create(to="claude-code", reviewer="alex", title="It", criteria=["done"])
            assert "call it after the batch" in refusal(lambda: ledger.handoff(other).check(all_open=True)).message
        assert ledger.handoff(other).show().status == "pending"
    awaited(place, go_on)
    with opened(place) as ledger:
        steps = ledger.reasoning(name).show().memory.steps
    assert [(step.step_number, step.content) for step in steps] == list(
        enumerate(("first", "second", "third", "fourth", "fifth"), 1)
    )


def test_tasks_of_a_batch_publish_into_it_and_one_that_outlives_it_is_refused(place: Place) -> None:
    stream = f"session/{fresh()}"

    async def publish(ledger: AsyncLedger) -> int:
        over = asyncio.Event()

        async def late() -> None:
            await over.wait()
            await ledger.session(stream).finding("late")

        async with ledger.batch() as batch:
            await ledger.session(stream).start()
            await asyncio.gather(*(ledger.session(stream).finding(str(number)) for number in range(3)))
            outliving = asyncio.create_task(late())
        over.set()
        with pytest.raises(Refused, match="this batch is closed"):
            await outliving
        return len(batch.accepted)

    assert awaited(place, publish) == 4


def test_threads_share_a_ledger_and_each_has_its_own_batches(place: Place) -> None:
    streams = [f"session/{fresh()}" for _ in range(4)]
    with opened(place) as ledger:

        def work(stream: str) -> None:
            ledger.publish(stream, SessionStarted())
            with ledger.batch() as batch:
                for number in range(5):
                    ledger.publish(stream, FindingLogged(finding=str(number)))
            assert len(batch.accepted) == 5

        threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in streams:
            assert len(list(ledger.events(stream=stream))) == 6
            assert ledger.session(stream).show().counts.findings == 5
