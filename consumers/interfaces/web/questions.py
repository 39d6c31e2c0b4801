"""A query of the views as an address: its arguments out of the URL, and its cursor, sealed.

``GET /v1/FAMILY/NAME`` asks the query ``FAMILY.NAME``. Arguments have the query's own names and types, and a list is a
name given several times. A cursor fits the question that it came from and no other: what a page ended with is sealed
with a digest of the query and its filters. That keeps nobody from anything, as a reader sees every page: it turns a
mix-up into a refusal instead of rows that fit neither question.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

import msgspec

from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.projections.answers.query import Arguments, allowed
from deedbook.projections.views.registry import QUERIES

ROOT: Final = "/v1"
AS_OF: Final = "as_of"
_CURSORS: Final = ("after", "cursor")
_seal_digits: Final = 12


class Form(NamedTuple):
    """How a question is spelled: its type, its arguments, of lists with the type of their items, and which pages."""

    type: type[Arguments]
    items: dict[str, Any]
    cursor: str | None


class Question(NamedTuple):
    """A query with its arguments as they were asked for, its cursor open, and the moment."""

    query: str
    arguments: dict[str, Any]
    as_of: str | None = None

    @property
    def form(self) -> Form:
        """How it is spelled."""
        return form_of(self.query)

    def sealed(self, value: Any) -> str | None:
        """Return a cursor that is read back for this question only; None where no page follows."""
        if value is None:
            return None
        payload = msgspec.json.encode(value)
        filters = {name: one for name, one in self.arguments.items() if name not in (self.form.cursor, "limit")}
        bound = msgspec.json.encode([self.query, filters, self.as_of], order="deterministic")
        digest = sha256(bound + b"\0" + payload).hexdigest()[:_seal_digits]
        return f"{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.{digest}"

    def opened(self, sealed: str) -> Any:
        """Return what a cursor was sealed from. Raises Refused: ``INVALID_FIELD`` for that of another question."""
        payload = sealed.partition(".")[0].encode()
        with contextlib.suppress(ValueError):  # no base64, no JSON, no UTF-8
            value = msgspec.json.decode(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
            if self.sealed(value) == sealed:
                return value
        raise _invalid(self.query, "this cursor is of another question: follow `next` of the page before")


def path_of(query: str) -> str:
    """Return the path of a query.

    >>> path_of("handoffs.list"), path_of("resolve")
    ('/v1/handoffs/list', '/v1/resolve')
    """
    return f"{ROOT}/{query.replace('.', '/')}"


def address(path: str, asked: dict[str, Any]) -> str:
    """Return a path with what is asked of it; a list is a name given several times."""
    spelled = {name: str(one).lower() if isinstance(one, bool) else one for name, one in asked.items()}
    return f"{path}?{urlencode(spelled, doseq=True)}"


@cache
def form_of(query: str) -> Form:
    """Return how a query is spelled."""
    return form_from(QUERIES[query].arguments)


def form_from(arguments: type[Arguments]) -> Form:
    """Return how arguments of a type are spelled."""
    items = {field.encode_name: _item_of(field.type) for field in msgspec.structs.fields(arguments)}
    return Form(arguments, items, next((one for one in _CURSORS if {one, "limit"} <= items.keys()), None))


def _item_of(type_: Any) -> Any:
    """Return the type of a list's items, however deep the list stands in unions and annotations; None for no list."""
    parts = get_args(type_)
    return parts[0] if get_origin(type_) is list else next(filter(None, map(_item_of, parts)), None)


def read(path: str, given: Sequence[tuple[str, str]]) -> Question:
    """Return the question at a path of ``path_of``, with the arguments of a URL.

    Raises Refused: ``UNKNOWN_FIELD``, ``INVALID_FIELD``, also for the cursor of another question.
    """
    query = path.removeprefix(f"{ROOT}/").replace("/", ".")
    form = form_of(query)
    values = values_of(form, given, query)
    moment, sealed = values.pop(AS_OF, None), values.pop(form.cursor, None)
    moment = None if moment is None else parse_moment(moment)
    question = Question(query, converted(form, values, query), moment)
    cursor = {} if sealed is None else {str(form.cursor): question.opened(sealed)}
    return question._replace(arguments=question.arguments | cursor)


def values_of(form: Form, given: Sequence[tuple[str, str]], query: str) -> dict[Any, Any]:
    """Return what was given by name, and lists as lists. Raises Refused: ``UNKNOWN_FIELD``, ``INVALID_FIELD``."""
    values: dict[Any, Any] = {}
    for name, text in given:
        if name not in form.items and name != AS_OF:
            known = (*form.items, AS_OF)
            advice = did_you_mean(near(name, known)) or f": there are {', '.join(known)}"
            raise Refused("UNKNOWN_FIELD", f"{query} takes no {name[:80]!r}{advice}", field=name[:80])
        if form.items.get(name) is not None:
            values.setdefault(name, []).append(_item(text, form.items[name], query))
        elif values.setdefault(name, text) is not text:
            raise _invalid(query, f"{name} is given more than once")
    return values


def _item(text: str, type_: Any, query: str) -> Any:
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return text
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        raise _invalid(query, f"{text[:80]!r} is no JSON object: {error}") from error


def converted(form: Form, values: dict[Any, Any], query: str) -> dict[str, Any]:
    """Return values, each of its argument's type. Raises Refused: ``INVALID_FIELD``."""
    try:
        plain = msgspec.to_builtins(msgspec.convert(values, form.type, strict=False))
    except msgspec.ValidationError as error:
        raise _invalid(query, allowed(error, form.type)) from error
    return {name: plain[name] for name in values}


def _invalid(query: str, why: str) -> Refused:
    return Refused("INVALID_FIELD", f"{query}: {why}", query=query)
