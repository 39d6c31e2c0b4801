"""All views and all queries, with those of families; their modules are loaded on first use.

A query needs the views that every query brings up to date, and perhaps those of its *group*: of full-text search, or of
a family. So a family whose package is broken or slow affects only its own queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import Any, Final, get_type_hints

from deedbook.ledger.errors import Refused
from deedbook.ledger.families import Family, find, installed
from deedbook.ledger.packages import family_of, part_of
from deedbook.projections.answers.answer import Answer
from deedbook.projections.answers.query import Query, QueryContext
from deedbook.projections.views.projection import Projection

# Each view with its version, in the order of folding. Raise the version with any change of tables, fold or rows. The
# versions are not in the folds, so that a reader can check whether the views are up to date without loading any fold.
_CORE_VERSIONS: Final = {
    "catalog": 13,
    "agents": 11,
    "redactions": 1,
    "kinds": 1,
    "reasoning": 14,
    "briefs": 5,
    "handoffs": 23,
    "sessions": 10,
    "validations": 5,
    "snapshots": 4,
    "reviews": 5,
    "reports": 11,
    "decisions": 2,
    "questions": 1,
    "records": 3,
    "search": 11,
}

# Only its own queries and `deed project` bring this view up to date: full-text search costs a quarter of all folding
# (measured), and few commands search. Its name is that of its group of queries.
SEARCH: Final = "search"
EAGER_VERSIONS: Final = {name: version for name, version in _CORE_VERSIONS.items() if name != SEARCH}
"""The versions of the views that every query brings up to date."""

# Queries that usually precede a write. They are answered from signed entries and not from rows (``answers.checked``).
CHECKED: Final = frozenset(
    {
        "decisions.show",
        "handoffs.facts",
        "handoffs.next",
        "handoffs.show",
        "handoffs.versions",
        "handoffs.why",
        "questions.show",
        "reasoning.fetch",
        "reasoning.origins",
        "reasoning.show",
        "reviews.show",
        "snapshots.domains",
        "snapshots.show",
        "validations.latest",
        "validations.list",
    }
)

# Lists on which an agent acts: a view chooses and orders the rows, and signed entries give their content. The function
# leaves out rows that the entries do not confirm (``answers.checked``).
CONFIRMED: Final = {"decisions.list": "decisions.queries.confirm_decisions"}

# The module and function under this package that answers each query.
_QUERIES: Final = {
    "agents.activity": "agents.queries.agents_at_work",
    "agents.claimed": "agents.queries.list_claimed",
    "agents.keys": "agents.queries.list_keys",
    "agents.list": "agents.queries.list_agents",
    "agents.show": "agents.queries.show_agent",
    "agents.compromised": "agents.compromised.list_compromised",
    "briefs.best": "briefs.queries.best_brief",
    "catalog.facets": "catalog.facets.count_facets",
    "catalog.find": "catalog.queries.find_events",
    "catalog.lanes": "catalog.lanes.lanes_of_agents",
    "catalog.instant": "answers.instants.show_instant",
    "catalog.skipped": "catalog.queries.list_skipped",
    "catalog.show": "catalog.queries.show_event",
    "catalog.why": "catalog.walk.why_event",
    "decisions.list": "decisions.queries.list_decisions",
    "decisions.show": "decisions.queries.show_decision",
    "handoffs.around": "handoffs.graph.around_handoff",
    "handoffs.board": "handoffs.board.board",
    "handoffs.counts": "handoffs.next.counts",
    "handoffs.existing": "handoffs.details.existing_handoffs",
    "handoffs.facts": "handoffs.details.facts_of_handoff",
    "handoffs.files": "handoffs.queries.files_of_handoffs",
    "handoffs.graph": "handoffs.graph.graph_handoffs",
    "handoffs.list": "handoffs.queries.list_handoffs",
    "handoffs.next": "handoffs.next.next_items",
    "handoffs.references": "handoffs.queries.references_to_handoff",
    "handoffs.show": "handoffs.details.show_handoff",
    "handoffs.unannounced": "handoffs.queries.unannounced_handoffs",
    "handoffs.unread": "handoffs.queries.lines_for_agent",
    "handoffs.versions": "handoffs.versions.versions_of_handoff",
    "handoffs.waits": "handoffs.next.waits",
    "handoffs.why": "handoffs.details.why_handoff",
    "knowledge.graph": "catalog.knowledge.graph_knowledge",
    "kinds.list": "kinds.queries.list_kinds",
    "kinds.show": "kinds.queries.show_kind",
    "questions.list": "questions.queries.list_questions",
    "questions.show": "questions.queries.show_question",
    "reasoning.existing": "reasoning.queries.existing",
    "reasoning.fetch": "reasoning.queries.fetch",
    "reasoning.full": "reasoning.queries.full_reasoning",
    "reasoning.list": "reasoning.queries.list_reasonings",
    "reasoning.origins": "reasoning.queries.origins",
    "reasoning.show": "reasoning.queries.show_reasoning",
    "records.existing": "records.queries.existing_records",
    "records.list": "records.queries.list_records",
    "reports.accomplished": "reports.trends.accomplished",
    "reports.calibration": "reports.trends.calibration",
    "reports.list": "reports.queries.list_reports",
    "reports.metrics": "reports.metrics.metrics",
    "reports.overlap": "search.similar.overlapping",
    "reports.sessions": "reports.queries.list_sessions",
    "reports.show": "reports.queries.show_report",
    "redactions.list": "redactions.queries.list_redactions",
    "redactions.versions": "redactions.queries.former_versions",
    "resolve": "catalog.walk.resolve",
    "reviews.list": "reviews.queries.list_reviews",
    "reviews.show": "reviews.queries.show_review",
    "search.facets": "search.queries.count_found",
    "search.find": "search.queries.find_text",
    "search.related": "search.similar.related_work",
    "search.similar": "search.similar.similar_sessions",
    "sessions.list": "sessions.queries.list_sessions",
    "sessions.show": "sessions.queries.show_session",
    "sessions.statements": "sessions.queries.list_statements",
    "sessions.trajectory": "sessions.queries.follow_vectors",
    "snapshots.domains": "snapshots.queries.list_domains",
    "snapshots.list": "snapshots.queries.list_snapshots",
    "snapshots.show": "snapshots.queries.show_snapshot",
    "validations.latest": "validations.queries.latest_verdict",
    "validations.list": "validations.queries.list_validations",
}


# The ``kind`` of answers to queries with a verb of their own; for other queries it is the query's name.
_KINDS: Final = {
    "agents.keys": "keys",
    "agents.list": "agents",
    "agents.show": "agent",
    "catalog.why": "causes",
    "decisions.list": "decisions",
    "decisions.show": "decision",
    "handoffs.board": "board",
    "handoffs.graph": "graph",
    "handoffs.list": "handoffs",
    "handoffs.next": "next",
    "handoffs.show": "handoff",
    "handoffs.unread": "unread",
    "handoffs.why": "why",
    "kinds.list": "kinds",
    "kinds.show": "kind",
    "questions.list": "questions",
    "questions.show": "question",
    "reasoning.list": "reasonings",
    "reasoning.show": "reasoning",
    "records.list": "records",
    "reports.calibration": "calibration",
    "reports.list": "reports",
    "reports.metrics": "metrics",
    "reports.overlap": "overlap",
    "reports.show": "report",
    "reviews.list": "reviews",
    "reviews.show": "review",
    "redactions.list": "redactions",
    "search.find": "hits",
    "search.similar": "similar",
    "sessions.list": "sessions",
    "sessions.show": "session",
    "sessions.statements": "statements",
    "snapshots.list": "snapshots",
    "validations.list": "validations",
}


class _Versions(Mapping[str, int]):
    """The version of every view: the core's, then those of the families that can be used."""

    def __getitem__(self, name: str) -> int:
        version = _CORE_VERSIONS.get(name)
        return _family_with_view(name).views[name] if version is None else version

    def __iter__(self) -> Iterator[str]:
        return chain(_CORE_VERSIONS, *(family.views for family in installed()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


VIEW_VERSIONS: Final[Mapping[str, int]] = _Versions()


def group_of(query: str) -> str:
    """Return the group of views that a query needs besides those of every query, or ``""``."""
    group = query.partition(".")[0]
    return group if group == SEARCH or find(group) is not None else ""


def versions_for(group: str) -> Mapping[str, int]:
    """Return the versions of the views that a query of a group needs. Raises Refused: ``FAMILY_UNUSABLE``."""
    if group == SEARCH:
        return _CORE_VERSIONS
    family = family_of(group) if group else None
    return EAGER_VERSIONS if family is None else {**EAGER_VERSIONS, **family.views}


def views_for(group: str) -> Sequence[Projection[Any]]:
    """Return the views that a query of a group needs. Raises Refused: ``FAMILY_UNUSABLE``."""
    return [view_named(name) for name in versions_for(group)]


def _family_with_view(name: str) -> Family:
    family = family_of(name.partition("_")[0])
    if family is None or name not in family.views:
        raise KeyError(name)
    return family


def view_named(name: str) -> Projection[Any]:
    """Return a view, loaded on first use: those of the core are ``VIEW`` in their package's ``fold``.

    Raises KeyError: there is none. Refused: ``FAMILY_UNUSABLE``, also if a kind of its family has no type that can be
    used: the view would have no rows of these events.
    """
    if name in _CORE_VERSIONS:
        view: Projection[Any] = import_module(f"deedbook.projections.{name}.fold").VIEW
        return view
    family = _family_with_view(name)
    for data in family.kinds.values():
        part_of(family, data)
    view = part_of(family, family.projections[name])
    strangers = [table.name for table in view.tables if table.name.partition("_")[0] != family.name]
    if (view.name, view.version) != (name, family.views[name]) or strangers:
        message = (
            f"the family {family.name}: its view {view.name} {view.version} should be {name} {family.views[name]}, "
            f"and its tables should begin with {family.name}_: update its package"
        )
        raise Refused("FAMILY_UNUSABLE", message, family=family.name)
    return view


def function_named(path: str) -> Callable[..., Any]:
    """Return a function of this package, whose module is loaded on first use."""
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(import_module(f"deedbook.projections.{module}"), name)
    return function


class _Views(Sequence[Projection[Any]]):
    """All views, with those of families that can be used, loaded on first use."""

    @cached_property
    def _loaded(self) -> tuple[Projection[Any], ...]:
        views: list[Projection[Any]] = []
        for name in VIEW_VERSIONS:
            with suppress(Refused):  # queries that need the family are refused, and `deed doctor` says why
                views.append(view_named(name))
        return tuple(views)

    def __getitem__(self, index: Any) -> Any:
        return self._loaded[index]

    def __len__(self) -> int:
        return len(self._loaded)


def _query_function(name: str) -> Callable[..., Any]:
    """Return the function that answers a query. Raises KeyError: there is none. Refused: ``FAMILY_UNUSABLE``."""
    if name in _QUERIES:
        return function_named(_QUERIES[name])
    family = family_of(name.partition(".")[0])
    if family is None or name not in family.queries:
        raise KeyError(name)
    function: Callable[..., Any] = part_of(family, family.queries[name])
    return function


class _Queries(Mapping[str, Query]):
    """The queries by name, each loaded once, with its module."""

    def __init__(self) -> None:
        self._loaded: dict[str, Query] = {}

    def __getitem__(self, name: str) -> Query:
        if name not in self._loaded:
            answer = _query_function(name)
            source, arguments, returns = get_type_hints(answer).values()
            run = answer if source is QueryContext else self._from_view(answer)
            self._loaded[name] = Query(arguments, returns, run, answer)
        return self._loaded[name]

    def _from_view(self, answer: Callable[[Any, Any], Answer]) -> Callable[[QueryContext, Any], Answer]:
        rows = import_module("deedbook.projections.answers.rows").ViewRows
        return lambda context, args: answer(rows(context, self), args)

    def __iter__(self) -> Iterator[str]:
        return chain(_QUERIES, *(family.queries for family in installed()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


VIEWS: Final[Sequence[Projection[Any]]] = _Views()
QUERIES: Final[Mapping[str, Query]] = _Queries()


def kind_of(query: str) -> str:
    """Return the ``kind`` of the JSON document that answers a query, in every interface."""
    family = None if query in _QUERIES else family_of(query.partition(".")[0])
    kinds = _KINDS if family is None else family.answers
    return kinds.get(query, query.replace(".", "_"))
