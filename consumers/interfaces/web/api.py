"""The read API: every query of the views, events, receipts, blobs and tiles, in the command line's JSON documents.

An error is a problem document of RFC 9457 (``Problem``). Its ``type`` is a URN, because no address describes it: a
client decides by ``code``, which is the same at every interface. While the views are rebuilt, each request is refused
at once with their progress.

Caching: answers change with time, because leases and keys expire, and texts may be erased, also those of the past and
of blobs. So clients revalidate all of them each time, and an ETag saves the transfer. Tiles are those of C2SP
tlog-tiles, under the paths of an exported folder. Those of hashes and of entries without bodies never change, so
clients may cache them. A cache that readers share, such as a reverse proxy, may store only the tiles of a public log,
because it would give them to readers without a token.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from anyio import to_thread
from blake3 import blake3
from starlette.datastructures import Headers
from starlette.responses import Response

from deedbook.consumers.interfaces.web.questions import (
    AFTER,
    AS_OF,
    ROOT,
    Question,
    address,
    converted,
    form_from,
    items_max,
    path_of,
    read,
    values_of,
)
from deedbook.consumers.interfaces.web.rebuild import Rebuild
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.interfaces.web.stream import (
    EVENT_STREAM,
    KEEP_ALIVE,
    NEVER_SNIFFED,
    POSITION,
    Followers,
    Stream,
    as_server_sent,
    events_from,
)
from deedbook.consumers.sdk.events import EventMarks, describe, whole_event
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.ledger import index_of
from deedbook.consumers.sdk.receipts import take
from deedbook.consumers.sdk.sealer import with_erasures
from deedbook.consumers.sdk.text import document, json_text
from deedbook.ledger import limits
from deedbook.ledger.bundle.layout import join_tile, tile_name
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import CODES, DeedbookError, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import convert
from deedbook.ledger.format.envelope import without_body
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.projections.answers.answer import Answer, Index
from deedbook.projections.answers.checked import ask
from deedbook.projections.answers.query import Arguments, Limit
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import QUERIES, group_of, kind_of

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
rows_streamed: Final = 500
blob_read_max_bytes: Final = 8 * 1024**2
events_scanned_max: Final = 32 * limits.range_events_max
path_max: Final = 64
_TILE: Final = re.compile(r"(entries|bodies|\d|[1-5]\d|6[0-3])/((?:x\d{3}/)*\d{3})(?:\.p/([1-9]\d{0,2}))?", re.ASCII)
_REVALIDATED: Final = "private, no-cache"
_IMMUTABLE: Final = "private, max-age=86400, immutable"
_PUBLIC_REVALIDATED: Final = "no-cache"
_PUBLIC_IMMUTABLE: Final = "public, max-age=31536000, immutable"


class EventsArguments(Arguments, frozen=True):
    """Events after an index, in log order, filtered by kinds and stream."""

    after: Annotated[
        int, msgspec.Meta(ge=-1, le=limits.json_integer_max, description="The index of the last event already read.")
    ] = -1
    kinds: Annotated[list[str], msgspec.Meta(max_length=items_max)] = []
    stream: Annotated[str, msgspec.Meta(max_length=limits.stream_name_max_bytes)] | None = None
    limit: Limit = 50


EVENTS: Final = form_from(EventsArguments)


class Problem(msgspec.Struct, frozen=True):
    """An error as RFC 9457 has it; ``code``, ``recoverable`` and ``details`` are those of every interface."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    recoverable: bool
    details: dict[str, Any]


class Health(Answer, frozen=True, kw_only=True):
    """The log can be read."""

    status: Literal["ok"] = "ok"
    entries: int


class PathLine(Answer, frozen=True, kw_only=True):
    """A path of this API, and the names of its arguments."""

    path: str
    method: str
    meaning: str
    arguments: list[str]


class PathList(Answer, frozen=True, kw_only=True):
    """All paths of this API."""

    paths: list[PathLine]


class ReceiptText(Answer, frozen=True, kw_only=True):
    """A C2SP tlog-proof of an event."""

    index: Index
    receipt: str


class CheckpointText(Answer, frozen=True, kw_only=True):
    """The signed checkpoint, a C2SP signed note."""

    checkpoint: str


class ApiRequest(NamedTuple):
    """An authorized request: its route, the value of the route's last part (``ref``), and the log's size."""

    route: str
    ref: str
    query: list[tuple[str, str]]
    headers: Headers
    size: int

    def accepted(self, *offered: str) -> str:
        """Return the first offered media type that the client accepts, in the client's order.

        Raises Refused: ``NOT_ACCEPTABLE`` if it accepts none of them.
        """
        for wanted in self.headers.get("accept", "*/*").lower().replace(" ", "").split(","):
            name, *parameters = wanted.split(";")
            for media in offered:
                if name in (media, "*/*", media.partition("/")[0] + "/*") and "q=0" not in parameters:
                    return media
        raise Refused("NOT_ACCEPTABLE", f"this resource is available as {' or '.join(offered)}: name one in Accept")

    def answer(self, body: str | bytes, media: str, cache: str = _REVALIDATED, of: str = "", **extra: str) -> Response:
        """Return an answer, or status 304 if the client has it already.

        The ETag contains ``of``, the log index that the answer is about (default: the log's size). It is weak, because
        it stands for the content: the bytes differ if the answer is compressed.
        """
        content = body.encode() if isinstance(body, str) else body
        etag = f'W/"{of or self.size}-{blake3(content).hexdigest()[:24]}"'
        headers = {"cache-control": cache, "etag": etag, "vary": "accept, accept-encoding", **NEVER_SNIFFED, **extra}
        if etag in map(str.strip, self.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media)

    def document(self, kind: str, data: Any, following: str | None = None, *options: Any) -> Response:
        """Return a JSON document as an answer."""
        return self.answer(json_text(document(kind, data, following)), JSON, *options)


class Api:
    """The answers about one ledger; ``close`` it with its server."""

    def __init__(self, client: LocalClient, followers: Followers, *, is_public: bool = False) -> None:
        """Answer from the log of a node's ``client``, and from a view reader of its own."""
        self._node, self._followers = client, followers
        self._tile_cache = _PUBLIC_IMMUTABLE if is_public else _IMMUTABLE
        self._bodies_cache = _PUBLIC_REVALIDATED if is_public else _REVALIDATED
        self._client = LocalClient(client.settings, log=client.log, views=lambda *_: self._reader)
        self._reader = Reader(self._client, client.settings)
        self.rebuild = Rebuild(client, client.settings)

    def close(self) -> None:
        """Close the views."""
        self.rebuild.reader.close()
        self._reader.close()
        self._client.close()

    @property
    def size(self) -> int:
        """The number of entries in the log."""
        with self._node.log.snapshot() as snapshot:
            return snapshot.size

    def routes(self) -> dict[str, Callable[[ApiRequest], Response]]:
        """Return the handlers by route; the last part of a route may be a placeholder."""
        return {
            **dict.fromkeys(map(path_of, QUERIES), self._question),
            f"{ROOT}/events": self._events,
            f"{ROOT}/events/{{id}}": self._event,
            f"{ROOT}/receipts/{{id}}": self._receipt,
            f"{ROOT}/blobs/{{id}}": self._blob,
            f"{ROOT}/checkpoint": self._checkpoint,
            "/checkpoint": self._published,
            "/tile/{path}": self._tile,
        }

    def _question(self, request: ApiRequest) -> Response:
        question = read(request.route, request.query)
        name, has_pages = question.query, question.form.has_pages
        media = request.accepted(JSON, *((NDJSON,) if has_pages else ()))
        answer, following = self._answer(question, request.size), None
        if media == NDJSON:
            return Stream(self._lines(question, answer, request.size), NDJSON, self._followers)
        if has_pages and (sealed := question.sealed(answer.get("next"))) is not None:
            time = {} if question.as_of is None else {AS_OF: question.as_of}
            answer["next"], following = sealed, address(path_of(name), {**question.arguments, **time, AFTER: sealed})
        # An answer as of a log index changes only when texts are erased; a time may be in the future.
        at = question.as_of or ""
        is_past = at.isascii() and at.isdecimal() and int(at) < request.size
        body = json_text(document(kind_of(name), answer, following))
        return request.answer(body, JSON, of=at if is_past else "")

    def _answer(self, question: Question, size: int) -> dict[str, Any]:
        self.rebuild.demand(size, group_of(question.query))
        answer = ask(self._client, question.query, question.arguments, question.as_of)
        return with_erasures(answer, self._client.view)

    def _ask(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._answer(Question(query, arguments), self.size)

    async def _lines(self, question: Question, answer: dict[str, Any], size: int) -> AsyncIterator[bytes]:
        """Yield all rows of a list, page by page; if the log grows meanwhile, later pages are as of the first page."""
        while True:
            lists = [value for value in answer.values() if isinstance(value, list)]
            yield b"".join(
                map(_line, lists[0] if len(lists) == 1 else [answer])
            )  # if the answer is not a single list, send the page
            if answer.get("next") is None:
                return
            arguments = question.arguments | {AFTER: answer["next"], "limit": rows_streamed}
            as_of = question.as_of or (None if self.size == size else str(size - 1))
            question = Question(question.query, arguments, as_of)
            try:
                answer = await to_thread.run_sync(self._answer, question, size, limiter=self._followers.threads)
            except DeedbookError as error:  # too late for an HTTP status
                yield _line(problem(error, status_of(error)))
                return

    def _events(self, request: ApiRequest) -> Response:
        values = values_of(EVENTS, request.query, "events")
        args = convert(converted(EVENTS, values, "events"), EventsArguments)
        check_kinds(args.kinds)
        media = request.accepted(JSON, NDJSON, EVENT_STREAM)
        after = args.after
        if (last := request.headers.get("last-event-id")) is not None:
            resumed = converted(EVENTS, {AFTER: last}, "Last-Event-ID")[AFTER]
            after = resumed if media == EVENT_STREAM else after
        if (start := after + 1) > (size := request.size):
            raise Refused("NOT_FOUND", f"the log has {size} entries: there is no entry {after} yet", size=size)
        compromised = EventMarks(self._ask, is_filtered=bool(args.kinds or args.stream))
        if media != JSON:
            until = size if media == NDJSON else None
            return Stream(self._stream(args, start, until, compromised), media, self._followers)
        events, index = self._scan(args, size)
        skipped = {event["index"]: {"skipped": event["code"]} for event in self._ask("catalog.skipped", {})["items"]}
        rows = [describe(event) | skipped.get(event.index, {}) | compromised.mark(event) for event in events]
        following = None if index >= size else address(request.route, values | {"after": index - 1})
        return request.document("events", {"items": rows, "next": following and index - 1}, following)

    def _scan(self, args: EventsArguments, size: int) -> tuple[list[Event], int]:
        """Return the matching events of a bounded range of the log, and the index at which to continue."""
        events: list[Event] = []
        index = args.after + 1
        end = min(size, index + events_scanned_max)
        while index < end:
            page = self._client.entries(index, kinds=args.kinds, stream=args.stream, limit=end - index)
            events += [read_event(at, data) for at, data in page.entries]
            if len(events) >= args.limit:
                return events[: args.limit], events[args.limit - 1].index + 1
            index = page.next_index
        return events, index

    async def _stream(
        self, args: EventsArguments, start: int, until: int | None, compromised: EventMarks
    ) -> AsyncIterator[bytes]:
        """Yield events: as lines up to an index, or as server-sent events without an end."""
        threads, sent = self._followers.threads, start - 1
        if until is None:
            yield KEEP_ALIVE
        async for item in events_from(
            self._client, start, args.kinds, stream=args.stream, threads=threads, until=until
        ):
            if isinstance(item, int):
                has_moved, sent = item - 1 > sent, item - 1
                position = as_server_sent(sent, POSITION, b'{"index":%d}' % sent) if has_moved else KEEP_ALIVE
                yield position if until is None else b""
                continue
            sent = item.index
            row = json_text(describe(item) | await to_thread.run_sync(compromised.mark, item, limiter=threads)).encode()
            yield row + b"\n" if until is not None else as_server_sent(sent, item.kind, row)

    def _event(self, request: ApiRequest) -> Response:
        request.accepted(JSON)
        index = index_of(self._ask, request.ref)
        return request.document("event", whole_event(index, self._client.entry(index), self._ask))

    def _receipt(self, request: ApiRequest) -> Response:
        index = index_of(self._ask, request.ref)
        self._client.needs_witnesses = self._node.needs_witnesses  # send only proofs that the node would send
        text = take(self._client, index).to_text()
        return _text_too(request, text, "receipt", ReceiptText(index=index, receipt=text))

    def _checkpoint(self, request: ApiRequest) -> Response:
        text = self._node.published_checkpoint()
        return _text_too(request, text, "checkpoint", CheckpointText(checkpoint=text))

    def _published(self, request: ApiRequest) -> Response:
        return request.answer(self._node.published_checkpoint(), TEXT, "no-cache")

    def _blob(self, request: ApiRequest) -> Response:
        request.accepted(BYTES)
        size, _ = self._client.blob_chunk(ref := request.ref, 0)
        if size > blob_read_max_bytes:
            raise Refused(
                "TOO_LARGE",
                f"this blob has {size} bytes, too many for HTTP: get it with `deed blob get {ref}`",
                size=size,
            )
        safe = {"content-disposition": "attachment", "content-security-policy": "sandbox"}  # the content is untrusted
        return request.answer(self._client.get_blob(ref), BYTES, of="blob", **safe)

    def _tile(self, request: ApiRequest) -> Response:
        if match := _TILE.fullmatch(request.ref[:path_max]):
            level, number = match[1], int(match[2].replace("x", "").replace("/", ""))
            width = int(match[3] or TILE_WIDTH)
            # Each tile has only one path: no superfluous x000, no .p/256.
            if tile_name(level, number, width) == f"tile/{request.ref}":
                with self._node.log.snapshot() as snapshot:
                    if level.isdecimal():
                        tile = snapshot.tile(int(level), number, width)
                    else:
                        parts = map(without_body, snapshot.entries_under(number, width))
                        tile = join_tile(bare if level == "entries" else body for bare, body in parts)
                cache = self._bodies_cache if level == "bodies" else self._tile_cache
                return request.answer(tile, BYTES, cache, "tile")
        raise Refused("NOT_FOUND", "there is no such tile")


def refused(error: DeedbookError, status: int = 0, **headers: str) -> Response:
    """Return an error as an answer, by default with the status of its code."""
    status = status or status_of(error)
    headers |= {"cache-control": "no-store", **NEVER_SNIFFED} | ({"retry-after": "1"} if status == 503 else {})
    headers |= {"www-authenticate": 'Bearer realm="deedbook"'} if status == 401 else {}
    return Response(json_text(problem(error, status)), status, headers, PROBLEM)


def problem(error: DeedbookError, status: int) -> Problem:
    """Return the problem document of an error."""
    return Problem(
        type=f"urn:deedbook:error:{error.code}",
        title=CODES[error.code].meaning,
        status=status,
        detail=error.message,
        code=error.code,
        recoverable=error.recoverable,
        details=error.details,
    )


def _text_too(request: ApiRequest, text: str, kind: str, data: Answer) -> Response:
    return request.answer(text, TEXT) if request.accepted(JSON, TEXT) == TEXT else request.document(kind, data)


def _line(value: Any) -> bytes:
    return json_text(value).encode() + b"\n"
