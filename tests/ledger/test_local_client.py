"""The local client passes the tests for all clients, and some that are possible only with a folder on this machine."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from building import SALT, Ledger
from client_suite import ClientSuite, signed_finding

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.home.config import Settings
from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def client(local_client: LocalClient) -> LocalClient:
    """The client under test."""
    return local_client


class TestLocalClient(ClientSuite):
    """Runs the tests of ``client_suite``."""


def test_client_that_shares_a_log_leaves_it_open(ledger: Ledger) -> None:
    with ledger.client() as client:
        assert client.head().size == ledger.head()[0]
    ledger.emit("alice", "session/s1", SessionStarted())


def test_client_of_its_own_closes_its_log(home: Path) -> None:
    with Ledger(home) as ledger:
        ledger.write_keys()
        settings = ledger.settings()
    for expected in (5, 6):
        with open_client(settings) as client:
            stream = f"session/s{expected}"
            client.submit(ledger.sign("alice", Draft(stream=stream, data=SessionStarted())))
            assert client.head().size == expected


def test_folder_without_entries_is_no_ledger(home: Path) -> None:
    (home / "log").mkdir(parents=True)
    with Log(home, create=True, map_size=2**26):
        pass
    with pytest.raises(DeedbookError) as refused:
        LocalClient(Settings(home=home))
    assert refused.value.code == "NO_LEDGER"
    with Log(home, map_size=2**26):
        pass  # the refused client left nothing open


def test_proof_without_the_checkpoint_key_names_what_is_missing(ledger: Ledger) -> None:
    ledger.write_keys()
    ledger.home.key_file("checkpoint").unlink()
    with LocalClient(ledger.settings(), log=ledger.log) as client:
        for call in (client.checkpoint, lambda: client.prove(0)):
            with pytest.raises(DeedbookError) as refused:
                call()
            assert refused.value.code == "KEY_FILE_MISSING"


def test_written_events_and_blobs_are_on_disk_for_the_next_process(home: Path) -> None:
    with Ledger(home) as ledger, ledger.client() as client:
        client.submit(ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted())))
        accepted = client.submit(signed_finding(ledger, "stored"))[0]
        ref = client.put_blob(b"content", ledger.intent("alice", b"content"))
    with Ledger(home) as again, again.client() as client:
        assert client.index_of("session/s1", accepted.id) == accepted.index
        assert client.get_blob(ref) == b"content"


def test_waiting_read_sleeps_through_entries_that_do_not_match(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.emit("alice", "session/s1", SessionStarted())
    start, naps = ledger.head()[0], list[int]()

    def write_meanwhile(_: float) -> None:
        naps.append(ledger.submit(signed_finding(ledger, str(len(naps))))[0].index)
        if len(naps) == 3:
            ledger.emit("alice", "session/s2", SessionStarted())

    monkeypatch.setattr("deedbook.ledger.client.local.time.sleep", write_meanwhile)
    with ledger.client() as client:
        page = client.entries(start, kinds=["session.started"], wait_s=20)
        assert ([index for index, _ in page.entries], page.next_index) == ([start + 3], start + 4)
        # A read that has passed existing entries returns at once, even if none matches: the caller may need only the
        # entries before an index.
        existing = client.entries(start, limit=2, kinds=["session.started"], wait_s=20)
    assert (existing.entries, existing.next_index, naps) == ([], start + 2, [start, start + 1, start + 2])


def test_waiting_read_of_a_watched_log_checks_it_again_when_entries_are_announced(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.client() as client, ThreadPoolExecutor(1) as threads:
        tables, checks = client.log.tables, []
        last_transaction = tables.last_transaction
        monkeypatch.setattr(tables, "last_transaction", lambda: checks.append(1) or last_transaction())
        client.log.announce()
        start = client.head().size
        page = threads.submit(client.entries, start, wait_s=20)
        time.sleep(0.3)  # without a watcher, the client would check the log 15 times
        assert len(checks) <= 2
        ledger.emit("alice", "session/s2", SessionStarted())
        client.log.announce()
        assert [index for index, _ in page.result(10).entries] == [start]


def test_author_draws_a_salt_for_each_body(ledger: Ledger) -> None:
    with ledger.client() as client:
        author = Author(client, "alice", lambda _: ledger.keys["alice"])
        drafts = [Draft(stream=f"session/s{number}", data=SessionStarted()) for number in range(2)]
        bodies = [body for _ in range(2) for body in author.sign(*drafts).bodies]
    salts = [decode_body(body)[0].salt for body in bodies]
    assert len({*salts}) == 4
    assert SALT not in salts
    assert all(len(urlsafe_b64decode(salt + "==")) == 16 for salt in salts)


def test_author_refuses_the_same_content_twice_in_one_submission(ledger: Ledger) -> None:
    started = Draft(stream="session/s1", data=SessionStarted())
    logged, other = (Draft(stream="session/s1", data=FindingLogged(finding=text)) for text in ("one", '"salt":"other'))
    before = ledger.head()
    with ledger.client() as client:
        author = Author(client, "alice", lambda _: ledger.keys["alice"])
        with pytest.raises(Refused) as refused:
            author.emit(started, other, logged, other)
        assert (refused.value.code, [each["position"] for each in refused.value.details["events"]]) == (
            "PARTIAL_RETRY",
            [3],
        )
        assert ledger.head() == before
        author.emit(started, other, logged)
        author.emit(other)  # at a later time, the same content is another event
