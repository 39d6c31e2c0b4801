"""Answers about one handoff, reasoning, review or snapshot, computed from entries that this process verified.

Rows of a view are for lists and search. Queries that usually precede a write are answered differently: their streams
are read through ``ledger.client.stream_reader``, folded into a temporary store that exists for one query, and the
view's own query runs there. So an edited view, here or on a server, changes nothing that anybody approves, claims or
verifies. Views still supply names: the id that an abbreviation means, the handoffs that depend on a handoff or answer
it, and the handoffs and reviews to look at for a queue. A queue item that the entries do not confirm is left out. An
item that the view withholds is missed, as in any list.

Each stream is folded once. The result is cached in ``StreamReader.folds`` and continued when the stream grows. Without
that cache, a graph recorded in 2,000 events, with as many refs, takes 1 s (measured).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from deedbook.ledger.client.client import Client, When, every_row
from deedbook.ledger.client.stream_reader import CheckedStream, streams_cached_max_bytes, unproven
from deedbook.ledger.lifecycle.authority import AgentRecord, KeyRecord
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.handoff_status import is_unlocked
from deedbook.projections.agents.compromised import marked
from deedbook.projections.agents.fold import KEYS, AgentRow, KeyRow
from deedbook.projections.answers.instants import index_or_time, to_ms
from deedbook.projections.answers.query import Answer, Query, QueryContext, is_whole_ref, prefix_range
from deedbook.projections.handoffs.facts import stage_of
from deedbook.projections.handoffs.why import chain_links_max
from deedbook.projections.stores.sqlite import temporary
from deedbook.projections.stores.store import Changes, ViewVersion
from deedbook.projections.views.projection import Projection, Row, json_text, row_of
from deedbook.projections.views.registry import CHECKED, QUERIES
from deedbook.projections.views.runner import Work, read_logged

# The lists in an answer that only a view can give: references from other streams.
_LISTED: Final = {"handoffs.show": ("dependents", "answered_by")}
# The views that the queries of a family read, in addition to the catalog and the agents.
_VIEWS: Final = {
    "handoffs": ("handoffs",),
    "reasoning": ("reasoning",),
    "reviews": ("reviews",),
    "snapshots": ("snapshots", "reasoning"),
    "validations": ("reasoning", "validations"),
}
# These queries need the handoff's own stream only.
_ALONE: Final = ("handoffs.facts", "handoffs.versions")
_QUEUE: Final = "handoffs.next"
# The parts of view answers that are used here: rows of a list, and (kind, id, agent) of a queue item.
_Link: TypeAlias = dict[str, Any]
_Named: TypeAlias = tuple[Literal["handoff", "review"], str, str]
# The arguments that name a stream of another family; ``id`` names one of the query's own family.
_NAMES: Final = {"ref": "reasoning", "have": "reasoning", "reasoning_ref": "reasoning"}
_FAMILIES: Final = {"handoffs": "handoff", "reasoning": "reasoning", "reviews": "review", "snapshots": "snapshot"}


_cached_overhead_bytes: Final = 4096

T = TypeVar("T")


def answer_checked(client: Client, query: str, arguments: dict[str, Any], as_of: When | None = None) -> Answer:
    """Return the answer of a query in ``registry.CHECKED``, computed from signed entries.

    ``as_of`` describes the head that the answer is of: its ``size`` and ``root``, how many ``entries`` the stream has
    there, which of them are ``ignored``, whether this machine pins the ledger's root key, and over the bus the signed
    note on where the stream ``ends``. With ``as_of`` given, all of that is as of then and proven to be a beginning of
    the ledger's head; only which entry a time means is taken from a view. Raises Refused: as the query. Corrupted:
    ``VERIFICATION_FAILED``, ``HISTORY_CHANGED``: the entries do not prove themselves.
    """
    definition = QUERIES[query]
    try:
        msgspec.convert(arguments, definition.arguments)
    except msgspec.ValidationError:
        return client.view(query, arguments)  # refuses them
    question = _Question(client, as_of)
    return question.queue(definition, arguments) if query == _QUEUE else question.answer(query, definition, arguments)


class _Question:
    """One query, and the streams that answer it."""

    def __init__(self, client: Client, as_of: When | None) -> None:
        self._client = client
        self._when, self._size = as_of, None if as_of is None else self._size_at(as_of)
        self._streams: dict[str, CheckedStream] = {}

    def answer(self, query: str, definition: Query, arguments: dict[str, Any]) -> Answer:
        family = query.partition(".")[0]
        for argument, value in arguments.items():
            named_family = _NAMES.get(argument) or (_FAMILIES[family] if argument == "id" else "")
            if named_family and isinstance(value, str):
                names = self._ids_of(named_family, value)
                arguments = arguments | ({"id": names[0]} if named_family == "handoff" else {})
        if family == "validations":  # an author of the same graph under another id is no independent validator
            for name in self._view("reasoning.origins", {"ref": arguments["ref"]})["ids"]:
                self._read(f"reasoning/{name}")
        if query not in _ALONE and family == "handoffs":
            self._gather(str(arguments["id"]))
        with self._folded(_VIEWS[family]) as context:
            answer = marked(context, query, definition.run(context, msgspec.convert(arguments, definition.arguments)))
        if listed := _LISTED.get(query):
            viewed = self._view(query, arguments)
            answer |= _formed({name: viewed.get(name) for name in listed}, dict[str, list[_Link]])
        return answer | {"as_of": self._as_of()}

    def queue(self, definition: Query, arguments: dict[str, Any]) -> Answer:
        """Return the queue page that a view names, without the items that their entries do not confirm."""
        page = self._view(_QUEUE, arguments)
        total, rows = _formed([page.get("total"), page.get("items")], tuple[int, list[_Link]])
        named = _formed([[item.get(of) for of in ("kind", "id", "agent")] for item in rows], list[_Named])
        if not named:
            return page
        for family, name, _ in named:
            self._read(f"{family}/{name}")
            if family == "handoff":
                self._gather(name, 1)  # whom it waits for follows from its direct dependencies
        for name in self._receivers():
            if (agent := self._agent(name)) is not None and agent.removed_index is not None:
                self._read(f"agent/{name}")  # its handoffs wait from then on
        agents = {name for _, _, name in named if self._agent(name) is not None}
        with self._folded(("handoffs", "reviews"), agents) as context:

            def ask(_: str, args: dict[str, Any]) -> Answer:
                return marked(context, _QUEUE, definition.run(context, msgspec.convert(args, definition.arguments)))

            items = (item for agent in agents for item in every_row(ask, _QUEUE, "items", {"agent": agent}))
            waiting = {(item["kind"], item["id"], item["agent"]): item for item in items}
        confirmed = [waiting[name] for name in named if name in waiting]
        as_of = {name: value for name, value in self._as_of().items() if name not in ("entries", "ends")}
        return page | {"items": confirmed, "total": total - len(named) + len(confirmed), "as_of": as_of}

    @contextmanager
    def _folded(self, names: Iterable[str], agents: Collection[str] = ()) -> Iterator[QueryContext]:
        """Yield a store of the rows that these views, the catalog and the agents make of the streams."""
        views = [import_module(f"deedbook.projections.{view}.fold").VIEW for view in ("catalog", "agents", *names)]
        rows, keys = self._made([view for view in views if view.name != "agents"])
        known = self._client.streams.authority.stored.head.size
        rows |= {AgentRow: list(self._agents(agents)), KeyRow: list(self._keys(keys, known))}
        with temporary(table for view in views for table in view.tables) as store:
            for view in views:
                own = {table.row: rows.get(table.row, []) for table in view.tables}
                store.write(ViewVersion(view.name, view.version, True, 0, ""), view, Changes(own, []))  # noqa: FBT003 - live
            if self._size is not None:  # compromised keys as known now; the worth of an approval as of then
                store.shadow(KEYS, self._keys(keys, self._size))
            # By the newest head that was read: the root may have set the clock after the last entry of a stream.
            _, last_ms = max(((stream.head.size, stream.last_ms) for stream in self._streams.values()), default=(0, 0))
            yield QueryContext(store, self._now_ms(last_ms))

    def _size_at(self, when: When) -> int:
        index = _formed(self._client.view("catalog.instant", {"at": when}).get("event_index"), int)
        if isinstance(target := index_or_time(when), int) and index != target:
            raise unproven(f"entry {target} was requested, and it answered entry {index}", index=index)
        return index + 1

    def _now_ms(self, last_ms: int) -> int:
        """Return the ledger's clock, now or as of ``self._when``; ``last_ms`` is the time of the last entry."""
        now_ms = ledger_now(last_ms, time.time_ns() // 1_000_000)
        if self._when is None:
            return now_ms
        if isinstance(target := index_or_time(self._when), int):
            return last_ms
        if last_ms > to_ms(target):
            raise unproven(f"entry {self._end() - 1} was accepted after {self._when}", index=self._end() - 1)
        return min(now_ms, to_ms(target))

    def _view(self, query: str, arguments: dict[str, Any]) -> Answer:
        return self._client.view(query, arguments, self._when)

    def _read(self, stream: str) -> CheckedStream:
        if stream not in self._streams:
            self._streams[stream] = self._client.streams.read(stream, self._size)
        return self._streams[stream]

    def _ids_of(self, family: str, reference: str) -> list[str]:
        """Return the ids that a reference means; the view says what an abbreviation or a ref means."""
        name = reference.removeprefix(f"{family}/")
        may_be_ref = family == "reasoning" and prefix_range(reference, "sha256") is not None
        if name and not may_be_ref and self._read(f"{family}/{name}").entries and not is_whole_ref(reference):
            return [name]
        if family == "reasoning":
            names: list[str] = self._view("reasoning.origins", {"ref": reference})["ids"]
        else:
            query = "handoffs.facts" if family == "handoff" else f"{family}s.show"
            names = [self._view(query, {"id": reference})["id"]]
            if not names[0].startswith(
                name.removesuffix(".md")
            ):  # else a write would go to another stream than was named
                raise unproven(f"{family} {reference} was requested, and it answered {names[0]}", id=names[0])
        if not names:
            self._read(f"{family}/{name}")  # it does not exist, as of this head
            if not is_whole_ref(reference):
                self._view("reasoning.show", {"id": reference})  # refuses it with similar names
        for name in names:
            if not self._read(f"{family}/{name}").entries:
                raise unproven(f"it names {family} {name} but supplies no valid entry of it", id=name)
        return names

    def _gather(self, name: str, links: int = chain_links_max + 1, *, is_root: bool = True) -> None:
        """Read all that a handoff waits for, and of each of those only up to the first that blocks it."""
        state = self._read(f"handoff/{name}").state
        if not isinstance(state, HandoffState) or links == 0 or not (is_root or stage_of(state.status) == "waiting"):
            return
        for on in state.depends_on:
            if f"handoff/{on}" not in self._streams:
                self._gather(on, links - 1, is_root=False)
            dependency = self._read(f"handoff/{on}").state
            is_done = isinstance(dependency, HandoffState) and is_unlocked(dependency.status, state.unlock_at)
            if not is_root and not is_done:
                return

    def _made(self, views: Sequence[Projection[Any]]) -> tuple[dict[type[Row], list[Row]], Collection[str]]:
        """Return the rows that views make of the streams, and the keys that signed them."""
        entries = sorted(entry for stream in self._streams.values() for entry in stream.entries)
        cached, key = self._client.streams.folds, (self._size, *sorted(self._streams))
        folds: _Folds | None = cached.pop(key, None)  # while one thread uses it, another makes its own
        if folds is None or folds.entries != entries[: len(folds.entries)]:
            folds = _Folds()
        folds.entries = entries
        rows = folds.rows(views)
        cached[key] = folds
        for oldest in [*cached]:
            if sum(fold.size() for fold in [*cached.values()]) > streams_cached_max_bytes:
                cached.pop(oldest, None)
        return rows, folds.keys

    def _keys(self, signed: Iterable[str], end: int) -> Iterator[KeyRow]:
        """Yield the key rows that queries need: which keys are compromised by the first ``end`` entries."""
        authority = self._client.streams.authority
        keys: dict[str, KeyRecord] = {}
        pending = [*signed]
        while pending:
            key = pending.pop()
            if key and key not in keys and (record := authority.key(key, end)) is not None:
                keys[key] = record
                pending.append(record.delegated_by)
        for key, record in keys.items():
            unknown = dict.fromkeys(("expires_at", "ended_by", "ended_because"))
            yield row_of(
                KeyRow,
                record,
                key=key,
                type="identity" if record.is_identity else "session",
                since_ms=0,
                kinds="[]",
                streams="[]",
                **unknown,
            )

    def _agents(self, agents: Collection[str]) -> Iterator[AgentRow]:
        """Yield the agent rows that queries need: which agents exist, and which were removed."""
        for name in dict.fromkeys((*self._receivers(), *agents)):
            if (agent := self._agent(name)) is not None:
                roles = json_text(sorted(agent.roles))
                yield row_of(AgentRow, agent, roles=roles, registered_index=0, registered_ms=0, removed_because=None)

    def _receivers(self) -> list[str]:
        states = [stream.state for stream in self._streams.values()]
        return [state.receiver for state in states if isinstance(state, HandoffState)]

    def _agent(self, name: str) -> AgentRecord | None:
        return self._client.streams.authority.agent(name, self._end())

    def _end(self) -> int:
        # For an empty name no stream is read, and the query answers NOT_FOUND.
        return max((stream.head.size for stream in self._streams.values()), default=0)

    def _as_of(self) -> Answer:
        read = list(self._streams.values())
        first = next((stream for stream in read if stream.entries), read[0])
        return {
            "entries": len(first.entries) + len(first.ignored),
            "size": first.head.size,
            "root": first.head.root,
            "is_pinned": self._client.streams.is_pinned,
            "ignored": msgspec.to_builtins([ignored for stream in read for ignored in stream.ignored]),
            "ends": first.ends or None,
        }


class _Folds:
    """The rows that views make of the entries of some streams; each view continues where it stopped."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.keys: dict[str, None] = {}
        self._views: dict[str, tuple[int, Work[Any], dict[type[Row], list[Row]]]] = {}

    def size(self) -> int:
        return _cached_overhead_bytes + sum(len(data) for _, data in self.entries)

    def rows(self, views: Sequence[Projection[Any]]) -> dict[type[Row], list[Row]]:
        """Return the rows of views; later calls do not change the returned rows."""
        folds = [self._views.get(view.name) or (0, Work(view), {}) for view in views]
        start = min(count for count, _, _ in folds)
        logged = [read_logged(index, data) for index, data in self.entries[start:]]
        self.keys |= dict.fromkeys(event.event.key for event in logged)
        for view, (count, work, rows) in zip(views, folds, strict=True):
            changes = work.fold(logged[count - start :], lambda _: {})
            replaced, updated = set(changes.replaced), {}
            for table in view.tables:
                before = rows.get(table.row, [])
                if table.owner is not None:
                    before = [row for row in before if getattr(row, table.owner) not in replaced]
                updated[table.row] = [*before, *changes.rows.get(table.row, ())]
            self._views[view.name] = len(self.entries), work, updated
        return {table.row: self._views[view.name][2][table.row] for view in views for table in view.tables}


def _formed(value: Any, form: type[T]) -> T:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise unproven(f"the answer of a view has the wrong form ({error})") from error


def ask(client: Client, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
    """Return the answer of a query: from signed entries verified here if it usually precedes a write, else from views.

    With ``as_of`` it is the answer as of then (``projections.answers.instants``). Raises Refused: as the query, and as
    ``Client.view`` for ``as_of``. Corrupted: as ``answer_checked``.
    """
    if query not in CHECKED:
        return client.view(query, arguments, as_of)

    return answer_checked(client, query, arguments, as_of)
