"""A model that ``config.toml`` names: as the compressor's prose, as the validator's judge, and not at all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from graphs import audit_graph, audit_json
from llm_stub import Vendor, says, says_json

from consumers.reasoning.compressor.certificate import check_certificate
from consumers.reasoning.compressor.compress import compress
from consumers.reasoning.compressor.transfer import describe, receive_brief
from consumers.reasoning.validator.validator import ReasoningValidator
from consumers.reasoning.workers import CompressorWorker, ModelJudge
from consumers.sdk.llm.model import configured_client
from ledger.author import Author
from ledger.config import Actions
from ledger.errors import BatonError
from ledger.events.brief import Brief
from ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from projections.briefs.prompt import TransferLevel
from projections.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from building import Ledger

    from consumers.sdk.llm.model import LlmClient
    from ledger.local import LocalClient

SENTENCES = [
    {"text": "JWT secret stored in environment variable.", "steps": [1]},
    {"text": "Environment variables are logged in our system.", "steps": [2]},
    {"text": "Whoever can read the logs can read the JWT secret.", "steps": [4]},
]


def test_without_a_table_nobody_is_asked() -> None:
    assert configured_client(Actions()) is None


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, "INVALID_FIELD"),
        ({"base_url": "http://127.0.0.1:1/v1", "model": "m", "colour": "red"}, "INVALID_FIELD"),
        ({"base_url": "ftp://127.0.0.1/v1", "model": "m"}, "INVALID_FIELD"),
    ],
)
def test_wrong_table_is_refused(table: dict[str, str | int | float | bool], code: str) -> None:
    with pytest.raises(BatonError) as refusal:
        configured_client(Actions(llm=table))
    assert refusal.value.code == code


def test_key_that_is_missing_stops_the_question_and_not_its_making() -> None:
    table = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_variable": "BATON_NO_SUCH"}
    client = configured_client(Actions(llm=table))
    assert client is not None
    with pytest.raises(BatonError, match="the environment has no BATON_NO_SUCH") as refusal:
        client.ask([], dict)
    assert refusal.value.code == "LLM_UNAVAILABLE"


def test_key_is_read_from_the_variable_that_the_table_names(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_TEST_KEY", "k-1")
    client = configured_client(
        Actions(llm={"base_url": vendor.url, "model": "m", "api_key_variable": "BATON_TEST_KEY"})
    )
    assert client is not None
    assert client.model == "m"


def test_models_doubt_fails_a_sound_inference_and_its_praise_saves_none(vendor: Vendor, client: LlmClient) -> None:
    memory = audit_graph()
    vendor.script = [says_json({"verdict": "unsupported", "reason": "It does not."})] * len(memory.steps)
    doubted = ReasoningValidator(judge=ModelJudge(client)).validate(memory)
    assert "INFERENCE_DOUBTED" in {issue.code for issue in doubted.issues}
    assert not doubted.passed
    assert doubted.judge is not None
    assert doubted.judge.prompt_hash.startswith("sha256:")


@pytest.fixture
def concluded(ledger: Ledger) -> str:
    values = audit_json()
    steps = [Step(step_number=one["step"], type=one["type"], content=one["content"]) for one in values["steps"]]
    ledger.emit("alice", "reasoning/audit", ReasoningStarted(task=values["task"]))
    ledger.emit("alice", "reasoning/audit", ReasoningExtended(steps=steps))
    ledger.emit("alice", "reasoning/audit", ReasoningConcluded(conclusion=values["conclusion"]))
    return "audit"


@pytest.mark.parametrize("answer", ["good", "broken"])
def test_prose_travels_beside_the_facts_or_says_why_there_is_none(
    ledger: Ledger,
    local_client: LocalClient,
    concluded: str,
    vendor: Vendor,
    client: LlmClient,
    tmp_path: Path,
    answer: str,
) -> None:
    vendor.script = [says_json({"sentences": SENTENCES}) if answer == "good" else says("no")]
    key = ledger.register("compressor", "service")
    with Reader(local_client, ledger.settings()) as reader:
        author = Author(local_client, "compressor", lambda _: key)
        CompressorWorker(author, reader, tmp_path / "c.db", client).run(threading.Event(), until=ledger.head()[0])
        data = reader.answer("briefs.best", {"ref": concluded, "level": "standard"})["data"]
        told = describe(receive_brief(reader.answer, concluded, TransferLevel.STANDARD))
        memory = reader.full_reasoning(concluded).memory
    # Whatever a model says or fails to say, the brief is the default compressor's.
    brief = msgspec.convert(data["brief"], Brief)
    assert brief.facts
    assert brief == compress(memory, TransferLevel.STANDARD)
    assert check_certificate(brief, memory) == []
    if answer == "good":
        assert [one["steps"] for one in data["prose"]["sentences"]] == [[1], [2], [4]]
        assert data["prose"]["fidelity_kind"] == "lexical lower bound"
        assert told["prose"] == data["prose"]
    else:
        assert "prose" not in data
        assert data["prose_missing"].startswith("LLM_INVALID")
        assert (told["prose"], told["prose_missing"]) == (None, data["prose_missing"])
