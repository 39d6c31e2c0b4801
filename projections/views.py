"""Every view there is: the only list of projections, and the only table of queries.

Both are loaded when first asked for: a command that asks one question of views that are up to date loads one module
of queries and no fold, which is half of its start (measured).

To add a view: write its package with ``fold.py`` and ``queries.py``, give it a version in ``versions``, and add both
here. Tests count the packages against these lists, and hold that no two views own a table of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, overload

if TYPE_CHECKING:
    from projections.projection import Projection
    from projections.query import Query

# Where each projection is, in the order in which views are folded: module:name under this package.
_PROJECTIONS: Final = (
    "catalog.fold:CATALOG",
    "agents.fold:AGENT_VIEW",
    "reasoning.fold:REASONING_VIEW",
    "briefs.fold:BRIEF_VIEW",
    "handoffs.fold:HANDOFF_VIEW",
    "sessions.fold:SESSION_VIEW",
    "validations.fold:VALIDATION_VIEW",
    "snapshots.fold:SNAPSHOT_VIEW",
    "reviews.fold:REVIEW_VIEW",
    "reports.fold:REPORT_VIEW",
    "thoughts.fold:THOUGHT_VIEW",
    "records.fold:RECORD_VIEW",
)
_ON_DEMAND: Final = ("search.fold:SEARCH_VIEW",)

# Which module answers which queries.
_QUERIES: Final = {
    "agents.queries": ("agents.keys", "agents.list", "agents.show"),
    "briefs.queries": ("briefs.best", "briefs.list"),
    "catalog.queries": ("catalog.counts", "catalog.find", "catalog.show", "catalog.streams", "catalog.why"),
    "handoffs.board": ("handoffs.board",),
    "handoffs.files": ("handoffs.files", "handoffs.standings"),
    "handoffs.graph": ("handoffs.graph",),
    "handoffs.next": ("handoffs.next",),
    "handoffs.queries": ("handoffs.list", "handoffs.show", "handoffs.unannounced", "handoffs.why"),
    "reasoning.queries": (
        "reasoning.deltas",
        "reasoning.fetch",
        "reasoning.full",
        "reasoning.list",
        "reasoning.origins",
        "reasoning.show",
        "reasoning.standings",
    ),
    "records.queries": ("records.list", "records.standing"),
    "reports.queries": ("reports.list", "reports.sessions", "reports.show"),
    "reports.similar": ("reports.dead_ends", "reports.overlap", "reports.similar"),
    "reports.trends": ("reports.accomplished", "reports.calibration"),
    "resolve": ("resolve",),
    "reviews.queries": ("reviews.list", "reviews.show"),
    "search.queries": ("search.find",),
    "sessions.queries": ("sessions.list", "sessions.show", "sessions.trajectory"),
    "snapshots.queries": ("snapshots.domains", "snapshots.list", "snapshots.show"),
    "thoughts.queries": ("tot.list", "tot.prove", "tot.show", "tot.timeline", "tot.tree"),
    "validations.queries": ("validations.best", "validations.list"),
}


class _Views(Sequence["Projection[Any]"]):
    """Projections, loaded together when one of them is asked for."""

    def __init__(self, places: Sequence[str]) -> None:
        """Load nothing."""
        self._places = places

    @cached_property
    def _loaded(self) -> tuple[Projection[Any], ...]:
        places = (place.partition(":") for place in self._places)
        return tuple(getattr(import_module(f"projections.{module}"), name) for module, _, name in places)

    @overload
    def __getitem__(self, index: int) -> Projection[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Projection[Any]]: ...
    def __getitem__(self, index: int | slice) -> Projection[Any] | Sequence[Projection[Any]]:
        """Return a projection."""
        return self._loaded[index]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)


class _Queries(Mapping[str, "Query"]):
    """The queries by name, each loaded with its module."""

    def __init__(self) -> None:
        """Load nothing."""
        self._places = {name: module for module, names in _QUERIES.items() for name in names}

    def __getitem__(self, name: str) -> Query:
        """Return a query by its name."""
        query: Query = import_module(f"projections.{self._places[name]}").QUERIES[name]
        return query

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)


VIEWS: Final[Sequence[Projection[Any]]] = _Views((*_PROJECTIONS, *_ON_DEMAND))
# Those that every question brings up to date; the others wait for a question of their own (``versions.ON_DEMAND``).
KEPT_VIEWS: Final[Sequence[Projection[Any]]] = _Views(_PROJECTIONS)
QUERIES: Final[Mapping[str, Query]] = _Queries()
