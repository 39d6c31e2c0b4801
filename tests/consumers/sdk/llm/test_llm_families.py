"""Each family of servers, doubled as its documentation says: prose, or the server's own reason why there is none."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from family_servers import MODEL, FamilyServer, anthropic, failing, lm_studio, ollama, openai, vllm
from graphs import audit_graph
from llm_stub import API_KEY, Received, Reply, never, says

from deedbook.consumers.reasoning.compressor.prose_writer import write_prose
from deedbook.consumers.sdk.llm.family import reason_in, reason_max_chars
from deedbook.consumers.sdk.llm.model import LlmClient
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AUDIT = audit_graph()
SENTENCES = [{"text": step.content.strip(), "steps": [step.step_number]} for step in AUDIT.steps[:3]]
HONEST = json.dumps({"sentences": SENTENCES})
FAMILIES: dict[str, tuple[Callable[[Received, str], Reply], dict[str, Any]]] = {
    "openai": (openai, {"family": "openai"}),
    "anthropic": (anthropic, {"family": "anthropic"}),
    "ollama": (ollama, {}),
    "vllm": (vllm, {}),
    "lm_studio": (lm_studio, {"json_mode": False}),
}
each_family = pytest.mark.parametrize("name", FAMILIES)


@contextmanager
def asked(
    client_of: Callable[..., LlmClient], name: str, text: str = HONEST, **settings: Any
) -> Iterator[tuple[FamilyServer, LlmClient]]:
    law, own = FAMILIES[name]
    server = FamilyServer(law, text)
    try:
        yield server, client_of(server.url, **(own | settings))
    finally:
        server.close()


def reason(client: LlmClient) -> Unavailable:
    with pytest.raises(Unavailable) as raised:
        write_prose(AUDIT, client)
    assert API_KEY not in raised.value.message
    return raised.value


@each_family
def test_family_is_asked_as_it_documents_and_writes_prose(name: str, client_of: Callable[..., LlmClient]) -> None:
    with asked(client_of, name) as (server, client):
        assert [one.steps for one in write_prose(AUDIT, client).sentences] == [[1], [2], [3]]
        assert len(server.received) == 1


def test_fields_of_each_family_are_those_it_takes(client_of: Callable[..., LlmClient]) -> None:
    sent = {}
    for name in ("openai", "anthropic", "ollama"):
        with asked(client_of, name) as (server, client):
            write_prose(AUDIT, client)
            sent[name] = {k: v for k, v in server.received[0].body.items() if k not in ("messages", "system", "model")}
    assert sent == {
        "openai": {"max_completion_tokens": 8192, "response_format": {"type": "json_object"}},
        "anthropic": {"max_tokens": 4096},
        "ollama": {"max_tokens": 2048, "temperature": 0.0, "response_format": {"type": "json_object"}},
    }


@pytest.mark.parametrize("name", ["openai", "anthropic", "ollama", "vllm"])
def test_model_that_is_not_there_is_named_by_the_server(name: str, client_of: Callable[..., LlmClient]) -> None:
    with asked(client_of, name, model="no-such") as (_, client):
        error = reason(client)
    assert (error.code, error.details["status"]) == ("LLM_UNAVAILABLE", 404)
    assert "no-such" in error.message


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_wrong_key_is_told_without_a_piece_of_it(name: str, client_of: Callable[..., LlmClient]) -> None:
    with asked(client_of, name) as (server, client):
        server.law = lambda received, text: FAMILIES[name][0](received._replace(headers={}), text)
        error = reason(client)
    assert error.details == {"status": 401, "requests": 1}
    assert "it does not accept the API key: " in error.message
    assert "Incorrect API key provided: … See" in error.message or "invalid x-api-key" in error.message
    assert API_KEY[-4:] not in error.message


@each_family
@pytest.mark.parametrize(
    ("script", "says_why"),
    [
        ([failing(429, {"error": {"message": "Rate limit reached for stub-model"}})] * 9, "Rate limit reached"),
        ([failing(500, {"error": "out of memory"})] * 9, "answered 500 4 times: out of memory"),
        ([failing(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})] * 9, "Over"),
        ([Reply(502, b"<html><h1>Bad   Gateway</h1></html>")] * 9, "Bad Gateway"),
        ([Reply(headers={"Content-Length": "500"}, parts=lambda _: iter([b'{"choices": ['])) for _ in range(9)], "Pro"),
        ([Reply(body=b'{"error": {"message": "no provider", "code": 502}}')], "it has no text: no provider"),
    ],
    ids=["429", "500", "529", "a proxy's page", "cut", "an error as an answer"],
)
def test_what_may_pass_is_asked_again_and_then_named(
    name: str, script: list[Reply], says_why: str, client_of: Callable[..., LlmClient]
) -> None:
    with asked(client_of, name) as (server, client):
        server.script = list(script)
        assert says_why in reason(client).message
    assert len(server.received) in (1, 4)


@each_family
def test_busy_server_is_asked_again_when_it_says(
    name: str, client_of: Callable[..., LlmClient], waits: list[float]
) -> None:
    with asked(client_of, name) as (server, client):
        server.script = [Reply(429, headers={"Retry-After": "7"})]
        assert write_prose(AUDIT, client)
    assert waits == [7.0]


def test_server_that_hangs_ends_at_the_limit(client_of: Callable[..., LlmClient]) -> None:
    with asked(client_of, "anthropic", timeout_s=0.2) as (server, client):
        server.script = [never()]
        assert "within 0.2 s" in reason(client).message


@each_family
@pytest.mark.parametrize(
    ("text", "says_why"),
    [
        ("The secret is in the logs, so rotate it.", "JSON"),
        (json.dumps({"sentences": [*SENTENCES[:2], {"text": "It is NOT stored in 37 files.", "steps": [1]}]}), "37"),
        (json.dumps({"sentences": []}), "0 sentences"),
    ],
    ids=["prose", "a lie", "nothing"],
)
def test_answer_that_is_no_prose_of_the_graph_is_named(
    name: str, text: str, says_why: str, client_of: Callable[..., LlmClient]
) -> None:
    with asked(client_of, name, text) as (_, client):
        error = reason(client)
    assert (error.code, says_why in error.message) == ("LLM_INVALID", True)


@pytest.mark.parametrize(
    ("reply", "says_why"),
    [
        (says("", finish_reason="length"), "raise answer_tokens_max"),
        (Reply(body=b'{"content": [], "stop_reason": "max_tokens"}'), "raise answer_tokens_max"),
        (Reply(body=b'{"content": [], "stop_reason": "refusal"}'), "refused to answer"),
        (Reply(body=b'{"choices": [{"message": {"refusal": "I cannot."}}]}'), "refused to answer: I cannot."),
    ],
)
def test_answer_that_is_cut_or_refused_is_named(
    reply: Reply, says_why: str, client_of: Callable[..., LlmClient]
) -> None:
    with asked(client_of, "ollama") as (server, client):
        server.script = [reply]
        assert says_why in reason(client).message


def test_content_of_a_compatible_server_may_come_in_parts(client_of: Callable[..., LlmClient]) -> None:
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": HONEST}]
    with asked(client_of, "ollama") as (server, client):
        server.script = [Reply(body=json.dumps({"choices": [{"message": {"content": parts}}]}).encode())]
        assert write_prose(AUDIT, client)


# Fields that are refused by name


def refuses(*names: str) -> Callable[[Received, str], Reply]:
    """Return a server that refuses a request because of the first of these fields in it."""

    def law(received: Received, text: str) -> Reply:
        for name in names:
            if name in received.body:
                return failing(400, {"error": {"message": "That is not supported here.", "param": name}})
        return says(text)

    return law


@pytest.mark.parametrize("family", ["openai", "openai-compatible", "anthropic"])
def test_each_field_that_is_refused_is_named_and_left_out_by_a_setting(
    family: str, client_of: Callable[..., LlmClient]
) -> None:
    law = refuses("temperature", "max_tokens", "max_completion_tokens", "response_format")
    settings: dict[str, Any] = {"family": family}
    left_out = {"temperature": {"temperature": "none"}, "response_format": {"json_mode": False}}
    with asked(client_of, "ollama") as (server, _):
        server.law = law
        while (field := next(iter(client_of(server.url, **settings).fields), None)) is not None:
            error = reason(client_of(server.url, **settings))
            field = error.message.rpartition("(")[2].rstrip(")")
            assert f"That is not supported here. ({field})" in error.message
            settings |= left_out.get(field, {"token_field": "none"})
        assert write_prose(AUDIT, client_of(server.url, **settings))


def test_settings_take_the_place_of_the_familys(client_of: Callable[..., LlmClient]) -> None:
    own = {"token_field": "none", "temperature": "none", "json_mode": False, "fields": {"reasoning_effort": "low"}}
    with asked(client_of, "openai", **own) as (server, client):
        assert write_prose(AUDIT, client)
    assert server.received[0].body.keys() == {"model", "messages", "reasoning_effort"}
    assert server.received[0].body["model"] == MODEL


# The reason itself


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", ""),
        (b"\xff\xfe no text", "no text"),
        (b"[" * 5_000, "["),
        (b'{"error": null}', '{"error":null}'),
        (b'[{"error": {"message": "as a list"}}]', "as a list"),
        (b'{"error": {"message": "two\\nlines \\u202e turned"}}', "two lines turned"),
        (b'{"detail": [{"loc": ["body", "temperature"]}]}', "temperature"),
        (b'{"error": "your key is sk-stub-0123456789"}', "your key is …"),
        (b'{"error": "not sk-stub-9 but 0123456789?"}', "not … but …"),
        (b'{"error": "found ghp_%b"}' % (b"a1B2" * 9), "looks like a secret"),
    ],
)
def test_reason_is_one_line_bounded_and_without_the_key(body: bytes, told: str) -> None:
    shown = reason_in(body, API_KEY)
    assert told in shown
    assert len(shown) <= reason_max_chars
    assert "\n" not in shown
    assert API_KEY[4:10] not in shown
