"""Asking a server over HTTP: the one way in which anything here does.

- one deadline bounds the whole call: connecting, a server that sends a byte a minute, retries and their pauses;
- what may pass is tried again with a capped back-off; where a server's ``Retry-After`` asks for more than there is
  time, the call ends at once;
- an answer's body is read up to a limit, and uncompressed (a compressed one could unfold into anything);
- redirects are not followed, and no proxy or password file of the environment is used: the settings alone decide where
  something goes, and so who sees a key, a secret or a text.

A call runs its own event loop, so from inside another one it must be made in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import httpx
import stamina

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping


connect_timeout_s: Final = 10.0
retry_wait_first_s: Final = 0.5
retry_wait_max_s: Final = 8.0
retry_after_max_digits: Final = 6
failure_max_bytes: Final = 16 * 1024

_OK: Final = frozenset({200})
Reason = Literal["unsent", "late", "large"]


class Answer(NamedTuple):
    """A server's answer. ``body`` is empty unless it was read; ``wait_s`` is how long the server asks to wait.

    ``requests`` counts what was sent for it, with all that was tried before.
    """

    status: int
    body: bytes
    wait_s: float | None
    requests: int = 0


class NoAnswer(Exception):
    """No answer that can be used, after so many ``attempts``; ``may_pass`` tells an outage from a wrong form.

    ``answer`` is what came and may pass, with the beginning of its body.
    """

    attempts = 1
    requests = 0

    def __init__(
        self, problem: str, *, may_pass: bool, reason: Reason | None = None, answer: Answer | None = None
    ) -> None:
        super().__init__(problem)
        self.problem, self.may_pass, self.reason = problem, may_pass, reason
        self.answer = answer or Answer(0, b"", None)


def request(
    method: str,
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    limit_s: float,
    attempts_max: int = 1,
    passing: frozenset[int] = frozenset(),
    answer_max_bytes: int | None = None,
    read: frozenset[int] | None = _OK,
) -> Answer:
    """Return what a server answers to ``body``; statuses of ``passing`` and lost connections are tried again.

    The bodies of the statuses in ``read`` are read, up to ``answer_max_bytes`` where that is given; None reads all, of
    failures only the first ``failure_max_bytes``. Raises NoAnswer: the last attempt had none, or ``limit_s`` passed
    (its reason is ``late``).
    """
    requests = 0

    async def call() -> Answer:
        timeouts = httpx.Timeout(None, connect=connect_timeout_s)
        async with (
            asyncio.timeout(limit_s) as deadline,
            httpx.AsyncClient(timeout=timeouts, follow_redirects=False, trust_env=False, verify=_tls()) as http,
        ):
            built = http.build_request(method, url, content=body, headers={"accept-encoding": "identity", **headers})

            async def attempt() -> Answer:
                nonlocal requests
                requests += 1
                try:
                    return await _try_once(http, built, passing, answer_max_bytes, read)
                except NoAnswer as failure:
                    requests -= failure.reason == "unsent"
                    raise

            return await _try_until_answered(attempt, attempts_max, deadline)

    try:
        return asyncio.run(call())._replace(requests=requests)
    except NoAnswer as failure:
        failure.requests = requests
        raise
    except TimeoutError as error:
        late = NoAnswer(f"there was no answer within {limit_s:g} s", may_pass=True, reason="late")
        late.requests = requests
        raise late from error
    except httpx.InvalidURL as error:
        raise NoAnswer("the address cannot be used", may_pass=False) from error


@cache
def _tls() -> ssl.SSLContext:
    """Return whose certificates are trusted: read once, because that takes longer (150 ms) than most questions."""
    return httpx.create_ssl_context(trust_env=False)


async def _try_until_answered(
    attempt: Callable[[], Awaitable[Answer]], attempts_max: int, deadline: asyncio.Timeout
) -> Answer:
    # It would log each retry by itself, to standard output unless somebody has set that up.
    stamina.instrumentation.set_on_retry_hooks([])

    def wait_s(error: Exception) -> bool | float:
        """Return how long to wait after a failed attempt, or False to give up."""
        if not isinstance(error, NoAnswer):
            return False
        error.attempts = tried.num
        wait_s = tried.next_wait if error.answer.wait_s is None else error.answer.wait_s
        left_s = (deadline.when() or 0.0) - asyncio.get_running_loop().time()
        return wait_s if error.may_pass and wait_s < left_s else False

    async for tried in stamina.retry_context(
        on=wait_s,
        attempts=attempts_max,
        timeout=None,
        wait_initial=retry_wait_first_s,
        wait_max=retry_wait_max_s,
        wait_jitter=0.0,
    ):
        with tried:
            return await attempt()
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _try_once(
    http: httpx.AsyncClient,
    request: httpx.Request,
    passing: frozenset[int],
    answer_max_bytes: int | None,
    read: frozenset[int] | None,
) -> Answer:
    try:
        response = await http.send(request, stream=True)
        try:
            status = response.status_code
            wait_s = retry_after_s(response.headers.get("retry-after"), datetime.now(UTC))
            told = await _beginning(response) if read is None and status not in _OK else b""
            if status in passing:
                raise NoAnswer(f"the endpoint answered {status}", may_pass=True, answer=Answer(status, told, wait_s))
            if told:
                return Answer(status, told, wait_s)
            is_read = status in (_OK if read is None else read) and answer_max_bytes is not None
            return Answer(status, await _read(response, answer_max_bytes or 0) if is_read else b"", wait_s)
        finally:
            await response.aclose()
    except httpx.TransportError as error:
        reason: Reason | None = "unsent" if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else None
        raise NoAnswer(f"the connection failed ({type(error).__name__})", may_pass=True, reason=reason) from error


async def _beginning(response: httpx.Response) -> bytes:
    """Return the beginning of what is said of a failure: as much as is worth it, whatever becomes of the rest."""
    body = bytearray()
    with contextlib.suppress(httpx.TransportError):
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) >= failure_max_bytes:
                break
    return bytes(body[:failure_max_bytes]) if response.headers.get("content-encoding") is None else b""


async def _read(response: httpx.Response, size_max_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("the answer is compressed, which was not asked for", may_pass=False)
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > size_max_bytes:
            raise NoAnswer(f"the answer is larger than {size_max_bytes} bytes", may_pass=False, reason="large")
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
