"""The version of each view's meaning: raise it with any change of its tables, fold or rows (DESIGN §8).

They stand here, beside no code, so that whoever only reads can tell whether the views are up to date without loading
any fold. The views of ``ON_DEMAND`` are brought up to date by the questions that are put to them, and by `baton
project`, not by every question: full-text search costs a quarter of all folding (measured), and few runs search.
"""

from __future__ import annotations

from typing import Final

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

ON_DEMAND: Final = frozenset({"search"})
