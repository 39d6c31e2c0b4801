"""Answers about one thing, from its signed entries: the folds and queries of the views, over what this reader checked.

A view's row serves lists and search. What somebody is shown to act on it is folded anew, from streams that were read by
``ledger.client.stream_reader``, into a store in memory that lasts for the question; then the view's own query answers.
So an edited view, here or behind a server, changes nothing that anybody approves, claims or verifies. Of other things
only names come from the views: which id an abbreviation means, who depends on a handoff, what answers it, and of a
queue, which handoffs and reviews to look at: one that waits for nobody by its entries is left out, one that a view
withholds is missed, as in any list.

A stream is folded once: what the views made of it is kept beside it (``StreamReader.folds``), and goes on with what it
has since. A graph recorded in 2,000 events, which has as many refs, takes 1 s then (measured).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from deedbook.ledger.client.client import Client, When, every_row
from deedbook.ledger.client.stream_reader import CheckedStream, streams_kept_max_bytes, unproven
from deedbook.ledger.lifecycle.authority import AgentRecord, KeyRecord
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.handoff_status import is_unlocked
from deedbook.projections.agents.fold import KEYS, AgentRow, KeyRow
from deedbook.projections.agents.suspects import marked
from deedbook.projections.answers.instants import asked_of, to_ms
from deedbook.projections.answers.query import Answer, Query, QueryContext, is_whole_ref, prefix_range
from deedbook.projections.handoffs.facts import stage_of
from deedbook.projections.handoffs.why import chain_links_max
from deedbook.projections.stores.sqlite import temporary
from deedbook.projections.stores.store import Changes, Slot
from deedbook.projections.views.projection import Projection, Row, json_text, row_of
from deedbook.projections.views.registry import CHECKED, QUERIES
from deedbook.projections.views.runner import Work, read_logged

# The lists in an answer that only a view can give: what points to the thing from elsewhere.
_LISTED: Final = {"handoffs.show": ("dependents", "answered_by")}
# The views that the queries of a family read, beside the catalog and the agents.
_VIEWS: Final = {
    "handoffs": ("handoffs",),
    "reasoning": ("reasoning",),
    "reviews": ("reviews",),
    "snapshots": ("snapshots", "reasoning"),
    "validations": ("reasoning", "validations"),
}
# What is asked of a handoff alone, whatever it waits for.
_ALONE: Final = ("handoffs.facts", "handoffs.versions")
_QUEUE: Final = "handoffs.next"
# What of those answers is used here: the rows of a list, and what waits: kind, id, agent.
_Link: TypeAlias = dict[str, Any]
_Named: TypeAlias = tuple[Literal["handoff", "review"], str, str]
# Which argument names a thing of what sort; an ``id`` one of the family's own.
_NAMES: Final = {"ref": "reasoning", "have": "reasoning", "reasoning_ref": "reasoning"}
_SORTS: Final = {"handoffs": "handoff", "reasoning": "reasoning", "reviews": "review", "snapshots": "snapshot"}


_kept_overhead_bytes: Final = 4096

T = TypeVar("T")


def answer_checked(client: Client, query: str, arguments: dict[str, Any], as_of: When | None = None) -> Answer:
    """Return the answer of a view's query (one of ``views.CHECKED``) about one thing, from its signed entries.

    ``as_of`` says of which head it is (``size``, ``root``), how many ``entries`` the stream has there, which of them
    count for nothing (``ignored``), whether the ledger's root key is pinned here, and over the bus the signed note on
    where it ``ends``. Asked for a context of the past, all of that is of then, and proven to be the beginning of
    the ledger's head; which of its entries a time means is a view's word. Raises Refused: as the query. Corrupted:
    ``VERIFICATION_FAILED``, ``HISTORY_CHANGED``: what was handed over does not prove itself.
    """
    found = QUERIES[query]
    try:
        msgspec.convert(arguments, found.arguments)
    except msgspec.ValidationError:
        return client.view(query, arguments)  # which refuses it
    question = _Question(client, as_of)
    return question.queue(found, arguments) if query == _QUEUE else question.answer(query, found, arguments)


class _Question:
    """One question, and the streams that it is answered from."""

    def __init__(self, client: Client, as_of: When | None) -> None:
        self._client = client
        self._when, self._size = as_of, None if as_of is None else self._size_at(as_of)
        self._streams: dict[str, CheckedStream] = {}

    def answer(self, query: str, found: Query, arguments: dict[str, Any]) -> Answer:
        family = query.partition(".")[0]
        for argument, args in arguments.items():
            sort = _NAMES.get(argument) or (_SORTS[family] if argument == "id" else "")
            if sort and isinstance(args, str):
                names = self._found(sort, args)
                arguments = arguments | ({"id": names[0]} if sort == "handoff" else {})
        if family == "validations":  # who has recorded the same graph under another id is no independent judge of it
            for name in self._view("reasoning.origins", {"ref": arguments["ref"]})["ids"]:
                self._read(f"reasoning/{name}")
        if query not in _ALONE and family == "handoffs":
            self._gather(str(arguments["id"]))
        with self._folded(_VIEWS[family]) as context:
            answer = marked(context, query, found.run(context, msgspec.convert(arguments, found.arguments)))
        if listed := _LISTED.get(query):
            seen = self._view(query, arguments)
            answer |= _formed({of: seen.get(of) for of in listed}, dict[str, list[_Link]])
        return answer | {"as_of": self._as_of()}

    def queue(self, found: Query, arguments: dict[str, Any]) -> Answer:
        """Return the page of what waits that a view names, as far as the signed entries of each agree."""
        page = self._view(_QUEUE, arguments)
        total, rows = _formed([page.get("total"), page.get("items")], tuple[int, list[_Link]])
        named = _formed([[item.get(of) for of in ("kind", "id", "agent")] for item in rows], list[_Named])
        if not named:
            return page
        for sort, name, _ in named:
            self._read(f"{sort}/{name}")
            if sort == "handoff":
                self._gather(name, 1)  # whom it waits for is told by what it depends on itself
        for name in self._receivers():
            if (agent := self._agent(name)) is not None and agent.removed_index is not None:
                self._read(f"agent/{name}")  # since then its handoffs wait
        agents = {name for _, _, name in named if self._agent(name) is not None}
        with self._folded(("handoffs", "reviews"), agents) as context:

            def ask(_: str, args: dict[str, Any]) -> Answer:
                return marked(context, _QUEUE, found.run(context, msgspec.convert(args, found.arguments)))

            items = (item for agent in agents for item in every_row(ask, _QUEUE, "items", {"agent": agent}))
            waiting = {(item["kind"], item["id"], item["agent"]): item for item in items}
        kept = [waiting[name] for name in named if name in waiting]
        as_of = {name: value for name, value in self._as_of().items() if name not in ("entries", "ends")}
        return page | {"items": kept, "total": total - len(named) + len(kept), "as_of": as_of}

    @contextmanager
    def _folded(self, names: Iterable[str], agents: Collection[str] = ()) -> Iterator[QueryContext]:
        """Yield a store of what these views, the catalog and the agents make of the streams."""
        views = [import_module(f"deedbook.projections.{view}.fold").VIEW for view in ("catalog", "agents", *names)]
        rows, keys = self._made([view for view in views if view.name != "agents"])
        known = self._client.streams.authority.kept.head.size
        rows |= {AgentRow: list(self._agents(agents)), KeyRow: list(self._keys(keys, known))}
        with temporary(table for view in views for table in view.tables) as store:
            for view in views:
                own = {table.row: rows.get(table.row, []) for table in view.tables}
                store.write(Slot(view.name, view.version, True, 0, ""), view, Changes(own, []))  # noqa: FBT003 - live
            if self._size is not None:  # what is suspect is known now; what an approval was worth, as it was then
                store.shadow(KEYS, self._keys(keys, self._size))
            # The clock of the newest head that was read: the root may have set it since the last entry of a stream.
            _, last_ms = max(((one.head.size, one.last_ms) for one in self._streams.values()), default=(0, 0))
            yield QueryContext(store, self._now_ms(last_ms))

    def _size_at(self, when: When) -> int:
        index = _formed(self._client.view("catalog.instant", {"at": when}).get("event_index"), int)
        if isinstance(args := asked_of(when), int) and index != args:
            raise unproven(f"it was asked for entry {args}, and names {index}", index=index)
        return index + 1

    def _now_ms(self, last_ms: int) -> int:
        """Return the time of the ledger's clock, of which the last entry's is ``last_ms``, now or at that context."""
        now_ms = ledger_now(last_ms, time.time_ns() // 1_000_000)
        if self._when is None:
            return now_ms
        if isinstance(args := asked_of(self._when), int):
            return last_ms
        if last_ms > to_ms(args):
            raise unproven(f"entry {self._end() - 1} was accepted after {self._when}", index=self._end() - 1)
        return min(now_ms, to_ms(args))

    def _view(self, query: str, arguments: dict[str, Any]) -> Answer:
        return self._client.view(query, arguments, self._when)

    def _read(self, stream: str) -> CheckedStream:
        if stream not in self._streams:
            self._streams[stream] = self._client.streams.read(stream, self._size)
        return self._streams[stream]

    def _found(self, sort: str, args: str) -> list[str]:
        """Return the ids of what is asked for; what an abbreviation or a ref means is the view's to say."""
        name = args.removeprefix(f"{sort}/")
        may_be_ref = sort == "reasoning" and prefix_range(args, "sha256") is not None
        if name and not may_be_ref and self._read(f"{sort}/{name}").entries and not is_whole_ref(args):
            return [name]
        if sort == "reasoning":
            names: list[str] = self._view("reasoning.origins", {"ref": args})["ids"]
        else:
            query = "handoffs.facts" if sort == "handoff" else f"{sort}s.show"
            names = [self._view(query, {"id": args})["id"]]
            if not names[0].startswith(name.removesuffix(".md")):  # else what is cancelled is another one than was said
                raise unproven(f"it was asked for {sort} {args}, and names {names[0]}", id=names[0])
        if not names:
            self._read(f"{sort}/{name}")  # there is none: said as of this head
            if not is_whole_ref(args):
                self._view("reasoning.show", {"id": args})  # which names what is written much alike
        for name in names:
            if not self._read(f"{sort}/{name}").entries:
                raise unproven(f"it names {sort} {name}, and hands over no entry of it that counts", id=name)
        return names

    def _gather(self, name: str, links: int = chain_links_max + 1, *, is_root: bool = True) -> None:
        """Read what a handoff waits for: all, and of each only up to the first that holds it up (of the last, too)."""
        life = self._read(f"handoff/{name}").state
        if not isinstance(life, HandoffState) or links == 0 or not (is_root or stage_of(life.status) == "waiting"):
            return
        for on in life.depends_on:
            if f"handoff/{on}" not in self._streams:
                self._gather(on, links - 1, is_root=False)
            there = self._read(f"handoff/{on}").state
            if not is_root and not (isinstance(there, HandoffState) and is_unlocked(there.status, life.unlock_at)):
                return

    def _made(self, views: Sequence[Projection[Any]]) -> tuple[dict[type[Row], list[Row]], Collection[str]]:
        """Return the rows that views make of the streams, and the keys that signed them."""
        entries = sorted(entry for stream in self._streams.values() for entry in stream.entries)
        kept, args = self._client.streams.folds, (self._size, *sorted(self._streams))
        folds: _Folds | None = kept.pop(args, None)  # while it is in use another thread makes its own
        if folds is None or folds.entries != entries[: len(folds.entries)]:
            folds = _Folds()
        folds.entries = entries
        rows = folds.rows(views)
        kept[args] = folds
        for oldest in [*kept]:
            if sum(one.size() for one in [*kept.values()]) > streams_kept_max_bytes:
                kept.pop(oldest, None)
        return rows, folds.keys

    def _keys(self, signed: Iterable[str], end: int) -> Iterator[KeyRow]:
        """Yield as much of keys as queries ask: what is suspect, by the first ``end`` entries."""
        authority = self._client.streams.authority
        keys: dict[str, KeyRecord] = {}
        waiting = [*signed]
        while waiting:
            key = waiting.pop()
            if key and key not in keys and (record := authority.key(key, end)) is not None:
                keys[key] = record
                waiting.append(record.delegated_by)
        for key, record in keys.items():
            sort = "identity" if record.is_identity else "session"
            unknown = dict.fromkeys(("expires_at", "ended_by", "ended_because"))
            yield row_of(KeyRow, record, key=key, sort=sort, since_ms=0, kinds="[]", streams="[]", **unknown)

    def _agents(self, agents: Collection[str]) -> Iterator[AgentRow]:
        """Yield as much of agents: who is there, and who was removed."""
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
        # Of an empty name no stream is read, and its query says that there is no such thing.
        return max((stream.head.size for stream in self._streams.values()), default=0)

    def _as_of(self) -> Answer:
        read = list(self._streams.values())
        first = next((stream for stream in read if stream.entries), read[0])
        return {
            "entries": len(first.entries) + len(first.ignored),
            "size": first.head.size,
            "root": first.head.root,
            "is_pinned": self._client.streams.is_pinned,
            "ignored": msgspec.to_builtins([one for stream in read for one in stream.ignored]),
            "ends": first.ends or None,
        }


class _Folds:
    """What views make of the entries of some streams, each as far as it was asked: one that is asked again goes on."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.keys: dict[str, None] = {}
        self._views: dict[str, tuple[int, Work[Any], dict[type[Row], list[Row]]]] = {}

    def size(self) -> int:
        return _kept_overhead_bytes + sum(len(data) for _, data in self.entries)

    def rows(self, views: Sequence[Projection[Any]]) -> dict[type[Row], list[Row]]:
        """Return the rows of views; what is returned is not changed by going on."""
        kept = [self._views.get(view.name) or (0, Work(view), {}) for view in views]
        start = min(count for count, _, _ in kept)
        logged = [read_logged(index, data) for index, data in self.entries[start:]]
        self.keys |= dict.fromkeys(one.event.key for one in logged)
        for view, (count, work, rows) in zip(views, kept, strict=True):
            changes = work.fold(logged[count - start :], lambda _: {})
            gone, made = set(changes.replaced), {}
            for table in view.tables:
                before = rows.get(table.row, [])
                if table.owner is not None:
                    before = [row for row in before if getattr(row, table.owner) not in gone]
                made[table.row] = [*before, *changes.rows.get(table.row, ())]
            self._views[view.name] = len(self.entries), work, made
        return {table.row: self._views[view.name][2][table.row] for view in views for table in view.tables}


def _formed(value: Any, form: type[T]) -> T:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise unproven(f"a view answers otherwise than it was asked ({error})") from error


def ask(client: Client, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
    """Return the answer of a query: what one acts on after it from signed entries, checked here, the rest from views.

    With ``as_of`` it is what the query answered then (``projections.answers.instants``). Raises Refused: as the query,
    and ``Client.view`` for the context. Corrupted: as ``projections.answers.checked``.
    """
    if query not in CHECKED:
        return client.view(query, arguments, as_of)

    return answer_checked(client, query, arguments, as_of)
