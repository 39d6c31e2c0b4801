"""Every view there is: the only table of projections, and the only table of queries.

Both are loaded when first asked for: a command that asks one question of views that are up to date loads one module
of queries and no fold, which is half of its start (measured).

To add a view: write its package with ``fold.py`` and ``queries.py``, and add it to both tables. A query is a function
of a ``Moment`` and the type of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Final, get_type_hints, overload

from projections.projection import Projection
from projections.query import Query

# Each view, in the order in which views are folded, with the version of its meaning: raise it with any change of its
# tables, fold or rows. They stand here, beside no fold, so that whoever only reads can tell whether the views are up to
# date without loading any.
VIEW_VERSIONS: Final = {
    "catalog": 2,
    "agents": 1,
    "reasoning": 3,
    "briefs": 1,
    "handoffs": 2,
    "sessions": 3,
    "validations": 1,
    "snapshots": 1,
    "reviews": 1,
    "reports": 3,
    "thoughts": 3,
    "records": 1,
    "search": 1,
}

# Brought up to date by the questions that are put to them, and by `baton project`, not by every question: full-text
# search costs a quarter of all folding (measured), and few runs search.
ON_DEMAND: Final = frozenset({"search"})

# Which functions of which module under this package answer which queries.
_QUERIES: Final = {
    "agents.queries": {"agents.keys": "list_keys", "agents.list": "list_agents", "agents.show": "show_agent"},
    "briefs.queries": {"briefs.best": "best_brief", "briefs.list": "list_briefs"},
    "catalog.queries": {
        "catalog.counts": "count_events",
        "catalog.find": "find_events",
        "catalog.show": "show_event",
        "catalog.streams": "list_streams",
        "catalog.why": "why_event",
    },
    "handoffs.graph": {"handoffs.graph": "graph_handoffs"},
    "handoffs.next": {"handoffs.next": "next_items"},
    "handoffs.queries": {
        "handoffs.board": "board",
        "handoffs.existing": "existing_handoffs",
        "handoffs.facts": "facts_of_handoff",
        "handoffs.files": "files_of_handoffs",
        "handoffs.list": "list_handoffs",
        "handoffs.show": "show_handoff",
        "handoffs.unannounced": "unannounced_handoffs",
        "handoffs.why": "why_handoff",
    },
    "reasoning.queries": {
        "reasoning.deltas": "list_deltas",
        "reasoning.existing": "existing",
        "reasoning.fetch": "fetch",
        "reasoning.full": "full_reasoning",
        "reasoning.list": "list_reasonings",
        "reasoning.origins": "origins",
        "reasoning.show": "show_reasoning",
    },
    "records.queries": {"records.existing": "existing_records", "records.list": "list_records"},
    "reports.queries": {
        "reports.list": "list_reports",
        "reports.sessions": "list_sessions",
        "reports.show": "show_report",
    },
    "reports.similar": {
        "reports.dead_ends": "dead_ends_like",
        "reports.overlap": "overlapping",
        "reports.similar": "similar_reports",
    },
    "reports.trends": {"reports.accomplished": "accomplished", "reports.calibration": "calibration"},
    "resolve": {"resolve": "resolve"},
    "reviews.queries": {"reviews.list": "list_reviews", "reviews.show": "show_review"},
    "search.queries": {"search.find": "find_text"},
    "sessions.queries": {
        "sessions.list": "list_sessions",
        "sessions.show": "show_session",
        "sessions.trajectory": "follow_vectors",
    },
    "snapshots.queries": {
        "snapshots.domains": "list_domains",
        "snapshots.list": "list_snapshots",
        "snapshots.show": "show_snapshot",
    },
    "thoughts.queries": {
        "tot.list": "list_tasks",
        "tot.prove": "prove_task",
        "tot.show": "show_task",
        "tot.timeline": "show_timeline",
        "tot.tree": "show_tree",
    },
    "validations.queries": {"validations.best": "best_validation", "validations.list": "list_validations"},
}


class _Views(Sequence[Projection[Any]]):
    """Projections, loaded together when one of them is asked for: each is ``VIEW`` in its package's ``fold``."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    @cached_property
    def _loaded(self) -> tuple[Projection[Any], ...]:
        return tuple(import_module(f"projections.{name}.fold").VIEW for name in self._names)

    @overload
    def __getitem__(self, index: int) -> Projection[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Projection[Any]]: ...
    def __getitem__(self, index: int | slice) -> Projection[Any] | Sequence[Projection[Any]]:
        return self._loaded[index]

    def __len__(self) -> int:
        return len(self._names)


class _Queries(Mapping[str, Query]):
    """The queries by name, each loaded with its module."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _QUERIES.items() for name in names}

    def __getitem__(self, name: str) -> Query:
        module = self._modules[name]
        answer = getattr(import_module(f"projections.{module}"), _QUERIES[module][name])
        _, arguments, _ = get_type_hints(answer).values()
        return Query(arguments, answer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


VIEWS: Final[Sequence[Projection[Any]]] = _Views(tuple(VIEW_VERSIONS))
# Those that every question brings up to date.
KEPT_VIEWS: Final[Sequence[Projection[Any]]] = _Views(tuple(name for name in VIEW_VERSIONS if name not in ON_DEMAND))
QUERIES: Final[Mapping[str, Query]] = _Queries()
