"""The queries of one family as methods: the base of the classes in ``queries``, which are generated."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, get_origin

from msgspec.structs import fields

from deedbook.consumers.interfaces.python.near_names import Spelled
from deedbook.consumers.interfaces.python.pages import fetching, paged
from deedbook.consumers.interfaces.python.proxy import AsyncPart, AsyncProxy
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


def asks(query: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a method without a body answer a query: its arguments are those of the query, and ``as_of``.

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
