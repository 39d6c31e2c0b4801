"""Asking a language model one question, and getting a typed answer or a typed error.

How it is sent, and how often, is ``consumers.sdk.http``'s. Redirects are refused: the key is for the endpoint's own
host. What will not pass (a wrong key, a wrong form) is not tried again. The answer is strict JSON of the type that was
asked for, or it is refused whole. From inside an event loop, a call must be made in a thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from consumers.sdk.http import NoAnswer, post
from consumers.sdk.llm.prompt import Message, prompt_digest
from consumers.sdk.thinking.tags import read_tags
from ledger.codec import check_depth, decode_strict, encode_utf8
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from consumers.sdk.llm.endpoint import Endpoint

T = TypeVar("T")

answer_size_max_bytes: Final = 1024**2
request_size_max_bytes: Final = 1024**2

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_DENIED: Final = frozenset({401, 403})
_OK: Final = 200
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n```", re.DOTALL)


class Answer(NamedTuple, Generic[T]):
    """A decoded answer, the model that was asked, and the SHA-256 of the prompt in hex."""

    value: T
    model: str
    prompt_sha256: str


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_completion: Final = msgspec.json.Decoder(_Completion)


class LlmClient:
    """Asks one endpoint; every call opens and closes its own connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Ask ``endpoint``."""
        self.endpoint = endpoint

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.endpoint.settings.model

    def ask(self, messages: list[Message], form: type[T]) -> Answer[T]:
        """Return the model's answer as a value of ``form``.

        Raises:
            Refused: ``TOO_LARGE`` when the question exceeds ``request_size_max_bytes``.
            Unavailable: ``LLM_UNAVAILABLE`` (not there, too slow, busy, key refused) or ``LLM_INVALID`` (the answer
                is not what was asked for).
        """
        body = self._request(messages)
        if len(body) > request_size_max_bytes:
            message = f"the question has {len(body)} bytes, more than {request_size_max_bytes}"
            raise Refused("TOO_LARGE", message, size=len(body))
        return Answer(_decode(self._post(body), form), self.model, prompt_digest(messages))

    def _request(self, messages: list[Message]) -> bytes:
        settings = self.endpoint.settings
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": settings.answer_tokens_max,
        }
        if settings.json_mode:
            request["response_format"] = {"type": "json_object"}
        return msgspec.json.encode(request)

    def _post(self, body: bytes) -> bytes:
        settings = self.endpoint.settings
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.endpoint.api_key is not None:
            headers["authorization"] = f"Bearer {self.endpoint.api_key.reveal()}"
        try:
            answer = post(
                self.endpoint.url,
                body,
                headers,
                limit_s=settings.timeout_s,
                attempts_max=settings.attempts_max,
                passing=_PASSING,
                answer_max_bytes=answer_size_max_bytes,
            )
        except TimeoutError as error:
            message = f"the model did not answer within {settings.timeout_s:g} s"
            raise Unavailable("LLM_UNAVAILABLE", message) from error
        except NoAnswer as error:
            raise _gave_up(error) from error
        _check_status(answer.status)
        return answer.body


def _check_status(status: int) -> None:
    if status == _OK:
        return
    if 300 <= status < 400:
        raise Unavailable("LLM_INVALID", f"the endpoint answered {status}: redirects are not followed", status=status)
    why = "it does not accept the API key" if status in _DENIED else "it does not accept the request"
    raise Unavailable("LLM_UNAVAILABLE", f"the endpoint answered {status}: {why}", status=status)


def _gave_up(failure: NoAnswer) -> Unavailable:
    if not failure.may_pass:
        return Unavailable("LLM_INVALID", failure.problem)
    details = {"attempts": failure.attempts, "status": failure.status, "retry_after_s": failure.wait_s}
    known = {name: value for name, value in details.items() if value is not None}
    times = f" {failure.attempts} times" if failure.attempts > 1 else ""
    return Unavailable("LLM_UNAVAILABLE", f"the model cannot be asked: {failure.problem}{times}", **known)


def _decode(body: bytes, form: type[T]) -> T:
    try:
        check_depth(body)
        content = encode_utf8(_json_part(_content(_completion.decode(body))), "answer")
        return decode_strict(content, msgspec.json.Decoder(form))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable("LLM_INVALID", "the endpoint's answer is not a chat completion in JSON") from error
    except Refused as refusal:
        message = f"the model's answer is not what was asked for: {refusal.message}"
        raise Unavailable("LLM_INVALID", message, because=refusal.code) from refusal


def _content(completion: _Completion) -> str:
    if not completion.choices:
        raise Refused("INVALID_FORMAT", "it has no choices")
    choice = completion.choices[0]
    if choice.finish_reason == "length":
        raise Refused("TOO_LARGE", "it was cut off at its token limit")
    return choice.message.content or ""


def _json_part(content: str) -> str:
    """Return an answer without the model's thinking before it and one code fence around it."""
    answer = "".join(content[slice(*region)] for region in read_tags(content).answer).strip()
    fenced = _FENCED.fullmatch(answer)
    return fenced[1] if fenced else answer
