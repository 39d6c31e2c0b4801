"""The data of a query that usually precedes a write: the same from a view, or from entries that were verified.

Such a query is a function of a ``RowSource``. A view answers it with the rows and states that it stored (``ViewRows``),
``answers.checked`` with those that it folds from verified entries. So both give the same answer, unless somebody edited
the views.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, get_origin

import msgspec

from deedbook.ledger.format.codec import convert, msgpack_decoder
from deedbook.ledger.lifecycle.authority import AgentRecords, Agents
from deedbook.projections.agents.fold import AgentStates
from deedbook.projections.answers.query import (
    Query,
    QueryContext,
    Where,
    id_of,
    json_list,
    names_in,
)
from deedbook.projections.stores.store import Value
from deedbook.projections.views.projection import States, Table

S = TypeVar("S", bound=msgspec.Struct)


class Range(NamedTuple):
    """Values from ``first`` on, before ``end``."""

    first: Any
    end: Any


Condition: TypeAlias = "Value | Range | list[str]"


class RowSource(States, Protocol):
    """Rows and states at one time; ``now_ms`` is the ledger's clock then (Unix ms)."""

    @property
    def now_ms(self) -> int:
        """The time at which leases are evaluated."""

    def select(
        self, table: Table, by: str, *, newest_first: bool = False, limit: int | None = None, **where: Condition
    ) -> list[dict[str, Any]]:
        """Return rows ordered by a column. ``where`` gives for a column a value, a list of values, or a range.

        None is no condition.
        """

    def agents(self, names: Iterable[str]) -> Agents:
        """Return these agents and their keys."""

    def times(self, indexes: Collection[int]) -> dict[int, int]:
        """Return the times (Unix ms) of entries."""

    def id_of(self, family: str, reference: str) -> str:
        """Return the id that a reference means: an id, a stream, or an unambiguous beginning of either.

        Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
        """

    def names(self, table: Table) -> list[str]:
        """Return names for a did-you-mean hint."""

    def view(self, query: str, arguments: dict[str, Any], form: type[S]) -> S:
        """Return an answer that only a view can give, because it rests on streams that are not read for this query."""


class ViewRows:
    """The rows and states that the views stored."""

    def __init__(self, context: QueryContext, queries: Mapping[str, Query] = MappingProxyType({})) -> None:
        """Read the rows of a snapshot; ``view`` answers ``queries``."""
        self._context = context
        self._queries = queries

    @property
    def now_ms(self) -> int:
        return self._context.now_ms

    def select(
        self, table: Table, by: str, *, newest_first: bool = False, limit: int | None = None, **where: Condition
    ) -> list[dict[str, Any]]:
        conditions = _where(where)
        order = f" ORDER BY {by} {'DESC' if newest_first else 'ASC'}" + ("" if limit is None else f" LIMIT {limit:d}")
        sql = f"SELECT * FROM {table.name}{conditions.sql}{order}"  # noqa: S608 - fixed names
        return self._context.rows(sql, conditions.values)

    def states(self, view: str, form: type[S], keys: Iterable[str]) -> dict[str, S]:
        if not (names := list(keys)):  # the usual case of an empty page: saves a round trip
            return {}
        decoder = msgpack_decoder(form)
        return {key: decoder.decode(data) for key, data in self._context.reading.states(view, names).items()}

    def agents(self, names: Iterable[str]) -> Agents:
        return AgentStates(lambda wanted: self.states("agents", AgentRecords, wanted), sorted({*names} - {""}))

    def times(self, indexes: Collection[int]) -> dict[int, int]:
        if not indexes:
            return {}
        sql = (
            "SELECT event_index, accepted_ms FROM events "
            "WHERE event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
        )
        return {row["event_index"]: row["accepted_ms"] for row in self._context.rows(sql, (json_list(indexes),))}

    def view(self, query: str, arguments: dict[str, Any], form: type[S]) -> S:
        definition = self._queries[query]
        answer = definition.run(self._context, convert(arguments, definition.arguments))
        return answer if isinstance(answer, get_origin(form) or form) else convert(answer, form)

    def id_of(self, family: str, reference: str) -> str:
        return id_of(self._context, family, reference)

    def names(self, table: Table) -> list[str]:
        return names_in(self._context, table.name)


def _where(conditions: dict[str, Condition]) -> Where:
    where = Where()
    for column, value in conditions.items():
        if isinstance(value, Range):
            where.add(f"{column} >= ? AND {column} < ?", *value)
        elif isinstance(value, list):
            where.add(f"{column} IN (SELECT value FROM json_each(?))", json_list(value))  # noqa: S608 - a fixed name
        else:
            where.equal(column, value)
    return where
