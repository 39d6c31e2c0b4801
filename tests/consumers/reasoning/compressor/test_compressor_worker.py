"""The compressor publishes each brief once, however often it tries, and its content can be checked from the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import Ledger
from graphs import audit_json

from deedbook.consumers.reasoning import workers as module
from deedbook.consumers.reasoning.compressor.certificate import check_certificate
from deedbook.consumers.reasoning.workers import LEVELS, CompressorWorker
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.fidelity import measure
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.reasoning.memory import memory_from_dict


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(local_client, ledger.settings()) as made:
        yield made


@pytest.fixture
def author(ledger: Ledger, local_client: LocalClient) -> Author:
    """The service agent that writes the briefs."""
    key = ledger.register("compressor", "service")
    return Author(local_client, "compressor", lambda _: key)


@pytest.fixture
def worker(author: Author, reader: Reader, tmp_path: Path) -> CompressorWorker:
    """The worker under test."""
    return CompressorWorker(author, reader, tmp_path / "compressor.db")


def reason(ledger: Ledger, name: str, *, conclude: bool = True) -> None:
    """Let alice record the demo's audit as a reasoning."""
    values, stream = audit_json(), f"reasoning/{name}"
    memory, _ = memory_from_dict(values)
    ledger.emit("alice", stream, reasoning.ReasoningStarted(task=memory.task, domain="security_audit"))
    steps = [msgspec.convert(step.to_dict(), reasoning.Step) for step in memory.steps]
    ledger.emit("alice", stream, reasoning.ReasoningExtended(steps=steps, dependencies=memory.dependencies))
    if conclude:
        ledger.emit("alice", stream, reasoning.ReasoningConcluded(conclusion=memory.conclusion))


def work(worker: CompressorWorker, ledger: Ledger) -> None:
    """Let the worker handle all events so far."""
    worker.run(threading.Event(), until=ledger.head()[0])


def briefs(ledger: Ledger) -> list[Event]:
    """Return the published briefs."""
    events = [ledger.event(index) for index in range(ledger.head()[0])]
    return [event for event in events if event.kind == "reasoning.briefed"]


def test_concluded_reasoning_is_briefed_at_every_level(worker: CompressorWorker, ledger: Ledger) -> None:
    reason(ledger, "r1")
    reason(ledger, "r2", conclude=False)
    work(worker, ledger)
    made = briefs(ledger)
    assert [event.data.brief.level for event in made] == [level.value for level in LEVELS]
    concluded = ledger.event(made[0].index - 1)
    assert all(event.author == "compressor" for event in made)
    assert all(event.stream == "reasoning/r1" for event in made)
    assert all(len(event.causes) == 1 for event in made)
    assert concluded.kind in {"reasoning.concluded", "reasoning.extended"}


def test_receiver_with_the_event_and_the_graph_alone_repeats_the_fidelity(
    worker: CompressorWorker, ledger: Ledger, reader: Reader
) -> None:
    reason(ledger, "r1")
    work(worker, ledger)
    full = reader.answer("reasoning.full", {"id": briefs(ledger)[0].data.brief.reasoning_ref})
    memory, _ = memory_from_dict(msgspec.json.decode(full["canonical"]))
    for event in briefs(ledger):
        with ledger.log.snapshot() as snapshot:
            briefed = read_event(event.index, snapshot.entry(event.index)).data
        assert measure(memory, briefed.prompt) == briefed.brief.fidelity
        assert check_certificate(briefed.brief, memory, domain="security_audit") == []
        prompt = to_context_prompt(briefed.brief, TransferLevel(briefed.brief.level))
        assert (prompt.prompt, prompt.tokens) == (briefed.prompt, briefed.tokens)


def test_briefs_are_published_once_even_if_the_position_is_lost(
    worker: CompressorWorker, ledger: Ledger, author: Author, reader: Reader, tmp_path: Path
) -> None:
    reason(ledger, "r1")
    for number in range(3):
        work(CompressorWorker(author, reader, tmp_path / f"lost-{number}.db"), ledger)
    assert len(briefs(ledger)) == len(LEVELS)


def test_worker_that_dies_between_two_briefs_makes_the_other_one(
    worker: CompressorWorker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason(ledger, "r1")
    real = module.compress

    def die_at_the_second(memory: Any, level: TransferLevel, **options: Any) -> Any:
        if level is LEVELS[1]:
            raise KeyboardInterrupt
        return real(memory, level, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "compress", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            work(worker, ledger)
    assert len(briefs(ledger)) == 1
    work(worker, ledger)
    assert [event.data.brief.level for event in briefs(ledger)] == [level.value for level in LEVELS]


def test_two_reasonings_that_are_the_same_graph_are_both_briefed(worker: CompressorWorker, ledger: Ledger) -> None:
    reason(ledger, "r1")
    reason(ledger, "r2")
    work(worker, ledger)
    made = briefs(ledger)
    assert len({event.data.brief.reasoning_ref for event in made}) == 1
    assert [event.stream for event in made] == ["reasoning/r1"] * 2 + ["reasoning/r2"] * 2


def test_reasoning_that_is_concluded_again_unchanged_is_briefed_once(worker: CompressorWorker, ledger: Ledger) -> None:
    reason(ledger, "r1")
    work(worker, ledger)
    concluded = reasoning.ReasoningConcluded(conclusion=memory_from_dict(audit_json())[0].conclusion)
    ledger.emit("alice", "reasoning/r1", concluded)
    work(worker, ledger)
    assert len(briefs(ledger)) == len(LEVELS)


def test_brief_that_another_tokenizer_made_before_stands(
    worker: CompressorWorker, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason(ledger, "r1")
    work(worker, ledger)
    real = module.compress

    def count_otherwise(memory: Any, level: TransferLevel, **options: Any) -> Any:
        return msgspec.structs.replace(real(memory, level, **options), tokenizer="another", exact=False)

    monkeypatch.setattr(module, "compress", count_otherwise)
    work(CompressorWorker(worker._author, worker._reader, tmp_path / "again.db"), ledger)
    assert {event.data.brief.tokenizer for event in briefs(ledger)} != {"another"}
    assert len(briefs(ledger)) == len(LEVELS)
    again = Subscriptions(tmp_path / "again.db")
    assert again.dead_letters("compressor") == []
    again.close()


def test_ledger_that_is_away_is_waited_for_and_nothing_is_given_up(
    worker: CompressorWorker, ledger: Ledger, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("STORE_FULL", "the disk is full")

    reason(ledger, "r1")
    with monkeypatch.context() as patch:
        patch.setattr(author, "emit", fail)
        for _ in range(10):
            with pytest.raises(Unavailable):
                work(worker, ledger)
    work(worker, ledger)
    assert len(briefs(ledger)) == len(LEVELS)
