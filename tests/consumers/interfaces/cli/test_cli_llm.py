"""A model called by hand: checked by the doctor, writing beside a brief, judging inferences; all without a node."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from family_servers import FamilyServer, anthropic, lm_studio, openai
from graphs import audit_json
from llm_stub import API_KEY, Received, Reply, says_json

from deedbook.ledger.home.location import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from calling import Deed

AUDIT = audit_json()
PROSE = [{"text": step["content"], "steps": [step["step"]]} for step in AUDIT["steps"][:3]]
NO_SERVER = 'base_url = "http://127.0.0.1:9/v1"'


@contextmanager
def model(law: Callable[[Received, str], Reply], text: str) -> Iterator[FamilyServer]:
    server = FamilyServer(law, text)
    try:
        yield server
    finally:
        server.close()


def configure(alone: Deed, *lines: str, trust: bool = True) -> None:
    """Write the table ``[llm]``, and trust it as its owner would."""
    (alone.home / CONFIG_FILE).write_text("\n".join(("[llm]", 'model = "stub-model"', *lines)))
    if trust:
        alone("trust", "--yes")


@pytest.fixture
def recorded(alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deed:
    monkeypatch.setenv("STUB_KEY", API_KEY)
    alone("agent", "add", "a", "--role", "agent")
    (tmp_path / "audit.json").write_text(json.dumps(AUDIT))
    alone("reasoning", "record", "audit", tmp_path / "audit.json", "--as", "a")
    return alone


@pytest.mark.parametrize(("family", "law"), [("openai", openai), ("anthropic", anthropic)])
def test_brief_is_written_beside_by_a_model_without_a_server(
    recorded: Deed, family: str, law: Callable[[Received, str], Reply]
) -> None:
    with model(law, json.dumps({"sentences": PROSE})) as server:
        configure(recorded, f'base_url = "{server.url}"', f'family = "{family}"', 'api_key_variable = "STUB_KEY"')
        size = recorded.size()
        data = recorded.data("reasoning", "brief", "audit", "--llm")
        said = recorded.run("reasoning", "brief", "audit", "--llm")
    assert [one["steps"] for one in data["prose"]["sentences"]] == [[1], [2], [3]]
    assert "stub-model wrote beside it" in said.err
    assert recorded.size() == size  # the judgement is shown, not signed


def test_brief_without_prose_says_why_and_stands(recorded: Deed) -> None:
    configure(recorded, NO_SERVER, "attempts_max = 1")
    said = recorded.run("reasoning", "brief", "audit", "--llm")
    assert (said.code, "REASONING BRIEF" in said.out or "FULL REASONING" in said.out) == (0, True)
    assert "no prose: LLM_UNAVAILABLE: the model cannot be reached: the connection failed" in said.err


def test_judge_doubts_an_inference_without_a_server(recorded: Deed) -> None:
    verdict = json.dumps({"verdict": "unsupported", "reason": "It does not follow."})
    with model(openai, verdict) as server:
        configure(recorded, f'base_url = "{server.url}"', 'family = "openai"', 'api_key_variable = "STUB_KEY"')
        said = recorded.run("reasoning", "validate", "audit", "--judge")
    assert said.code == 6
    assert "INFERENCE_DOUBTED" in said.err
    assert "It does not follow." in said.err


def test_judge_that_is_away_is_asked_once(recorded: Deed) -> None:
    with model(lambda *_: Reply(404, b'{"error": "model not found"}'), "") as server:
        configure(recorded, f'base_url = "{server.url}"')
        said = recorded.run("reasoning", "validate", "audit", "--judge", "--json")
    report = json.loads(said.out)["error"]["details"]["report"]
    assert {check["opinion"] for check in report["inferences"]} == {"unsure"}
    assert all("model not found" in check["reason"] for check in report["inferences"])
    assert len(server.received) == 1


def test_model_is_asked_of_in_a_trusted_folder_only(recorded: Deed) -> None:
    with model(openai, "") as server:
        configure(recorded, f'base_url = "{server.url}"', trust=False)
        for words in (("brief", "audit", "--llm"), ("validate", "audit", "--judge")):
            said = recorded.run("reasoning", *words)
            assert (said.code, "NOT_TRUSTED: " in said.err) == (5, True)
        said = recorded.run("doctor", "--llm")
    assert "WRONG model: nobody was asked: NOT_TRUSTED" in said.out
    assert server.received == []


def test_without_a_model_it_is_said_how_to_name_one(recorded: Deed) -> None:
    for words in (("brief", "audit", "--llm"), ("validate", "audit", "--judge")):
        assert "[llm]" in recorded.refuses("USAGE", "reasoning", *words)["message"]


def test_doctor_says_what_was_sent_where_and_which_field_was_refused(recorded: Deed) -> None:
    with model(lm_studio, '{"ready": true}') as server:
        configure(recorded, f'base_url = "{server.url}"')
        refused = recorded.run("doctor", "--llm").out
        configure(recorded, f'base_url = "{server.url}"', "json_mode = false")
        (check,) = [one for one in recorded.data("doctor", "--llm")["checks"] if one["name"] == "model"]
    assert "it does not accept the request: 'response_format.type' must be" in refused
    assert '"response_format": {"type": "json_object"}' in refused
    assert check["ok"]
    assert f"stub-model at {server.url}/chat/completions (openai-compatible)" in check["found"]
    assert 'sent with it: {"max_tokens": 2048, "temperature": 0.0}' in check["found"]


def test_doctor_gives_the_servers_reason_and_never_the_key(recorded: Deed) -> None:
    with model(lambda *_: Reply(401, json.dumps({"error": f"bad key {API_KEY}"}).encode()), "") as server:
        configure(recorded, f'base_url = "{server.url}"', 'api_key_variable = "STUB_KEY"')
        said = recorded.run("doctor", "--llm")
    assert said.code == 7
    assert "the endpoint answered 401, it does not accept the API key: bad key …" in said.out
    assert API_KEY not in said.out + said.err


def test_doctor_names_the_variable_that_is_missing_and_other_verbs_go_on(
    recorded: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STUB_KEY")
    configure(recorded, NO_SERVER, 'api_key_variable = "STUB_KEY"')
    assert "the environment has no STUB_KEY" in recorded.run("doctor", "--llm").out
    assert "the environment has no STUB_KEY" in recorded.data("reasoning", "brief", "audit", "--llm")["prose_missing"]
    assert recorded.data("reasoning", "brief", "audit")["prose_missing"] == ""


def test_doctor_asks_nobody_unless_it_is_told_to(recorded: Deed) -> None:
    with model(openai, "") as server:
        server.script = [says_json({"ready": True})]
        configure(recorded, f'base_url = "{server.url}"')
        recorded.run("doctor")
    assert server.received == []
