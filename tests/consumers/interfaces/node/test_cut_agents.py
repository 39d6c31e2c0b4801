"""The server disconnects and refuses an agent that is removed, or whose key is revoked, while it is connected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from building import Ledger
from forked_deed import run_deed
from served import connect, failure_of, register_on_bus, until, write_bus_key
from serving import CAROL, ServeProcess, remote

from deedbook.ledger.bus.subjects import read_subject
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.limits import poll_wait_max_s

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.home.config import Settings


def deed(settings: Settings, *arguments: str) -> None:
    """Run a verb as root in a process of its own."""
    done = run_deed("--home", settings.home, "--as", "root", *arguments, timeout=60)
    assert done.returncode == 0, done.stderr


def test_agent_that_lost_its_key_is_cut_off_while_it_waits_and_refused_after(home: Path) -> None:
    with Ledger(home) as ledger:
        for name in (CAROL, "dave"):
            register_on_bus(ledger, name)
            write_bus_key(ledger.home, name)
        write_bus_key(ledger.home, NODE)
        ledger.write_keys()
        settings, ledger_id, size, key = ledger.settings(), ledger.id, ledger.head()[0], ledger.keys[CAROL].public.hex()
    node = ServeProcess(settings)

    async def wait_and_be_cut() -> Any:
        cut = asyncio.Event()

        async def disconnected() -> None:
            cut.set()

        client = await connect(node.url, CAROL, allow_reconnect=False, disconnected_cb=disconnected)
        subject = read_subject(ledger_id, CAROL, "range")
        head = msgspec.json.decode((await client.request(read_subject(ledger_id, CAROL, "head"), b"")).data)
        assert head["size"] >= size
        wait = msgspec.json.encode({"start": 10**6, "wait_s": poll_wait_max_s})
        waiting = asyncio.create_task(client.request(subject, wait, timeout=60))
        await asyncio.to_thread(deed, settings, "key", "revoke", key)
        async with asyncio.timeout(20):  # far less than the wait of the read
            await cut.wait()
        await until(lambda: client.is_closed or not client.is_connected)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.close()

    try:
        asyncio.run(wait_and_be_cut())
        refused = failure_of(lambda: remote(settings, node.url))
        assert (refused.code, refused.details["agent"]) == ("BUS_DENIED", CAROL)
        with remote(settings, node.url, "dave") as client:
            assert client.head().size > size
    finally:
        assert node.stop() == 0
