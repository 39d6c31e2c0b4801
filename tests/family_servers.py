"""Test doubles of language-model servers, which refuse fields, word errors and answer as each vendor documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from llm_stub import API_KEY, Received, Reply, Vendor, says

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "stub-model"


def failing(status: int, body: Any) -> Reply:
    return Reply(status, json.dumps(body).encode())


def openai(received: Received, text: str) -> Reply:
    """Answer as OpenAI's current models: no ``max_tokens``, only temperature 1, JSON only if the prompt says "JSON"."""

    def error(status: int, message: str, param: str | None, code: str) -> Reply:
        told = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        return failing(status, {"error": told})

    body = received.body
    if received.headers.get("authorization") != f"Bearer {API_KEY}":
        masked = f"{API_KEY[:8]}****{API_KEY[-4:]}"
        return error(401, f"Incorrect API key provided: {masked}. See your settings.", None, "invalid_api_key")
    if body["model"] != MODEL:
        return error(404, f"The model `{body['model']}` does not exist.", None, "model_not_found")
    if "max_tokens" in body:
        said = "Unsupported parameter: 'max_tokens' is not supported with this model."
        return error(400, f"{said} Use 'max_completion_tokens' instead.", "max_tokens", "unsupported_parameter")
    if body.get("temperature", 1) != 1:
        said = f"Unsupported value: 'temperature' does not support {body['temperature']} with this model."
        return error(400, said, "temperature", "unsupported_value")
    known = {"model", "messages", "max_completion_tokens", "temperature", "response_format", "reasoning_effort"}
    if foreign := body.keys() - known:
        return error(400, f"Unrecognized request argument supplied: {foreign.pop()}", None, "unknown")
    if "response_format" in body and "json" not in json.dumps(body["messages"]).lower():
        return error(400, "'messages' must contain the word 'json' in some form.", "messages", "json")
    return says(text, finish_reason="stop")


def anthropic(received: Received, text: str) -> Reply:
    """Answer as Anthropic's messages: own headers, ``max_tokens`` required, unknown fields refused, text in parts."""

    def error(status: int, type_: str, message: str) -> Reply:
        return failing(status, {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_1"})

    body = received.body
    if received.headers.get("x-api-key") != API_KEY:
        return error(401, "authentication_error", "invalid x-api-key")
    if "anthropic-version" not in received.headers:
        return error(400, "invalid_request_error", "anthropic-version: header is required")
    if body["model"] != MODEL:
        return error(404, "not_found_error", f"model: {body['model']}")
    if "max_tokens" not in body:
        return error(400, "invalid_request_error", "max_tokens: Field required")
    if "temperature" in body:
        return error(400, "invalid_request_error", "`temperature` is deprecated for this model.")
    if foreign := body.keys() - {"model", "messages", "system", "max_tokens", "thinking", "output_config"}:
        return error(400, "invalid_request_error", f"{foreign.pop()}: Extra inputs are not permitted")
    if any(message["role"] == "system" for message in body["messages"]):
        return error(400, "invalid_request_error", 'messages: Unexpected role "system".')
    parts = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "text", "text": text[: len(text) // 2]},
        {"type": "text", "text": text[len(text) // 2 :]},
    ]
    answer = {"type": "message", "role": "assistant", "content": parts, "stop_reason": "end_turn"}
    return Reply(body=json.dumps(answer).encode())


def ollama(received: Received, text: str) -> Reply:
    """Answer as Ollama's interface that is compatible with OpenAI's: no key is needed, unknown fields are ignored."""
    if received.body["model"] != MODEL:
        message = f'model "{received.body["model"]}" not found, try pulling it first'
        return failing(404, {"error": {"message": message, "type": "not_found_error", "param": None, "code": None}})
    return says(text, finish_reason="stop")


def vllm(received: Received, text: str) -> Reply:
    """Answer as vLLM: errors are not inside an ``error`` object; some versions know only ``max_tokens``."""
    body = received.body
    if body["model"] != MODEL:
        message = f"The model `{body['model']}` does not exist."
        return failing(404, {"object": "error", "message": message, "type": "NotFoundError", "code": 404})
    if "max_completion_tokens" in body:
        where = {"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"], "msg": "Extra inputs"}
        return failing(422, {"detail": [where]})
    return says(text, finish_reason="stop")


def lm_studio(received: Received, text: str) -> Reply:
    """Answer as LM Studio, which writes JSON only for a given schema."""
    if received.body.get("response_format", {}).get("type") == "json_object":
        return failing(400, {"error": "'response_format.type' must be 'json_schema' or 'text'"})
    return says(text, finish_reason="stop")


class FamilyServer(Vendor):
    """A server of one family, whose model writes ``text``; the replies of its script, if any, come first."""

    def __init__(self, law: Callable[[Received, str], Reply], text: str) -> None:
        self.law, self.text = law, text
        super().__init__()

    def reply_to(self, received: Received) -> Reply:
        return self.script.pop(0) if self.script else self.law(received, self.text)
