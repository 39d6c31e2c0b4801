"""The error codes of a search."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.errors import Code, Exit

CODES: Final = {
    "GENERATION_FAILED": Code(
        Exit.UNAVAILABLE,
        True,
        "The thinker returned no usable candidates.",
        "Resume the search, also with another thinker: `deed tot resume`.",
    ),
    "EVALUATION_TIMEOUT": Code(
        Exit.UNAVAILABLE,
        True,
        "The evaluation exceeded its time limit.",
        "Resume the search with a longer time limit: `deed tot resume`.",
    ),
    "SEARCH_EXHAUSTED": Code(
        Exit.NOT_FOUND, False, "The search reached its limits without a solution.", "Start a search with wider limits."
    ),
    "SEARCH_STOPPED": Code(Exit.NOT_FOUND, False, "The user stopped the search for good.", "Start a new search."),
}
