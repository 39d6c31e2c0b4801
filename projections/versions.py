"""The version of each view's meaning: raise it with any change of its tables, fold or rows (DESIGN §8).

They stand here, beside no code, so that whoever only reads can tell whether the views are up to date without loading
any fold.
"""

from __future__ import annotations

from typing import Final

VIEW_VERSIONS: Final = {
    "catalog": 2,
    "agents": 1,
    "reasoning": 2,
    "briefs": 1,
    "handoffs": 2,
    "sessions": 1,
    "validations": 1,
    "snapshots": 1,
    "reviews": 1,
    "reports": 1,
    "thoughts": 1,
}
