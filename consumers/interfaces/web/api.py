"""The read API: every query of the views, events, receipts, blobs and tiles, in the command line's JSON documents.

An error is the document of the command line, too, under the status of its code. RFC 9457 was considered: it would be a
second form of what clients decode already, and its ``type`` wants an address of ours that nobody runs. While the views
are made anew each question is refused at once, saying how far they are. What is asked of the past (``as_of=INDEX``)
never changes and may be kept by the client. An answer of now changes with time, too, as leases and keys run out: the
client asks again each time, and an ETag saves its bytes. Here an answer from views alone is kept while the log ends
with the same entry, until its query says that time may change it (``QueryContext.lasting_ms``); what is checked against
signed entries never is. Tiles are those of C2SP tlog-tiles, under the paths of an
exported folder: one never changes once it has a path.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from anyio import to_thread
from blake3 import blake3
from starlette.datastructures import Headers
from starlette.responses import Response

from deedbook.consumers.interfaces.web.questions import (
    ROOT,
    Question,
    address,
    converted,
    form_from,
    path_of,
    read,
    values_of,
)
from deedbook.consumers.interfaces.web.rebuild import Rebuild
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.interfaces.web.stream import (
    EVENT_STREAM,
    NEVER_SNIFFED,
    Followers,
    Stream,
    as_server_sent,
    events_from,
)
from deedbook.consumers.sdk.events import Suspects, describe, whole_event
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.ledger import index_in
from deedbook.consumers.sdk.receipts import take
from deedbook.consumers.sdk.text import document, error_document, json_text
from deedbook.ledger import limits
from deedbook.ledger.bundle.layout import tile_name
from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.projections.answers.checked import ask
from deedbook.projections.answers.query import Arguments, Limit
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import CHECKED, ON_DEMAND, QUERIES, kind_of

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
rows_streamed: Final = 500
blob_read_max_bytes: Final = 8 * 1024**2
events_scanned_max: Final = 32 * limits.range_events_max
path_max: Final = 64
answers_kept_max: Final = 64
answer_kept_max_chars: Final = 256 * 1024
answer_kept_max_ms: Final = 60_000
_TILE: Final = re.compile(r"(entries|\d|[1-5]\d|6[0-3])/((?:x\d{3}/)*\d{3})(?:\.p/([1-9]\d{0,2}))?", re.ASCII)
_ASKED_AGAIN: Final = "private, no-cache"
_IMMUTABLE: Final = "private, max-age=86400, immutable"
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class EventsAsked(Arguments, frozen=True):
    """Events from an index on, in the order of the log: only of these kinds, only of this stream."""

    from_: Annotated[int, msgspec.Meta(ge=0, le=limits.json_integer_max)] = msgspec.field(default=0, name="from")
    kinds: Annotated[list[str], msgspec.Meta(max_length=256)] = []
    stream: Annotated[str, msgspec.Meta(max_length=limits.stream_name_max_bytes)] | None = None
    limit: Limit = 50


EVENTS: Final = form_from(EventsAsked)


class Asked(NamedTuple):
    """A request that was let in: its route, what stands in the place of its last part, and the log's size then.

    ``key`` is what the same question has again while the log ends with the same entry.
    """

    route: str
    ref: str
    query: list[tuple[str, str]]
    headers: Headers
    size: int
    key: tuple[str | bytes, ...] = ()

    def accepted(self, *offered: str) -> str:
        """Return the first of the media types that the client takes, in the order of what it names.

        Raises Refused: ``NOT_ACCEPTABLE`` when it takes none of them.
        """
        for wanted in self.headers.get("accept", "*/*").lower().replace(" ", "").split(","):
            name, *parameters = wanted.split(";")
            for media in offered:
                if name in (media, "*/*", media.partition("/")[0] + "/*") and "q=0" not in parameters:
                    return media
        raise Refused("NOT_ACCEPTABLE", f"this is answered as {' or '.join(offered)}: say so in Accept")

    def answer(self, body: str | bytes, media: str, cache: str = _ASKED_AGAIN, of: str = "", **more: str) -> Response:
        """Return an answer, or, where it is what the client has, that it is unchanged.

        Its ETag bears the index it is ``of``, by default the log's size; weak, as the same rows are the same answer.
        """
        content = body.encode() if isinstance(body, str) else body
        etag = f'W/"{of or self.size}-{blake3(content).hexdigest()[:24]}"'
        headers = {"cache-control": cache, "etag": etag, "vary": "accept", **NEVER_SNIFFED, **more}
        if etag in map(str.strip, self.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media)

    def document(self, kind: str, data: Any, following: str | None = None, *how: Any) -> Response:
        """Return an answer that is a document."""
        return self.answer(json_text(document(kind, data, following)), JSON, *how)


class Api:
    """The answers about one ledger; ``close`` it with its server."""

    def __init__(self, client: LocalClient, followers: Followers) -> None:
        """Answer from the log of a node's ``client``, and from views that nobody else reads."""
        self._node, self._followers = client, followers
        self._client = LocalClient(client.settings, log=client.log, views=lambda *_: self._reader)
        self._reader = Reader(self._client, client.settings)
        self._kept: dict[tuple[str | bytes, ...], tuple[str, int, int]] = {}  # since when, and for how long
        self.rebuild = Rebuild(client, client.settings)

    def close(self) -> None:
        """Let go of the views."""
        self.rebuild.reader.close()
        self._reader.close()
        self._client.close()

    @property
    def size(self) -> int:
        """The number of entries in the log."""
        with self._node.log.snapshot() as snapshot:
            return snapshot.size

    def routes(self) -> dict[str, Callable[[Asked], Response]]:
        """Return what answers, by its route; the last part of one is a place."""
        return {
            **dict.fromkeys(map(path_of, QUERIES), self._question),
            f"{ROOT}/events": self._events,
            f"{ROOT}/events/{{ref}}": self._event,
            f"{ROOT}/receipts/{{ref}}": self._receipt,
            f"{ROOT}/blobs/{{ref}}": self._blob,
            f"{ROOT}/checkpoint": self._checkpoint,
            "/checkpoint": self._published,
            "/tile/{path}": self._tile,
        }

    def kept(self, asked: Asked) -> Response | None:
        """Return the answer that this very question had before, if nothing can have changed it since."""
        body, since_ms, lasting_ms = self._kept.get(asked.key, ("", 0, 0))
        return asked.answer(body, JSON) if 0 <= now_ms() - since_ms < lasting_ms else None

    def _question(self, asked: Asked) -> Response:
        question, since_ms = read(asked.route, asked.query), now_ms()
        name, cursor = question.query, question.form.cursor
        media = asked.accepted(JSON, *(() if cursor is None else (NDJSON,)))
        following, lasting_ms = None, 0
        if name in CHECKED or question.as_of is not None or media == NDJSON:
            answer = self._answer(question, asked.size)
        else:
            self._demand(question, asked.size)
            answer, lasting_ms = self._reader.lasting(name, question.arguments)
        if media == NDJSON:
            return Stream(self._lines(question, answer, asked.size), NDJSON, self._followers)
        if cursor is not None and (sealed := question.sealed(answer.get("next"))) is not None:
            moment = {} if question.as_of is None else {"as_of": question.as_of}
            answer["next"], following = sealed, address(path_of(name), {**question.arguments, **moment, cursor: sealed})
        # What an index of the log says never changes; a time may lie ahead.
        at = question.as_of or ""
        is_past = at.isascii() and at.isdecimal() and int(at) < asked.size
        body = json_text(document(kind_of(name), answer, following))
        if lasting_ms and len(body) <= answer_kept_max_chars:
            self._kept[asked.key] = body, since_ms, min(lasting_ms, answer_kept_max_ms)
            for key in [*self._kept][:-answers_kept_max]:
                self._kept.pop(key, None)
        return asked.answer(body, JSON, *((_IMMUTABLE, at) if is_past else ()))

    def _demand(self, question: Question, size: int) -> None:
        self.rebuild.demand(size, searches=question.query.partition(".")[0] in ON_DEMAND)

    def _answer(self, question: Question, size: int) -> dict[str, Any]:
        self._demand(question, size)
        return ask(self._client, question.query, question.arguments, question.as_of)

    def _ask(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._answer(Question(query, arguments), self.size)

    async def _lines(self, question: Question, answer: dict[str, Any], size: int) -> AsyncIterator[bytes]:
        """Yield all rows of a list, page by page; once the log has grown, the rest as of the first page's end of it."""
        while True:
            lists = [value for value in answer.values() if isinstance(value, list)]
            yield b"".join(map(_line, lists[0] if len(lists) == 1 else [answer]))  # where it is no list, the page
            if answer.get("next") is None:
                return
            arguments = question.arguments | {str(question.form.cursor): answer["next"], "limit": rows_streamed}
            moment = question.as_of or (None if self.size == size else str(size - 1))
            question = Question(question.query, arguments, moment)
            try:
                answer = await to_thread.run_sync(self._answer, question, size, limiter=self._followers.threads)
            except DeedbookError as error:  # the status was sent long ago
                yield _line(error_document(error))
                return

    def _events(self, asked: Asked) -> Response:
        values = values_of(EVENTS, asked.query, "events")
        wanted = msgspec.convert(converted(EVENTS, values, "events"), EventsAsked)
        check_kinds(wanted.kinds)
        media = asked.accepted(JSON, NDJSON, EVENT_STREAM)
        start = wanted.from_
        if media == EVENT_STREAM and (last := asked.headers.get("last-event-id")) is not None:
            start = converted(EVENTS, {"from": last}, "Last-Event-ID")["from"] + 1
        if start > (size := asked.size):
            raise Refused("NOT_FOUND", f"the log has {size} entries: there is nothing from {start} on yet", size=size)
        suspects = Suspects(self._ask, is_filtered=bool(wanted.kinds or wanted.stream))
        if media != JSON:
            until = size if media == NDJSON else None
            return Stream(self._followed(wanted, start, until, suspects), media, self._followers)
        events, index = self._scan(wanted, size)
        bad = {one["index"]: {"skipped": one["code"]} for one in self._ask("catalog.skipped", {})["entries"]}
        rows = [describe(one) | bad.get(one.index, {}) | suspects.mark(one) for one in events]
        following = None if index >= size else address(asked.route, values | {"from": index})
        return asked.document("events", {"events": rows, "next": following and index}, following)

    def _scan(self, wanted: EventsAsked, size: int) -> tuple[list[Event], int]:
        """Return what matches of a bounded stretch of the log, and where to go on."""
        events: list[Event] = []
        index, end = wanted.from_, min(size, wanted.from_ + events_scanned_max)
        while index < end:
            page = self._client.entries(index, kinds=wanted.kinds, stream=wanted.stream, limit=end - index)
            events += [read_event(at, data) for at, data in page.entries]
            if len(events) >= wanted.limit:
                return events[: wanted.limit], events[wanted.limit - 1].index + 1
            index = page.next_index
        return events, index

    async def _followed(
        self, wanted: EventsAsked, start: int, until: int | None, suspects: Suspects
    ) -> AsyncIterator[bytes]:
        """Yield events: up to an index as lines, or without an end as server-sent events."""
        threads = self._followers.threads
        if until is None:
            yield as_server_sent(start - 1)
        async for item in events_from(
            self._client, start, wanted.kinds, stream=wanted.stream, threads=threads, until=until
        ):
            if isinstance(item, int):
                yield as_server_sent(item - 1) if until is None else b""
                continue
            row = _line(describe(item) | await to_thread.run_sync(suspects.mark, item, limiter=threads))
            yield row if until is not None else as_server_sent(item.index, row)

    def _index_of(self, ref: str) -> int:
        index = index_in(ref)
        return int(self._ask("resolve", {"ref": ref})["event_index"]) if index is None else index

    def _event(self, asked: Asked) -> Response:
        asked.accepted(JSON)
        return asked.document("event", whole_event(self._client, self._index_of(asked.ref), self._ask))

    def _receipt(self, asked: Asked) -> Response:
        index = self._index_of(asked.ref)
        self._client.needs_witnesses = self._node.needs_witnesses  # no proof is handed out that the node would not
        return _text_too(asked, "receipt", take(self._client, index).to_text(), index=index)

    def _checkpoint(self, asked: Asked) -> Response:
        return _text_too(asked, "checkpoint", self._node.published_checkpoint())

    def _published(self, asked: Asked) -> Response:
        return asked.answer(self._node.published_checkpoint(), TEXT, "no-cache")

    def _blob(self, asked: Asked) -> Response:
        asked.accepted(BYTES)
        size, _ = self._client.blob_chunk(ref := asked.ref, 0)
        if size > blob_read_max_bytes:
            raise Refused("TOO_LARGE", f"this blob has {size} bytes: `deed blob get {ref}` brings it", size=size)
        shut = {"content-disposition": "attachment", "content-security-policy": "sandbox"}  # whatever it is
        return asked.answer(self._client.get_blob(ref), BYTES, _IMMUTABLE, "blob", **shut)

    def _tile(self, asked: Asked) -> Response:
        if match := _TILE.fullmatch(asked.ref[:path_max]):
            level, number = match[1], int(match[2].replace("x", "").replace("/", ""))
            width = int(match[3] or TILE_WIDTH)
            if tile_name(level, number, width) == f"tile/{asked.ref}":  # one path each: no superfluous x000, no .p/256
                with self._node.log.snapshot() as snapshot:
                    is_leaf = level == "entries"
                    tile = snapshot.entry_bundle(number, width) if is_leaf else snapshot.tile(int(level), number, width)
                return asked.answer(tile, BYTES, _FOR_EVER, "tile")
        raise Refused("NOT_FOUND", "there is no such tile")


def refused(error: DeedbookError, status: int = 0, **headers: str) -> Response:
    """Return an error as an answer, by default under the status of its code."""
    status = status or status_of(error)
    headers |= {"cache-control": "no-store", **NEVER_SNIFFED} | ({"retry-after": "1"} if status == 503 else {})
    headers |= {"www-authenticate": 'Bearer realm="deedbook"'} if status == 401 else {}
    return Response(json_text(error_document(error)), status, headers, JSON)


def _text_too(asked: Asked, kind: str, text: str, **more: Any) -> Response:
    if asked.accepted(JSON, TEXT) == TEXT:
        return asked.answer(text, TEXT)
    return asked.document(kind, more | {kind: text})


def _line(value: Any) -> bytes:
    return json_text(value).encode() + b"\n"
