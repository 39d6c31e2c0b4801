"""The read API: every query of the views, events, receipts and blobs, in the command line's JSON documents.

An error is the document of the command line, too, under the status of its code. RFC 9457 was considered: it would be a
second form of what clients decode already, and its ``type`` wants an address of ours that nobody runs. A question is
asked in a thread, of a reader of its own, so that a slow one holds up neither the node's event loop nor its agents; it
is given up after ``answer_wait_max_s``, and while the views are made anew each is refused at once, saying how far they
are. What is asked of the past (``as_of=INDEX``) never changes and may be kept. An answer of now changes with time, too,
as leases and keys run out: it is asked for again each time, and an ETag saves its bytes, not the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from anyio import to_thread
from blake3 import blake3
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from consumers.doors.web.questions import (
    ROOT,
    Question,
    address,
    converted,
    form_from,
    form_of,
    path_of,
    read,
    values_of,
)
from consumers.doors.web.rebuild import Rebuild, behind_max
from consumers.doors.web.server import status_of
from consumers.doors.web.stream import EVENT_STREAM, Followers, Stream, as_server_sent, events_from
from consumers.sdk.batch import check_kinds
from consumers.sdk.events import Suspects, describe, whole_event
from consumers.sdk.ledger import index_in
from consumers.sdk.receipts import take
from consumers.sdk.text import document, error_document, json_text
from ledger import limits
from ledger.client import read_event
from ledger.errors import BatonError, Refused, Unavailable
from ledger.local import LocalClient
from projections.query import Arguments, Limit
from projections.reader import Reader
from projections.views import ON_DEMAND, VIEW_VERSIONS, ask, kind_of

if TYPE_CHECKING:
    from ledger.events.body import Event

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
answer_wait_max_s: Final = 30.0
questions_running_max: Final = 8
rows_streamed: Final = 500
blob_read_max_bytes: Final = 8 * 1024**2
events_scanned_max: Final = 32 * limits.range_events_max
_KEPT: Final = "private, max-age=86400, immutable"
_ASKED_AGAIN: Final = "private, no-cache"


class EventsAsked(Arguments, frozen=True):
    """Events from an index on, in the order of the log: only of these kinds, only of this stream."""

    from_: Annotated[int, msgspec.Meta(ge=0, le=limits.json_integer_max)] = msgspec.field(default=0, name="from")
    kinds: Annotated[list[str], msgspec.Meta(max_length=256)] = []
    stream: Annotated[str, msgspec.Meta(max_length=limits.stream_name_max_bytes)] | None = None
    limit: Limit = 50


EVENTS: Final = form_from(EventsAsked)


class Api:
    """The answers about one ledger; ``close`` it with its server."""

    def __init__(self, client: LocalClient) -> None:
        """Answer from the log of a node's ``client``, and from views that nobody else reads."""
        self.followers = Followers()
        self._node = client
        self._own = LocalClient(client.settings, log=client.log, views=Reader)
        self._rebuild = Rebuild(client, client.settings)
        self._threads = ThreadPoolExecutor(questions_running_max, thread_name_prefix="baton-web")
        # How far each sort of views is known to be folded: those that every question brings up to date, and all.
        self.folded = {False: -1, True: -1}

    def close(self) -> None:
        """Let go of the views."""
        self._threads.shutdown(cancel_futures=True)
        self._rebuild.reader.close()
        self._own.close()

    def routes(self) -> list[Route]:
        """Return the routes; GET and HEAD are answered."""
        answers: dict[str, Callable[[Request], Response]] = {
            "/events": self._events, "/events/{ref}": self._event, "/receipts/{ref}": self._receipt,
            "/blobs/{ref}": self._blob, "/checkpoint": self._checkpoint, "/{name}": self._question,
            "/{family}/{name}": self._question,
        }  # fmt: skip
        return [Route(f"{ROOT}{path}", partial(self._in_thread, answer)) for path, answer in answers.items()]

    @property
    def client(self) -> LocalClient:
        """The client that is asked, which hands out no more proofs than the node's."""
        self._own.needs_witnesses = self._node.needs_witnesses
        return self._own

    @property
    def size(self) -> int:
        """The number of entries in the log."""
        with self.client.log.snapshot() as snapshot:
            return snapshot.size

    async def _in_thread(self, answer: Callable[..., Any], given: Any) -> Any:
        try:
            async with asyncio.timeout(answer_wait_max_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, answer, given)
        except TimeoutError as error:
            message = f"this was not answered within {answer_wait_max_s:g} s: ask for less, or again later"
            raise Unavailable("BUSY", message) from error

    def _question(self, request: Request) -> Response:
        name = ".".join(request.path_params.values())
        form, request.scope["baton.route"] = form_of(name), path_of(name)
        question = read(name, request.query_params.multi_items())
        media = accepted(request, JSON, *(() if form.cursor is None else (NDJSON,)))
        kept, size = self._kept(question), self.size
        if kept is not None and kept in _etags(request):
            return answered(request, "", kept, _KEPT)
        answer, following = self._answer(question), None
        if media == NDJSON:
            return Stream(self._lines(question, answer, size), NDJSON, self.followers)
        if form.cursor is not None and (cursor := answer.get("next")) is not None:
            sealed = {form.cursor: question.seal(cursor)}
            moment = {} if question.as_of is None else {"as_of": question.as_of}
            answer["next"], following = *sealed.values(), address(path_of(name), question.arguments | moment | sealed)
        made = document(kind_of(name), answer, following)
        return _json(request, made, size) if kept is None else answered(request, json_text(made), kept, _KEPT)

    def _kept(self, question: Question) -> str | None:
        """Return the ETag of an answer about the past, which the log up to there and this software decide alone."""
        at = question.as_of or ""
        if not (at.isascii() and at.isdecimal() and int(at) < self.size):
            return None
        with self.client.log.snapshot() as snapshot:
            root = snapshot.frontier(int(at) + 1).root().hex()
        return f'W/"{at}-{root[:24]}-{sum(VIEW_VERSIONS.values())}"'

    def _answer(self, question: Question) -> dict[str, Any]:
        on_demand, size = question.query.partition(".")[0] in ON_DEMAND, self.size
        if size - self.folded[on_demand] > behind_max:
            self._rebuild.demand(size, searches=on_demand)
        answer = ask(self.client, question.query, question.arguments, question.as_of)
        self.folded[on_demand] = max(self.folded[on_demand], size)
        return answer

    def _ask(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._answer(Question(query, arguments))

    async def _lines(self, question: Question, answer: dict[str, Any], size: int) -> AsyncIterator[bytes]:
        """Yield all rows of a list, page by page; once the log has grown, the rest as of the first page's end of it."""
        while True:
            lists = [value for value in answer.values() if isinstance(value, list)]
            yield b"".join(map(_line, lists[0] if len(lists) == 1 else [answer]))  # where it is no list, the page
            if answer.get("next") is None:
                return
            asked = question.arguments | {str(form_of(question.query).cursor): answer["next"], "limit": rows_streamed}
            moment = question.as_of or (None if self.size == size else str(size - 1))
            question = Question(question.query, asked, moment)
            try:
                answer = await self._in_thread(self._answer, question)
            except BatonError as error:  # the status was sent long ago
                yield _line(error_document(error))
                return

    def _events(self, request: Request) -> Response:
        values = values_of(EVENTS, request.query_params.multi_items(), "events")
        asked = msgspec.convert(converted(EVENTS, values, "events"), EventsAsked)
        check_kinds(asked.kinds)
        media = accepted(request, JSON, NDJSON, EVENT_STREAM)
        size, start = self.size, asked.from_
        if media == EVENT_STREAM and (last := request.headers.get("last-event-id")) is not None:
            start = converted(EVENTS, {"from": last}, "Last-Event-ID")["from"] + 1
        if start > size:
            raise Refused("NOT_FOUND", f"the log has {size} entries: there is nothing from {start} on yet", size=size)
        suspects = Suspects(self._ask, is_filtered=bool(asked.kinds or asked.stream))
        if media != JSON:
            until = size if media == NDJSON else None
            return Stream(self._followed(asked, start, until, suspects), media, self.followers)
        events, index = self._scan(asked, size)
        bad = {one["index"]: {"quarantined": one["code"]} for one in self._ask("catalog.quarantined", {})["entries"]}
        rows = [describe(one) | bad.get(one.index, {}) | suspects.mark(one) for one in events]
        following = None if index >= size else address(f"{ROOT}/events", values | {"from": index})
        return _json(request, document("events", {"events": rows, "next": following and index}, following), size)

    def _scan(self, asked: EventsAsked, size: int) -> tuple[list[Event], int]:
        """Return what matches of a bounded stretch of the log, and where to go on."""
        events: list[Event] = []
        index, end = asked.from_, min(size, asked.from_ + events_scanned_max)
        while index < end:
            page = self.client.entries(index, kinds=asked.kinds, stream=asked.stream, limit=end - index)
            events += [read_event(at, data) for at, data in page.entries]
            if len(events) >= asked.limit:
                return events[: asked.limit], events[asked.limit - 1].index + 1
            index = page.next_index
        return events, index

    async def _followed(
        self, asked: EventsAsked, start: int, until: int | None, suspects: Suspects
    ) -> AsyncIterator[bytes]:
        """Yield events: up to an index as lines, or without an end as server-sent events."""
        threads = self.followers.threads
        if until is None:
            yield as_server_sent(start - 1)
        async for item in events_from(
            self.client, start, asked.kinds, stream=asked.stream, threads=threads, until=until
        ):
            if isinstance(item, int):
                yield as_server_sent(item - 1) if until is None else b""
                continue
            row = _line(describe(item) | await to_thread.run_sync(suspects.mark, item, limiter=threads))
            yield row if until is not None else as_server_sent(item.index, row)

    def _index_of(self, request: Request) -> int:
        index = index_in(ref := request.path_params["ref"])
        return int(self._ask("resolve", {"ref": ref})["event_index"]) if index is None else index

    def _event(self, request: Request) -> Response:
        accepted(request, JSON)
        data = whole_event(self.client, self._index_of(request), self._ask)
        return _json(request, document("event", data), self.size)

    def _receipt(self, request: Request) -> Response:
        index = self._index_of(request)
        return self._text_too(request, "receipt", take(self.client, index).to_text(), index=index)

    def _checkpoint(self, request: Request) -> Response:
        return self._text_too(request, "checkpoint", self.client.published_checkpoint())

    def _text_too(self, request: Request, kind: str, text: str, **more: Any) -> Response:
        if accepted(request, JSON, TEXT) == TEXT:
            return answered(request, text, f'"{blake3(text.encode()).hexdigest()[:24]}"', _ASKED_AGAIN, TEXT)
        return _json(request, document(kind, more | {kind: text}), self.size)

    def _blob(self, request: Request) -> Response:
        accepted(request, BYTES)
        size, _ = self.client.blob_chunk(ref := request.path_params["ref"], 0)
        if size > blob_read_max_bytes:
            raise Refused("TOO_LARGE", f"this blob has {size} bytes: `baton blob get {ref}` brings it", size=size)
        shut = {"content-disposition": "attachment", "content-security-policy": "sandbox"}  # whatever it is
        return answered(request, self.client.get_blob(ref), f'"{ref}"', _KEPT, BYTES, **shut)


def refused(error: BatonError, status: int = 0, **headers: str) -> Response:
    """Return an error as an answer, by default under the status of its code."""
    status = status or status_of(error)
    headers |= {"cache-control": "no-store"} | ({"retry-after": "1"} if status == 503 else {})
    headers |= {"www-authenticate": 'Bearer realm="baton"'} if status == 401 else {}
    return Response(json_text(error_document(error)), status, headers, JSON)


def answered(request: Request, body: str | bytes, etag: str, cache: str, media: str = JSON, **more: str) -> Response:
    """Return an answer, or, where it is what the client has, that it is unchanged."""
    headers = {"cache-control": cache, "etag": etag, "vary": "accept"} | more
    if etag in _etags(request):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media)


def accepted(request: Request, *offered: str) -> str:
    """Return the first of the media types that the client takes, in the order of what it names.

    Raises Refused: ``NOT_ACCEPTABLE`` when it takes none of them.
    """
    for wanted in request.headers.get("accept", "*/*").lower().replace(" ", "").split(","):
        name, *parameters = wanted.split(";")
        for media in offered:
            if name in (media, "*/*", media.partition("/")[0] + "/*") and "q=0" not in parameters:
                return media
    raise Refused("NOT_ACCEPTABLE", f"this is answered as {' or '.join(offered)}: say so in Accept")


def _etags(request: Request) -> set[str]:
    return {given.strip() for given in request.headers.get("if-none-match", "").split(",")}


def _json(request: Request, made: dict[str, Any], size: int) -> Response:
    # Weak, and by the log's size first: the same rows again are the same answer.
    content = json_text(made).encode()
    return answered(request, content, f'W/"{size}-{blake3(content).hexdigest()[:24]}"', _ASKED_AGAIN)


def _line(value: Any) -> bytes:
    return json_text(value).encode() + b"\n"
