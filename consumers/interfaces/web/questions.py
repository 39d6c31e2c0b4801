"""Queries of the views as addresses: the arguments in the URL, and sealed cursors.

``GET /v1/FAMILY/NAME`` runs the query ``FAMILY.NAME``. Arguments have the query's own names and types; a list is a name
that is repeated, and a list of objects is one JSON text. Numbers and truth values have one spelling. The bounds of
texts and lists are such that a request with one text of the largest length fits into an address.

A cursor is valid only for the query that returned it: it is sealed with a digest of the query and its filters. This is
no protection, because a reader may see every page. It turns a mix-up into an error instead of rows that fit neither
query.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

import msgspec

from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.format.codec import convert
from deedbook.projections.answers.query import Arguments, allowed
from deedbook.projections.views.registry import QUERIES

ROOT: Final = "/v1"
AS_OF: Final = "as_of"
AFTER: Final = "after"
text_max_chars: Final = 500
item_max_chars: Final = 200
items_max: Final = 32
cursor_max_chars: Final = 2_000
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_BOOLEANS: Final = {"true": True, "false": False}
_seal_digits: Final = 12


class Form(NamedTuple):
    """The arguments of a query in a URL.

    By argument name, ``items`` has the type of a list's items (None: not a list), and ``simple`` the simple types.
    """

    type: type[Arguments]
    items: dict[str, Any]
    simple: dict[str, frozenset[Any]]

    @property
    def has_pages(self) -> bool:
        """Whether the answer has pages."""
        return {AFTER, "limit"} <= self.items.keys()


class Question(NamedTuple):
    """A query with its arguments, its cursor unsealed, and the requested time."""

    query: str
    arguments: dict[str, Any]
    as_of: str | None = None

    @property
    def form(self) -> Form:
        """The arguments of the query in a URL."""
        return form_of(self.query)

    def sealed(self, value: Any) -> str | None:
        """Return a cursor that only this query accepts; None if there is no next page."""
        if value is None:
            return None
        payload = msgspec.json.encode(value)
        filters = {name: item for name, item in self.arguments.items() if name not in {AFTER, "limit"}}
        bound = msgspec.json.encode([self.query, filters, self.as_of], order="deterministic")
        digest = sha256(bound + b"\0" + payload).hexdigest()[:_seal_digits]
        return f"{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.{digest}"

    def opened(self, sealed: str) -> Any:
        """Return the value of a sealed cursor. Raises Refused: ``NOT_FOUND`` for the cursor of another query."""
        payload = sealed.partition(".")[0].encode()
        with contextlib.suppress(ValueError):  # not base64, JSON or UTF-8
            value = msgspec.json.decode(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
            if self.sealed(value) == sealed:
                return value
        message = f"{self.query} has no page after this cursor: use `next` of the previous page of the same query"
        raise Refused("NOT_FOUND", message, query=self.query)


def path_of(query: str) -> str:
    """Return the path of a query.

    >>> path_of("handoffs.list"), path_of("resolve")
    ('/v1/handoffs/list', '/v1/resolve')
    """
    return f"{ROOT}/{query.replace('.', '/')}"


def address(path: str, args: dict[str, Any]) -> str:
    """Return a path with a query string; a list is a name that is repeated."""
    params = {name: str(value).lower() if isinstance(value, bool) else value for name, value in args.items()}
    return f"{path}?{urlencode(params, doseq=True)}"


@cache
def form_of(query: str) -> Form:
    """Return the arguments of a query in a URL."""
    return form_from(QUERIES[query].arguments)


def form_from(arguments: type[Arguments]) -> Form:
    """Return the arguments of a type in a URL."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(arguments)}
    items = {name: _item_of(type_) for name, type_ in types.items()}
    return Form(arguments, items, {name: frozenset(_simple_types(type_)) for name, type_ in types.items()})


def _item_of(type_: Any) -> Any:
    """Return the item type of a list, also inside unions and annotations; None for other types."""
    parts = get_args(type_)
    return parts[0] if get_origin(type_) is list else next(filter(None, map(_item_of, parts)), None)


def _simple_types(type_: Any) -> Iterator[Any]:
    """Yield the simple types in unions and annotations."""
    parts = get_args(type_)
    yield from chain.from_iterable(map(_simple_types, parts)) if parts else (type_,)


def read(path: str, params: Sequence[tuple[str, str]]) -> Question:
    """Return the question at a path of ``path_of``, with the arguments of a URL.

    Raises Refused: ``UNKNOWN_FIELD``, ``INVALID_FIELD``; ``NOT_FOUND`` for the cursor of another query.
    """
    query = path.removeprefix(f"{ROOT}/").replace("/", ".")
    form = form_of(query)
    values = values_of(form, params, query)
    as_of, sealed = values.pop(AS_OF, None), values.pop(AFTER, None) if form.has_pages else None
    as_of = None if as_of is None else parse_moment(as_of)
    question = Question(query, converted(form, values, query), as_of)
    cursor = {} if sealed is None else {AFTER: question.opened(sealed)}
    return question._replace(arguments=question.arguments | cursor)


def values_of(form: Form, params: Sequence[tuple[str, str]], query: str) -> dict[Any, Any]:
    """Return the arguments by name, lists as lists. Raises Refused: ``UNKNOWN_FIELD``, ``INVALID_FIELD``."""
    values: dict[Any, Any] = {}
    for name, text in params:
        if name not in form.items and name != AS_OF:
            known = (*form.items, AS_OF)
            alike = near(name[:80], known)
            advice = did_you_mean(alike) or f": the arguments are {', '.join(known)}"
            message = f"{query} has no argument {name[:80]!r}{advice}"
            raise Refused("UNKNOWN_FIELD", message, field=name[:80], near=alike)
        item = form.items.get(name)
        is_list = item is not None and not is_struct(item)
        chars_max = item_max_chars if is_list else cursor_max_chars if name == AFTER else text_max_chars
        if len(text) > chars_max and not is_struct(item):
            raise _invalid(query, f"{name} has more than {chars_max} characters")
        if is_list:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise _invalid(query, f"{name} is repeated, but is not a list")
        else:
            values[name] = text if item is None else _decoded(text, query)
    for name, value in values.items():
        if isinstance(value, list) and len(value) > items_max:
            raise _invalid(query, f"{name} has more than {items_max} items: send several requests")
    return values


def is_struct(type_: Any) -> bool:
    """Return whether a type is a struct, which a URL has as JSON."""
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _decoded(text: str, query: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        raise _invalid(query, f"{text[:80]!r} is not JSON: {error}") from error


def _parsed(text: Any, simple: frozenset[Any]) -> Any:
    """Return the number or truth value that a text spells, if the argument takes one; else return the text.

    Each value has only one accepted spelling. For a list, do this with each item.
    """
    if isinstance(text, list):
        return [_parsed(item, simple) for item in text]
    if isinstance(text, str):
        if bool in simple:
            return _BOOLEANS.get(text, text)
        if int in simple and _INTEGER.fullmatch(text):
            return int(text)
    return text


def converted(form: Form, values: dict[Any, Any], query: str) -> dict[str, Any]:
    """Return values converted to the types of their arguments. Raises Refused: ``INVALID_FIELD``."""
    try:
        given = {name: _parsed(value, form.simple.get(name, frozenset())) for name, value in values.items()}
        plain = msgspec.to_builtins(convert(given, form.type))
    except msgspec.ValidationError as error:
        raise _invalid(query, allowed(error, form.type)) from error
    return {name: plain[name] for name in values}


def _invalid(query: str, why: str) -> Refused:
    return Refused("INVALID_FIELD", f"{query}: {why}", query=query)
