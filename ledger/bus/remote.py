"""The client of a ledger behind a server: the calls of ``ledger.client.Client`` as requests over NATS.

Callers stay synchronous; the connection lives in one background thread with its own event loop. A denied publish
is answered by NATS only on the error channel, never to the request, so each request is raced against that channel:
it fails at once and says why. After an uncertain answer a submission is simply sent again: ids make that harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import nats.errors
from blake3 import blake3
from nats.aio.client import Client as NatsClient

from ledger import limits
from ledger.admission.decide import Accepted
from ledger.bus import subjects
from ledger.bus.faults import bus_errors
from ledger.bus.service import BLOB_HEADER, CHUNK_HEADER
from ledger.client import HeadView, Page
from ledger.errors import BatonError, Refused, Unavailable
from ledger.home import Home
from ledger.identity import read_key_file
from ledger.lifecycle.authority import AgentRecord
from ledger.log.blobs import check_blob
from ledger.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine
    from types import TracebackType

    from ledger.config import Settings
    from ledger.envelope import Submission

connect_timeout_s: Final = 5.0


class RemoteClient:
    """A ``Client`` of the ledger at ``settings.server``, connected as ``settings.agent``."""

    def __init__(self, settings: Settings) -> None:
        """Connect with the agent's bus key from the ledger's folder.

        Raises:
            Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``, ``BUS_DENIED``.
            Unavailable: ``BUS_UNAVAILABLE``.
        """
        self.settings = settings
        self._agent = settings.agent or ""
        self._server = settings.server or ""
        home = Home(settings.home)
        self.ledger: str = read_key_file(home.key_file(self._agent)).ledger
        seed = home.bus_seed(self._agent)
        self._nats = NatsClient()
        self._refusal = ""
        self._asked: dict[str, set[asyncio.Future[bytes]]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="baton-bus", daemon=True)
        self._thread.start()
        try:
            self._run(self._connect(seed))
        except BaseException:
            self._stop_loop()
            raise

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            self._run(asyncio.wait_for(self._nats.close(), connect_timeout_s))
        self._stop_loop()

    def submit(self, submission: Submission) -> list[Accepted]:
        """Admit a submission; when this returns, it is on the ledger's disk.

        Raises:
            Refused: it was not admitted.
            Unavailable: ``BUS_UNAVAILABLE`` after the last attempt; sending it again later is harmless.
        """
        payload = submission.encode()
        if len(payload) > limits.request_size_max_bytes:
            raise Refused("TOO_LARGE", f"a request has at most {limits.request_size_max_bytes} bytes")
        answer = self._request(subjects.submit_subject(self.ledger, self._agent), payload)
        return [msgspec.convert(list(one.values()), Accepted) for one in answer["accepted"]]

    def head(self) -> HeadView:
        """Return where the log ends."""
        return msgspec.convert(self._read("head"), HeadView)

    def entry(self, index: int) -> bytes:
        """Return the bytes of one entry.

        Raises:
            Refused: ``NOT_FOUND``.
        """
        return _bytes(self._read("entry", index=max(index, 0))["entry"])

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream."""
        found: int | None = self._read("index", stream=stream, id=event_id)["index"]
        return found

    def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
    ) -> Page:
        """Return entries from ``start`` on; a page may be empty and still say where to go on."""
        answer = self._read(
            "range",
            start=start,
            limit=max(1, min(limit, limits.range_events_max)),
            kinds=sorted(kinds),
            stream=stream,
            wait_s=min(wait_s, limits.poll_wait_max_s),
        )
        return msgspec.convert(answer, Page)

    def agents(self) -> list[AgentRecord]:
        """Return the registered agents."""
        return [msgspec.convert(list(one.values()), AgentRecord) for one in self._read("agents")["agents"]]

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry.

        Raises:
            Refused: ``NOT_FOUND``.
        """
        return Receipt.parse(self._read("proof", index=index)["receipt"])

    def checkpoint(self) -> str:
        """Return a signed checkpoint of the log as it is now."""
        note: str = self._read("checkpoint")["checkpoint"]
        return note

    def view(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a view query (see ``projections.reader``)."""
        return self._read("view", query=query, arguments=arguments)

    def put_blob(self, content: bytes) -> str:
        """Store a blob in chunks and return its ref.

        Raises:
            Refused: ``TOO_LARGE``.
        """
        if len(content) > limits.blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob has at most {limits.blob_size_max_bytes} bytes", size=len(content))
        ref = "blake3:" + blake3(content).hexdigest()
        count = max(1, -(-len(content) // limits.blob_chunk_bytes))
        for number in range(count):
            chunk = content[number * limits.blob_chunk_bytes : (number + 1) * limits.blob_chunk_bytes]
            headers = {BLOB_HEADER: ref, CHUNK_HEADER: f"{number}/{count}"}
            self._request(subjects.submit_subject(self.ledger, self._agent), chunk, headers, attempts=1)
        return ref

    def get_blob(self, ref: str) -> bytes:
        """Return a blob's content, checked against its ref.

        Raises:
            Refused: ``NOT_FOUND``.
            Corrupted: ``VERIFICATION_FAILED``.
        """
        answer = self._read("blob", ref=ref, chunk=0)
        content = bytearray(_bytes(answer["content"]))
        while len(content) < answer["size"]:
            answer = self._read("blob", ref=ref, chunk=len(content) // limits.blob_chunk_bytes)
            content += _bytes(answer["content"])
        check_blob(ref, bytes(content))
        return bytes(content)

    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        wait_s = float(arguments.get("wait_s", 0.0))
        return self._request(subjects.read_subject(self.ledger, verb), msgspec.json.encode(arguments), wait_s=wait_s)

    def _request(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        wait_s: float = 0.0,
        attempts: int = limits.retry_attempts_max,
    ) -> dict[str, Any]:
        pause = 0.05
        for left in reversed(range(attempts)):
            try:
                return _answer(self._run(self._ask(subject, payload, headers, wait_s)))
            except Unavailable as error:
                if error.code not in ("BUS_UNAVAILABLE", "BUSY") or not left:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, limits.retry_wait_max_s)
        raise AssertionError

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str] | None, wait_s: float) -> bytes:
        denied: asyncio.Future[bytes] = self._loop.create_future()
        waiting = self._asked.setdefault(subject.lower(), set())
        waiting.add(denied)
        timeout = limits.request_timeout_s + wait_s
        request = asyncio.ensure_future(self._nats.request(subject, payload, timeout=timeout, headers=headers))
        try:
            either: list[asyncio.Future[Any]] = [request, denied]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                raise Refused("BUS_DENIED", f"the server does not let {self._agent} do this: {denied.result().decode()}")
            with bus_errors(f"the ledger at {self._server} does not answer (is `baton serve` running?)"):
                return (await request).data
        finally:
            request.cancel()
            waiting.discard(denied)
            if not waiting:
                self._asked.pop(subject.lower(), None)

    async def _connect(self, seed: str) -> None:
        connecting = self._nats.connect(
            self._server,
            nkeys_seed_str=seed,
            inbox_prefix=subjects.inbox_prefix(self._agent).encode(),
            error_cb=self._on_error,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            connect_timeout=2,
        )
        try:
            with bus_errors(f"there is no server at {self._server} (is `baton serve` running?)"):
                await asyncio.wait_for(connecting, connect_timeout_s)
        except (Unavailable, TimeoutError) as error:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                await asyncio.wait_for(self._nats.close(), 1.0)
            if "authorization" in self._refusal.lower():
                message = f"the server does not know {self._agent}: was it registered with this ledger?"
                raise Refused("BUS_DENIED", message, agent=self._agent) from error
            reason = self._refusal or str(error) or "no answer"
            message = f"cannot connect to {self._server}: {reason} (is `baton serve` running?)"
            raise Unavailable("BUS_UNAVAILABLE", message, server=self._server) from error

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        self._refusal = text or type(error).__name__
        if "permissions violation" not in text.lower():
            return
        for subject, waiting in self._asked.items():
            if f'"{subject}"' in text.lower():
                for denied in waiting:
                    if not denied.done():
                        denied.set_result(text.encode())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _answer(data: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Unavailable("BUS_UNAVAILABLE", f"the ledger's answer cannot be read: {error}") from error
    if "error" in answer:
        raise BatonError.from_dict(answer["error"])
    return answer


def _bytes(encoded: str) -> bytes:
    return msgspec.convert(encoded, bytes)
