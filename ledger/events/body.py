"""The body that an author signs, decoded under all strict rules, and the event that folds and rules see.

A body is ``{"ledger","kind","stream","author","at","causes","corr"?,"expect"?,"idem"?,"data"}`` in strict JSON.
"""

from __future__ import annotations

from datetime import date
from functools import cache, lru_cache
from typing import Annotated, Any, Final

import msgspec

from ledger.codec import UNREADABLE, check_strict, encode_sorted, schema_error
from ledger.errors import Refused
from ledger.events import KINDS
from ledger.events.fields import Count, EventData, Label, Name, Ref, Time
from ledger.events.imported import RecordImported, read_mapped
from ledger.events.tot import Message, TotLogWritten, TotModelAnswered, TotNodesAdded
from ledger.forms import STREAM_PATTERN
from ledger.limits import causes_max, stream_name_max_bytes

heads_known_max: Final = 4_096
days_known_max: Final = 512

LedgerId = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z", description="BLAKE3 of the root key, 32 hex digits.")
]
Stream = Annotated[str, msgspec.Meta(pattern=STREAM_PATTERN, description="The aggregate, as handoff/ID.")]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an author signs. ``expect`` is the stream's version the author believed in; ``idem`` makes retries safe."""

    ledger: LedgerId
    kind: Label
    stream: Stream
    author: Name
    at: Time
    causes: Annotated[list[Ref], msgspec.Meta(max_length=causes_max)]
    data: msgspec.Raw
    corr: Label | None = None
    expect: Count | None = None
    idem: Label | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded event at its place in the log: what rules decide on and folds consume.

    ``key`` is the signing key in hex; ``accepted_ms`` is the ledger's clock (Unix ms); ``at`` is the author's claim.
    """

    index: int
    id: str
    accepted_ms: int
    key: str
    ledger: str
    kind: str
    stream: str
    author: str
    at: str
    causes: list[str]
    data: Any
    corr: str | None = None
    expect: int | None = None
    idem: str | None = None

    @property
    def name(self) -> str:
        """The id in the stream's name: of the handoff, session, reasoning or agent."""
        return self.stream.partition("/")[2]


@cache
def _decoder_of(data: type[EventData]) -> msgspec.json.Decoder[EventData]:
    """Return the decoder of a kind's data, made when the kind is first seen: few commands see many."""
    return msgspec.json.Decoder(data)


# Data with fields of any shape; all other is no deeper than its type, so only of this its depth is counted.
FREE: Final = (RecordImported, Message, TotNodesAdded, TotLogWritten, TotModelAnswered)

_body = msgspec.json.Decoder(Body)
# Of most bodies the head is one that was seen before: matching its patterns anew took half of a decoding.
_HEAD: Final = ("ledger", "kind", "stream", "author")
_Repeated: Any = msgspec.defstruct("_Repeated", [(name, str) for name in _HEAD], bases=(Body,), frozen=True)
_repeated: msgspec.json.Decoder[Body] = msgspec.json.Decoder(_Repeated)


def decode_body(text: bytes) -> tuple[Body, EventData]:
    """Return the body and its typed data.

    Raises Refused: the strict JSON codes, ``UNKNOWN_KIND``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``.
    """
    root = "$"
    try:
        body = _decode_head(text)
        kind = KINDS.get(body.kind)
        root = "$.data"
        data = None if kind is None else _decoder_of(kind.data).decode(body.data)
    except UNREADABLE as error:
        check_strict(text)  # the more basic fault is the one to report
        raise schema_error(error, root) from error
    if data is None:
        check_strict(text)
        raise Refused("UNKNOWN_KIND", f"there is no kind {body.kind!r}", kind=body.kind)
    # Both parts as they would be encoded: then the whole is canonical and hides nothing (``Raw == bytes`` never holds).
    is_canonical = encode_sorted(data) == bytes(body.data) and encode_sorted(body) == text
    # What another tool recorded, and what a thought says about itself, has no type that would bound its integers.
    if not is_canonical or isinstance(data, FREE):
        check_strict(text)
    if isinstance(data, RecordImported):
        read_mapped(data)
    check_stream(body.kind, body.stream, data)
    check_time(body.at)
    return body, data


def _decode_head(text: bytes) -> Body:
    try:
        body = _repeated.decode(text)
        _check_head(body.ledger, body.kind, body.stream, body.author)
    except UNREADABLE:
        return _body.decode(text)  # which raises, and names the field
    return body


_pack = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(tuple[LedgerId, Label, Stream, Name])


@lru_cache(heads_known_max)
def _check_head(*head: str) -> None:
    _head.decode(_pack(head))  # a decoder knows its types: ``convert`` learns them in each call, 20 times as long


def check_stream(kind: str, stream: str, data: EventData) -> None:
    """Refuse a stream that is too long, or not of what the kind belongs to.

    Raises Refused: ``TOO_LARGE`` or ``INVALID_FIELD``.
    """
    of = data.mapped_kind if isinstance(data, RecordImported) and data.mapped_kind in KINDS else kind
    _check_place(kind, of, stream)


@lru_cache(heads_known_max)
def _check_place(kind: str, of: str, stream: str) -> None:
    if len(stream.encode()) > stream_name_max_bytes:
        raise Refused("TOO_LARGE", f"a stream's name has at most {stream_name_max_bytes} UTF-8 bytes", path="$.stream")
    family, _, name = stream.partition("/")
    wanted = KINDS[of]
    id_type = wanted.id_type
    if family != wanted.stream or bool(name) == (id_type is None):
        hint = wanted.stream if id_type is None else f"{wanted.stream}/ID"
        raise Refused("INVALID_FIELD", f"{kind} belongs on a stream {hint}: $.stream names another", path="$.stream")
    if id_type not in (None, str):
        try:
            _id_decoder(of).decode(_pack(name))
        except msgspec.ValidationError as error:
            raise schema_error(error, "$.stream") from error


@cache
def _id_decoder(kind: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(KINDS[kind].id_type)


_day_of = lru_cache(days_known_max)(date.fromisoformat)


def check_time(at: str) -> None:
    """Refuse a day that the calendar does not have (RFC 3339 §5.7); the pattern has seen to everything else.

    Raises Refused: ``INVALID_FIELD``.
    """
    try:
        _day_of(at[: len("YYYY-MM-DD")])
    except ValueError as error:
        raise Refused("INVALID_FIELD", "the calendar has no such day at $.at", path="$.at") from error


def make_event(body: Body, data: EventData, *, index: int, event_id: str, key: bytes, accepted_ms: int) -> Event:
    """Return the event that ``body`` is at ``index``."""
    return Event(
        index=index, id=event_id, accepted_ms=accepted_ms, key=key.hex(), ledger=body.ledger, kind=body.kind,
        stream=body.stream, author=body.author, at=body.at, causes=body.causes, data=data, corr=body.corr,
        expect=body.expect, idem=body.idem,
    )  # fmt: skip


def read_as(event: Event) -> Event:
    """Return an imported record as an event with the data that it stands for; any other event as it is."""
    if not isinstance(event.data, RecordImported):
        return event
    mapped = read_mapped(event.data)
    return event if mapped is None else msgspec.structs.replace(event, data=mapped[0])
