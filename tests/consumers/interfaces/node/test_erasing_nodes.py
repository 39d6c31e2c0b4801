"""Bodies erased by a redaction over the bus: no file of a node, a client or the bus has them, and all keeps working."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest
from building import key_named
from erasing import SECRET, files_with, is_erased, redact, signed_redaction
from faults import times
from forked_deed import run_deed
from served import connect, until
from serving import (
    ServeProcess,
    as_carol,
    begin,
    carol,
    check_published,
    check_stream,
    find,
    published,
    remote,
)

from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.interfaces.node.recovery import Recovery
from deedbook.consumers.interfaces.node.workers import erase_bodies
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.admission import rewriter
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.client.remote import RemoteClient
    from deedbook.ledger.format.envelope import Submission
    from deedbook.ledger.home.config import Settings


def test_redaction_over_the_bus_clears_every_file_of_a_node_while_it_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    effects: list[str] = []

    def subscribe(client: RemoteClient, is_over: threading.Event) -> None:
        subscriptions = Subscriptions(tmp_path / "subscriber.db")
        reactor = Reactor(client, subscriptions, "one", wait_s=0.2)
        reactor.on("finding.logged")(lambda event, _: effects.append(event.data.finding))
        reactor.start_at(0)
        reactor.run(is_over)
        subscriptions.close()

    async def run() -> None:
        async with Node(settings) as node:
            is_over = threading.Event()
            with remote(settings, node.url) as client, remote(settings, node.url) as subscriber:
                following = asyncio.create_task(asyncio.to_thread(subscribe, subscriber, is_over))
                author = carol(client, settings)
                await asyncio.to_thread(author.emit, Draft(stream="session/work", data=SessionStarted()))
                (index,) = await asyncio.to_thread(find, author, f"the password is {SECRET}")
                await asyncio.to_thread(find, author, *map(str, range(20)))
                await published(node)
                rows = await asyncio.to_thread(client.view, "search.find", {"text": "password"})
                assert SECRET in str(rows)
                assert {path.partition("/")[0] for path in files_with(settings.home)} >= {"bus", "log"}
                assert any(path.startswith("views.db") for path in files_with(settings.home))
                writing = asyncio.create_task(asyncio.to_thread(find, author, *map(str, range(20, 60))))
                await asyncio.to_thread(redact, client, index, key_named(ROOT))
                await writing
                await until(lambda: files_with(tmp_path) == [])
                await published(node)
                await until(lambda: len(effects) == 61)
                is_over.set()
                await following
            assert is_erased(node.client.entry(index))
            nats = await connect(node.url, NODE)
            try:
                generation = await check_stream(nats, settings, node.client.log)
            finally:
                await nats.close()
            assert (generation.number, generation.redactions) == (2, 1)

    asyncio.run(run())
    assert effects == [f"the password is {SECRET}", *map(str, range(60))]


def test_node_that_is_killed_during_redactions_erases_whole_and_loses_nothing(settings: Settings) -> None:
    chance, rounds = random.Random(os.environ.get("DEEDBOOK_SEED")), times(1, 1.2)
    acknowledged: dict[str, int] = {}
    node = ServeProcess(settings)
    port, root = node.port, key_named(ROOT)
    as_carol(settings, node.url, begin)

    def submit(submission: Submission, secret: str) -> None:
        with remote(settings, f"nats://127.0.0.1:{port}") as client:
            while secret not in acknowledged:
                with contextlib.suppress(Unavailable):
                    acknowledged[secret] = client.submit(submission)[0].index

    for number in range(rounds):
        secret = f"{SECRET}, part {number:03}."
        with remote(settings, node.url) as client:
            index, *_ = find(carol(client, settings), f"the password is {secret}", f"public {number}")
            submission = signed_redaction(client, index, root)
        submitting = threading.Thread(target=submit, args=(submission, secret))
        submitting.start()
        time.sleep(chance.uniform(0, 0.4))
        node.kill()
        node = ServeProcess(settings, port)
        submitting.join(60)
        assert secret in acknowledged
        deadline = time.monotonic() + 60
        while held := files_with(settings.home, secret):
            assert time.monotonic() < deadline, held
    assert node.stop() == 0
    with LocalClient(settings) as client:
        entries = [read_event(index, client.entry(index)) for index in range(client.head().size)]
    erased = {event.index for event in entries if event.erased is not None}
    assert {entries[index].data.entry for index in acknowledged.values()} == erased
    assert len(erased) == rounds
    texts = [event.data.finding for event in entries if event.kind == "finding.logged"]
    assert texts == [text for number in range(rounds) for text in (ERASED, f"public {number}")]
    assert check_published(settings).redactions == rounds


def test_node_goes_on_while_the_command_line_redacts_beside_it_and_a_lost_log_comes_back_without_the_body(
    settings: Settings,
) -> None:
    node = ServeProcess(settings)
    as_carol(settings, node.url, begin)
    index, *_ = as_carol(settings, node.url, lambda _, author: find(author, f"the password is {SECRET}", "public"))
    redact = ("--home", settings.home, "redact", index, "--reason", "a password", "--yes")
    done = run_deed(*redact, timeout=60)
    assert done.returncode == 0, done.stderr
    assert as_carol(settings, node.url, lambda _, author: find(author, "and on"))
    deadline = time.monotonic() + 60
    while held := files_with(settings.home):
        assert time.monotonic() < deadline, held
    assert node.stop() == 0
    with LocalClient(settings) as client:
        head = client.head()
    assert check_published(settings).redactions == 1
    shutil.rmtree(settings.home / "log")

    async def bring_back() -> None:
        async with Recovery(settings) as recovery:
            lost = await recovery.lost()
            assert lost is not None
            await recovery.bring_back(lost, lambda _done, _total: None)

    asyncio.run(bring_back())
    with LocalClient(settings) as client, client.log.snapshot() as snapshot:
        assert snapshot.frontier(head.size).root().hex() == head.root
        assert is_erased(snapshot.entry(index))
    assert files_with(settings.home) == []


def test_node_that_stops_does_not_wait_for_the_end_of_the_rewriting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriter, "range_events_max", 1)
    stop = threading.Event()
    with LocalClient(settings) as client, Reader(client, settings) as reader:
        author = Author(client, "alice", lambda _: key_named("alice"))
        (_, finding) = author.emit(
            Draft(stream="session/s", data=SessionStarted()),
            Draft(stream="session/s", data=FindingLogged(finding=SECRET)),
        )
        redact(client, finding.index, key_named(ROOT))
        pages: list[int] = []
        take = rewriter._Copy._take

        def stop_at_first(copy: rewriter._Copy, page: list[bytes]) -> None:
            take(copy, page)
            pages.append(len(page))
            stop.set()

        with monkeypatch.context() as patch:
            patch.setattr(rewriter._Copy, "_take", stop_at_first)
            erase_bodies(client, reader, stop)
        assert pages == [1]
        assert files_with(settings.home / "log")
        assert not (settings.home / "log.rewritten").exists()
        client.finish_erasures()
        assert files_with(settings.home / "log") == []
