"""Asking a language model one question, and getting a typed answer or a typed error.

Rules this module keeps:

- one deadline bounds the whole call: connecting, a server that sends a byte a minute, retries and their pauses;
- an answer is read up to ``answer_size_max_bytes``, uncompressed (a compressed one could unfold into anything);
- what may pass is retried with a capped back-off, a server's ``Retry-After`` is honoured, or, where it asks for more
  than there is time, the call ends at once; what will not pass (a wrong key, a wrong form) is not tried again;
- redirects are refused: the key is for the endpoint's own host;
- the answer is strict JSON of the type that was asked for, or it is refused whole.

Errors say what happened in our own words: what a server writes about an error could repeat the key.
A call runs its own event loop, so from inside another one it must be made in a thread.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from consumers.sdk.llm.prompt import Message, prompt_digest
from consumers.sdk.thinking.tags import read_tags
from ledger.codec import check_depth, decode_strict, encode_utf8
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

    import httpx

    from consumers.sdk.llm.endpoint import Endpoint

T = TypeVar("T")

answer_size_max_bytes: Final = 1024**2
request_size_max_bytes: Final = 1024**2
connect_timeout_s: Final = 10.0
retry_wait_first_s: Final = 0.5
retry_wait_max_s: Final = 8.0
retry_after_max_digits: Final = 6

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


class _Passing(Exception):
    """An attempt that failed in a way that may pass; ``wait_s`` is what the server asked for."""

    def __init__(self, problem: str, wait_s: float | None = None, status: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.wait_s = wait_s
        self.status = status


_completion: Final = msgspec.json.Decoder(_Completion)


class LlmClient:
    """Asks one endpoint; every call opens and closes its own connection."""

    def __init__(self, endpoint: Endpoint, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Ask ``endpoint``; ``pause`` waits between attempts."""
        self.endpoint = endpoint
        self._pause = pause

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
        answer = asyncio.run(self._within_deadline(body))
        return Answer(_decode(answer, form), self.model, prompt_digest(messages))

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

    async def _within_deadline(self, body: bytes) -> bytes:
        library = _load_library()
        limit_s = self.endpoint.settings.timeout_s
        try:
            async with asyncio.timeout(limit_s) as deadline:
                # No proxy and no password file of the environment: the settings alone decide where the key goes.
                timeouts = library.Timeout(None, connect=connect_timeout_s)
                async with library.AsyncClient(timeout=timeouts, follow_redirects=False, trust_env=False) as http:
                    return await self._try_until_answered(http, body, deadline)
        except TimeoutError as error:
            raise Unavailable("LLM_UNAVAILABLE", f"the model did not answer within {limit_s:g} s") from error

    async def _try_until_answered(self, http: httpx.AsyncClient, body: bytes, deadline: asyncio.Timeout) -> bytes:
        attempts_max = self.endpoint.settings.attempts_max
        back_off_s = retry_wait_first_s
        for attempt in range(1, attempts_max + 1):
            try:
                return await self._try_once(http, body)
            except _Passing as failure:
                wait_s = back_off_s if failure.wait_s is None else failure.wait_s
                left_s = (deadline.when() or 0) - asyncio.get_running_loop().time()
                if attempt == attempts_max or wait_s >= left_s:
                    raise _gave_up(failure, attempt) from failure
                await self._pause(wait_s)
                back_off_s = min(2 * back_off_s, retry_wait_max_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _try_once(self, http: httpx.AsyncClient, body: bytes) -> bytes:
        library = _load_library()
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if self.endpoint.api_key is not None:
            headers["authorization"] = f"Bearer {self.endpoint.api_key.reveal()}"
        try:
            async with http.stream("POST", self.endpoint.url, content=body, headers=headers) as response:
                _check_status(response)
                return await _read_bounded(response)
        except library.TransportError as error:
            raise _Passing(f"the connection failed ({type(error).__name__})") from error


def _load_library() -> ModuleType:
    import httpx  # noqa: PLC0415 - slow to load, and most commands ask no model

    return httpx


def _check_status(response: httpx.Response) -> None:
    status = response.status_code
    if status == _OK:
        return
    if status in _PASSING:
        wait_s = retry_after_s(response.headers.get("retry-after"), datetime.now(UTC))
        raise _Passing(f"the endpoint answered {status}", wait_s, status)
    if response.is_redirect:
        raise Unavailable("LLM_INVALID", f"the endpoint answered {status}: redirects are not followed", status=status)
    why = "it does not accept the API key" if status in _DENIED else "it does not accept the request"
    raise Unavailable("LLM_UNAVAILABLE", f"the endpoint answered {status}: {why}", status=status)


async def _read_bounded(response: httpx.Response) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Unavailable("LLM_INVALID", "the answer is compressed, which was not asked for")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > answer_size_max_bytes:
            raise Unavailable("LLM_INVALID", f"the answer is larger than {answer_size_max_bytes} bytes")
    return bytes(body)


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return how long a server asks to wait (RFC 9110 §10.2.3), or None when it does not say or cannot be read."""
    value = (value or "").strip()
    if value.isascii() and value.isdigit() and len(value) <= retry_after_max_digits:
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _gave_up(failure: _Passing, attempts: int) -> Unavailable:
    details = {"attempts": attempts, "status": failure.status, "retry_after_s": failure.wait_s}
    known = {name: value for name, value in details.items() if value is not None}
    times = f" {attempts} times" if attempts > 1 else ""
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
