"""Answers about one thing, from its signed entries: the folds and queries of the views, over what this reader checked.

A view's row serves lists and search. What somebody is shown to act on it is folded anew, from streams that were read by
``ledger.checked``, into a store in memory that lasts for the question; then the view's own query answers. So an edited
view, here or behind a server, changes nothing that anybody approves, claims or verifies. Of other things only names
come from the views: which id an abbreviation means, who depends on a handoff, and what answers it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from ledger.checked import CheckedStream, unproven
from ledger.client import Client
from ledger.events.body import Event
from ledger.history import tell
from ledger.lifecycle.authority import KeyRecord
from ledger.lifecycle.clock import ledger_now
from ledger.lifecycle.handoff import HandoffState, is_unlocked
from projections.agents.fold import AgentRow, KeyRow
from projections.agents.suspects import marked
from projections.handoffs.facts import stage_of
from projections.handoffs.why import chain_links_max
from projections.projection import Projection, Row, row_of
from projections.query import Answer, Moment, Query
from projections.runner import Work, read_logged
from projections.sqlite import in_memory
from projections.store import Changes, Slot, Writing
from projections.views import QUERIES

graph_events_max: Final = 256
"""Of a longer graph rows answer: its fold makes a ref of each version, 12 s for 1,000 (measured). What is fetched
by a ref is hashed by whoever fetches it all the same, and whoever is shown rows is told so."""

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
# Which argument names a thing of what sort; an ``id`` one of the family's own.
_NAMES: Final = {"ref": "reasoning", "have": "reasoning", "reasoning_ref": "reasoning"}
_SORTS: Final = {"handoffs": "handoff", "reasoning": "reasoning", "reviews": "review", "snapshots": "snapshot"}


def answer_checked(client: Client, query: str, arguments: dict[str, Any]) -> Answer:
    """Return the answer of a view's query (one of ``views.CHECKED``) about one thing, from its signed entries.

    ``as_of`` in it says of which head it is (``size``, ``root``), whether the ledger's root key is pinned here, and
    which entries of the stream count for nothing (``ignored``).

    Raises:
        Refused: as the query.
        Corrupted: ``VERIFICATION_FAILED``, ``HISTORY_CHANGED``: what was handed over does not prove itself.
    """
    found = QUERIES[query]
    try:
        msgspec.convert(arguments, found.arguments)
    except msgspec.ValidationError:
        return client.view(query, arguments)  # which refuses it
    return _Question(client).answer(query, found, arguments)


class _Question:
    """One question, and the streams that it is answered from."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._streams: dict[str, CheckedStream] = {}

    def answer(self, query: str, found: Query, arguments: dict[str, Any]) -> Answer:
        """Return the answer about what the arguments name."""
        family = query.partition(".")[0]
        for argument, asked in arguments.items():
            sort = _NAMES.get(argument) or (_SORTS[family] if argument == "id" else "")
            if sort and isinstance(asked, str):
                names = self._found(sort, asked)
                arguments = arguments | ({"id": names[0]} if sort == "handoff" else {})
        if family != "handoffs" and sum(len(one.entries) for one in self._streams.values()) > graph_events_max:
            longest = max(self._streams.values(), key=lambda one: len(one.entries)).name
            tell(f"{longest} has more than {graph_events_max} events: this is the word of a view, and was not checked")
            return self._client.view(query, arguments)
        if query != "handoffs.facts" and family == "handoffs":
            self._gather(str(arguments["id"]))
        folds = (f"projections.{view}.fold" for view in ("catalog", "agents", *_VIEWS[family]))
        views: list[Projection[Any]] = [import_module(fold).VIEW for fold in folds]
        rows = self._rows(views)
        with in_memory(table for view in views for table in view.tables) as store:
            for view in views:
                own = {table.row: rows.get(table.row, []) for table in view.tables}
                store.write(Slot(view.name, view.version, True, 0, ""), view, Changes(own, []))  # noqa: FBT003 - live
            moment = Moment(store, self._now_ms(store))
            answer = marked(moment, query, found.run(moment, msgspec.convert(arguments, found.arguments)))
        if listed := _LISTED.get(query):
            seen = self._client.view(query, arguments)
            answer |= {of: seen[of] for of in listed}
        return answer | {"as_of": self._as_of()}

    def _read(self, stream: str) -> CheckedStream:
        if stream not in self._streams:
            self._streams[stream] = self._client.streams.read(stream)
        return self._streams[stream]

    def _found(self, sort: str, asked: str) -> list[str]:
        """Return the ids of what is asked for; what an abbreviation or a ref means is the view's to say."""
        name = asked.removeprefix(f"{sort}/")
        if name and self._read(f"{sort}/{name}").entries:
            return [name]
        if sort == "reasoning":
            names: list[str] = self._client.view("reasoning.origins", {"ref": asked})["ids"]
        else:
            query = "handoffs.facts" if sort == "handoff" else f"{sort}s.show"
            names = [self._client.view(query, {"id": asked})["id"]]
            if not names[0].startswith(name.removesuffix(".md")):  # else what is cancelled is another one than was said
                raise unproven(f"it was asked for {sort} {asked}, and names {names[0]}", id=names[0])
        for name in names:
            if not self._read(f"{sort}/{name}").entries:
                raise unproven(f"it names {sort} {name}, and hands over no entry of it that counts", id=name)
        return names

    def _gather(self, name: str, links: int = chain_links_max) -> None:
        """Read what a handoff waits for: all of it, and of each only up to the first that holds it up."""
        life = self._read(f"handoff/{name}").state
        is_root = links == chain_links_max
        if not isinstance(life, HandoffState) or links == 0 or not (is_root or stage_of(life.status) == "waiting"):
            return
        for on in life.depends_on:
            if f"handoff/{on}" not in self._streams:
                self._gather(on, links - 1)
            there = self._read(f"handoff/{on}").state
            if not is_root and not (isinstance(there, HandoffState) and is_unlocked(there.status, life.unlock_at)):
                return

    def _rows(self, views: Iterable[Projection[Any]]) -> dict[type[Row], Sequence[Row]]:
        """Return the rows that the folds of the views make of the streams, by their type."""
        entries = sorted(entry for stream in self._streams.values() for entry in stream.entries)
        logged = [read_logged(index, data) for index, data in entries]
        authority = list(self._authority(one.event for one in logged))
        rows: dict[type[Row], Sequence[Row]] = {
            form: [row for row in authority if isinstance(row, form)] for form in (AgentRow, KeyRow)
        }
        for view in views:
            if view.name != "agents":
                rows |= Work(view).fold(logged, lambda _: {}).rows
        return rows

    def _authority(self, events: Iterable[Event]) -> Iterator[Row]:
        """Yield as much of agents and keys as queries ask about one thing: who was removed, and what is suspect."""
        authority, end = self._client.streams.authority, max(stream.head.size for stream in self._streams.values())
        keys: dict[str, KeyRecord] = {}
        waiting = [event.key for event in events]
        while waiting:
            key = waiting.pop()
            if key and key not in keys and (record := authority.key(key, end)) is not None:
                keys[key] = record
                waiting.append(record.delegated_by)
        for key, record in keys.items():
            sort = "identity" if record.is_identity else "session"
            unknown = dict.fromkeys(("expires_at", "ended_by", "ended_because"))
            yield row_of(KeyRow, record, key=key, sort=sort, since_ms=0, kinds="[]", streams="[]", **unknown)
        states = (stream.state for stream in self._streams.values())
        for name in dict.fromkeys(state.receiver for state in states if isinstance(state, HandoffState)):
            if (agent := authority.agent(name, end)) is not None:
                yield row_of(AgentRow, agent, roles="[]", registered_index=0, registered_ms=0, removed_because=None)

    def _now_ms(self, store: Writing) -> int:
        rows = store.rows("SELECT accepted_ms FROM events ORDER BY event_index DESC LIMIT 1")
        return ledger_now(int(rows[0]["accepted_ms"]) if rows else 0, time.time_ns() // 1_000_000)

    def _as_of(self) -> Answer:
        first = next(stream for stream in self._streams.values() if stream.entries or len(self._streams) == 1)
        return {
            "size": first.head.size,
            "root": first.head.root,
            "is_pinned": self._client.streams.is_pinned,
            "ignored": msgspec.to_builtins(first.ignored),
        }
