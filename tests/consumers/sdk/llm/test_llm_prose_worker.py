"""Prose beside a brief: several requests at a time, repeated after a failure, and never delaying the brief."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from graphs import audit_json
from llm_stub import Reply, Vendor, says, says_json

from deedbook.consumers.interfaces.node.workers import workers_of
from deedbook.consumers.reasoning import workers
from deedbook.consumers.reasoning.compressor.certificate import check_certificate
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.compressor.transfer import described, receive_brief
from deedbook.consumers.reasoning.workers import (
    LEVELS,
    PROSE_AWAITED,
    CompressorWorker,
    ProseStore,
    ProseWorker,
    prose_wait_first_s,
    prose_wait_max_s,
)
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.brief import Brief
from deedbook.ledger.events.reasoning import (
    ReasoningBriefed,
    ReasoningConcluded,
    ReasoningExtended,
    ReasoningStarted,
    Step,
)
from deedbook.ledger.home.config import Actions
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.queries import read_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from building import Ledger

    from deedbook.consumers.sdk.llm.model import LlmClient
    from deedbook.ledger.client.local import LocalClient

SENTENCES = [
    {"text": "JWT secret stored in environment variable.", "steps": [1]},
    {"text": "Environment variables are logged in our system.", "steps": [2]},
    {"text": "Whoever can read the logs can read the JWT secret.", "steps": [4]},
]
GOOD = says_json({"sentences": SENTENCES})
LIE = says_json({"sentences": [*SENTENCES[:2], {"text": "It is in 37 places.", "steps": [1]}]})
STANDARD = TransferLevel.STANDARD


class Desk:
    """A ledger with its compressor, a model beside it, and a clock that moves only when a test advances it."""

    def __init__(self, ledger: Ledger, local_client: LocalClient, reader: Reader, store: Path, llm: LlmClient) -> None:
        key = ledger.register("compressor", "service")
        self.ledger, self.reader, self.store = ledger, reader, store
        self.author = Author(local_client, "compressor", lambda _: key)
        self.now_s = 1_000_000.0
        self.compressor = CompressorWorker(self.author, reader, store, wants_prose=True)
        self.writer = ProseWorker(self.author, reader, store, llm, now=lambda: self.now_s)

    def conclude(self, name: str) -> None:
        values = audit_json()
        steps = [Step(step_number=one["step"], type=one["type"], content=one["content"]) for one in values["steps"]]
        for data in (
            ReasoningStarted(task=f"{values['task']} ({name})"),
            ReasoningExtended(steps=steps),
            ReasoningConcluded(conclusion=values["conclusion"]),
        ):
            self.ledger.emit("alice", f"reasoning/{name}", data)
        self.compressor.run(threading.Event(), until=self.ledger.head()[0])

    def write(self, *, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.writer.run(threading.Event(), until=0)

    def best(self, name: str) -> dict[str, Any]:
        answer = self.reader.answer("briefs.best", {"id": name, "level": "standard"})
        return dict(answer["data"])

    def wanted(self) -> list[str]:
        with closing(ProseStore(self.store)) as store:
            return [one.id for one in store.due(float("inf"))]

    def briefed(self) -> list[ReasoningBriefed]:
        events = [self.ledger.event(index) for index in range(self.ledger.head()[0])]
        return [event.data for event in events if event.kind == "reasoning.briefed"]


@contextmanager
def desk_of(ledger: Ledger, local_client: LocalClient, store: Path, llm: LlmClient) -> Iterator[Desk]:
    with Reader(local_client, ledger.settings()) as reader:
        yield Desk(ledger, local_client, reader, store, llm)


@pytest.fixture
def desk(
    ledger: Ledger, local_client: LocalClient, vendor: Vendor, client_of: Callable[..., LlmClient], tmp_path: Path
) -> Iterator[Desk]:
    with desk_of(ledger, local_client, tmp_path / "compressor.db", client_of(vendor.url, attempts_max=1)) as made:
        yield made


def test_brief_stands_at_once_and_its_prose_follows(desk: Desk, vendor: Vendor) -> None:
    desk.conclude("audit")
    assert len(desk.briefed()) == len(LEVELS)
    assert desk.best("audit")["prose_missing"] == PROSE_AWAITED
    assert vendor.received == []
    vendor.script = [GOOD]
    desk.write()
    data = desk.best("audit")
    told = described(receive_brief(desk.reader.answer, "audit", STANDARD)).to_dict()
    assert [one["steps"] for one in data["prose"]["sentences"]] == [[1], [2], [4]]
    assert told["prose"] == data["prose"]
    assert (data["prose"]["fidelity_kind"], data.get("prose_missing", "")) == ("lexical lower bound", "")
    assert desk.wanted() == []
    # Whatever a model answers or fails to answer, the brief is that of the default compressor.
    memory = read_graph(desk.reader, "audit").memory
    brief = msgspec.convert(data["brief"], Brief)
    assert brief.facts
    assert brief == compress(memory, STANDARD)
    assert check_certificate(brief, memory) == []


@pytest.mark.parametrize(
    ("reply", "says_why"),
    [
        (Reply(429, b'{"error": {"message": "slow down"}}'), "slow down"),
        (Reply(500, b'{"error": "out of memory"}'), "out of memory"),
        (Reply(401, b'{"error": {"message": "no such key"}}'), "no such key"),
        (says("It is in the logs."), "LLM_INVALID"),
        (LIE, "37"),
    ],
    ids=["429", "500", "401", "prose", "a lie"],
)
def test_prose_that_is_missing_says_why_and_is_made_later(
    desk: Desk, vendor: Vendor, reply: Reply, says_why: str
) -> None:
    desk.conclude("audit")
    vendor.script = [reply, reply, GOOD]
    desk.write()
    assert says_why in desk.best("audit")["prose_missing"]
    desk.write(after_s=prose_wait_first_s - 1)
    assert len(vendor.received) == 1  # no retry before it is due
    desk.write(after_s=1)
    assert len(vendor.received) == 2
    assert len(desk.briefed()) == len(LEVELS) + 1  # a second failure in a row makes no second event
    desk.write(after_s=2 * prose_wait_first_s)
    assert desk.best("audit")["prose"]["model"] == "stub-model"
    assert desk.wanted() == []


def test_server_that_says_when_is_not_asked_before(desk: Desk, vendor: Vendor) -> None:
    desk.conclude("audit")
    vendor.script = [Reply(429, headers={"Retry-After": "600"}), GOOD]
    desk.write()
    desk.write(after_s=599)
    assert len(vendor.received) == 1
    desk.write(after_s=1)
    assert "prose" in desk.best("audit")


def test_wish_survives_a_restart(desk: Desk, vendor: Vendor, local_client: LocalClient) -> None:
    desk.conclude("audit")
    vendor.script = [Reply(500), GOOD]
    desk.write()
    again = ProseWorker(
        desk.author, desk.reader, desk.store, desk.writer._llm, now=lambda: desk.now_s + prose_wait_first_s
    )
    again.run(threading.Event(), until=0)
    assert "prose" in desk.best("audit")


def test_model_that_never_answers_well_is_given_up_and_one_that_is_away_much_later(
    desk: Desk, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "prose_attempts_max", 7)  # the real number of attempts takes two days
    desk.conclude("lied-about")
    vendor.script = [LIE] * 9
    for _ in range(9):
        desk.write(after_s=prose_wait_max_s)
    assert len(vendor.received) == 3
    assert desk.wanted() == []
    desk.conclude("unanswered")
    vendor.script = []
    for _ in range(9):
        desk.write(after_s=prose_wait_max_s)
    assert len(vendor.received) == 3 + 7
    assert desk.wanted() == []


def test_one_that_hangs_holds_up_no_other(
    ledger: Ledger, local_client: LocalClient, vendor: Vendor, client_of: Callable[..., LlmClient], tmp_path: Path
) -> None:
    others_done, too_many, open_now, most, lock = threading.Event(), threading.Event(), 0, 0, threading.Lock()

    def answered(number: int) -> Iterator[bytes]:
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
            if most > 2:
                too_many.set()
        if number == 0:
            assert others_done.wait(60)  # the first request hangs until every other has its prose
        else:
            too_many.wait(0.1)  # time for a third request, which must not come
        yield GOOD.body
        with lock:
            open_now -= 1

    def parts(number: int) -> Reply:
        length = {"content-length": str(len(GOOD.body))}
        return Reply(headers=length, parts=lambda _: answered(number))

    vendor.script = [parts(number) for number in range(6)]
    client = client_of(vendor.url, attempts_max=1, parallel_max=2, timeout_s=90.0)
    with desk_of(ledger, local_client, tmp_path / "c.db", client) as desk:
        names = [f"r{number}" for number in range(6)]
        for name in names:
            desk.conclude(name)
        real = desk.writer._publish

        def publish(*given: Any) -> Any:
            result = real(*given)
            if sum("prose" in desk.best(name) for name in names) == 5:
                others_done.set()
            return result

        desk.writer._publish = publish  # type: ignore[method-assign]  # only to see when
        desk.write()
        assert all("prose" in desk.best(name) for name in names)
    assert most == 2


def test_prose_of_an_earlier_version_is_not_published(desk: Desk, vendor: Vendor) -> None:
    desk.conclude("audit")

    def extended(_: threading.Event) -> Iterator[bytes]:
        step = Step(step_number=60, type="conclusion", content="The logs must be encrypted before anybody reads them.")
        desk.ledger.emit("alice", "reasoning/audit", ReasoningExtended(steps=[step], dependencies={60: [4]}))
        desk.ledger.emit("alice", "reasoning/audit", ReasoningConcluded(conclusion=step.content))
        yield GOOD.body

    vendor.script = [Reply(parts=extended), GOOD]
    desk.write()
    assert all(briefed.prose is None for briefed in desk.briefed())
    assert "was extended" in desk.briefed()[-1].prose_missing
    assert desk.wanted() == []
    desk.compressor.run(threading.Event(), until=desk.ledger.head()[0])
    assert desk.wanted() == ["audit"]  # the new conclusion requests its own prose


def test_missing_key_stops_the_prose_and_nothing_else(
    ledger: Ledger, local_client: LocalClient, vendor: Vendor, client_of: Callable[..., LlmClient], tmp_path: Path
) -> None:
    client = client_of(vendor.url, api_key_variable="NO_SUCH")
    with desk_of(ledger, local_client, tmp_path / "c.db", client) as desk:
        desk.conclude("audit")
        desk.write()
        assert "the environment has no NO_SUCH" in desk.best("audit")["prose_missing"]
        assert desk.wanted() == ["audit"]
    assert vendor.received == []


def test_node_starts_its_workers_without_the_key(
    ledger: Ledger, local_client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_variable": "DEEDBOOK_NO_SUCH"}
    settings = msgspec.structs.replace(ledger.settings(), actions=Actions(llm=table, validator_tree="."))
    monkeypatch.setattr(local_client, "settings", settings)
    with Reader(local_client, settings) as reader:
        assert {"compressor", "prose", "validator"} <= workers_of(local_client, reader).keys()


def test_ledger_that_is_away_costs_no_wish(desk: Desk, vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("STORE_FULL", "the disk is full")

    desk.conclude("audit")
    vendor.script = [GOOD, GOOD]
    with monkeypatch.context() as patch:
        patch.setattr(desk.author, "emit", fail)
        with pytest.raises(Unavailable):
            desk.write()
    desk.write()
    assert json.dumps(SENTENCES[0]["text"]) in json.dumps(desk.best("audit")["prose"])
