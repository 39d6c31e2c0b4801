"""An agent's connection to a server, on the caller's event loop.

NATS reports a denied publish only on its error channel, never to the request, and no request learns of a lost
connection. So each request also waits for these two, and then fails at once with the reason. After an uncertain answer
the client sends the request again until its time is up. Ids make that harmless for submissions.

The client distinguishes an absent server from a slow one. It reports at once a server that refuses the first
connection. When a connection is lost, or no ledger listens on the server, it repeats requests for
``reconnect_wait_max_s`` plus the ``wait_s`` of a read: a node may take that long to start again, and after a flood of
requests an agent's subject is closed for at most this time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, Protocol, TypeAlias

import nats.errors
import nats.js.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.system import traces

connect_timeout_s: Final = 3.0
reconnect_wait_max_s: Final = limits.reconnect_wait_max_s
close_wait_max_s: Final = 1.0
attempt_timeout_s: Final = limits.request_timeout_s / 2
# For all attempts of a request together, plus the ``wait_s`` of a read.
request_time_max_s: Final = 2 * limits.request_timeout_s
retry_wait_first_s: Final = 0.05
retry_wait_max_s: Final = 0.5
denied_rounds: Final = 3

# Raised when the server is reachable but the connection breaks. Any other ``OSError`` means that nothing listens.
_CLOSED: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_TRANSIENT: Final = (*_CLOSED, TimeoutError)

_WITHOUT_TLS: Final = "the server offers no TLS"
_HEADER: Final = re.compile(r"\r\n([!-9;-~]+): ([!-~]+(?: +[!-~]+)*)(?=\r\n)")
"""A header in the usual form: visible ASCII, one space after the colon, none at the end."""


class _AbsentServer(Unavailable):
    """No ledger can be reached there. This is certain, and not guessed from a missing answer."""


class Addresses(Protocol):
    """The learned addresses of a ledger's nodes, for use after the configured ones (``client.addresses``)."""

    @property
    def others(self) -> list[str]:
        """The addresses that may be tried."""

    @property
    def is_due(self) -> bool:
        """Whether to ask nodes for their addresses."""

    def learn(self, answer: bytes) -> None:
        """Store the address in the answer of a node."""

    def used(self, url: str) -> None:
        """Tell the user that a learned address is used."""


# Sends one request once and returns the answer's bytes.
Exchange: TypeAlias = Callable[[str, bytes], Coroutine[Any, Any, bytes]]
Greet: TypeAlias = Callable[[Exchange], Awaitable[None]]
# Reads the nkey seeds of an agent that the server may know.
ReadSeeds: TypeAlias = Callable[[], list[str]]


class AsyncConnection:
    """One agent's requests to one server, on the event loop that opened it."""

    def __init__(
        self,
        server: str,
        agent: str,
        seed: str,
        greet: Greet | None = None,
        *,
        may_be_absent: bool = False,
        read_seeds: ReadSeeds = list,
        addresses: Addresses | None = None,
    ) -> None:
        """Prepare to connect to ``server`` as ``agent``, whose bus key has the nkey ``seed``.

        ``server`` may name several nodes of one ledger, separated by commas: if one does not answer, the client tries
        the next. ``greet`` is awaited on each new connection before its first request, because another node may
        answer there. With ``may_be_absent`` the client does not wait for servers that have not answered yet, or that
        one request already waited for in vain. When the server does not admit ``seed``, the client tries the seeds
        that ``read_seeds`` returns then: a rotation may have replaced the key. When no server admits the client, or no
        ledger answers there, it tries the learned ``addresses``; a node there must pass ``greet``, too.
        """
        self._greet = greet
        self._is_greeted = False
        self._servers = server.split(",")
        self._server_index = 0
        self._addresses = addresses
        self._learned = ""
        self._unanswered = 0
        """How many requests to configured servers in a row had no answer."""

        self._doubtful = set[str]()
        self._learning: asyncio.Task[None] | None = None
        self._may_be_absent = may_be_absent
        self._is_abandoned = may_be_absent
        self._agent = agent
        self._seed = seed
        self._read_seeds = read_seeds
        self._nats = NatsClient()
        self._refusal = ""
        self._is_absent = self._is_reset = False
        self._is_closing = False
        self._connecting = asyncio.Lock()
        self._pending: dict[str, set[asyncio.Future[DeedbookError]]] = {}

    @property
    def _server(self) -> str:
        """The server in use."""
        return self._learned or self._servers[self._server_index]

    @property
    def server(self) -> str:
        """The address of the node that answers now."""
        return self._server

    def _next_server(self) -> None:
        self._server_index = (self._server_index + 1) % len(self._servers)

    async def open(self) -> None:
        """Connect. Raises Refused: ``BUS_DENIED``. Unavailable: ``BUS_UNAVAILABLE``, unless servers may be absent."""
        try:
            await self._connect()
        except Unavailable:
            if not self._may_be_absent:
                raise

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """Return the answer; send the request again until there is one, or its time is up.

        Raises Refused: ``BUS_DENIED``, ``TOO_LARGE``, and the ledger's refusals. Unavailable: ``BUS_UNAVAILABLE``, and
        the ledger's failures.
        """
        if len(payload) > limits.request_size_max_bytes:
            raise Refused("TOO_LARGE", f"a request has at most {limits.request_size_max_bytes} bytes: send less")
        deadline = time.monotonic() + request_time_max_s + wait_s
        absent_deadline = time.monotonic() + reconnect_wait_max_s + wait_s
        pause = retry_wait_first_s
        headers = traces.caller() | (headers or {}) or None
        while True:
            if self._is_closing:
                raise Unavailable("BUS_UNAVAILABLE", "this client was closed: open a new one")
            try:
                answer = await self._ask(subject, payload, headers, attempt_timeout_s + wait_s)
                self._is_abandoned = False
                return decode_answer(answer)
            except Unavailable as error:
                is_transient = error.code in {"BUS_UNAVAILABLE", "BUSY"} and not self._is_closing
                time_limit = absent_deadline if isinstance(error, _AbsentServer) else deadline
                if not is_transient or self._is_abandoned or time.monotonic() + pause > time_limit:
                    self._is_abandoned = self._may_be_absent and isinstance(error, _AbsentServer)
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, retry_wait_max_s)

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str] | None, timeout_s: float) -> bytes:
        async with self._connecting:
            if self._nats.is_closed and not self._is_closing:
                await self._discard()
                await self._connect()
            if self._greet is not None and not self._is_greeted and self._nats.is_connected:
                await self._check_node(self._greet)
        return await self._exchange(subject, payload, headers, timeout_s)

    async def _check_node(self, greet: Greet) -> None:
        """Greet the node. If another ledger answers at a learned address, treat it as no answer."""
        try:
            await greet(self._exchange)
        except (Refused, Corrupted) as error:
            if not self._learned:
                raise
            self._doubtful.add(self._learned)
            await self._discard()
            raise Unavailable("BUS_UNAVAILABLE", f"the node at {self._learned}: {error.message}") from error
        self._is_greeted = True
        if self._addresses is not None:
            if self._learned:
                self._addresses.used(self._learned)
            if self._addresses.is_due:
                self._learning = asyncio.create_task(self._learn(self._addresses, self._nats))

    @staticmethod
    async def _learn(addresses: Addresses, client: NatsClient) -> None:
        """Ask all nodes for their addresses. Some answers arrive while other requests run."""
        inbox = client.new_inbox()
        with contextlib.suppress(nats.errors.Error, OSError):  # the next connection asks again
            answers = await client.subscribe(inbox)
            await answers.unsubscribe(2 * limits.addresses_max)
            await client.publish(subjects.DISCOVERY_PING, b"", reply=inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.addresses_wait_s):
                    for _ in range(2 * limits.addresses_max):
                        addresses.learn((await answers.next_msg(limits.addresses_wait_s)).data)

    async def greet_again(self) -> None:
        """Greet the server again if it was greeted before; wait at most ``close_wait_max_s``."""
        if self._greet is not None and self._is_greeted and self._nats.is_connected:
            await asyncio.wait_for(self._greet(self._exchange), close_wait_max_s)

    async def _exchange(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, timeout_s: float = attempt_timeout_s
    ) -> bytes:
        if not self._nats.is_connected:
            raise self._connection_error()
        client = self._nats
        request = client.request(subject, payload, timeout=timeout_s, headers=headers)
        try:
            answer = await self._race(subject.lower(), request, f"the ledger at {self._server} does not answer")
        except Unavailable:
            if (self._learned or len(self._servers) > 1 or self._others()) and client is self._nats:
                self._next_server()  # this server runs, but no ledger answers there
                self._unanswered = 0 if self._learned else self._unanswered + 1
                await self._discard()
            raise
        self._unanswered = 0
        data: bytes = answer.data
        return data

    async def _race(self, subject: str, work: Coroutine[Any, Any, Any], description: str) -> Any:
        """Return the result of ``work``; raise the error of the error channel if that comes first."""
        failed: asyncio.Future[DeedbookError] = asyncio.get_running_loop().create_future()
        pending = self._pending.setdefault(subject, set())
        pending.add(failed)
        task = asyncio.ensure_future(work)
        try:
            futures: list[asyncio.Future[Any]] = [task, failed]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            try:
                with bus_errors(f"{description} (does `deed serve` run there?)"):
                    return await task
            except Unavailable as error:
                if isinstance(error.__cause__, nats.errors.NoRespondersError):
                    raise self._no_responders_error() from error
                raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            pending.discard(failed)
            if not pending:
                self._pending.pop(subject, None)

    def _connection_error(self) -> DeedbookError:
        if _is_unauthorized(self._refusal):
            message = (
                f"the server does not admit this key of {self._agent}: it was never registered, the agent was removed, "
                f"or its key was revoked or replaced. Run `deed agent show {self._agent}` beside the ledger to see why"
            )
            return Refused("BUS_DENIED", message, agent=self._agent)
        if "CERTIFICATE_VERIFY_FAILED" in self._refusal:
            message = f"this machine does not trust the certificate of {self._server}"
            return Refused("BUS_DENIED", f"{message}: set SSL_CERT_FILE to its authority's file", server=self._server)
        if self._refusal == _WITHOUT_TLS:
            message = f"the server at {self._server} offers no TLS, so nothing was sent to it"
            return Refused(
                "BUS_DENIED", f"{message}: give it a certificate, or name it with nats://", server=self._server
            )
        tunnel = " (or the tunnel to it)" if "//127." in self._server else ""
        message = f"there is no connection to {self._server}: start `deed serve` there{tunnel}, in the ledger's folder"
        return _AbsentServer("BUS_UNAVAILABLE", message, server=self._server)

    def _no_responders_error(self) -> DeedbookError:
        message = (
            f"the server at {self._server} runs, but no ledger answers {self._agent} there: `deed serve` starts or "
            f"has ended, or {self._agent} sent too much and is admitted again soon. Try again"
        )
        return _AbsentServer("BUS_UNAVAILABLE", message, server=self._server, reason="no responders")

    async def _connect(self) -> None:
        """Connect to a configured server; if none admits this agent or answers it, to one at a learned address."""
        if self._unanswered >= len(self._servers) and await self._connect_as_learned():
            return
        self._learned = ""
        try:
            await self._connect_as_configured()
        except (Refused, Unavailable):
            refusal = self._refusal, self._is_absent
            if not await self._connect_as_learned():
                self._refusal, self._is_absent = refusal
                raise

    def _others(self) -> list[str]:
        """Return the learned addresses that may be tried."""
        return [] if self._addresses is None else [url for url in self._addresses.others if url not in self._doubtful]

    async def _connect_as_learned(self) -> bool:
        """Connect to the first learned address that admits this agent; return whether there is one."""
        for url in self._others():
            self._learned = url
            try:
                await self._connect_once()
            except Unavailable:
                await self._discard()
            else:
                return True
        self._learned = ""
        return False

    async def _connect_as_configured(self) -> None:
        """Connect with the agent's key, or with a key that replaced it.

        If a rotation crashed after the ledger accepted it, the server knows only the new key, which has not yet
        replaced the old file.
        """
        denied_seeds = set[str]()
        while True:
            try:
                await self._connect_with_seed()
            except Refused:
                if not _is_unauthorized(self._refusal):
                    raise
                denied_seeds.add(self._seed)
                seed = next((seed for seed in self._read_seeds() if seed not in denied_seeds), None)
                if seed is None:
                    raise
                self._seed = seed
            else:
                return

    async def _connect_with_seed(self) -> None:
        """Connect. If nothing listens, fail at once; if the agent is unknown, fail after a few attempts.

        Other errors may be temporary. A server that loads new users breaks connections that are being made, and for
        some milliseconds refuses even users that it admits before and after (one attempt in 400, measured). If the
        server closes before it has read everything, its refusal may be lost (one in 12). So a reset does not replace an
        earlier refusal.
        """
        deadline = time.monotonic() + reconnect_wait_max_s
        pause = retry_wait_first_s
        attempts = refusals = 0
        last_refusal = ""
        while True:
            try:
                await self._connect_once()
            except Unavailable as error:
                await self._discard()
                self._refusal = last_refusal if self._is_reset and last_refusal else self._refusal or error.message
                attempts += 1
                if not self._is_reset:
                    last_refusal = self._refusal
                    is_final = self._is_absent or last_refusal == _WITHOUT_TLS or _is_unauthorized(last_refusal)
                    refusals = refusals + 1 if is_final else 0
                attempts_min = (denied_rounds if self._is_reset else 1) * len(self._servers)
                is_over = attempts >= attempts_min and time.monotonic() + pause > deadline
                rounds = 1 if self._is_absent else denied_rounds
                if is_over or refusals >= rounds * len(self._servers):
                    raise self._connection_error().with_details(reason=self._refusal) from error
                self._next_server()
            else:
                return
            if attempts < len(self._servers):
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, retry_wait_max_s)

    async def _connect_once(self) -> None:
        self._nats, self._refusal = _AgentClient(), ""
        self._is_absent = self._is_reset = self._is_greeted = False
        connecting = self._nats.connect(
            self._server.split(","),
            nkeys_seed_str=self._seed,
            inbox_prefix=subjects.inbox_prefix(self._agent).encode(),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            # The next request connects again. nats-py would retry for ever, even after a refusal, and leave sockets
            # open.
            allow_reconnect=False,
            # nats-py would make sixty attempts, two seconds apart. With these two settings it makes two at once.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=2,
        )
        with bus_errors(f"no server at {self._server}"):
            try:
                await asyncio.wait_for(connecting, connect_timeout_s)
            except ValueError as error:  # its first line is longer than asyncio's limit, or not JSON
                raise nats.errors.Error("its greeting is not that of a NATS server") from error

    async def _discard(self) -> None:
        """Close the broken connection and its socket."""
        discarded = self._nats  # meanwhile another request may connect anew
        with contextlib.suppress(nats.errors.Error, OSError):  # the server needs no further message
            await asyncio.wait_for(discarded.close(), close_wait_max_s)
        transport = discarded._transport  # noqa: SLF001 - nats-py leaves the socket of a refused connection open
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call]  # nats-py leaves it unannotated

    async def _on_disconnect(self) -> None:
        for pending in self._pending.values():
            _fail(pending, _AbsentServer("BUS_UNAVAILABLE", f"the connection to {self._server} was lost"))

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if self._refusal and isinstance(error, _CLOSED):
            return  # the earlier refusal is more precise
        self._refusal = text or type(error).__name__
        self._is_absent = isinstance(error, OSError) and not isinstance(error, _TRANSIENT)
        self._is_reset = isinstance(error, _CLOSED)
        if _is_unauthorized(text):
            for pending in self._pending.values():
                _fail(pending, self._connection_error())
        if "permissions violation" not in text.lower():
            return
        for subject, pending in self._pending.items():
            if f'"{subject}"' in text.lower():
                _fail(pending, Refused("BUS_DENIED", f"the server does not let {self._agent} do this: {text}"))

    async def close(self) -> None:
        """Close the connection; pending requests fail."""
        self._is_closing = True
        if self._learning is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._learning, limits.addresses_close_wait_s)
        await self._discard()


def _is_unauthorized(refusal: str) -> bool:
    return "authorization" in refusal.lower()


def _fail(pending: set[asyncio.Future[DeedbookError]], error: DeedbookError) -> None:
    for failed in pending:
        if not failed.done():
            failed.set_result(error)


def decode_answer(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a node's answer.

    Raises DeedbookError: the error in the answer; ``BUS_UNAVAILABLE`` when the answer is not readable.
    """
    with readable():
        answer = read_json(data, dict[str, Any])
        error = DeedbookError.from_dict(answer["error"]) if "error" in answer else None
    if error is not None:
        raise error
    return answer


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Raise ``BUS_UNAVAILABLE`` if the block finds an answer that does not have the form of a ledger's answer."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Unavailable("BUS_UNAVAILABLE", f"the ledger's answer is not readable: {error}") from error


@contextlib.contextmanager
def bus_errors(description: str) -> Iterator[None]:
    """Turn every error of nats-py inside the block into ``Unavailable``; ``description`` begins its message.

    A missing stream or message is damage and is not retried. All other errors may be temporary. Raises Unavailable:
    ``BUS_DEGRADED`` or ``BUS_UNAVAILABLE``.
    """
    try:
        yield
    except nats.js.errors.NotFoundError as error:
        raise Unavailable("BUS_DEGRADED", f"{description}: {error.description}", err_code=error.err_code) from error
    except nats.js.errors.APIError as error:
        reason = error.description or "the streams are not available"
        raise Unavailable("BUS_UNAVAILABLE", f"{description}: {reason}", err_code=error.err_code) from error
    except (nats.errors.Error, OSError) as error:
        raise Unavailable("BUS_UNAVAILABLE", f"{description}: {str(error) or type(error).__name__}") from error


class _AgentClient(NatsClient):
    """An agent's connection."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as of nats-py
        """Take a server's description; refuse one without TLS at tls://, where nats-py would send in the clear."""
        await super()._process_info(info, initial_connection)
        server = self._current_server if initial_connection else None
        if server is not None and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise nats.errors.Error(_WITHOUT_TLS)


class NodeClient(NatsClient):
    """A node's connection: a ``nats`` client that no message from outside can stop.

    An exception while nats-py reads a message silently ends its reading, and the client still says "connected": the
    node would receive nothing more. Bytes that are not UTF-8 in a subject or in the status line of headers cause such
    an exception. A hundred thousand headers block the event loop for a tenth of a second (all measured with 2.16).
    Agents choose these bytes. So this client decodes text leniently, and limits the size of headers before it parses
    them.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as of nats-py
        """Take a server's description, but learn no other server of the cluster from it.

        Only its own server lets a node subscribe to messages of nodes. If its server was killed, nats-py would connect
        to another server, which refuses these subscriptions, and stay there.
        """
        await super()._process_info(info | {"connect_urls": []}, initial_connection)

    async def _attempt_reconnect(self) -> None:
        """Connect again, and drop the messages that were not sent before the connection was lost.

        The server may have lost entries meanwhile. Without this, a publish could follow the loss before anybody notices
        it.
        """
        self._pending.clear()
        self._pending_data_size = 0
        await super()._attempt_reconnect()

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Return the headers; None when they are too large or malformed."""
        if not headers or len(headers) > limits.message_headers_max_bytes:
            return None
        pairs = _HEADER.findall(headers.decode("latin-1"))
        if pairs and headers.startswith(b"NATS/1.0\r\n") and len(pairs) == headers.count(b"\r\n") - 2:
            return dict(pairs)  # the same result as nats-py's, in a tenth of its time
        try:
            parsed: dict[str, str] | None = await super()._process_headers(headers)
        except (ValueError, LookupError):
            return None
        return parsed

    async def allow(self, subscription: Subscription, count: int) -> None:
        """Let the server end a subscription after ``count`` messages, counted from its beginning.

        nats-py does not know of this limit: its own limit would drop pending messages once this many were read.
        """
        await self._send_unsubscribe(subscription._id, limit=count)  # noqa: SLF001 - nats-py has no public call

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Msg:
        text, answer_to = subject.decode(errors="replace"), reply.decode(errors="replace")
        return self.msg_class(subject=text, reply=answer_to, data=data, headers=headers, _client=self, _sid=sid)
