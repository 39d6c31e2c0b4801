"""The families of model servers: the request that each expects, its answers, and its errors.

- ``openai``: refuses ``max_tokens``, and any ``temperature`` but the default. Thinking counts towards the answer's
  limit, so the limit is higher.
- ``openai-compatible``: vLLM, Ollama, LM Studio and OpenRouter use the same path and answers, with the older fields.
- ``anthropic``: ``/v1/messages``, a version header, system instructions outside the messages, content in parts.
  ``max_tokens`` is required, current models refuse ``temperature``, and there is no JSON mode.

``[llm]`` can set each field, or omit it with ``"none"``; ``[llm.fields]`` adds others. Rejected: to retry without a
field that a server refuses, because nobody would notice. The server's error names the field.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.sdk.llm.settings import Family, LlmSettings, Message
from deedbook.consumers.sdk.llm.usage import Usage
from deedbook.consumers.sdk.text import sanitize_line, shorten
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import json_decoder
from deedbook.ledger.secrets.scanner import scan

NONE: Final = "none"

reason_max_chars: Final = 300
sample_temperature: Final = 0.8
tokens_max: Final = 10**9
_shared_with_key_chars: Final = 6
_page_max_bytes: Final = 4_096
_CUT_OFF: Final = frozenset({"length", "max_tokens"})
_REFUSED: Final = frozenset({"refusal", "content_filter"})
_TEXTS: Final = frozenset({"text", "output_text"})
_MARKUP: Final = re.compile(r"<(?:script|style).*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)


class Manner(NamedTuple):
    """The defaults of a family, which ``[llm]`` overrides; ``token_field`` is the field with the answer's limit."""

    path: str
    base_url: str
    token_field: str
    answer_tokens_max: int
    temperature: float | None
    json_mode: bool
    seed: bool = False


_CHAT: Final = "/chat/completions"
_JSON: Final = {"type": "json_object"}
MANNERS: Final[dict[Family, Manner]] = {
    "openai": Manner(_CHAT, "https://api.openai.com/v1", "max_completion_tokens", 8_192, None, json_mode=True),
    "openai-compatible": Manner(_CHAT, "", "max_tokens", 2_048, 0.0, json_mode=True, seed=True),
    "anthropic": Manner("/messages", "https://api.anthropic.com/v1", "max_tokens", 4_096, None, json_mode=False),
}
BY_HOST: Final[dict[str, Family]] = {"api.openai.com": "openai", "api.anthropic.com": "anthropic"}


def fields_of(settings: LlmSettings, family: Family, sample: int | None = None) -> dict[str, Any]:
    """Return the request's other fields beside model and messages; a ``sample`` has its own seed and temperature."""
    manner = MANNERS[family]
    temperature = manner.temperature if settings.temperature is None else settings.temperature
    fields: dict[str, Any] = {
        settings.token_field or manner.token_field: settings.answer_tokens_max or manner.answer_tokens_max,
        "temperature": temperature if sample is None or temperature != 0 else sample_temperature,
        "response_format": _JSON if (manner.json_mode if settings.json_mode is None else settings.json_mode) else None,
        "seed": sample if (manner.seed if settings.seed is None else settings.seed) else None,
    }
    sent = {name: value for name, value in fields.items() if name != NONE and value not in (None, NONE)}
    return sent | settings.fields


def body_of(model: str, family: Family, fields: dict[str, Any], messages: list[Message]) -> bytes:
    """Return the body of a request."""
    body: dict[str, Any] = {"model": model, "messages": messages} | fields
    if family == "anthropic":
        system = "\n".join(message.content for message in messages if message.role == "system")
        body |= {"system": system, "messages": [message for message in messages if message.role != "system"]}
    return msgspec.json.encode(body)


def headers_of(family: Family, key: str | None) -> dict[str, str]:
    """Return the headers of a request."""
    headers = {"content-type": "application/json", "accept": "application/json"}
    if family == "anthropic":
        return headers | {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
    return headers | ({"authorization": f"Bearer {key}"} if key else {})


class _Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    content: list[_Part] = []
    stop_reason: str | None = None
    usage: Any = None


class Completion(NamedTuple):
    """A model's text, or the ``fault`` that makes it unusable, and its cost."""

    text: str
    fault: Refused | None
    usage: Usage


_reply: Final = json_decoder(_Reply)
_TOKENS_IN: Final = ("prompt_tokens", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TOKENS_OUT: Final = ("completion_tokens", "output_tokens")


def completion_in(body: bytes, key: str | None, requests: int) -> Completion:
    """Return the completion in an answer of any family; ``requests`` is the number of requests that it took.

    Raises Refused: ``INVALID_FORMAT`` if the answer is not a model's. msgspec.DecodeError: it has another form.
    """
    reply = _reply.decode(body)
    counts: dict[str, Any] = reply.usage if isinstance(reply.usage, dict) else {}
    tokens_in, tokens_out = (
        sum(count for name in names if type(count := counts.get(name)) is int and 0 < count < tokens_max)
        for names in (_TOKENS_IN, _TOKENS_OUT)
    )
    usage = Usage(requests=requests, tokens_in=tokens_in, tokens_out=tokens_out)
    if not reply.choices and not reply.content and reply.stop_reason is None:
        raise Refused("INVALID_FORMAT", f"it has no text: {reason_in(body, key)}")
    try:
        return Completion(_text_of(reply, key), None, usage)
    except Refused as fault:
        return Completion("", fault, usage)


def _text_of(reply: _Reply, key: str | None) -> str:
    choice = reply.choices[0] if reply.choices else _Choice(_Message(reply.content), reply.stop_reason)
    if choice.finish_reason in _CUT_OFF:
        message = "the model reached its token limit before its answer was complete: the answer must be shorter"
        raise Refused("TOO_LARGE", f"{message}, or raise answer_tokens_max in [llm] of config.toml")
    if choice.message.refusal or choice.finish_reason in _REFUSED:
        reason = server_reason(choice.message.refusal or choice.finish_reason or "", key)
        raise Refused("INVALID_FORMAT", f"the model refused to answer: {reason}")
    content = choice.message.content
    if not content:
        raise Refused("INVALID_FORMAT", "it has no text")
    parts = [_Part(text=content)] if isinstance(content, str) else content
    return "".join(part.text or "" for part in parts if part.type in _TEXTS)


def reason_in(body: bytes, key: str | None) -> str:
    """Return a server's reason for an error: one short line without the key; empty if it gives none."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return server_reason(_MARKUP.sub(" ", body[:_page_max_bytes].decode("utf-8", "replace")), key)
    value = value[0] if isinstance(value, list) and value else value
    while isinstance(value, dict) and (inner := value.get("message") or value.get("error") or value.get("detail")):
        # OpenAI has the field's name beside its message, which may not repeat it.
        is_named = isinstance(inner, str) and isinstance(value.get("param"), str)
        value = f"{inner} ({value['param']})" if is_named else inner
    return server_reason(value if isinstance(value, str) else msgspec.json.encode(value).decode(), key)


def server_reason(text: str, key: str | None) -> str:
    """Return a server's text on one line, without words that contain part of the key, and without secrets."""
    size = min(len(key or ""), _shared_with_key_chars)
    parts = ["***", *(key[start : start + size] for start in range(len(key) - size + 1))] if key else []
    words = sanitize_line(text[: reason_max_chars * 8], replacement=" ").split()
    line = " ".join("…" if any(part in word for part in parts) else word for word in words)
    # The text becomes part of signed events, and the gate refuses an event that contains a secret.
    return (
        "(left out: it contains what looks like a secret)"
        if scan(line) is not None
        else shorten(line, reason_max_chars)
    )
