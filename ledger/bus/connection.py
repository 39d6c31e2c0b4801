"""An agent's connection to a server, on the caller's event loop.

A denied publish is answered by NATS only on the error channel, never to the request, and a lost connection reaches no
request at all. So each request is raced against both: it fails at once and says why. After an uncertain answer it
is simply sent again until the time for it is up: ids make that harmless for submissions.

Who is away is told from who is slow. A server that refuses the first connection is said to be away at once. When a
connection is lost, or the server answers that nobody listens, requests go on for ``reconnect_wait_max_s`` (and what
a read asked to wait): so long may a node take to start again, or an agent's subject be closed that sent too much.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable

connect_timeout_s: Final = 3.0
reconnect_wait_max_s: Final = limits.reconnect_wait_max_s
close_wait_max_s: Final = 1.0
attempt_timeout_s: Final = limits.request_timeout_s / 2
# All attempts of a request together, besides what a read asked to wait.
request_time_max_s: Final = 2 * limits.request_timeout_s
retry_wait_first_s: Final = 0.05
retry_wait_max_s: Final = 0.5
denied_rounds: Final = 3

# What may become of a connection to a server that is there; every other ``OSError`` says that none is.
_CLOSED: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_PASSING: Final = (*_CLOSED, TimeoutError)

_HEADER: Final = re.compile(r"\r\n([!-9;-~]+): ([!-~]+(?: +[!-~]+)*)(?=\r\n)")
"""A header as nearly all are: visible ASCII, one space after the colon, none at the end."""


class _Away(Unavailable):
    """Nobody is there, which is known and not guessed from silence."""


# Sends one request and returns the answer's bytes; asks once.
Exchange: TypeAlias = Callable[[str, bytes], Coroutine[Any, Any, bytes]]
Greet: TypeAlias = Callable[[Exchange], Awaitable[None]]


class AsyncConnection:
    """One agent's requests to one server, on the event loop that opened it."""

    def __init__(
        self, server: str, agent: str, seed: str, greet: Greet | None = None, *, may_be_away: bool = False
    ) -> None:
        """Prepare to connect to ``server`` as ``agent``, whose bus key has the nkey ``seed``.

        ``server`` may name several nodes of one ledger, separated by commas: who does not answer is left for the next.
        ``greet`` is awaited on each new connection, before its first request: another node may answer there. Where all
        ``may_be_away``, nobody is waited for who has not answered yet, or whom one request waited for in vain.
        """
        self._greet = greet
        self._is_greeted = False
        self._servers = server.split(",")
        self._place = 0
        self._may_be_away = may_be_away
        self._is_given_up = may_be_away
        self._agent = agent
        self._seed = seed
        self._nats = NatsClient()
        self._refusal = ""
        self._is_deserted = self._is_reset = False
        self._is_closing = False
        self._connecting = asyncio.Lock()
        self._asked: dict[str, set[asyncio.Future[DeedbookError]]] = {}

    @property
    def _server(self) -> str:
        """The server that is asked now."""
        return self._servers[self._place]

    def _next_server(self) -> None:
        self._place = (self._place + 1) % len(self._servers)

    async def open(self) -> None:
        """Connect. Raises Refused: ``BUS_DENIED``. Unavailable: ``BUS_UNAVAILABLE``, unless it may be away."""
        try:
            await self._connect()
        except Unavailable:
            if not self._may_be_away:
                raise

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """Return the answer; ask again until there is one, or the time for it is up.

        Raises Refused: ``BUS_DENIED``, ``TOO_LARGE``, and what the ledger refuses. Unavailable: ``BUS_UNAVAILABLE``,
        and what the ledger cannot do.
        """
        if len(payload) > limits.request_size_max_bytes:
            raise Refused("TOO_LARGE", f"a request has at most {limits.request_size_max_bytes} bytes")
        deadline = time.monotonic() + request_time_max_s + wait_s
        away_deadline = time.monotonic() + reconnect_wait_max_s + wait_s
        pause = retry_wait_first_s
        while True:
            if self._is_closing:
                raise Unavailable("BUS_UNAVAILABLE", "this client was closed")
            try:
                answer = await self._ask(subject, payload, headers, attempt_timeout_s + wait_s)
                self._is_given_up = False
                return answer_in(answer)
            except Unavailable as error:
                may_pass = error.code in {"BUS_UNAVAILABLE", "BUSY", "NOT_LEADER"} and not self._is_closing
                last = away_deadline if isinstance(error, _Away) else deadline
                if not may_pass or self._is_given_up or time.monotonic() + pause > last:
                    self._is_given_up = self._may_be_away and isinstance(error, _Away)
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, retry_wait_max_s)

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str] | None, timeout_s: float) -> bytes:
        async with self._connecting:
            if self._nats.is_closed and not self._is_closing:
                await self._discard()
                await self._connect()
            if self._greet is not None and not self._is_greeted and self._nats.is_connected:
                await self._greet(self._exchange)
                self._is_greeted = True
        return await self._exchange(subject, payload, headers, timeout_s)

    async def greet_again(self) -> None:
        """Greet now, if anybody was greeted, and not for long."""
        if self._greet is not None and self._is_greeted and self._nats.is_connected:
            await asyncio.wait_for(self._greet(self._exchange), close_wait_max_s)

    async def _exchange(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, timeout_s: float = attempt_timeout_s
    ) -> bytes:
        if not self._nats.is_connected:
            raise self._why_away()
        asked = self._nats
        request = asked.request(subject, payload, timeout=timeout_s, headers=headers)
        try:
            answer = await self._race(subject.lower(), request, f"the ledger at {self._server} does not answer")
        except Unavailable:
            if len(self._servers) > 1 and asked is self._nats:
                self._next_server()  # this one runs, and no ledger answers there
                await self._discard()
            raise
        data: bytes = answer.data
        return data

    async def _race(self, subject: str, work: Coroutine[Any, Any, Any], what: str) -> Any:
        """Return what ``work`` returns, unless the error channel says first why it cannot."""
        failed: asyncio.Future[DeedbookError] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(subject, set())
        waiting.add(failed)
        task = asyncio.ensure_future(work)
        try:
            either: list[asyncio.Future[Any]] = [task, failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            try:
                with bus_errors(f"{what} (is `deed serve` running?)"):
                    return await task
            except Unavailable as error:
                if isinstance(error.__cause__, nats.errors.NoRespondersError):
                    raise self._nobody() from error
                raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            waiting.discard(failed)
            if not waiting:
                self._asked.pop(subject, None)

    def _why_away(self) -> DeedbookError:
        if _is_stranger(self._refusal):
            message = (
                f"the server lets nobody in by this key of {self._agent}: it was never registered here, or its agent "
                f"was removed, or the key revoked, or replaced elsewhere (`deed agent show {self._agent}` beside the "
                "ledger says which)"
            )
            return Refused("BUS_DENIED", message, agent=self._agent)
        if "CERTIFICATE_VERIFY_FAILED" in self._refusal:
            message = "is of nobody that this machine trusts: name its authority's file in SSL_CERT_FILE"
            return Refused("BUS_DENIED", f"the certificate of {self._server} {message}", server=self._server)
        message = f"there is no connection to {self._server} (is `deed serve` running?)"
        return _Away("BUS_UNAVAILABLE", message, server=self._server)

    def _nobody(self) -> DeedbookError:
        message = (
            f"the server at {self._server} runs, but no ledger answers {self._agent} there: `deed serve` starts or "
            f"has ended, or {self._agent} sent more than it may and is let in again in a moment. Try again"
        )
        return _Away("BUS_UNAVAILABLE", message, server=self._server, reason="no responders")

    async def _connect(self) -> None:
        """Connect; say at once when nobody listens there, and soon when this agent is unknown.

        What else goes wrong may pass: a server that reads new users ends connections that are just being made, and
        refuses, for some milliseconds, also those whom it lets in before and after (one attempt in 400, measured).
        A refusal may be lost when the server closes before all was sent to it (one in 12), so that a reset does not
        take back what was answered before it.
        """
        deadline = time.monotonic() + reconnect_wait_max_s
        pause = retry_wait_first_s
        tried = refused = 0
        answered = ""
        while True:
            try:
                await self._connect_once()
            except Unavailable as error:
                await self._discard()
                self._refusal = answered if self._is_reset and answered else self._refusal or error.message
                tried += 1
                if not self._is_reset:
                    answered = self._refusal
                    refused = refused + 1 if self._is_deserted or _is_stranger(answered) else 0
                least = (denied_rounds if self._is_reset else 1) * len(self._servers)
                is_over = tried >= least and time.monotonic() + pause > deadline
                rounds = 1 if self._is_deserted else denied_rounds
                if is_over or refused >= rounds * len(self._servers):
                    raise self._why_away().with_details(reason=self._refusal) from error
                self._next_server()
            else:
                return
            if tried < len(self._servers):
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, retry_wait_max_s)

    async def _connect_once(self) -> None:
        self._nats, self._refusal = NatsClient(), ""
        self._is_deserted = self._is_reset = self._is_greeted = False
        connecting = self._nats.connect(
            self._server.split(","),
            nkeys_seed_str=self._seed,
            inbox_prefix=subjects.inbox_prefix(self._agent).encode(),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            # The next request connects again. nats-py would try for ever, also when refused, and leave sockets open.
            allow_reconnect=False,
            # Not its patience either, which is two seconds and sixty attempts; this makes it two attempts at once.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=2,
        )
        with bus_errors(f"no server at {self._server}"):
            await asyncio.wait_for(connecting, connect_timeout_s)

    async def _discard(self) -> None:
        """Close the connection that is no more, if there was one, and its socket."""
        discarded = self._nats  # meanwhile another request may connect anew
        with contextlib.suppress(nats.errors.Error, OSError):  # there is nothing left to say to its server
            await asyncio.wait_for(discarded.close(), close_wait_max_s)
        transport = discarded._transport  # noqa: SLF001 - nats-py leaves the socket of a refused connection open
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call]  # nats-py leaves it unannotated

    async def _on_disconnect(self) -> None:
        for waiting in self._asked.values():
            _fail(waiting, _Away("BUS_UNAVAILABLE", f"the connection to {self._server} was lost"))

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if self._refusal and isinstance(error, _CLOSED):
            return  # which says less than what was answered before it
        self._refusal = text or type(error).__name__
        self._is_deserted = isinstance(error, OSError) and not isinstance(error, _PASSING)
        self._is_reset = isinstance(error, _CLOSED)
        if _is_stranger(text):
            for waiting in self._asked.values():
                _fail(waiting, self._why_away())
        if "permissions violation" not in text.lower():
            return
        for subject, waiting in self._asked.items():
            if f'"{subject}"' in text.lower():
                _fail(waiting, Refused("BUS_DENIED", f"the server does not let {self._agent} do this: {text}"))

    async def close(self) -> None:
        """Close the connection; requests that wait fail."""
        self._is_closing = True
        await self._discard()


def _is_stranger(refusal: str) -> bool:
    return "authorization" in refusal.lower()


def _fail(waiting: set[asyncio.Future[DeedbookError]], error: DeedbookError) -> None:
    for failed in waiting:
        if not failed.done():
            failed.set_result(error)


def answer_in(data: bytes) -> dict[str, Any]:
    """Return an answer of a node.

    Raises DeedbookError: what the ledger refuses or cannot do; ``BUS_UNAVAILABLE`` when it cannot be read.
    """
    with readable():
        answer = msgspec.json.decode(data, type=dict[str, Any])
        error = DeedbookError.from_dict(answer["error"]) if "error" in answer else None
    if error is not None:
        raise error
    return answer


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Raise ``BUS_UNAVAILABLE`` when an answer is not what a ledger answers."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Unavailable("BUS_UNAVAILABLE", f"the ledger's answer cannot be read: {error}") from error


@contextlib.contextmanager
def bus_errors(what: str) -> Iterator[None]:
    """Raise ``Unavailable`` for whatever goes wrong on the bus inside the block: all that nats-py raises.

    A missing stream or message is damage, and nothing is retried; everything else may pass. Raises Unavailable:
    ``BUS_DEGRADED`` or ``BUS_UNAVAILABLE``, saying what was being done.
    """
    try:
        yield
    except nats.js.errors.NotFoundError as error:
        raise Unavailable("BUS_DEGRADED", f"{what}: {error.description}", err_code=error.err_code) from error
    except nats.js.errors.APIError as error:
        reason = error.description or "the streams are not available"
        raise Unavailable("BUS_UNAVAILABLE", f"{what}: {reason}", err_code=error.err_code) from error
    except (nats.errors.Error, OSError) as error:
        raise Unavailable("BUS_UNAVAILABLE", f"{what}: {str(error) or type(error).__name__}") from error


class NodeClient(NatsClient):
    """A node's connection: a ``nats`` client that no message from outside can stop.

    An exception while nats-py reads a message ends its reading for good, silently, with the connection still
    "connected": a node would be deaf from then on. Bytes that are no text do that in a subject and in the status line
    of headers, and a hundred thousand headers hold the event loop up for a tenth of a second (all measured with 2.16).
    Agents choose these bytes. So text is decoded leniently here, and headers are bounded before they are looked at.
    """

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Return the headers; none when there are too many bytes of them, or they are no headers."""
        if not headers or len(headers) > limits.message_headers_max_bytes:
            return None
        pairs = _HEADER.findall(headers.decode("latin-1"))
        if pairs and headers.startswith(b"NATS/1.0\r\n") and len(pairs) == headers.count(b"\r\n") - 2:
            return dict(pairs)  # as nats-py reads them, in a tenth of its time
        try:
            parsed: dict[str, str] | None = await super()._process_headers(headers)
        except (ValueError, LookupError):
            return None
        return parsed

    async def allow(self, subscription: Subscription, count: int) -> None:
        """Let the server pass on so many messages of a subscription, in all since it began, and then end it there.

        To nats-py it stays open: its own count drops what waits once so many were read.
        """
        await self._send_unsubscribe(subscription._id, limit=count)  # noqa: SLF001 - there is no other way to say it

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Msg:
        text, answer_to = subject.decode(errors="replace"), reply.decode(errors="replace")
        return self.msg_class(subject=text, reply=answer_to, data=data, headers=headers, _client=self, _sid=sid)
