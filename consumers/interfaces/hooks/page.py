"""The page for agents, and the budget of the text that an agent gets at its start. It loads nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deedbook.ledger.errors import DeedbookError

budget_tokens: Final = 2000
budget_min_tokens: Final = 500
"""A smaller budget would not hold the acting agent and the list of what was left out."""
budget_max_tokens: Final = 100_000


def agents_page() -> str:
    """Return the page as markdown, ending in a newline."""
    # Not with importlib.resources: it costs a hook half as much time as a start of Python.
    return Path(__file__).with_name("agents_page.md").read_text("utf-8")


def page_alone(error: DeedbookError) -> str:
    """Return the brief if the ledger cannot be read: the page and the error code (a message may quote others)."""
    return f"{agents_page()}\nThe ledger cannot be read now ({error.code}). `deed doctor` says why.\n"
