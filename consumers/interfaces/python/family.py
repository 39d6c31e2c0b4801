"""The queries of one family as methods: the base of the classes in ``queries``, which are generated.

The classes of families that packages bring (``ledger.families``) are made when a program first names the family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, get_origin

from msgspec.structs import fields

from deedbook.consumers.interfaces.python.near_names import Spelled
from deedbook.consumers.interfaces.python.pages import awaited_pages, fetching, paged
from deedbook.consumers.interfaces.python.proxy import AsyncPart, AsyncProxy, awaited
from deedbook.ledger.errors import refuse_name
from deedbook.ledger.families import sources
from deedbook.ledger.packages import family_of
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.checked import ask, formed
from deedbook.projections.views.registry import QUERIES

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import OpenLedger

P = ParamSpec("P")
R = TypeVar("R")


class QueryFamily(Spelled):
    """The base of the queries about one subject."""

    def __init__(self, ledger: OpenLedger) -> None:
        self._ledger = ledger


class AsyncFamily(AsyncPart):
    """The base of the queries about one subject, awaited."""

    _family: ClassVar[type[QueryFamily]]

    def __init__(self, owner: AsyncProxy) -> None:
        super().__init__(owner, self._family)


@cache
def package_queries(name: str) -> type[QueryFamily]:
    """Return the class with the queries of a package's family. Raises Refused: ``FAMILY_UNUSABLE``."""
    family = family_of(name)
    queries = () if family is None else family.queries
    return type(f"{name.title()}Queries", (QueryFamily,), {_method_of(query): _method(query) for query in queries})


@cache
def _async_package_queries(name: str) -> type[AsyncFamily]:
    of_ledger: Any = package_queries(name)
    family = family_of(name)
    methods: dict[str, Any] = {"_family": of_ledger}
    for query in () if family is None else family.queries:
        returns = QUERIES[query].returns
        is_page = issubclass(get_origin(returns) or returns, Page)
        method = getattr(of_ledger, _method_of(query))
        methods[_method_of(query)] = awaited_pages(method) if is_page else awaited(method)
    return type(f"Async{name.title()}Queries", (AsyncFamily,), methods)


def _method_of(query: str) -> str:
    return query.partition(".")[2]


def _method(query: str) -> Callable[..., Any]:
    """Return a method with the query's arguments and docstring."""

    def answer(self: QueryFamily, **named: Any) -> Any:
        return _answer(self._ledger, query, named)

    definition, named_only = QUERIES[query], Parameter.KEYWORD_ONLY
    arguments = [
        Parameter(field.name, named_only, default=Parameter.empty if field.required else field.default)
        for field in fields(definition.arguments)
    ]
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    answer.__signature__ = Signature([own, *arguments, Parameter("as_of", named_only, default=None)])  # type: ignore[attr-defined]  # as inspect reads it
    answer.__name__, answer.__doc__ = _method_of(query), definition.answer.__doc__
    return answer


class PackageFamilies:
    """Gives a ledger the queries of packages' families: ``ledger.NAME.list()``."""

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name

        def __getattr__(self, name: str) -> QueryFamily:
            return package_queries(name)(self) if name in sources() else refuse_name(self, name)


class AsyncPackageFamilies:
    """Gives an asynchronous ledger the queries of packages' families."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> AsyncFamily:
            return _async_package_queries(name)(self) if name in sources() else refuse_name(self, name)


def asks(query: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a method without a body answer a query. It has the query's arguments, and ``as_of``.

    Arguments that are None are left out. Raises as ``answers.checked.ask``.
    """

    def implement(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def answer(*args: P.args, **named: P.kwargs) -> R:
            (owner,) = args  # all arguments have names
            ledger: Any = owner._ledger if isinstance(owner, QueryFamily) else owner  # noqa: SLF001 - its own ledger
            typed: R = _answer(ledger, query, dict(named))
            return typed

        return answer

    return implement


def _answer(ledger: OpenLedger, query: str, named: dict[str, Any]) -> Any:
    definition = QUERIES[query]
    as_of = named.pop("as_of", None)
    json_names = {field.name: field.encode_name for field in fields(definition.arguments)}
    arguments = {json_names[name]: value for name, value in named.items() if value is not None}
    answer = ask(ledger.client, query, arguments, as_of)
    if not issubclass(get_origin(definition.returns) or definition.returns, Page):
        return formed(answer, definition.returns)
    page = formed(answer, paged(definition.returns))
    return fetching(page, lambda start: _answer(ledger, query, {**named, "after": start, "as_of": as_of}))
