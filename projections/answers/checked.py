"""Answers about one handoff, reasoning, review or snapshot, computed from entries that this process verified.

Rows of a view are for lists and search. Queries that usually precede a write work differently: their streams are read
through ``ledger.client.stream_reader``, folded by the views' own functions, and the query's own function computes the
answer from the folded states (``answers.rows``). So an edited view, here or on a server, changes nothing that anybody
approves, claims or verifies. Views still supply names: the id of an abbreviation, the handoffs that depend on a handoff
or answer it, and the candidates for a queue. A candidate that the entries do not confirm is left out. A candidate that
the view withholds is missing, as in any list. The list of decisions is treated like that queue.

Each stream is folded once. The result is cached beside the stream's entries and continued when the stream grows.
Without that cache, a graph recorded in 2,000 events, with as many refs, takes 1 s (measured).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from deedbook.ledger.client.client import When
from deedbook.ledger.client.reads import HeadView
from deedbook.ledger.client.stream_reader import CheckedStream, StreamReader, unproven
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import convert
from deedbook.ledger.lifecycle.authority import AgentRecord, Agents, KeyRecord, is_doubtful, report_on_signature
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.projections.agents.compromised import mark
from deedbook.projections.answers.answer import Redacted
from deedbook.projections.answers.instants import index_or_time, to_ms
from deedbook.projections.answers.query import Plain, is_whole_ref, prefix_range, read_arguments
from deedbook.projections.answers.rows import Condition, Range
from deedbook.projections.redactions.fold import REDACTIONS
from deedbook.projections.redactions.marks import note
from deedbook.projections.views.projection import Logged, NoState, Row, Table
from deedbook.projections.views.registry import CHECKED, CONFIRMED, QUERIES, function_named, view_named
from deedbook.projections.views.runner import read_logged

# The views that fold the streams of each family. ``_FAMILIES`` is the reverse, for the first of these views.
_VIEWS: Final = {
    "decision": ("decisions",),
    "handoff": ("handoffs",),
    "ledger": ("redactions",),
    "question": ("questions",),
    "reasoning": ("reasoning", "validations"),
    "review": ("reviews",),
    "snapshot": ("snapshots",),
}
_FAMILIES: Final = {views[0]: family for family, views in _VIEWS.items()}
_QUEUE: Final = "handoffs.next"
# The arguments that name a reasoning.
_REFERENCES: Final = {"ref", "have", "reasoning_ref"}

folds_cached_max_bytes: Final = 8 * 1024**2
_cached_overhead_bytes: Final = 4096

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class CheckedReads(Protocol):
    """The reads that checked answers need (see ``Client``)."""

    @property
    def streams(self) -> StreamReader:
        """The reader of streams, which checks the signed entries itself."""

    def head(self) -> HeadView:
        """Return the ledger's id, and the size and root of its log."""

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        """Return the answer of a view query."""


def ask(client: CheckedReads, query: str, arguments: dict[str, Any], as_of: When | None = None) -> Plain:
    """Return the answer of a query: from signed entries verified here if it usually precedes a write, else from views.

    With ``as_of`` it is the answer at that point (``answers.instants``). In an answer from signed entries, the key
    ``as_of`` describes the head of the answer: its ``size`` and ``root``, the number of ``entries`` of the stream, the
    ``ignored`` ones, whether this machine pins the ledger's root key, the state of the ``gate``, and over the bus the
    signed note on where the stream ``ends``. With the argument ``as_of``, all of this is as of that point, and is
    proven to be a beginning of the ledger's present log. A view decides only which entry a time means. Raises Refused:
    as the query, and as ``Client.view`` for ``as_of``. Corrupted: ``VERIFICATION_FAILED``, ``HISTORY_CHANGED``: the
    entries do not prove themselves.
    """
    if query not in CHECKED and query not in CONFIRMED:
        return client.view(query, arguments, as_of)
    definition = QUERIES[query]
    args = read_arguments(query, definition.arguments, arguments)
    source = CheckedRows(client, as_of)
    if query in CONFIRMED:
        page = source.view(query, arguments, definition.returns)
        return mark(query, function_named(CONFIRMED[query])(source, page, args), source.reports, source.redactions)
    source.read_reasonings(query, arguments)
    answer = mark(query, definition.answer(source, args), source.reports, source.redactions)
    return answer | source.as_of(is_list=query == _QUEUE)


class CheckedRows:
    """The rows and states that views make of verified streams. A stream is read when a query needs it."""

    def __init__(self, client: CheckedReads, as_of: When | None = None) -> None:
        """Read the streams as of now, or as of ``as_of``."""
        self._client = client
        self._when, self._size = as_of, None if as_of is None else self._size_at(as_of)
        self._streams: dict[str, CheckedStream] = {}
        self._folds: dict[str, _StreamFold] = {}
        self._removed: dict[int, str] = {}

    @property
    def now_ms(self) -> int:
        # Use the newest head that was read: root may have set the clock after the last entry of a stream.
        _, last_ms = max(((stream.head.size, stream.last_ms) for stream in self._streams.values()), default=(0, 0))
        now_ms = ledger_now(last_ms, time.time_ns() // 1_000_000)
        if self._when is None:
            return now_ms
        if isinstance(target := index_or_time(self._when), int):
            return last_ms
        if last_ms > to_ms(target):
            raise unproven(f"entry {self._end() - 1} was accepted after {self._when}", index=self._end() - 1)
        return min(now_ms, to_ms(target))

    def select(
        self, table: Table, by: str, *, newest_first: bool = False, limit: int | None = None, **where: Condition
    ) -> list[dict[str, Any]]:
        rows = [msgspec.structs.asdict(row) for row in self._rows(table, where)]
        return sorted(rows, key=lambda row: row[by], reverse=newest_first)[:limit]

    def _rows(self, table: Table, where: Mapping[str, Condition]) -> Iterator[Row]:
        conditions = {column: value for column, value in where.items() if value is not None}
        for fold in self._folds.values():
            for row in fold.rows(table):
                if all(_meets(getattr(row, column), value) for column, value in conditions.items()):
                    yield row

    def states(self, view: str, form: type[S], keys: Iterable[str]) -> dict[str, S]:
        folds = {key: self._read(f"{_FAMILIES[view]}/{key}") for key in keys}
        return {key: state for key, fold in folds.items() if isinstance(state := fold.states.get(view), form)}

    def agents(self, names: Iterable[str]) -> Agents:
        agents = _CheckedAgents(self._client, self._end())
        for name in names:
            record = agents.agent(name)
            if record is not None and record.removed_index is not None:
                self._removed[record.removed_index] = name
        return agents

    def times(self, indexes: Collection[int]) -> dict[int, int]:
        for index in indexes:
            if index in self._removed:
                self._read(f"agent/{self._removed[index]}")
        wanted = set(indexes)
        return {index: at_ms for fold in self._folds.values() for index, _, _, at_ms in fold.signed if index in wanted}

    def view(self, query: str, arguments: dict[str, Any], form: type[S]) -> S:
        return formed(self._view(query, arguments), form)

    def id_of(self, family: str, reference: str) -> str:
        (name,) = self._ids_of(family, reference)
        return name

    def names(self, table: Table) -> list[str]:
        return [str(getattr(row, table.primary_key[0])) for row in self._rows(table, {})]

    def read_reasonings(self, query: str, arguments: dict[str, Any]) -> None:
        """Read the reasonings that arguments name."""
        family = query.partition(".")[0]
        for argument, value in arguments.items():
            if argument in _REFERENCES or (family == "reasoning" and argument == "id"):
                self._ids_of("reasoning", value)
        # an author who records the same graph under another id is not an independent validator
        if family == "validations":
            for name in self._view("reasoning.origins", {"id": arguments["id"]})["ids"]:
                self._read(f"reasoning/{name}")
        if any(fold.erased for fold in self._folds.values()):
            self._read_redactions()  # they name the refs that versions had before

    def reports(self, indexes: Collection[int], streams: Collection[str]) -> dict[Any, int]:
        """Return the entries that report the signatures of these entries and streams, as far as they were read."""
        # Always by today's knowledge, also in an answer about the past.
        agents = _CheckedAgents(self._client, self._client.streams.authority.stored.head.size)
        reports: dict[Any, int] = {}
        for stream, fold in self._folds.items():
            if not any(is_doubtful(agents, key) for key in fold.keys):
                continue  # the usual case
            for index, key, kind, _ in fold.signed:
                if (report := report_on_signature(agents, key, kind, stream, index)) is not None:
                    reports |= {index: report} if index in indexes else {}
                    reports |= {stream: min(report, reports.get(stream, report))} if stream in streams else {}
        return reports

    def redactions(self, indexes: Collection[int], streams: Collection[str]) -> dict[Any, Redacted]:
        """Return the redactions of these entries and streams, as far as they were read."""
        erased = {
            index: (stream, body_ref) for stream, fold in self._folds.items() for index, body_ref in fold.erased.items()
        }
        found: dict[Any, Redacted] = {}
        if not erased:
            return found
        self._read_redactions()
        for row in self.select(REDACTIONS, "event_index"):
            stream, body_ref = erased.get(entry := row["entry"], ("", ""))
            if body_ref == row["remnant"]:
                redacted = Redacted(
                    redaction=row["event_index"],
                    entry=entry,
                    by=row["author"],
                    at_ms=row["accepted_ms"],
                    reason=row["reason"],
                )
                for target in ({entry} & {*indexes}) | ({stream} & {*streams}):
                    note(found, target, redacted)
        return found

    def as_of(self, *, is_list: bool) -> Plain:
        """Return ``{"as_of"}``, the head of the answer; empty if no stream was read.

        For a list, which rests on many streams, number and end of a stream are left out.
        """
        if not (read := list(self._streams.values())):
            return {}
        first = next((stream for stream in read if stream.entries), read[0])
        gate = self._client.streams.authority.gate_state(first.head.size)
        head = {
            "size": first.head.size,
            "root": first.head.root,
            "is_pinned": self._client.streams.is_pinned,
            "gate": msgspec.to_builtins(gate) | {"unprotected": [*gate.unprotected]},  # a list, as from JSON
            "ignored": msgspec.to_builtins([ignored for stream in read for ignored in stream.ignored]),
        }
        of_stream = {"entries": len(first.entries) + len(first.ignored), "ends": first.ends or None}
        return {"as_of": head if is_list else head | of_stream}

    def _size_at(self, when: When) -> int:
        index = formed(self._client.view("catalog.instant", {"at": when}).get("event_index"), int)
        if isinstance(target := index_or_time(when), int) and index != target:
            raise unproven(f"entry {target} was requested, and it answered entry {index}", index=index)
        return index + 1

    def _view(self, query: str, arguments: dict[str, Any]) -> Plain:
        return self._client.view(query, arguments, self._when)

    def _read(self, name: str) -> _StreamFold:
        if name not in self._folds:
            folds = _folds_of(self._client)
            known = folds.known(name) if self._size is None else None
            if known is None or known.stream.head != self._client.streams.authority.stored.head or not self._is_current:
                known = folds.folded(self._client.streams.read(name, self._size), self._size)
            self._streams[name], self._folds[name] = known.stream, known.fold
        return self._folds[name]

    def _read_redactions(self) -> None:
        """Read today's redactions, also for an answer about the past: the texts are erased from it, too."""
        if self._size is None:
            self._read("ledger")
        else:
            self._folds["ledger"] = _folds_of(self._client).folded(self._client.streams.read("ledger"), None).fold

    @cached_property
    def _is_current(self) -> bool:
        """Whether the ledger still has the head up to which authority was checked."""
        # A node that names an old head here could also answer with the stream as of that head.
        present, checked = self._client.head(), self._client.streams.authority.stored.head
        return (present.size, present.root) == (checked.size, checked.root)

    def _ids_of(self, family: str, reference: str) -> list[str]:
        """Return the ids that a reference means. The view resolves an abbreviation or a ref."""
        name = reference.removeprefix(f"{family}/")
        may_be_ref = family == "reasoning" and prefix_range(reference, "sha256") is not None
        if name and not may_be_ref and self._read(f"{family}/{name}").entries and not is_whole_ref(reference):
            return [name]
        if family == "reasoning":
            names: list[str] = self._view("reasoning.origins", {"id": reference})["ids"]
        else:
            query = "handoffs.facts" if family == "handoff" else f"{family}s.show"
            names, beginning = [self._view(query, {"id": reference})["id"]], name.removesuffix(".md")
            # otherwise a write would go to a stream that nobody named
            if not (beginning and names[0].startswith(beginning)):
                raise unproven(f"{family} {reference} was requested, and it answered {names[0]}", id=names[0])
        if not names:
            self._read(f"{family}/{name}")  # it does not exist, as of this head
            if not is_whole_ref(reference):
                self._view("reasoning.show", {"id": reference})  # raises a refusal with similar names
        for name in names:
            if not self._read(f"{family}/{name}").entries:
                raise unproven(f"it names {family} {name} but supplies no valid entry of it", id=name)
        return names

    def _end(self) -> int:
        return self._client.streams.authority.stored.head.size if self._size is None else self._size


class _CheckedAgents:
    """The agents and keys of the verified authority after this number of entries."""

    def __init__(self, client: CheckedReads, end: int) -> None:
        self._authority = client.streams.authority
        self._end = end
        self._keys: dict[str, KeyRecord | None] = {}

    def agent(self, name: str) -> AgentRecord | None:
        return self._authority.agent(name, self._end)

    def key(self, public_key: str) -> KeyRecord | None:
        if public_key not in self._keys:
            self._keys[public_key] = self._authority.key(public_key, self._end)
        return self._keys[public_key]


class _StreamFold:
    """The states and rows that views make of the valid entries of one stream."""

    def __init__(self, name: str) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.states: dict[str, msgspec.Struct] = {}
        self.signed: list[tuple[int, str, str, int]] = []  # index, key (hex), kind and time (Unix ms) of each entry
        self.keys: set[str] = set()
        self.erased: dict[int, str] = {}  # the SHA-256 of the remnants of erased bodies, by entry
        self.size_bytes = _cached_overhead_bytes
        family, _, self._name = name.partition("/")
        self._views = [view_named(view) for view in _VIEWS.get(family, ())]
        self.added: dict[type[Row], list[Row]] = {}

    def extended(self, entries: list[tuple[int, bytes]]) -> _StreamFold:
        """Return the fold with further entries; this one stays as it is, because other threads may use it."""
        if len(entries) == len(self.entries):
            return self
        fold = copy(self)
        fold.states, fold.signed, fold.keys = {**self.states}, [*self.signed], {*self.keys}
        fold.erased = {**self.erased}
        fold.added = {row: [*rows] for row, rows in self.added.items()}
        for index, data in entries[len(self.entries) :]:
            fold._add(read_logged(index, data))  # noqa: SLF001 - its own class
        fold.entries = entries
        return fold

    def _add(self, logged: Logged) -> None:
        event = logged.event
        self.signed.append((event.index, event.key, event.kind, event.accepted_ms))
        self.keys.add(event.key)
        if event.erased is not None:
            self.erased[event.index] = logged.body_ref
        self.size_bytes += logged.size
        for view in self._views:
            if view.handles is None or not view.takes(event.kind):
                continue
            state = self.states.get(view.name) or view.state(self._name)
            try:
                state = view.fold(state, event)
            except Refused:
                continue  # a view skips such an event, too
            if view.state is not NoState:
                self.states[view.name] = state
            for row in view.added(state, logged):
                self.added.setdefault(type(row), []).append(row)

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table."""
        if table.owner is None:
            yield from self.added.get(table.row, ())
            return
        for view in self._views:
            if view.name in self.states and table in view.tables:
                yield from (row for row in view.rows(self.states[view.name]) if isinstance(row, table.row))


class _Known(NamedTuple):
    """A verified stream, and its fold."""

    stream: CheckedStream
    fold: _StreamFold


class _Folds:
    """The streams that were folded last, at most ``folds_cached_max_bytes``; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int | None], _Known] = {}
        self._size_bytes = 0

    def known(self, name: str) -> _Known | None:
        """Return the last verified state of a folded stream, with its fold; None if the stream was not folded."""
        return self._known.get((name, None))

    def folded(self, stream: CheckedStream, size: int | None) -> _Known:
        """Return a stream with its fold. ``size`` is the log's size for which it was read; None: the present log."""
        key, entries = (stream.name, size), stream.entries
        known = self._known.get(key)
        fold = _StreamFold(stream.name) if known is None else known.fold
        if fold.entries != entries[: len(fold.entries)]:
            fold = _StreamFold(stream.name)
        known = _Known(stream, fold.extended(entries))
        with self._lock:
            replaced = self._known.pop(key, None)
            self._known[key] = known
            self._size_bytes += known.fold.size_bytes - (0 if replaced is None else replaced.fold.size_bytes)
            while self._size_bytes > folds_cached_max_bytes:
                self._size_bytes -= self._known.pop(next(iter(self._known))).fold.size_bytes  # the oldest
        return known


def _folds_of(client: CheckedReads) -> _Folds:
    folds: _Folds = client.streams.folds.setdefault("streams", _Folds())
    return folds


def _meets(value: Any, condition: Condition) -> bool:
    if isinstance(condition, Range):
        return bool(condition.first <= value < condition.end)
    return value in condition if isinstance(condition, list) else bool(value == condition)


def formed(value: Any, form: type[T]) -> T:
    """Return a plain value of an answer as its type. Raises Corrupted: ``VERIFICATION_FAILED`` for another form."""
    try:
        return convert(value, form, str_keys=True)
    except msgspec.ValidationError as error:
        raise unproven(f"the answer of a view has the wrong form ({error})") from error
