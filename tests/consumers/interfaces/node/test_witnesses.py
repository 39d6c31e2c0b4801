"""A node and its witnesses: a real one, an unavailable one, and one that sends every wrong answer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import outside
import pytest
from building import Ledger
from cosigning import Signer
from http_double import HttpDouble
from msgspec.structs import replace
from structlog.testing import capture_logs
from witnessing import WitnessProcess, make

from deedbook.consumers.interfaces.node.witnessed import configured_witnesses, witnessed_of
from deedbook.consumers.interfaces.node.witnesses import Witnessing
from deedbook.consumers.sdk.receipts import Anchors, check, take
from deedbook.ledger import limits
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.home.config import Actions
from deedbook.ledger.home.location import WITNESSED_FILE
from deedbook.ledger.proof.checkpoint import Checkpoint, parse_checkpoint, sign_checkpoint
from deedbook.ledger.proof.policy import Policy
from deedbook.ledger.proof.receipt import Receipt
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

LIAR: Final = Signer("liar.example", 7)


class Liar(HttpDouble):
    """A witness that answers each request with the (status, body) of a function of the test."""

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        del path, headers
        return body.decode()

    def beyond_script(self) -> Any:
        return lambda body: (200, LIAR.line(note_in(body), int(time.time())))

    def send(self, request: BaseHTTPRequestHandler, reply: Any) -> None:
        status, content = reply(self.received[-1])
        self.send_head(request, status, {"content-length": str(len(content.encode()))})
        request.wfile.write(content.encode())


def note_in(body: str) -> str:
    return body.partition("\n\n")[2]


@pytest.fixture
def liar() -> Iterator[Liar]:
    double = Liar()
    yield double
    double.close()


@pytest.fixture
def client(ledger: Ledger) -> Iterator[LocalClient]:
    with ledger.client() as made:
        yield made


@pytest.fixture
def process(tmp_path: Path, ledger: Ledger) -> Iterator[WitnessProcess]:
    """A witness for each test: the tests' logs share an origin, and a witness never cosigns two histories."""
    make(tmp_path / "state", ledger.checkpoint_key.verifier.vkey)
    with WitnessProcess(tmp_path / "state") as made:
        yield made


def witnessing(client: LocalClient, policy: str, fail: str = "open") -> Witnessing:
    witnesses = configured_witnesses({"policy": policy, "fail": fail})
    assert witnesses is not None
    return Witnessing(client, witnesses[0], fail_closed=witnesses[1])


def ask(witnessing: Witnessing, *, rounds: int = 1) -> list[str]:
    """Let it ask without pauses; return the problems that it logged."""
    with capture_logs() as logs, ThreadPoolExecutor(4) as threads:
        for _ in range(rounds):
            for state in witnessing._states:
                state.again_s = 0.0
            witnessing.ask_once(threads)
    return [str(entry["error"]) for entry in logs if entry["event"] == "not witnessed"]


def of_liar(liar: Liar) -> str:
    return f"witness liar {LIAR.vkey} {liar.origin}\nquorum liar\n"


def any_of(process: WitnessProcess, liar: Liar) -> str:
    witnesses = f"witness one {process.vkey} {process.url}\nwitness liar {LIAR.vkey} {liar.origin}\n"
    return f"{witnesses}group g any one liar\nquorum g\n"


def witnessed(ledger: Ledger) -> str | None:
    path = ledger.home.path / WITNESSED_FILE
    return path.read_text() if path.exists() else None


def test_a_real_witness_cosigns_each_head_and_receipts_show_it(
    ledger: Ledger, client: LocalClient, process: WitnessProcess
) -> None:
    text = f"witness one {process.vkey} {process.url}\nquorum one\n"
    ours = witnessing(client, text)
    assert ask(ours) == []
    first = witnessed(ledger)
    ledger.emit("alice", "session/s", SessionStarted())
    ledger.emit("alice", "session/s", FindingLogged(finding="x"))
    assert ask(ours) == []
    note = client.checkpoint()
    assert note == witnessed(ledger) != first
    vkey = ledger.checkpoint_key.verifier.vkey
    assert outside.open_note(note.encode(), process.vkey) == outside.open_note(note.encode(), vkey)
    ledger.emit("alice", "session/s", FindingLogged(finding="not witnessed yet"))
    policy = Policy.parse(text.encode())
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as reading:
        size = parse_checkpoint(note).size
        receipt = take(reading, size - 1, policy=policy)
        result = check(Receipt.parse(receipt.to_text()), Anchors(policy=policy)).witnessed
        assert result is not None
        assert str(result).startswith("witnessed at 20")
        assert str(result).endswith(f" by 1 of 1 ({size} entries)")
        with pytest.raises(Corrupted, match="NOT_WITNESSED"):
            take(reading, size, policy=policy, wait_max_s=0.0)
        assert take(reading, size).index == size  # without a policy, no receipt waits for witnesses


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (lambda body: (200, Signer("liar.example", 8).line(note_in(body))), "has no cosignature of the key"),
        (lambda body: (200, Signer("other.example", 7).line(note_in(body))), "has no cosignature of the key"),
        (lambda body: (200, LIAR.line(note_in(body), 1_600_000_000)), "not from now"),
        (lambda body: (200, LIAR.line(note_in(body), 4_000_000_000)), "not from now"),
        (lambda body: (200, LIAR.line(note_in(body), 0)), "does not match the checkpoint"),
        (lambda body: (200, LIAR.line(note_in(body).replace("\n", "\n1", 1), int(time.time()))), "does not match"),
        (lambda body: (200, LIAR.line(note_in(body), int(time.time()), signed_time_s=1)), "does not match"),
        (lambda _: (200, ""), "has no cosignature"),
        (lambda _: (200, "<html>"), "INVALID_FORMAT"),
        (lambda _: (200, "x" * 300_000), "larger than"),
        (lambda _: (403, "no"), "status 403"),
        (lambda _: (500, "oh"), "status 500"),
        (lambda _: (302, ""), "status 302"),
        (lambda _: (409, "one\n"), "INVALID_FORMAT"),
        (lambda _: (409, "-1\n"), "INVALID_FORMAT"),
        (lambda _: (409, "9" * 400), "INVALID_FORMAT"),
        (lambda _: (409, "1000000\n"), "HISTORY_CHANGED: it has cosigned 1000000 entries"),
    ],
)
def test_a_witness_that_lies_is_told_of_and_nothing_of_it_is_kept(
    ledger: Ledger, client: LocalClient, liar: Liar, reply: Callable[[str], tuple[int, str]], problem: str
) -> None:
    ours = witnessing(client, of_liar(liar))
    liar.script = [reply, reply]
    [logged] = ask(ours)
    assert problem in logged
    assert witnessed(ledger) is None
    liar.script = []
    assert ask(ours) == []  # now it answers correctly
    assert witnessed(ledger) is not None


def test_a_witness_that_is_away_keeps_nobody_waiting_and_is_asked_less_and_less(
    ledger: Ledger, client: LocalClient, process: WitnessProcess, liar: Liar
) -> None:
    liar.close()  # its port does not answer any more
    text = any_of(process, liar)
    ours = witnessing(client, text)
    [logged] = ask(ours, rounds=3)  # a lasting problem is logged once
    assert "the connection failed" in logged
    assert witnessed(ledger) == client.checkpoint()
    away = ours._states[1]
    assert away.pause_s == 8.0
    assert ask(ours, rounds=9) == []
    assert away.pause_s == limits.witness_retry_max_s


def test_a_late_witness_is_added_to_the_note_that_others_made_enough(
    ledger: Ledger, client: LocalClient, process: WitnessProcess, liar: Liar
) -> None:
    text = any_of(process, liar)
    ours, policy = witnessing(client, text), Policy.parse(text.encode())
    liar.script = [lambda _: (503, "")]
    ask(ours)
    note = witnessed(ledger)
    assert note is not None
    assert policy.judge(note, time.time()).by == ["one"]
    ask(ours)
    note = witnessed(ledger)
    assert note is not None
    assert policy.judge(note, time.time()).by == ["liar", "one"]
    again = witnessing(client, text)  # a node that starts again asks only for missing cosignatures
    count = len(liar.received)
    ask(again)
    assert len(liar.received) == count
    assert witnessed(ledger) == note
    damaged = LIAR.line(note, int(time.time()), signed_time_s=1)
    (ledger.home.path / WITNESSED_FILE).write_text(note[: note.index("— liar")] + damaged)
    ask(witnessing(client, text))  # a damaged cosignature is requested again
    note = witnessed(ledger)
    assert note is not None
    assert policy.judge(note, time.time()).by == ["liar", "one"]


def test_a_witness_that_has_seen_less_gets_the_proof_from_there(
    ledger: Ledger, client: LocalClient, liar: Liar
) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    liar.script = [lambda _: (409, "3\n")]
    assert ask(witnessing(client, of_liar(liar))) == []
    first, second = liar.received
    assert first.startswith("old 0\n\n")
    head, _, note = second.partition("\n\n")
    old, *proof = head.split("\n")
    assert old == "old 3"
    with ledger.log.snapshot() as snapshot:
        before = snapshot.frontier(3).root()
    _, size, root = outside.open_note(note.encode(), ledger.checkpoint_key.verifier.vkey)
    outside.check_consistency((3, before), (size, root), [outside.b64decode(line) for line in proof])


def test_failing_closed_hands_out_witnessed_proofs_only_and_failing_open_all(
    ledger: Ledger, client: LocalClient, liar: Liar
) -> None:
    closed = witnessing(client, of_liar(liar), "closed")
    for give in (client.published_checkpoint, lambda: client.prove(0)):
        with pytest.raises(Corrupted, match="NOT_WITNESSED"):
            give()
    assert client.checkpoint()  # readers of the ledger itself still read
    ask(closed)
    note = client.published_checkpoint()
    size = ledger.emit("alice", "session/s", SessionStarted()).index
    assert client.published_checkpoint() == note
    assert client.prove(0).checkpoint_text == note
    with pytest.raises(Corrupted, match="NOT_WITNESSED"):
        client.prove(size)
    witnessing(client, of_liar(liar), "open")
    assert parse_checkpoint(client.published_checkpoint()).size == size + 1
    assert client.prove(size).checkpoint_text != note


def test_reader_learns_when_the_log_was_cosigned(ledger: Ledger, client: LocalClient, liar: Liar) -> None:
    table = {"policy": of_liar(liar), "fail": "closed"}
    settings = replace(ledger.settings(), actions=Actions(witness=table))

    def verdict(size: int, root: str) -> str:
        return str(witnessed_of(client, settings, size, root))

    ours, before = witnessing(client, table["policy"], "closed"), client.head()
    assert verdict(before.size, before.root).startswith("witnessed by 0 of 1")
    ledger.emit("alice", "session/s", SessionStarted())
    ask(ours)
    cosigned_size = ledger.head()[0]
    ledger.emit("alice", "session/s", FindingLogged(finding="not witnessed yet"))
    for head in (client.head(), before):  # a node may send an old head beside the cosigned one
        text = verdict(head.size, head.root)
        assert text.startswith("witnessed at 20")
        assert text.endswith(f"by 1 of 1 ({cosigned_size} entries)")
        with pytest.raises(Corrupted, match="HISTORY_CHANGED"):
            verdict(head.size, "0" * 64)
    assert witnessed_of(client, replace(settings, actions=Actions()), before.size, before.root) is None
    assert witnessed_of(client, ledger.settings(), before.size, before.root) is None


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"nonsense", b"a\n1\n" + b"A" * 43 + b"=\n\n\xe2\x80\x94 a AAAAAAAA\n"]
)
def test_a_damaged_note_counts_for_nothing(ledger: Ledger, client: LocalClient, content: bytes) -> None:
    good = client.checkpoint()
    (ledger.home.path / WITNESSED_FILE).write_bytes(content)
    assert client.checkpoint() == good
    assert client.prove(0).checkpoint_text == good


def test_a_note_of_a_log_that_is_no_more_counts_for_nothing(ledger: Ledger, client: LocalClient) -> None:
    key = ledger.checkpoint_key
    for size, root in ((2, bytes(32)), (10**6, bytes(32))):
        note = sign_checkpoint(Checkpoint(key.origin, size, root), key)
        (ledger.home.path / WITNESSED_FILE).write_text(note)
        assert parse_checkpoint(client.prove(0).checkpoint_text).size == ledger.head()[0]


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"policy": "quorum none"}, "INVALID_FIELD"),
        ({"fail": "open"}, "INVALID_FIELD"),
        ({"policy": "quorum none", "fail": "maybe"}, "INVALID_FIELD"),
        ({"policy": "quorum none", "fail": "open", "url": "x"}, "UNKNOWN_FIELD"),
        ({"policy": "quorum x", "fail": "open"}, "INVALID_FORMAT"),
        *(
            ({"policy": f"witness w {LIAR.vkey} {url}\nquorum w", "fail": "open"}, "INVALID_FIELD")
            for url in ("", "http://witness.example", "ftp://127.0.0.1", "https://user:pw@witness.example", "https://")
        ),
    ],
)
def test_settings_that_are_wrong_are_refused(table: dict[str, str], code: str) -> None:
    with pytest.raises(Refused, match=code):
        configured_witnesses(table)


def test_it_runs_until_it_is_stopped_and_begins_again_after_an_error(
    ledger: Ledger, client: LocalClient, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, stop = witnessing(client, of_liar(liar)), threading.Event()
    path = ledger.home.path / WITNESSED_FILE
    path.mkdir()  # nothing can replace a folder
    with pytest.raises(DeedbookError, match="STORE_UNAVAILABLE"):
        ours.run(stop)
    path.rmdir()
    monkeypatch.setattr(stop, "wait", lambda _: stop.set())
    ours.run(stop)  # asked only once in all: the cosignatures of the first run were kept
    assert len(liar.received) == 1
    assert witnessed(ledger) is not None
