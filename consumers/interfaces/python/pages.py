"""Answers that are pages: a loop over one goes over the rows of all following pages, too.

A page is the plain struct that the query names as its answer: ``items`` are the rows of this page, ``total`` is the
number of all matches, and ``next`` is where the next page begins. The call that fetches the next page is stored outside
the fields. So it is not part of the JSON form or of a pickle, and pages with equal fields are equal. A page has no
``len``: use ``total`` or ``len(page.items)``. Without rows a page is false.

With ``as_of`` all pages show that point in the past. Otherwise each page shows the time of its own query.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, get_origin

import msgspec

from deedbook.consumers.interfaces.python.proxy import AsyncProxy
from deedbook.ledger.errors import Refused
from deedbook.projections.answers.answer import Page

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

_FETCH = "_fetch"


class _Rows(Generic[T]):
    """The base of both types of pages."""

    __slots__ = ()
    if TYPE_CHECKING:  # the page structs have these fields
        items: list[T]
        next: Any

    def __bool__(self) -> bool:
        return bool(self.items)

    def __copy__(self) -> Self:
        copied: Self = super().__copy__()  # type: ignore[misc]  # the struct's
        copied.__dict__.update(self.__dict__)
        return copied

    def _following(self) -> Any:
        fetch = self.__dict__.get(_FETCH)
        if fetch is None:
            raise Refused("USAGE", "this page came from no ledger, so it cannot fetch the next one")
        return fetch(self.next)


class Paging(_Rows[T], Generic[T, A]):
    """Goes over the rows of a page and of all following pages. ``A`` is the same page of an ``AsyncLedger``."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        page = self
        yield from page.items
        while page.next is not None:
            page = page._following()
            yield from page.items


class AsyncPaging(_Rows[T]):
    """Goes over the rows of a page and of all following pages, with ``async for``."""

    __slots__ = ()

    async def __aiter__(self) -> AsyncIterator[T]:
        page = self
        while True:
            for row in page.items:
                yield row
            if page.next is None:
                return
            page = await page._following()


class Pages(Paging[T, "AsyncPages[T]"], Page[T], frozen=True, kw_only=True, dict=True):
    """A page of a list; a loop over it goes over all following pages."""


class AsyncPages(AsyncPaging[T], Page[T], frozen=True, kw_only=True, dict=True):
    """A page of a list; ``async for`` goes over it and all following pages."""


@cache
def paged(returns: Any) -> Any:
    """Return a subtype of a query's answer type; a loop over its objects goes over all pages."""
    of_rows: Any = Pages
    bases = (of_rows[get_args(returns)],) if get_origin(returns) is Page else (Paging[Any, Any], returns)

    def reduce(page: Any) -> tuple[Any, ...]:  # pickle cannot import this type, and no ledger can be pickled
        return _unpickled, (returns, msgspec.structs.asdict(page))

    options = {"frozen": True, "kw_only": True, "dict": True}
    return types.new_class("Pages", bases, options, lambda body: body.update(__reduce__=reduce))


def _unpickled(returns: Any, fields: dict[str, Any]) -> Any:
    return paged(returns)(**fields)


def fetching(page: T, fetch: Callable[[Any], T]) -> T:
    """Return the page after storing ``fetch`` in it, which gets the next page for the page's ``next``."""
    page.__dict__[_FETCH] = fetch
    return page


@cache
def _awaiting(page: type) -> Any:
    base = next(base for base in page.__mro__[1:] if issubclass(base, Page) and not issubclass(base, Paging))
    return types.new_class("AsyncPages", (AsyncPaging[Any], base), {"frozen": True, "kw_only": True, "dict": True})


def awaited_pages(
    method: Callable[Concatenate[Any, P], Paging[Any, A]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """Return a method of an ``AsyncProxy`` that calls ``method`` in a thread, and whose pages are awaited as well."""

    @wraps(method)
    async def call(self: AsyncProxy, /, *args: P.args, **named: P.kwargs) -> A:
        def awaiting(page: Any) -> A:
            async def fetch(cursor: Any) -> A:
                return awaiting(await self._call(lambda _: page.__dict__[_FETCH](cursor)))

            kind: Any = type(page)
            awaitable = _awaiting(kind)
            fields = {name: getattr(page, name) for name in page.__struct_fields__}
            awaited: A = fetching(awaitable(**fields), fetch)
            return awaited

        return awaiting(await self._call(method, *args, **named))

    return call
