"""Every view there is: the only list of projections, and the only table of queries.

To add a view: write its package with ``fold.py`` and ``queries.py``, and add both here. Tests count the packages
against this list, and hold that no two views own a table of the same name.
"""

from __future__ import annotations

from typing import Any, Final

from projections.agents import queries as agent_queries
from projections.agents.fold import AGENT_VIEW
from projections.briefs import queries as brief_queries
from projections.briefs.fold import BRIEF_VIEW
from projections.catalog import queries as catalog_queries
from projections.catalog.fold import CATALOG
from projections.handoffs import board as handoff_board
from projections.handoffs import files as handoff_files
from projections.handoffs import graph as handoff_graph
from projections.handoffs import next as handoff_next
from projections.handoffs import queries as handoff_queries
from projections.handoffs.fold import HANDOFF_VIEW
from projections.projection import Projection
from projections.query import Query
from projections.reasoning import queries as reasoning_queries
from projections.reasoning.fold import REASONING_VIEW
from projections.resolve import QUERIES as RESOLVING
from projections.reviews import queries as review_queries
from projections.reviews.fold import REVIEW_VIEW
from projections.sessions import queries as session_queries
from projections.sessions.fold import SESSION_VIEW
from projections.snapshots import queries as snapshot_queries
from projections.snapshots.fold import SNAPSHOT_VIEW
from projections.validations import queries as validation_queries
from projections.validations.fold import VALIDATION_VIEW

VIEWS: Final[tuple[Projection[Any], ...]] = (
    CATALOG,
    AGENT_VIEW,
    REASONING_VIEW,
    BRIEF_VIEW,
    HANDOFF_VIEW,
    SESSION_VIEW,
    VALIDATION_VIEW,
    SNAPSHOT_VIEW,
    REVIEW_VIEW,
)

QUERIES: Final[dict[str, Query]] = {
    **agent_queries.QUERIES,
    **brief_queries.QUERIES,
    **catalog_queries.QUERIES,
    **handoff_board.QUERIES,
    **handoff_graph.QUERIES,
    **handoff_next.QUERIES,
    **handoff_files.QUERIES,
    **handoff_queries.QUERIES,
    **reasoning_queries.QUERIES,
    **review_queries.QUERIES,
    **session_queries.QUERIES,
    **snapshot_queries.QUERIES,
    **validation_queries.QUERIES,
    **RESOLVING,
}
