"""Learned addresses: which addresses that a server sends a client stores, and how it never uses them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING

import nkeys
import pytest

from deedbook.ledger.bus.connection import AsyncConnection
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.identity import Key
from deedbook.ledger.limits import addresses_max
from deedbook.ledger.proof.checkpoint import ADDRESS_TYPE, CheckpointKey, open_address, sign_address, sign_note

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bus

LEDGER = "0123456789abcdef" * 2
OURS = CheckpointKey("example.org/work", Key.generate().seed)
THEIRS = CheckpointKey("example.org/work", Key.generate().seed)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def known(configured: str = "nats://one.example:4222") -> KnownAddresses:
    """Return the addresses that a new process of a client with this configured server knows."""
    return KnownAddresses(LEDGER, configured, lambda: [OURS.verifier])


def answer(url: str, key: CheckpointKey = OURS) -> bytes:
    """Return the answer of a node that has this address."""
    return json.dumps({"name": "deedbook", "metadata": {"address": sign_address(url, key)}}).encode()


def learned(*answers: bytes, configured: str = "nats://one.example:4222") -> list[str]:
    """Return the addresses that a client knows after these answers."""
    addresses = known(configured)
    for each in answers:
        addresses.learn(each)
    assert known(configured).others == addresses.others
    return addresses.others


def test_address_that_a_node_signed_is_stored_and_the_last_one_comes_first() -> None:
    assert known().is_due
    assert learned(answer("nats://two.example:4222"), answer("tls://[2001:db8::1]:1")) == [
        "tls://[2001:db8::1]:1",
        "nats://two.example:4222",
    ]
    assert not known().is_due
    assert learned(answer("nats://two.example:4222"))[0] == "nats://two.example:4222"


def test_hundreds_of_addresses_leave_the_last_few() -> None:
    urls = [f"nats://n{number}.example:4222" for number in range(300)]
    assert learned(*map(answer, urls)) == urls[: -addresses_max - 1 : -1]
    assert known().file.stat().st_size < 4096


@pytest.mark.parametrize(
    "url",
    [
        "nats://one.example:4222",
        "nats://127.0.0.1:4222",
        "nats://localhost:4222",
        "nats://[::1]:4222",
        "nats://0.0.0.0:4222",
        "nats://127.1:4222",
        "nats://0:4222",
        "nats://2130706433:4222",
        "nats://0x7f.0.0.1:4222",
        "nats://LocalHost.:4222",
        "nats://ip6-localhost:4222",
        "nats://[::ffff:127.0.0.1]:4222",
        "nats://two.example:4222,nats://three.example:4222",
        "http://two.example:4222",
        "nats://user:password@two.example:4222",
        "nats://two.example:99999",
        "nats://" + "x" * 300 + ":4222",
        "two.example",
        "",
    ],
)
def test_address_that_is_none_or_is_this_very_machine_is_ignored(url: str) -> None:
    assert learned(answer(url)) == []


def test_client_of_this_machine_may_learn_another_address_of_it() -> None:
    assert learned(answer("nats://127.0.0.1:4300"), configured="nats://127.0.0.1:4222") == ["nats://127.0.0.1:4300"]


def test_plain_text_never_follows_tls() -> None:
    secure = "tls://one.example:4222"
    assert learned(answer("nats://two.example:4222"), answer("ws://two.example:4222"), configured=secure) == []
    assert learned(answer("tls://two.example:4222"), configured=secure) == ["tls://two.example:4222"]
    # The client also ignores an address without TLS that the same user learned in a folder whose server has no TLS.
    learned(answer("nats://three.example:4222"))
    assert known(secure).others == ["tls://two.example:4222"]


@pytest.mark.parametrize(
    "data",
    [
        answer("nats://two.example:4222", THEIRS),
        answer("nats://two.example:4222").replace(b"two", b"six"),
        json.dumps({"metadata": {"address": "nats://two.example:4222"}}).encode(),
        json.dumps(
            {"metadata": {"address": sign_note(f"{ADDRESS_TYPE}\nnats://a.example\nnats://b\n", OURS)}}
        ).encode(),
        json.dumps({"metadata": {"address": sign_note("something else\nnats://a.example\n", OURS)}}).encode(),
        json.dumps({"metadata": {"address": 7}}).encode(),
        json.dumps({"metadata": []}).encode(),
        b"[]",
        b"\xff",
        b"",
    ],
)
def test_address_that_no_node_of_this_ledger_signed_is_ignored(data: bytes) -> None:
    assert learned(data) == []
    assert known().is_due


def test_node_without_an_address_is_not_asked_again_at_once() -> None:
    assert learned(json.dumps({"metadata": {"ledger": LEDGER}}).encode()) == []
    assert not known().is_due


def test_note_of_another_type_is_no_address() -> None:
    with pytest.raises(Refused):
        open_address(sign_note("something else\nnats://a.example\n", OURS), OURS.verifier)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"addresses": 3}', b'{"addresses": ["nats://x"]}' * 9999])
def test_damaged_file_is_as_none(content: bytes) -> None:
    learned(answer("nats://two.example:4222"))
    known().file.write_bytes(content)
    assert known().others == []
    assert learned(answer("nats://two.example:4222")) == ["nats://two.example:4222"]


def test_use_of_a_learned_address_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        known().used("nats://two.example:4222")
    assert caplog.text.count("deed join --address nats://two.example:4222") == 1


class Learned:
    """A test double of the addresses that a client learned before."""

    def __init__(self, *others: str) -> None:
        self.others, self.is_due = list(others), False
        self.used_urls: list[str] = []

    def learn(self, answer: bytes) -> None:
        """Ignore the answer: ``is_due`` is false, so no client asks for addresses."""

    def used(self, url: str) -> None:
        """Note that an address is used."""
        self.used_urls.append(url)


def refusal_of(bus: Bus, learned_addresses: Learned, seed: str, server: str) -> DeedbookError:
    """Return the error of a client's request if the server at every address turns out to have another ledger."""

    async def greet(_exchange: object) -> None:
        raise Corrupted("VERIFICATION_FAILED", "it is another ledger")

    async def ask() -> None:
        connection = AsyncConnection(server, "alice", seed, greet, may_be_absent=True, addresses=learned_addresses)
        await connection.open()
        try:
            await connection.request(submit_subject(bus.ledger, "alice"), b"{}")
        finally:
            await connection.close()

    with pytest.raises(DeedbookError) as refused:
        asyncio.run(ask())
    return refused.value


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"nats://127.0.0.1:{free.getsockname()[1]}"


def test_another_ledger_at_a_learned_address_is_as_good_as_nobody(bus: Bus, nowhere: str) -> None:
    addresses = Learned(bus.server.url)
    error = refusal_of(bus, addresses, bus.seeds["alice"], nowhere)
    assert (error.code, addresses.used_urls) == ("BUS_UNAVAILABLE", [])
    # At the configured address, another ledger is an error that the user must see.
    assert refusal_of(bus, Learned(), bus.seeds["alice"], bus.server.url).code == "VERIFICATION_FAILED"


def test_server_at_a_learned_address_that_does_not_know_the_agent_does_not_hide_that_the_first_is_away(
    bus: Bus, nowhere: str
) -> None:
    stranger = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    error = refusal_of(bus, Learned(bus.server.url, "nats://127.0.0.1:1"), stranger, nowhere)
    assert error.code == "BUS_UNAVAILABLE"
    assert nowhere in error.message
    denied = refusal_of(bus, Learned(nowhere), stranger, bus.server.url)
    assert denied.code == "BUS_DENIED"
