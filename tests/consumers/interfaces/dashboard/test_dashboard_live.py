from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deedbook.consumers.interfaces.dashboard.live import heads
from deedbook.consumers.interfaces.web.stream import Followers
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    import pytest
    from looking import Viewer


def test_a_viewer_is_told_where_the_log_ends_and_each_time_it_grows(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.live.beat_s", 1e9)

    async def two() -> list[bytes]:
        tail = heads(viewer.ledger.client(), Followers().threads)
        told = [await anext(tail)]
        for name in ("a", "b", "c"):
            viewer.ledger.hand_over(name)
        told.append(await anext(tail))
        await tail.aclose()
        return told

    assert asyncio.run(two()) == [
        b"id: 3\nevent: position\ndata: 3\n\n",
        b"id: 6\nevent: position\ndata: 6\n\n",
    ]  # one line for all three


def test_whoever_hears_nothing_hears_that_it_still_goes_on(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.live.beat_s", 0.0)
    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.live.poll_wait_s", 0.01)

    async def three() -> list[bytes]:
        tail = heads(viewer.ledger.client(), Followers().threads)
        told = [await anext(tail) for _ in range(3)]
        await tail.aclose()
        return told

    assert asyncio.run(three()) == [b"id: 3\nevent: position\ndata: 3\n\n"] * 3


def test_there_are_only_so_many_places_to_look_from_and_none_once_it_ends(viewer: Viewer) -> None:
    viewer.dashboard.followers.end()
    assert viewer.get("/live").status_code == 503


def test_a_server_that_is_away_ends_the_tail(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = viewer.ledger.client()

    def away(*_, **__):
        raise Unavailable("BUS_UNAVAILABLE", "there is no connection")

    async def follow() -> list[bytes]:
        told = []
        async for line in heads(client, Followers().threads):
            told.append(line)
            monkeypatch.setattr(client, "entries", away)
        return told

    assert asyncio.run(follow()) == [b"id: 3\nevent: position\ndata: 3\n\n"]
