"""Sends HTTP requests; all of Deedbook's HTTP calls go through this module.

- One deadline limits the whole call: the connection, slow answers, retries and their pauses.
- Temporary failures are retried with a capped back-off. If a server's ``Retry-After`` is longer than the time left, the
  call ends at once.
- An answer's body is read up to a limit. A compressed body is refused, because it could unpack to any size.
- Redirects are not followed, and no proxy or password file of the environment is used. So only the settings decide who
  receives a key, a secret or a text.

A call runs its own event loop: inside another event loop, call it in a thread.
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

    ``requests`` counts the requests that were sent, with earlier attempts.
    """

    status: int
    body: bytes
    wait_s: float | None
    requests: int = 0


class NoAnswer(Exception):
    """There was no usable answer after ``attempts`` attempts. ``may_pass`` says that a later attempt may succeed.

    ``answer`` is the last answer with a temporary failure, with the beginning of its body.
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
    """Return a server's answer to a request; statuses in ``passing`` and lost connections are retried.

    Bodies are read for the statuses in ``read``, up to ``answer_max_bytes``; without that limit none is read. If
    ``read`` is None, the first ``failure_max_bytes`` of failures are read, too. Raises NoAnswer: the last attempt
    failed, or ``limit_s`` passed (its reason is ``late``).
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
    """Return the trusted certificates, read once: that takes 150 ms, longer than most requests.

    They are those of ``SSL_CERT_FILE``, as for the bus, or else of the public authorities.
    """
    return httpx.create_ssl_context()


async def _try_until_answered(
    attempt: Callable[[], Awaitable[Answer]], attempts_max: int, deadline: asyncio.Timeout
) -> Answer:
    # By default stamina logs each retry to standard output.
    stamina.instrumentation.set_on_retry_hooks([])

    def wait_s(error: Exception) -> bool | float:
        """Return the seconds to wait after a failed attempt; False: do not retry."""
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
            start = await _beginning(response) if read is None and status not in _OK else b""
            if status in passing:
                raise NoAnswer(f"the endpoint answered {status}", may_pass=True, answer=Answer(status, start, wait_s))
            if start:
                return Answer(status, start, wait_s)
            is_read = status in (_OK if read is None else read) and answer_max_bytes is not None
            return Answer(status, await _read(response, answer_max_bytes or 0) if is_read else b"", wait_s)
        finally:
            await response.aclose()
    except httpx.TransportError as error:
        reason: Reason | None = "unsent" if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else None
        raise NoAnswer(f"the connection failed ({type(error).__name__})", may_pass=True, reason=reason) from error


async def _beginning(response: httpx.Response) -> bytes:
    """Return the beginning of a failure's body, also if the connection breaks; empty for a compressed body."""
    body = bytearray()
    with contextlib.suppress(httpx.TransportError):
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) >= failure_max_bytes:
                break
    return bytes(body[:failure_max_bytes]) if response.headers.get("content-encoding") is None else b""


async def _read(response: httpx.Response, size_max_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("the answer is compressed, although the request forbids that", may_pass=False)
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > size_max_bytes:
            raise NoAnswer(f"the answer is larger than {size_max_bytes} bytes", may_pass=False, reason="large")
    return bytes(body)


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return the seconds in a ``Retry-After`` header (RFC 9110 §10.2.3); None if it is missing or unreadable."""
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
