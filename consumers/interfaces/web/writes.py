"""Writing over HTTP: ``POST /v1/entries`` takes signed submissions, ``POST /v1/blobs`` the content of blobs.

Each request goes unchanged into the queue of the token's agent, together with the agent's requests over the bus. So the
queues, limits, gate, quotas and answers are those of the bus. A node that only follows refuses, because over the bus it
would get no submissions. The server itself decides only whether the token may send the submission: a writer token never
sends what the key of another agent signed. The gate decides about unknown keys.

A page of another site cannot write: it has no token, and no form sends these media types. The server reads a body only
after it checked the token, stores at most a submission or one chunk of a blob, and reads few bodies of an agent at
once. If we stop or crash before the answer, the client does not know the result and sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.datastructures import Headers
from starlette.responses import Response

from deedbook.consumers.interfaces.web.api import BYTES, JSON, refused
from deedbook.consumers.interfaces.web.questions import ROOT
from deedbook.consumers.interfaces.web.server import TIMED
from deedbook.consumers.interfaces.web.stream import NEVER_SNIFFED
from deedbook.consumers.sdk.text import document, json_text
from deedbook.ledger import limits
from deedbook.ledger.bus.connection import decode_answer, retry_wait_first_s
from deedbook.ledger.bus.message import BLOB_HEADER, CHUNK_HEADER, INTENT
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import decode_base64
from deedbook.ledger.format.envelope import decode_submission

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope

    from deedbook.consumers.interfaces.web.tokens import Tokens
    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.log.blob_table import Intent

MSGPACK: Final = "application/vnd.msgpack"
INTENT_HEADER: Final = "Deedbook-Intent"
METHODS: Final = "POST, OPTIONS"
agent_bodies_max: Final = 4
part_wait_max_s: Final = 10.0
body_rate_min_bytes_per_s: Final = 64 * 1024
chunk_attempts_max: Final = 8
answer_wait_max_s: Final = limits.request_timeout_s


class Submit(Protocol):
    """Serves a submission of an authenticated agent, and returns the answer's bytes (``Node.submit``)."""

    def __call__(self, agent: str, payload: bytes, headers: dict[str, str] | None = None) -> Awaitable[bytes]:
        """Serve it. Raises Unavailable: ``BUS_UNAVAILABLE``."""


class _Waits:
    """The waits for parts of bodies; when the server stops they end, because it would wait for them."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._has_ended = False

    def end(self) -> None:
        """End all waits, and allow no new ones."""
        self._has_ended = True
        for wait in self._open:
            wait.reschedule(0)

    async def next_part(self, receive: Receive, wait_max_s: float) -> Message:
        """Return the next part. Raises TimeoutError. Unavailable: ``BUSY`` if the server stops."""
        try:
            async with asyncio.timeout(0 if self._has_ended else wait_max_s) as wait:
                self._open.add(wait)
                try:
                    return await receive()
                finally:
                    self._open.discard(wait)
        except TimeoutError as error:
            if not self._has_ended:
                raise
            message = "the server stops: send the same bytes again when it is back"
            raise Unavailable("BUSY", message) from error


class _Request:
    """An authorized request: its agent, media type and headers, and its body, which is read once."""

    def __init__(self, agent: str, media: str, headers: Headers, receive: Receive, waits: _Waits) -> None:
        self.agent, self.media, self.headers = agent, media, headers
        self._receive, self._waits = receive, waits

    async def parts(self, size_max: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises Refused: ``TOO_LARGE``; ``INVALID_FORMAT`` if the client stops in between. TimeoutError: it is too slow.
        Unavailable: ``BUSY`` if the server stops.
        """
        size, left_s, loop = 0, part_wait_max_s, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            message = await self._waits.next_part(self._receive, left_s)
            left_s -= loop.time() - began_s  # only the client's time counts, not our own between two parts
            if message["type"] == "http.disconnect":
                raise Refused("INVALID_FORMAT", "the connection closed before the body was complete: send it again")
            part: bytes = message.get("body", b"")
            size += len(part)
            left_s += len(part) / body_rate_min_bytes_per_s
            if size > size_max:
                raise Refused("TOO_LARGE", f"this body may have at most {size_max} bytes", limit=size_max)
            if part:
                yield part
            if not message.get("more_body", False):
                return


class Writes:
    """The two paths that take a body; ``routes`` names them."""

    def __init__(self, client: LocalClient, tokens: Tokens, threads: Executor, submit: Submit | None) -> None:
        """Serve requests by ``submit``; without it nothing can be written."""
        self._client, self._tokens, self._threads = client, tokens, threads
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(agent_bodies_max))
        self._waits = _Waits()
        self._submit: Submit
        self.routes: dict[str, tuple[tuple[str, ...], int, Callable[[_Request], Awaitable[Response]]]] = {}
        if submit is not None:
            self._submit = submit
            self.routes = {
                f"{ROOT}/entries": ((JSON, MSGPACK), limits.request_size_max_bytes, self._entries),
                f"{ROOT}/blobs": ((BYTES,), limits.blob_size_max_bytes, self._blobs),
            }

    def end(self) -> None:
        """Abandon the bodies that are still arriving."""
        self._waits.end()

    async def answer(self, route: str, scope: Scope, receive: Receive) -> Response:
        """Answer a request to one of ``routes``. Raises DeedbookError: its code gives the status of the answer."""
        headers, (medias, size_max, write) = Headers(scope=scope), self.routes[route]
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers={"allow": METHODS})
        if scope["method"] != "POST":
            return refused(Refused("USAGE", f"this path takes only {METHODS}"), 405, allow=METHODS)
        agent = self._writer(headers.get("authorization", ""))
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in medias or headers.get("content-encoding", "identity") != "identity":
            error = Refused("INVALID_FORMAT", f"send a plain body with Content-Type: {' or '.join(medias)}")
            return refused(error, 415, **{"accept-post": ", ".join(medias)})
        if scope["query_string"]:
            raise Refused("UNKNOWN_FIELD", "this path takes no arguments in its address")
        if "content-length" in headers and "transfer-encoding" in headers:
            error = Refused("INVALID_FORMAT", "a body has either Content-Length or Transfer-Encoding")
            # RFC 9112, section 6.1: a proxy may read this request differently
            return refused(error, 400, connection="close")
        if int(headers.get("content-length", "0")) > size_max:
            raise Refused("TOO_LARGE", f"this body may have at most {size_max} bytes", limit=size_max)
        scope[TIMED] = True
        try:
            return await write(_Request(agent, media, headers, receive, self._waits))
        except Corrupted as error:
            if error.code != "VERIFICATION_FAILED":
                raise
            return refused(error, 422)  # the content differs from what its signature covers
        except TimeoutError:
            return refused(Unavailable("BUSY", "the body came too slowly: send it again"), 408)

    def _writer(self, header: str) -> str:
        """Return the agent of a writer token. Raises: as ``Tokens.check``; Refused: ``NOT_AUTHORIZED``."""
        with self._client.log.snapshot() as snapshot:
            token = self._tokens.check(header, snapshot)
        if token.role != "writer":
            message = f"the role {token.role} may not write: make a token with `deed token create NAME --role writer`"
            raise Refused("NOT_AUTHORIZED", message, role=token.role)
        return token.agent

    @contextlib.asynccontextmanager
    async def _place(self, agent: str) -> AsyncIterator[None]:
        """Wait until fewer bodies of the agent are read; meanwhile its client cannot send more than a socket holds.

        Raises Unavailable: ``BUSY`` if that takes too long.
        """
        places = self._places[agent]
        try:
            async with asyncio.timeout(answer_wait_max_s):
                await places.acquire()
        except TimeoutError as error:
            message = f"{agent_bodies_max} of your bodies are being read: try again later"
            raise Unavailable("BUSY", message, limit=agent_bodies_max) from error
        try:
            yield
        finally:
            places.release()

    async def _entries(self, request: _Request) -> Response:
        async with self._place(request.agent):
            content = b"".join([part async for part in request.parts(limits.request_size_max_bytes)])
            await self._in_thread(self._check_carried, request.agent, request.media, content)
        return _written("entries", await self._ask(request.agent, content))

    def _check_carried(self, agent: str, media: str, content: bytes) -> None:
        """Check in a thread whether a token of ``agent`` may send a submission.

        Raises Refused: as ``decode_submission``; ``INVALID_FORMAT`` for another form than the media type says;
        ``AUTHOR_MISMATCH`` if the key of another agent signed it.
        """
        if (content[:1] in (b"{", b"[")) != (media == JSON):
            raise Refused("INVALID_FORMAT", f"the body is not in the form that Content-Type names: {media}")
        public = decode_submission(content).key.hex()
        with self._client.log.snapshot() as snapshot:
            key = snapshot.key(public)
        if key is not None and key.owner != agent:
            message = f"this token is {agent}'s, and a key of {key.owner} signed: use a token of {key.owner}"
            raise Refused("AUTHOR_MISMATCH", message, owner=key.owner)

    async def _blobs(self, request: _Request) -> Response:
        signed, intent = await self._in_thread(self._intent, request.agent, request.headers.get(INTENT_HEADER, ""))
        length = int(request.headers.get("content-length", intent.size))
        if length != intent.size:
            raise _wrong_size(intent, length)
        async with self._place(request.agent):
            await self._upload(request, intent, signed)
        return _written("blob", {"ref": intent.ref, "size": intent.size})

    async def _upload(self, request: _Request, intent: Intent, signed: bytes) -> None:
        answer = await self._send(request.agent, intent.ref, INTENT, signed)
        received, size, number, buffer = int(answer["received"]), 0, 0, bytearray()
        # The last chunk waits for the end of the body: if the body has more bytes, nothing is stored.
        async for part in request.parts(intent.size):
            size += len(part)
            buffer += part
            while len(buffer) > limits.blob_chunk_bytes:
                chunk = bytes(buffer[: limits.blob_chunk_bytes])
                del buffer[: limits.blob_chunk_bytes]
                if number * limits.blob_chunk_bytes >= received:
                    answer = await self._send(request.agent, intent.ref, str(number), chunk)
                number += 1
        if size != intent.size:
            raise _wrong_size(intent, size)
        if "ref" not in answer:
            await self._send(request.agent, intent.ref, str(number), bytes(buffer))

    def _intent(self, agent: str, header: str) -> tuple[bytes, Intent]:
        """Return the signed intent of an upload, as it arrived and decoded. Raises Refused: as ``check_intent``."""
        if not header:
            message = "name the blob: the base64 of its signed intent (a submission of one blob.stored event)"
            raise Refused("INVALID_FIELD", message, path=INTENT_HEADER)
        signed = decode_base64(header, INTENT_HEADER)
        intent = self._client.check_intent(decode_submission(signed))
        if intent.author != agent:
            message = f"this token is {agent}'s, and {intent.author} signed the intent: sign your own"
            raise Refused("AUTHOR_MISMATCH", message, owner=intent.author)
        return signed, intent

    async def _send(self, agent: str, ref: str, number: str, payload: bytes) -> dict[str, Any]:
        """Send the intent or a chunk of a blob; repeat it while the node is busy, so that the client need not."""
        for attempt in range(chunk_attempts_max):
            try:
                return await self._ask(agent, payload, {BLOB_HEADER: ref, CHUNK_HEADER: number})
            except Unavailable as error:
                if error.code != "BUSY" or attempt == chunk_attempts_max - 1:
                    raise
            await asyncio.sleep(retry_wait_first_s * 2**attempt)
        raise AssertionError

    async def _ask(self, agent: str, payload: bytes, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the answer to a submission; after a timeout it may be accepted or not, as for a client of the bus."""
        try:
            async with asyncio.timeout(answer_wait_max_s):
                return decode_answer(await self._submit(agent, payload, headers))
        except TimeoutError as error:
            raise Unavailable("BUS_UNAVAILABLE", "there is no answer yet: send the same bytes again") from error

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)


def _written(kind: str, data: dict[str, Any]) -> Response:
    return Response(json_text(document(kind, data)), 200, {"cache-control": "no-store", **NEVER_SNIFFED}, JSON)


def _wrong_size(intent: Intent, size: int) -> DeedbookError:
    return Refused("INVALID_FIELD", f"the intent is for {intent.size} bytes, and the body has {size}", path="size")
