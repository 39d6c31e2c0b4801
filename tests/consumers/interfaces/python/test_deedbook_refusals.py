"""Errors for Python agents are typed and say what to do."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from calling import Deed, Place
from deedbook_use import awaited, fresh, opened, refusal

from deedbook import AsyncLedger, Event, Ledger, Refused
from deedbook.ledger.events.session import FindingLogged, SessionStarted


def test_a_folder_without_a_ledger_a_server_that_is_away_and_a_wrong_name_are_typed_errors(
    tmp_path: Path, local_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(Ledger).code == "NO_LEDGER"
    assert refusal(AsyncLedger).code == "NO_LEDGER"
    assert refusal(lambda: Ledger(home=tmp_path / "none")).code == "NO_LEDGER"
    assert refusal(lambda: Ledger("No Name", home=local_home)).code == "INVALID_FIELD"
    monkeypatch.setattr("deedbook.ledger.bus.connection.connect_timeout_s", 0.3)
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


def test_a_sealed_key_is_opened_by_its_passphrase_given_or_asked_for(alone: Deed) -> None:
    alone("agent", "add", "kuro", "--passphrase-fd", _lines("long secret"))
    for given, code in (
        (None, "KEY_LOCKED"),
        ("wrong", "KEY_LOCKED"),
        ("long secret", ""),
        (lambda _: "long secret", ""),
    ):
        with Ledger("kuro", home=alone.home, passphrase=given) as ledger:
            if code:
                assert refusal(lambda held=ledger: held.session(fresh()).start()).code == code  # type: ignore[misc]
            else:
                ledger.session(fresh()).start()


def _lines(text: str) -> int:
    """Return a descriptor that holds a line."""
    reading, writing = os.pipe()
    os.write(writing, text.encode() + b"\n")
    os.close(writing)
    return reading


def test_what_is_used_after_it_was_closed_says_so(place: Place) -> None:
    ledger = opened(place)
    ledger.close()
    ledger.close()
    for action in (ledger.handoffs.list, lambda: ledger.session("s").start(), lambda: ledger.get(0)):
        assert refusal(action).code == "USAGE"

    async def use() -> None:
        late = AsyncLedger("kuro", home=place.home, server=place.server)
        with pytest.raises(Refused, match="not open"):
            await late.handoffs.list()
        await late.open()
        await late.close()
        await late.close()
        with pytest.raises(Refused, match="not open"):
            await late.get(0)

    asyncio.run(use())


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
        assert "cannot change 'titel': did you mean title?" in str(
            refusal(lambda: ledger.handoff(name).amend(titel="Other"))  # type: ignore[call-arg]
        )
        vectors = {"kno": 0.5}
        assert "no vector 'kno'" in str(refusal(lambda: ledger.session(fresh()).assess("PREFLIGHT", vectors)))


def test_advice_names_arguments_and_no_options(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(ledger: AsyncLedger) -> None:
        await ledger.handoff(name).check()

    name = fresh()
    with opened(place) as ledger:
        ledger.handoff(name).create(to="claude-code", reviewer="alex", title="It")
        messages = [
            str(refusal(lambda: ledger.handoff(name).check())),
            str(refusal(lambda: awaited(place, check))),
            str(refusal(lambda: ledger.verify(root="abc"))),
        ]
    monkeypatch.chdir(tmp_path)
    messages += [str(refusal(Ledger)), str(refusal(AsyncLedger))]
    advice = ["tasks=N, criteria=N, or all_open=True", "tasks=N", "root= takes", "home=", "home="]
    assert [text in message for text, message in zip(advice, messages, strict=True)] == [True] * 5, messages
    assert not [message for message in messages if "--" in message]


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
        # The thread of a cancelled call keeps running.
        waiting = asyncio.create_task(_first(ledger, f"session/{fresh('none')}"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ledger.publish(stream, FindingLogged(finding="after"))
        return sum([1 async for _ in ledger.events("finding.logged", stream=stream)])

    count = awaited(place, cancel)
    assert 11 <= count <= 21  # all calls that were not cancelled, and the last one


async def _first(ledger: AsyncLedger, stream: str) -> Event:
    return await anext(aiter(ledger.follow("finding.logged", stream=stream)))
