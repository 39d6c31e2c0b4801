"""The model in ``config.toml``: without its key, as the validator's judge, and not configured at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from graphs import audit_graph
from llm_stub import Vendor, says_json

from deedbook.consumers.reasoning.validator.judge import ModelJudge
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.consumers.sdk.llm.model import configured_client
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home.config import Actions

if TYPE_CHECKING:
    from deedbook.consumers.sdk.llm.model import LlmClient


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
    with pytest.raises(DeedbookError) as refusal:
        configured_client(Actions(llm=table))
    assert refusal.value.code == code


def test_key_that_is_missing_stops_the_question_and_not_its_making() -> None:
    table = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_variable": "DEEDBOOK_NO_SUCH"}
    client = configured_client(Actions(llm=table))
    assert client is not None
    with pytest.raises(DeedbookError, match="the environment has no DEEDBOOK_NO_SUCH") as refusal:
        client.ask([], dict)
    assert refusal.value.code == "LLM_UNAVAILABLE"


def test_key_is_read_from_the_variable_that_the_table_names(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEDBOOK_TEST_KEY", "k-1")
    client = configured_client(
        Actions(llm={"base_url": vendor.url, "model": "m", "api_key_variable": "DEEDBOOK_TEST_KEY"})
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
