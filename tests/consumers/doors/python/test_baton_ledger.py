"""The ledger as Python agents meet it: `baton.Ledger` and `baton.AsyncLedger`, in a folder and behind a server."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import baton
import pytest
from baton import AsyncLedger, BatonError, Event, Ledger, Refused, Unavailable
from calling import Baton, Place

from consumers.handoffs.acts import ACTS
from consumers.sdk.subscriptions import Subscriptions
from ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

_numbers = itertools.count(1)


def fresh(what: str = "it") -> str:
    """Return a name that no other test uses."""
    return f"{what}-{next(_numbers)}"


def opened(place: Place, agent: str | None = "kuro") -> Ledger:
    """Open a ledger as somebody."""
    return Ledger(agent, home=place.home, server=place.server)


def awaited(place: Place, work: Callable[[AsyncLedger], Coroutine[Any, Any, Any]], agent: str | None = "kuro") -> Any:
    """Run something on an async ledger."""

    async def run() -> Any:
        async with AsyncLedger(agent, home=place.home, server=place.server) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def refusal(action: Callable[[], object]) -> BatonError:
    """Return the error of an action."""
    with pytest.raises(BatonError) as failed:
        action()
    return failed.value


# What a program does, from the first event to the audit


def test_a_handoff_goes_from_its_creation_to_its_verification(place: Place) -> None:
    name = fresh("work")
    with opened(place) as kuro, opened(place, "claude-code") as claude, opened(place, "alex") as alex:
        kuro.handoff(name).create(to="claude-code", reviewer="alex", title="It", tasks=["do"], criteria=["done"])
        assert "waits for the approval of alex" in kuro.handoff(name).why()["sentence"]
        alex.handoff(name).approve(alex.handoff(name).show()["version"])
        work = claude.handoff(name)
        work.claim()
        work.log("on it")
        assert len(work.check(all_open=True)) == 2
        work.complete("all of it", artifacts=["a.py"])
        done = alex.handoff(name).show()
        alex.handoff(name).verify(done["version"], done["completion"], comment="good")
        shown = kuro.handoff(name).show()
        assert (shown["status"], shown["summary"]) == ("verified", "all of it")
        kinds = [event.kind for event in kuro.events(stream=f"handoff/{name}")]
        kinds = [kind for kind in kinds if kind != "handoff.ready"]  # a server's router tells, when it comes to it
    assert kinds == [
        "handoff.created", "handoff.approved", "handoff.claimed", "handoff.logged", "handoff.task_checked",
        "handoff.criterion_checked", "handoff.completed", "handoff.verified",
    ]  # fmt: skip


def test_the_same_verbs_are_awaited_on_an_event_loop(place: Place) -> None:
    name = fresh("work")

    async def create(ledger: AsyncLedger) -> str:
        await ledger.handoff(name).create(to="claude-code", reviewer="alex", title="It", criteria=["done"])
        version: str = (await ledger.handoff(name).show())["version"]
        return version

    async def work(ledger: AsyncLedger) -> list[str]:
        await ledger.handoff(name).claim()
        await ledger.handoff(name).check(criteria=[1])
        await ledger.handoff(name).complete("done")
        return [event.kind async for event in ledger.events(stream=f"handoff/{name}")]

    async def approve(ledger: AsyncLedger) -> None:
        await ledger.handoff(name).approve(version)

    version = awaited(place, create)
    awaited(place, approve, "alex")
    assert awaited(place, work, "claude-code")[-1] == "handoff.completed"


def test_every_other_verb_of_a_handoff_leads_where_its_name_says(place: Place) -> None:
    def status() -> str:
        return str(kuro.ask("handoffs.facts", id=name)["status"])

    def approved() -> None:
        alex.handoff(name).approve(kuro.handoff(name).show()["version"])

    name, other = fresh("work"), fresh("work")
    with opened(place) as kuro, opened(place, "claude-code") as claude, opened(place, "alex") as alex:
        work, review = claude.handoff(name), alex.handoff(name)
        assert repr(work) == f"Handoff('{name}')"
        for one in (name, other):
            kuro.handoff(one).create(to="claude-code", reviewer="alex", title="It", criteria=["done", "shown"])
        alex.handoff(other).reject("not now")
        kuro.handoff(name).amend(title="That", reason="clearer")
        approved()
        work.claim(lease_seconds=600)
        work.block("no key")
        assert status() == "blocked"
        review.unblock("here it is")
        work.release("too much")
        assert status() == "approved"
        work.claim()
        work.check(criteria=[1])
        review.waive(2, "nobody looks at it")
        work.complete("done")
        review.request_changes("the name", "the date")
        assert status() == "in_progress"
        kuro.handoff(name).supersede(other, reason="that one says it all")
        assert status() == "superseded"
        third = fresh("work")
        kuro.handoff(third).create(to="claude-code", reviewer="alex", title="Third")
        kuro.handoff(third).cancel("not needed")
        assert kuro.handoff(third).show()["status"] == "cancelled"


def test_reasoning_is_recorded_and_its_brief_is_checked_against_the_graph(place: Place) -> None:
    name = fresh("why")

    async def brief(ledger: AsyncLedger) -> dict[str, Any]:
        return await ledger.reasoning(name).brief(200)

    with opened(place) as ledger:
        reasoning = ledger.reasoning(name)
        reasoning.start("Which emitter?")
        reasoning.step("node:events has no dependency", type="observation", evidence=["package.json:1"])
        reasoning.step("An own emitter would only repeat it", rests_on=[1])
        reasoning.assume("Nobody needs wildcards", check="grep for '*'")
        reasoning.settle(3, "Validated: none in the tree")
        reasoning.conclude("Use node:events", limitations=["Node only"])
        assert len(reasoning.show()["memory"]["steps"]) == 3
        made = reasoning.brief(200)
    assert made["tokens"] <= 200
    assert "node:events" in made["prompt"]
    assert awaited(place, brief)["prompt"] == made["prompt"]


def test_a_session_keeps_what_was_learned(place: Place) -> None:
    with opened(place) as ledger:
        session = ledger.session(fresh("session"))
        session.start("Find the leak")
        session.assess("PREFLIGHT", {"know": 0.5, "uncertainty": 0.6})
        session.finding("It is in the cache", evidence=["cache.py:7"], impact=0.9)
        session.unknown("Since when?")
        session.dead_end("raise the limit", "it only takes longer")
        session.tool("pytest", "to see it fail")
        session.end("found")
        shown = session.show()
    assert [finding["finding"] for finding in shown["findings"]] == ["It is in the cache"]
    assert shown["status"] == "ended"


def test_the_audit_passes_and_says_that_nobody_vouched_for_the_root(place: Place) -> None:
    async def verify(ledger: AsyncLedger) -> bool:
        return (await ledger.verify()).ok

    with opened(place) as ledger:
        done: list[int] = []
        report = ledger.verify(progress=lambda step, _: done.append(step))
        assert report.ok
        assert done[-1] == ledger.client.head().size
        wrong = ledger.verify(root="0" * 64)
    assert not wrong.ok
    assert awaited(place, verify)


def test_an_event_is_found_again_by_index_and_id_and_its_receipt_verifies(place: Place) -> None:
    async def find(ledger: AsyncLedger) -> tuple[Event, int]:
        return await ledger.get(accepted.id), (await ledger.receipt(accepted.index)).index

    with opened(place) as ledger:
        (accepted,) = ledger.publish(f"session/{fresh()}", SessionStarted(task="it"))
        event = ledger.get(accepted.index)
        assert ledger.get(accepted.id) == ledger.get(accepted.id[: len("blake3:") + 12]) == event
        assert ledger.receipt(accepted.id).index == accepted.index
        assert refusal(lambda: ledger.get("f" * 64)).code == "NOT_FOUND"
    assert awaited(place, find) == (event, accepted.index)


# Publishing


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
            assert "publish it after the batch" in refusal(lambda: ledger.handoff(other).check(all_open=True)).message
        assert ledger.handoff(other).show()["status"] == "pending"
    awaited(place, go_on)
    with opened(place) as ledger:
        steps = ledger.reasoning(name).show()["memory"]["steps"]
    assert [(step["step_number"], step["content"]) for step in steps] == list(
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
        with pytest.raises(Refused, match="batch that this was published in is over"):
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
            assert ledger.ask("sessions.show", id=stream.removeprefix("session/"))["counts"]["findings"] == 5


# Reacting


def test_a_function_is_called_once_for_each_event_and_its_effect_commits_with_the_position(
    place: Place, tmp_path: Path
) -> None:
    stream, store = f"session/{fresh()}", tmp_path / "effects.db"
    with opened(place) as ledger:

        @ledger.on("finding.logged", where=lambda event: event.stream == stream)
        def note(event: Event, db: sqlite3.Connection) -> None:
            db.execute("CREATE TABLE IF NOT EXISTS notes (finding TEXT)")
            db.execute("INSERT INTO notes VALUES (?)", (event.data.finding,))

        ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"), FindingLogged(finding="b"))
        for _ in range(2):
            ledger.run("notes", after=-1, until=ledger.client.head().size, store=store)
        assert refusal(lambda: ledger.on("no.such_kind")).code == "UNKNOWN_KIND"
    with sqlite3.connect(store) as db:
        assert db.execute("SELECT finding FROM notes").fetchall() == [("a",), ("b",)]
    db.close()


def test_coroutines_react_too_and_what_raises_is_tried_again(place: Place, tmp_path: Path) -> None:
    stream, seen = f"session/{fresh()}", list[str]()

    async def react(ledger: AsyncLedger) -> None:
        @ledger.on("finding.logged", where=lambda event: event.stream == stream)
        async def note(event: Event, db: sqlite3.Connection) -> None:
            seen.append(event.data.finding)
            await asyncio.sleep(0)
            if len(seen) == 1:
                raise RuntimeError("once")

        await ledger.publish(stream, SessionStarted(), FindingLogged(finding="a"))
        end = [event.index async for event in ledger.events()][-1] + 1
        await ledger.run("notes", after=-1, until=end, store=tmp_path / "effects.db")

    awaited(place, react)
    assert seen == ["a", "a"]


def test_run_ends_when_it_is_stopped_and_a_second_one_of_its_name_is_refused(place: Place, tmp_path: Path) -> None:
    name = fresh("run")
    with opened(place) as ledger, opened(place) as other:
        began = threading.Event()
        stream = f"session/{name}"
        ledger.publish(stream, SessionStarted())

        @ledger.on("session.started")
        def note(event: Event, db: sqlite3.Connection) -> None:
            began.set()

        running = threading.Thread(target=ledger.run, args=(name,), kwargs={"after": -1, "store": tmp_path / "s.db"})
        running.start()
        assert began.wait(30)
        other.on("session.started")(note)
        assert refusal(lambda: other.run(name, store=tmp_path / "s.db")).code == "STORE_IN_USE"
        ledger.stop()
        running.join(30)
        assert not running.is_alive()


def test_closing_from_another_thread_ends_a_run(place: Place, tmp_path: Path) -> None:
    errors: list[BaseException] = []
    for number in range(3):
        ledger = opened(place)
        ledger.on("finding.logged")(lambda _event, _db: None)
        began = threading.Event()

        def work(ledger: Ledger = ledger, began: threading.Event = began, name: str = f"run-{number}") -> None:
            began.set()
            try:
                ledger.run(name, store=tmp_path / f"{name}.db")
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

        running = threading.Thread(target=work)
        running.start()
        began.wait(30)
        ledger.close()
        running.join(30)
        assert not running.is_alive()
    # Closed before it began, a run says so.
    assert [getattr(error, "code", error) for error in errors] in ([], ["USAGE"], ["USAGE"] * 2, ["USAGE"] * 3)


def test_following_yields_what_comes_until_it_is_stopped(place: Place) -> None:
    stream = f"session/{fresh()}"
    with opened(place) as ledger, opened(place) as other:
        ledger.publish(stream, SessionStarted(), FindingLogged(finding="first"))
        seen = []
        for event in ledger.follow("finding.logged", stream=stream, after=-1):
            seen.append(event.data.finding)
            if len(seen) == 2:
                ledger.stop()
            else:
                other.publish(stream, FindingLogged(finding="second"))
        assert seen == ["first", "second"]


# What goes wrong


def test_a_folder_without_a_ledger_a_server_that_is_away_and_a_wrong_name_are_typed_errors(
    tmp_path: Path, local_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(Ledger).code == "NO_LEDGER"
    assert refusal(AsyncLedger).code == "NO_LEDGER"
    assert refusal(lambda: Ledger(home=tmp_path / "none")).code == "NO_LEDGER"
    assert refusal(lambda: Ledger("No Name", home=local_home)).code == "INVALID_FIELD"
    monkeypatch.setattr("ledger.bus.connection.connect_timeout_s", 0.3)
    away = Place(local_home, "nats://127.0.0.1:1")
    assert refusal(lambda: opened(away)).code == "BUS_UNAVAILABLE"
    assert refusal(lambda: awaited(away, lambda ledger: ledger.open())).code == "BUS_UNAVAILABLE"
    assert refusal(lambda: opened(away, "stranger")).code == "KEY_FILE_MISSING"


def test_nobody_signs_without_a_name_or_a_key(place: Place) -> None:
    async def publish(ledger: AsyncLedger) -> None:
        await ledger.session(fresh()).start()

    with opened(place, None) as ledger:
        assert refusal(lambda: ledger.session(fresh()).start()).code == "USAGE"
        assert ledger.client.head().size > 0  # reading needs no name
    assert refusal(lambda: awaited(place, publish, None)).code == "USAGE"
    with Ledger("stranger", home=place.home) as stranger:
        assert refusal(lambda: stranger.session(fresh()).start()).code == "KEY_FILE_MISSING"


def test_a_sealed_key_is_opened_by_its_passphrase_given_or_asked_for(alone: Baton) -> None:
    alone("agent", "add", "kuro", "--passphrase-fd", _lines("secret"))
    for given, code in ((None, "KEY_LOCKED"), ("wrong", "KEY_LOCKED"), ("secret", ""), (lambda _: "secret", "")):
        with Ledger("kuro", home=alone.home, passphrase=given) as ledger:
            if code:
                assert refusal(lambda held=ledger: held.session(fresh()).start()).code == code  # type: ignore[misc]
            else:
                ledger.session(fresh()).start()


def _lines(text: str) -> int:
    """Return a descriptor that holds a line."""
    import os

    reading, writing = os.pipe()
    os.write(writing, text.encode() + b"\n")
    os.close(writing)
    return reading


def test_what_is_used_after_it_was_closed_says_so(place: Place) -> None:
    ledger = opened(place)
    ledger.close()
    ledger.close()
    for action in (lambda: ledger.ask("handoffs.list"), lambda: ledger.session("s").start(), lambda: ledger.get(0)):
        assert refusal(action).code == "USAGE"

    async def use() -> None:
        late = AsyncLedger("kuro", home=place.home, server=place.server)
        with pytest.raises(Refused, match="not open"):
            await late.ask("handoffs.list")
        await late.open()
        await late.close()
        await late.close()
        with pytest.raises(Refused, match="not open"):
            await late.get(0)

    asyncio.run(use())


def test_a_handler_that_raises_five_times_leaves_a_dead_letter_and_the_next_event_comes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from consumers.sdk.subscriptions import Subscriptions

    monkeypatch.setattr("consumers.sdk.reactor.retry_wait_max_s", 0.01)
    stream, seen = f"session/{fresh()}", list[str]()
    with opened(place) as ledger:

        @ledger.on("finding.logged", where=lambda event: event.stream == stream)
        def note(event: Event, _: sqlite3.Connection) -> None:
            seen.append(event.data.finding)
            if event.data.finding == "bad":
                raise ValueError("never")

        accepted = ledger.publish(stream, SessionStarted(), *(FindingLogged(finding=text) for text in ("bad", "good")))
        ledger.run("dead", after=accepted[0].index, until=accepted[-1].index + 1, store=tmp_path / "s.db")
    assert seen == ["bad"] * 5 + ["good"]
    subscriptions = Subscriptions(tmp_path / "s.db")
    assert [letter.error for letter in subscriptions.dead_letters("dead")] == ["ValueError: never"]
    subscriptions.close()


def test_a_function_that_could_never_be_called_rightly_is_refused_before_it_passes_an_event_over(place: Place) -> None:
    async def unawaited(event: Event, db: sqlite3.Connection) -> None:
        raise AssertionError(event, db)

    def without_store(event: Event) -> None:
        raise AssertionError(event)

    misfit: Any = without_store
    with opened(place) as ledger:
        assert "unawaited is a coroutine function" in str(refusal(lambda: ledger.on("handoff.completed")(unawaited)))
        assert "def without_store(event, db)" in str(refusal(lambda: ledger.on("handoff.completed")(misfit)))


def test_a_function_registered_for_no_kind_is_called_for_every_event(place: Place, tmp_path: Path) -> None:
    with opened(place) as ledger:
        begin = ledger.publish(f"session/{fresh()}", SessionStarted(task="a"), FindingLogged(finding="b"))[0].index
        met: list[str] = []

        @ledger.on()
        def note(event: Event, _: sqlite3.Connection) -> None:
            met.append(event.kind)

        ledger.run("all", after=begin - 1, until=begin + 2, store=tmp_path / "all.db")
    assert met == ["session.started", "finding.logged"]


def test_a_function_that_commits_by_itself_is_told_so_in_its_dead_letter(place: Place, tmp_path: Path) -> None:
    with opened(place) as ledger:
        begin = ledger.session(fresh()).start("it")[0].index

        @ledger.on("session.started")
        def note(_: Event, db: sqlite3.Connection) -> None:
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS met (x)")

        ledger.run("commits", after=begin - 1, until=begin + 1, store=tmp_path / "commits.db")
    with contextlib.closing(Subscriptions(tmp_path / "commits.db")) as kept:
        (letter,) = kept.dead_letters("commits")
    assert "the function ended its transaction" in letter.error


def test_one_text_where_several_are_meant_and_names_that_do_not_exist_are_refused(place: Place) -> None:
    name = fresh()
    wrong: dict[str, Any] = {"title": "It", "to": "claude-code", "reviewer": "alex"}
    with opened(place) as ledger:
        ledger.handoff(name).create(**wrong)
        for refused in (
            lambda: ledger.handoff(fresh()).create(**wrong, tasks="do it"),
            lambda: ledger.handoff(name).amend(criteria="tests pass"),
            lambda: ledger.session(fresh()).finding("it", evidence="a.py:1"),
            lambda: ledger.reasoning(fresh()).step("it", evidence="a.py:1"),
            lambda: ledger.reasoning(fresh()).conclude("it", limitations="none"),
            lambda: ledger.handoff(name).complete(artifacts="a.py"),
        ):
            assert "is a list of texts, not one text" in str(refusal(refused))
        assert "cannot set 'titel'" in str(refusal(lambda: ledger.handoff(name).amend(titel="Other")))
        vectors = {"kno": 0.5}
        assert "no vector 'kno'" in str(refusal(lambda: ledger.session(fresh()).assess("PREFLIGHT", vectors)))


def test_a_cancelled_call_leaves_the_ledger_usable_and_closing_waits_for_it(place: Place) -> None:
    stream = f"session/{fresh()}"

    async def cancel(ledger: AsyncLedger) -> int:
        await ledger.publish(stream, SessionStarted())
        calls = [asyncio.create_task(ledger.publish(stream, FindingLogged(finding=str(n)))) for n in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, list | asyncio.CancelledError) for result in results)
        waiting = asyncio.create_task(_first(ledger, stream))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ledger.publish(stream, FindingLogged(finding="after"))
        return sum([1 async for _ in ledger.events("finding.logged", stream=stream)])

    count = awaited(place, cancel)
    assert 11 <= count <= 21  # each that was not cancelled, and the last


async def _first(ledger: AsyncLedger, stream: str) -> Event:
    return await anext(aiter(ledger.follow("finding.logged", stream=stream)))


# The package


@pytest.mark.parametrize("changes", [{"status": "approved"}, {"skeleton": f"blake3:{'0' * 64}"}, {"created": "x"}])
def test_an_amendment_sets_what_creating_takes_and_nothing_else(place: Place, changes: dict[str, str]) -> None:
    with opened(place) as ledger:
        handoff = ledger.handoff(fresh())
        handoff.create(to="claude-code", reviewer="alex", title="It")
        assert refusal(lambda: handoff.amend(**changes)).code == "UNKNOWN_FIELD"
        handoff.amend(title="Another")
        assert handoff.show()["title"] == "Another"


def test_every_act_on_a_handoff_is_a_verb_of_the_noun() -> None:
    from baton.nouns import Handoff

    assert {verb for verb in ACTS if not callable(getattr(Handoff, verb, None))} == set()


def test_every_argument_of_creating_is_one_of_the_noun() -> None:
    from baton.nouns import Handoff

    taken = set(inspect.signature(Handoff.create).parameters) - {"self"}
    assert taken == {argument.name for argument in ACTS["create"].arguments}


def test_the_package_offers_what_it_names_and_nothing_else() -> None:
    names = [name for name in dir(baton) if not name.startswith("_") and name[0].isupper()]
    assert {"Ledger", "AsyncLedger", "Event", "Receipt", "Refused", "Unavailable"} <= set(names)
    assert all(getattr(baton, name) for name in names)
    assert not {"Path", "sys", "find_spec", "annotations"} & set(dir(baton))
    assert issubclass(Unavailable, BatonError)
    with pytest.raises(AttributeError):
        _ = baton.Nothing
