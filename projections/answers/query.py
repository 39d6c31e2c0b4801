"""The types of queries: typed arguments in, plain JSON values out, all read from one snapshot of the store.

``total`` counts all matches, a page holds at most ``limit`` of them, and ``next`` is the cursor of the next page (None
at the end).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

import msgspec

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.families import Family, find, installed
from deedbook.ledger.format.codec import convert, encode_arguments
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.answers.answer import Answer, Page
from deedbook.projections.stores.dialect import stated
from deedbook.projections.stores.store import ReadTransaction, Value

page_rows_max: Final = 500
candidates_max: Final = 10
near_names_max: Final = 2_000
"""Similar names are searched only among this many of the newest names, which takes a tenth of a second."""
prefix_digits_min: Final = 12
ref_digits: Final = 64
_LISTS: Final = {
    "agent": "agent list",
    "decision": "decisions",
    "event": "log",
    "event, reasoning or stream": "log",
    "handoff": "handoff list",
    "question": "questions --all",
    "reasoning": "reasoning list",
    "review": "review list",
    "session": "session list",
    "snapshot": "snapshot list",
}
_NEWEST: Final = {
    "agents": "registered_index",
    "decisions": "made_index",
    "handoffs": "created_index",
    "questions": "asked_index",
    "reasonings": "started_index",
    "reviews": "requested_index",
    "sessions": "started_index",
    "snapshots": "event_index",
    "streams": "last_index",
}
_REF: Final = rf"(?:(event|blake3|sha256):)?([0-9a-f]{{{prefix_digits_min},64}})"
# The types of events that give their thing its title or task.
_TITLING: Final = "'session.started', 'handoff.created', 'handoff.amended'"
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))

T = TypeVar("T")

Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=page_rows_max, description="Rows of a page.")]
Since: TypeAlias = Annotated[
    int,
    msgspec.Meta(
        ge=-json_integer_max, le=json_integer_max, description="Only what happened at this time (Unix ms) or later."
    ),
]
Until: TypeAlias = Annotated[
    int,
    msgspec.Meta(
        ge=-json_integer_max, le=json_integer_max, description="Only what happened before this time (Unix ms)."
    ),
]
Entries: TypeAlias = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, le=json_integer_max)]],
    msgspec.Meta(max_length=page_rows_max, description="Only those that one of these entries is about."),
]
Plain: TypeAlias = dict[str, Any]
"""An answer, or a part of it, as plain JSON values."""


class ViewsBehind(Exception):
    """The views are not up to date, and this reader does not update them."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every query's arguments; unknown fields are refused."""


class ById(Arguments, frozen=True):
    """``id`` is an id or a prefix that only one id has. Some queries accept more, and say so."""

    id: str


class ByIds(Arguments, frozen=True):
    """``ids`` are whole ids, no prefixes."""

    ids: Annotated[list[str], msgspec.Meta(max_length=page_rows_max)]


class ListArguments(Arguments, frozen=True):
    """The base of a list's filters; ``after`` is the ``next`` of the previous page."""

    after: int | None = None
    limit: Limit = 50


class QueryContext:
    """The input of a query: one snapshot of the views, and the time at which leases are evaluated."""

    def __init__(
        self,
        reading: ReadTransaction,
        now_ms: int | Callable[[QueryContext], int],
        cached: dict[str, list[dict[str, Any]]] | None = None,
    ) -> None:
        """Read ``reading``. ``now_ms`` may be a function. ``cached`` has rows of earlier queries on this snapshot."""
        self.reading = reading
        self._now = now_ms
        self._cached = {} if cached is None else cached

    @cached_property
    def now_ms(self) -> int:
        """The ledger's clock (Unix ms)."""
        return self._now(self) if callable(self._now) else self._now

    def cached(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a small query that many queries need. They are read again only after the views change."""
        if sql not in self._cached:
            self._cached[sql] = self.rows(sql)
        return self._cached[sql]

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""
        return self.reading.rows(sql, values)

    def together(self, *queries: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        """Return the rows of several independent queries; a server receives all of them at once."""
        return self.reading.together(*queries) if queries else []

    def count(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Return the single number of a counting query."""
        (row,) = self.reading.rows(sql, values)
        (number,) = row.values()
        return int(number)


def age_of(at_ms: int, now_ms: int) -> str:
    """Return how long ago something happened, in the largest whole unit.

    >>> age_of(0, 150_000), age_of(0, 59_000)
    ('2 min ago', 'just now')
    """
    passed_s = max(0, now_ms - at_ms) // 1000
    return next((f"{passed_s // unit_s} {name} ago" for unit_s, name in _AGES if passed_s >= unit_s), "just now")


def allowed(error: msgspec.ValidationError, arguments: type[Arguments]) -> str:
    """Return a text about a wrong argument, with the accepted values if they are few."""
    named = re.search(r"`\$\.(\w+)", text := str(error))
    for field in msgspec.structs.fields(arguments):
        if named is not None and field.encode_name == named[1] and "Invalid enum value" in text:
            values = [value for annotation in (field.type, *get_args(field.type)) for value in get_args(annotation)]
            text += f": one of {', '.join(str(value) for value in values if isinstance(value, str))}"
    return text


def read_arguments(query: str, form: type[Arguments], arguments: dict[str, Any]) -> Arguments:
    """Return the typed arguments of a query.

    Raises Refused: ``UNKNOWN_FIELD`` or ``INVALID_FIELD`` for wrong arguments, ``INTEGER_OUT_OF_RANGE`` or
    ``INVALID_FORMAT`` for values that JSON cannot hold.
    """
    encode_arguments(arguments, query)  # refuse here, too, what the bus could not carry
    try:
        read = convert(arguments, form)
    except msgspec.ValidationError as error:
        names = [field.encode_name for field in msgspec.structs.fields(form)]
        if unknown := sorted(arguments.keys() - set(names)):
            alike = near(unknown[0], names)
            listed = "" if alike else f". It takes {', '.join(names) or 'no arguments'}"
            message = f"{query} takes no argument {unknown[0]!r}{did_you_mean(alike)}{listed}"
            raise Refused("UNKNOWN_FIELD", message, query=query, field=unknown[0], near=alike) from error
        raise Refused("INVALID_FIELD", f"{query}: {allowed(error, form)}", query=query) from error
    since, until = getattr(read, "since", None), getattr(read, "until", None)
    if since is not None and until is not None and until <= since:
        raise Refused("INVALID_FIELD", "until is before since: nothing can be in between", field="until")
    return read


class Query(msgspec.Struct, frozen=True):
    """A named question: the types of its arguments and its answer, and the function that answers it from views.

    ``answer`` is the same function for a query that can also be answered from verified entries: its first argument is
    then a ``RowSource`` (``answers.rows``).
    """

    arguments: type[Arguments]
    returns: Any
    run: Callable[[QueryContext, Any], Answer]
    answer: Callable[[Any, Any], Answer]


class Where:
    """SQL conditions joined by AND; each is a fixed text with bound values."""

    def __init__(self, args: Arguments | None = None, *columns: str) -> None:
        self._texts: list[str] = []
        self.values: list[Value] = []
        for column in columns:
            self.equal(column, getattr(args, column))

    def add(self, text: str, *values: Value) -> None:
        """Add a condition."""
        self._texts.append(text)
        self.values.extend(values)

    def add_optional(self, text: str, value: Value) -> None:
        """Add a condition on a value unless the value is None."""
        if value is not None:
            self.add(text, value)

    def equal(self, column: str, value: Value) -> None:
        """Add ``column = value`` unless the value is None."""
        self.add_optional(f"{column} = ?", value)

    def within(self, column: str, since: int | None, until: int | None) -> None:
        """Add the conditions that a time (Unix ms) is not before ``since``, and before ``until``."""
        self.add_optional(f"{column} >= ?", since)
        self.add_optional(f"{column} < ?", until)

    def of_entries(self, column: str, entries: list[int] | None, family: str = "", *, titled: str = "") -> None:
        """Add the condition that a column is one of ``entries``; with a family, the id of one of their streams.

        With ``titled``, a column of stream names, the row also passes if one of the entries gives its stream the title.
        """
        if entries is None:
            return
        listed = "SELECT CAST(value AS BIGINT) FROM json_each(?)"
        if titled:
            streams = f"SELECT e.stream FROM events e WHERE e.type IN ({_TITLING}) AND e.event_index IN ({listed})"  # noqa: S608 - fixed texts
            self.add(f"({column} IN ({listed}) OR {titled} IN ({streams}))", *[json_list(entries)] * 2)
            return
        if not family:
            self.add(f"{column} IN ({listed})", json_list(entries))
            return
        first = len(family) + 2
        streams = f"SELECT substr(e.stream, {first}) FROM events e WHERE e.event_index IN ({listed})"  # noqa: S608 - fixed texts
        self.add(f"{column} IN ({streams} AND substr(e.stream, 1, {first - 1}) = '{family}/')", json_list(entries))

    @property
    def sql(self) -> str:
        """The WHERE clause, empty without conditions."""
        return " WHERE " + " AND ".join(self._texts) if self._texts else ""

    @property
    def more(self) -> str:
        """The same conditions, to append to a WHERE that already has one."""
        return "".join(f" AND {text}" for text in self._texts)


class Listing(msgspec.Struct, frozen=True):
    """The way to read a list: its SELECT, the table (with alias) to count in, and the column that pages are ordered by.

    With ``time`` it is ordered by that column, newest first, and by ``by`` within one millisecond. ``cursors`` is the
    table that has the time of a cursor, even when the row that the cursor came from has changed since.
    """

    select: str
    table: str
    by: str
    newest_first: bool = True
    time: str = ""
    cursors: str = ""

    def order(self) -> str:
        """Return the columns of ORDER BY."""
        direction = "DESC" if self.newest_first else "ASC"
        return ", ".join(f"{column} {direction}" for column in (self.time, self.by) if column)

    def beyond(self) -> str:
        """Return the condition for the rows after a cursor, which it binds."""
        sign = "<" if self.newest_first else ">"
        if not self.time:
            return f"{self.by} {sign} ?"
        time, by = (column.rpartition(".")[2] for column in (self.time, self.by))
        return f"({self.time}, {self.by}) {sign} (SELECT {time}, {by} FROM {self.cursors} WHERE {by} = ?)"  # noqa: S608


def page_of(
    context: QueryContext, listing: Listing, where: Where, after: Value, limit: int, *values: Value
) -> tuple[list[dict[str, Any]], int, Any]:
    """Return the rows of a page, the number of all matches, and the ``next`` cursor; ``values`` are bound to SELECT."""
    # The SQL of a listing is fixed in the code; arguments are bound.
    counting = f"SELECT count(*) FROM {listing.table}{where.sql}", tuple(where.values)  # noqa: S608
    if after is not None:
        where.add(listing.beyond(), after)
    sql = f"{listing.select}{where.sql} ORDER BY {listing.order()} LIMIT ?"
    (counted,), rows = context.together(counting, (sql, (*values, *where.values, limit + 1)))
    (total,), page = counted.values(), rows[:limit]
    return page, int(total), page[-1][listing.by.rpartition(".")[2]] if len(rows) > limit else None


def list_of(
    context: QueryContext,
    listing: Listing,
    where: Where,
    args: ListArguments,
    read: Callable[[Plain], T],
) -> Page[T]:
    """Return the page that ``args`` selects, each row as ``read`` returns it."""
    page, total, following = page_of(context, listing, where, args.after, args.limit)
    return Page(items=[read(row) for row in page], total=total, next=following)


def with_json(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    """Return a row with its JSON columns decoded; NULL stays None."""
    return row | {name: msgspec.json.decode(row[name]) for name in columns if row[name] is not None}


def json_list(values: Iterable[Any]) -> str:
    """Return values as one value to bind, which ``json_each`` reads."""
    return msgspec.json.encode(list(values)).decode()


def row_of_id(context: QueryContext, table: str, reference: str, what: str, prefix: str = "") -> dict[str, Any]:
    """Return the row of an id, a stream (``prefix/ID``) or a beginning of either. Raises Refused: as ``only_match``."""
    name, sql = reference.removeprefix(f"{prefix or what}/"), f"SELECT * FROM {table} WHERE id = ?"  # noqa: S608 - a fixed name
    rows = context.rows(sql, (name,)) or context.rows(sql, (by_beginning(context, table, name, reference, what),))
    return rows[0]


def id_of(context: QueryContext, family: str, reference: str) -> str:
    """Return the id of a handoff, review or snapshot, from its id, stream, file (``ID.md``) or a part of its id."""
    name, table = reference.removeprefix(f"{family}/"), f"{family}s"
    if context.rows(f"SELECT id FROM {table} WHERE id = ?", (name,)):  # noqa: S608 - a fixed name
        return name
    beginning = name.removesuffix(".md") if family == "handoff" else name
    return by_beginning(context, table, beginning, reference, family)


def by_beginning(context: QueryContext, table: str, name: str, reference: str, what: str) -> str:
    """Return the id ``name`` if it exists, else the only id that begins with it. Raises Refused: as ``only_match``."""
    # The table is fixed in the code; arguments are bound.
    if context.rows(f"SELECT id FROM {table} WHERE id = ?", (name,)):  # noqa: S608
        return name
    sql = f"SELECT id FROM {table} WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT ?"  # noqa: S608
    rows = context.rows(sql, (len(name), name, candidates_max + 1)) if name else []
    return only_match([row["id"] for row in rows], reference, what, lambda: names_in(context, table))


def names_in(context: QueryContext, table: str, column: str = "id") -> list[str]:
    """Return the names in a table for a did-you-mean hint; only the newest if there are many."""
    # In a past, a table of events is an SQLite view, which has no rowid.
    newest = "event_index" if table == "snapshots" else "rowid"
    order = stated(sqlite=f"{table} ORDER BY {newest}", postgres=f"{table} ORDER BY {_newest(table)}")
    sql = f"SELECT {column} AS name FROM {order} DESC LIMIT {near_names_max}"  # noqa: S608 - fixed texts
    return [row["name"] for row in context.rows(sql)]


def only_match(
    matches: Sequence[str], reference: str, what: str, names: Callable[[], Iterable[str]] = tuple[str, ...]
) -> str:
    """Return the only match of a reference; ``names`` supplies candidates for the did-you-mean hint.

    Raises Refused: ``NOT_FOUND`` with up to three similar names (``near``), or ``REF_AMBIGUOUS`` with up to ten
    ``candidates``.
    """
    if not matches:
        alike = near(reference, names())
        command = "" if alike else _list_command(what)
        advice = f": `deed {command}` lists what there is" if command else ""
        raise Refused(
            "NOT_FOUND", f"there is no {what} {reference}{did_you_mean(alike)}{advice}", reference=reference, near=alike
        )
    if len(matches) > 1:
        candidates = list(matches[:candidates_max])
        message = f"{reference} fits more than one {what}: {', '.join(candidates)}"
        raise Refused("REF_AMBIGUOUS", message, reference=reference, candidates=candidates)
    return matches[0]


def _list_command(what: str) -> str:
    """Return the verb that lists things of this type; a family may bring the type and its verb."""
    families = (family.lists[what] for family in installed() if what in family.lists)
    return _LISTS.get(what) or next(families, "")


def _newest(table: str) -> str:
    """Return the column by which the newest rows of a table are found."""
    family = find(table.partition("_")[0])
    return family.newest[table] if isinstance(family, Family) else _NEWEST[table]


def is_whole_ref(text: str) -> bool:
    """Return whether a text is a whole ref.

    It is never read as an id, because somebody could give a stream this name.
    """
    match = re.fullmatch(_REF, text.lower())
    return match is not None and len(match[2]) == ref_digits


def prefix_range(text: str, algorithm: str) -> tuple[str, str] | None:
    """Return (first, after last) of the whole refs that ``text`` may abbreviate, with or without its algorithm.

    None if it abbreviates none: it takes 12 or more hex digits. Refs are compared as text: ``g`` follows every hex
    digit.
    """
    match = re.fullmatch(_REF, text.lower())
    if match is None or match[1] not in (None, algorithm):
        return None
    first = f"{algorithm}:{match[2]}"
    return first, first + "g"


def by_ref(context: QueryContext, select: str, column: str, algorithm: str, reference: str) -> list[Plain]:
    """Return the rows of a SELECT, at most eleven, whose ref in ``column`` begins with the reference."""
    bounds = prefix_range(reference, algorithm)
    sql = f"{select} WHERE {column} >= ? AND {column} < ? ORDER BY {column} LIMIT ?"
    return [] if bounds is None else context.rows(sql, (*bounds, candidates_max + 1))
