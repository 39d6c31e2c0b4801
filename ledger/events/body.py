"""The body that an author signs, decoded under all strict rules, and the event for rules and folds.

A body is ``{"ledger","kind","stream","author","at","salt","causes","corr"?,"expect"?,"idem"?,"allow_secret"?,"data"}``
in strict JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal

import msgspec

from deedbook.ledger.errors import Refused, did_you_mean, near, refuse_name
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.declared import DeclaredData, KindDeclared, check_schema
from deedbook.ledger.events.fields import Count, EventData, Label, Name, Ref, Time, UnreadData
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.ledger.families import is_of_package
from deedbook.ledger.format.codec import (
    UNREADABLE,
    check_encodable,
    check_strict,
    convert,
    encode_sorted,
    json_decoder,
    msgpack_decoder,
    schema_error,
)
from deedbook.ledger.format.forms import OWN_KIND_PATTERN, OWN_STREAM_PATTERN, SALT_PATTERN, STREAM_PATTERN, is_own
from deedbook.ledger.limits import causes_max, kind_name_max_chars, stream_name_max_bytes
from deedbook.ledger.packages import family_missing

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from deedbook.ledger.format.envelope import Remnant

    D_co = TypeVar("D_co", covariant=True, default=Any)
else:  # Python 3.13 has this default; at run time no code uses it
    from typing import TypeVar

    D_co = TypeVar("D_co", covariant=True)

heads_known_max: Final = 4_096
decoders_known_max: Final = 1_024
times_known_max: Final = 4_096

LedgerId = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z", description="BLAKE3 of the root key, 32 hex digits.")
]
Salt = Annotated[
    str,
    msgspec.Meta(
        pattern=SALT_PATTERN,
        description="16 random bytes, new for each event, in base64url without padding: 22 characters.",
    ),
]
Stream = Annotated[str, msgspec.Meta(pattern=STREAM_PATTERN, description="The stream's name, like handoff/ID.")]


class Body(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body that an author signs. ``expect`` is the expected version of the stream; ``idem`` makes retries safe.

    After the body is erased, its commitment stays in the log for ever; ``salt`` prevents guessing the body from it.
    ``allow_secret``: a human says that the text which looks like a secret may be in the log for ever.
    """

    ledger: LedgerId
    kind: Label
    stream: Stream
    author: Name
    at: Time
    salt: Salt
    causes: Annotated[list[Ref], msgspec.Meta(max_length=causes_max)]
    data: Any  # the kind's type, or ``msgspec.Raw`` if the body was not sent in canonical form
    corr: Label | None = None
    expect: Count | None = None
    idem: Label | None = None
    allow_secret: bool = False


class Erased(msgspec.Struct, frozen=True):
    """The mark of an erased event, with the ``version`` of the handoff that it set."""

    version: str | None = None


class Event(msgspec.Struct, Generic[D_co], frozen=True, gc=False, kw_only=True):
    """A decoded event with its index in the log, for rules and folds.

    ``data`` is of the class of the kind: ``Event[HandoffCompleted]`` is an event of ``handoff.completed``. A kind never
    changes (a new version is a new kind), so the class has all fields that any such event ever had.

    ``key`` is the signing key in hex, ``accepted_ms`` the ledger's time (Unix ms), ``at`` the author's claimed time.
    ``erased`` is set if its body was erased: then its texts are replaced by a mark.
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
    data: D_co
    corr: str | None = None
    expect: int | None = None
    idem: str | None = None
    allow_secret: bool = False
    erased: Erased | None = None

    @property
    def name(self) -> str:
        """The id in the stream's name, of the handoff, session, reasoning or agent."""
        return self.stream.partition("/")[2]

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


_KIND: Final = b'"kind":"'
_kind_size_max_bytes: Final = 64  # no kind has a longer name


def decode_body(text: bytes) -> tuple[Body, EventData]:
    """Return the body and its typed data.

    Raises Refused: the strict JSON codes, ``UNKNOWN_KIND``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``;
    ``FAMILY_MISSING`` or ``FAMILY_UNUSABLE`` if the kind is of a family whose package is not installed, or broken.
    """
    body = _decode_canonical(text)
    return _decode_any(text) if body is None else (body, body.data)


def _decode_canonical(text: bytes) -> Body | None:
    """Return the body with its data, decoded in one pass; None if it is not canonical or not valid."""
    start = text.rfind(_KIND) + len(_KIND)  # in sorted order, no object follows the kind
    end = text.find(b'"', start, start + _kind_size_max_bytes)
    decoder = None if end < 0 else _decoder_of(text[start:end])
    if decoder is None:
        return None
    try:
        body = decoder.decode(text)
        _check_head(body.kind, body.ledger, body.stream, body.author)
        _check_time(body.at)
    except (*UNREADABLE, Refused):
        return None
    if _is_salt(body.salt) is None:
        return None
    # A body that equals its canonical encoding hides no duplicate keys or large numbers.
    return body if encode_sorted(body) == text else None


@lru_cache(decoders_known_max)
def _decoder_of(kind: bytes) -> msgspec.json.Decoder[Body] | None:
    """Return the decoder for bodies of a kind, created when the kind is first used: few commands use many.

    It leaves fields that repeat in many bodies to ``_check_head`` and ``_check_time``, because matching them each time
    took half of the decoding, and the salt to ``_is_salt``, which takes a third of the time that msgspec takes. Return
    None for data of any shape, whose keys and numbers must all be checked.
    """
    known = KINDS.get(name := kind.decode("latin-1"))
    if known is None or known.data.is_free:
        return None
    head = [("kind", Literal[name]), *((name, str) for name in ("ledger", "stream", "author", "at", "salt"))]
    whole: Any = msgspec.defstruct("_WholeBody", [*head, ("data", known.data)], bases=(Body,), frozen=True)
    return json_decoder(whole)


_pack = msgspec.msgpack.Encoder().encode
# A decoder analyses its types once. ``convert`` does it in each call, which takes 20 times as long.
_head = msgpack_decoder(tuple[LedgerId, Stream, Name])
_time = msgpack_decoder(Time)
_is_salt = re.compile(SALT_PATTERN).match


@lru_cache(heads_known_max)
def _check_head(kind: str, *head: str) -> None:
    _, stream, _ = _head.decode(_pack(head))
    _check_stream_name(kind, kind, stream)


@lru_cache(times_known_max)
def _check_time(at: str) -> None:
    _check_day(_time.decode(_pack(at)))


_AnyBody: Any = msgspec.defstruct("_AnyBody", [("data", msgspec.Raw)], bases=(Body,), frozen=True)
_any_body: msgspec.json.Decoder[Body] = json_decoder(_AnyBody)


def _decode_any(text: bytes) -> tuple[Body, EventData]:
    """Return a body in any JSON form, and its data. Raises Refused: with the fault."""
    root = "$"
    try:
        body = _any_body.decode(text)
        kind = KINDS.get(body.kind)
        root = "$.data"
        data = _decode_own(body) if kind is None else _data_decoder(kind.data).decode(body.data)
    except UNREADABLE as error:
        check_encodable(text)  # the more basic fault is the one to report
        raise schema_error(error, root) from error
    check_strict(text)
    if data is None:
        if is_of_package(body.kind, body.stream):
            raise family_missing(body.stream.partition("/")[0])
        raise unknown_kind(body.kind, KINDS)
    of = body.kind
    if isinstance(data, RecordImported):
        read_mapped(data)
        of = data.mapped_kind or of
    elif isinstance(data, KindDeclared):
        check_schema(data.schema)
    _check_stream_name(body.kind, of, body.stream)
    _check_day(body.at)
    return body, data


def decode_unread(text: bytes) -> tuple[Body, UnreadData]:
    """Return a body of a family without a usable package.

    It is for an audit that checks everything except the data. Raises Refused: as ``decode_body``.
    """
    try:
        body = _any_body.decode(text)
    except UNREADABLE as error:
        check_encodable(text)
        raise schema_error(error) from error
    if not isinstance(check_strict(text)["data"], dict):
        raise Refused("INVALID_FIELD", "the data of an event is an object, at $.data", path="$.data")
    if len(body.stream.encode()) > stream_name_max_bytes:
        raise Refused("TOO_LARGE", f"a stream's name has at most {stream_name_max_bytes} UTF-8 bytes", path="$.stream")
    _check_day(body.at)
    return body, UnreadData()


def unread_refusal(kind: str, stream: str) -> Refused:
    """Return why the data of an event of a family is not read here: its package is missing, or cannot be used."""
    try:
        if (known := KINDS.get(kind)) is not None:
            _data_decoder(known.data)
    except Refused as refusal:
        return refusal
    return family_missing(stream.partition("/")[0])


def unknown_kind(kind: str, known: Iterable[str]) -> Refused:
    """Return the refusal of a kind that is not one of the ``known`` ones."""
    alike = near(kind, known)
    return Refused("UNKNOWN_KIND", f"there is no event kind {kind!r}{did_you_mean(alike)}", kind=kind)


_object: Final = json_decoder(dict[str, Any])
_is_own_kind: Final = re.compile(OWN_KIND_PATTERN).match
_is_own_stream: Final = re.compile(OWN_STREAM_PATTERN).match


def _decode_own(body: Body) -> DeclaredData | None:
    """Return the data of an event of a declared kind; None if no kind can have this name.

    Whether the kind is declared, and its data fits, depends on the log: the rule decides (``admission.declared``).
    """
    if _is_own_kind(body.kind) is None or len(body.kind) > kind_name_max_chars:
        return None
    return DeclaredData(fields=_object.decode(body.data))


@cache
def _data_decoder(data: type[EventData]) -> msgspec.json.Decoder[EventData]:
    return json_decoder(data)


def _check_stream_name(kind: str, of: str, stream: str) -> None:
    """Refuse a stream name that is too long, or does not fit the kind or its mapped kind (``of``)."""
    if len(stream.encode()) > stream_name_max_bytes:
        raise Refused("TOO_LARGE", f"a stream's name has at most {stream_name_max_bytes} UTF-8 bytes", path="$.stream")
    family, _, name = stream.partition("/")
    if is_own(of):
        if _is_own_stream(family) is None or not name:
            raise Refused("INVALID_FIELD", f"{kind} must be on a stream x.TYPE/ID, at $.stream", path="$.stream")
        return
    expected = KINDS[of]
    id_type = expected.id_type
    if family != expected.stream or bool(name) == (id_type is None):
        hint = expected.stream if id_type is None else f"{expected.stream}/ID"
        raise Refused("INVALID_FIELD", f"{kind} must be on a stream {hint}, at $.stream", path="$.stream")
    if id_type not in (None, str):
        try:
            convert(name, id_type)
        except msgspec.ValidationError as error:
            raise schema_error(error, "$.stream") from error


def _check_day(at: str) -> None:
    """Refuse a day that does not exist in the calendar (RFC 3339 §5.7). The pattern checks everything else."""
    try:
        date.fromisoformat(at[: len("YYYY-MM-DD")])
    except ValueError as error:
        raise Refused("INVALID_FIELD", f"the day {at[:10]} does not exist, at $.at", path="$.at") from error


def make_event(
    body: Body,
    data: EventData,
    *,
    index: int,
    event_id: str,
    key: bytes,
    accepted_ms: int,
    remnant: Remnant | None = None,
) -> Event:
    """Return the event of ``body`` at ``index``. If the event was erased, ``body`` is that of the ``remnant``."""
    return Event(
        index=index,
        id=event_id,
        accepted_ms=accepted_ms,
        key=key.hex(),
        ledger=body.ledger,
        kind=body.kind,
        stream=body.stream,
        author=body.author,
        at=body.at,
        causes=body.causes,
        data=data,
        corr=body.corr,
        expect=body.expect,
        idem=body.idem,
        allow_secret=body.allow_secret,
        erased=None if remnant is None else Erased(remnant.version),
    )


def read_as(event: Event) -> Event:
    """Return an imported record as an event with its mapped data; any other event unchanged."""
    if not isinstance(event.data, RecordImported):
        return event
    mapped = read_mapped(event.data)
    return event if mapped is None else msgspec.structs.replace(event, data=mapped[0])
