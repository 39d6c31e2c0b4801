"""The pages about Python: directives for mkdocstrings, which reads signatures and docstrings from the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deedbook
import deedbook.audit
from deedbook.consumers.interfaces.python import nouns, queries

if TYPE_CHECKING:
    from collections.abc import Iterator


def python_page() -> Iterator[str]:
    """Yield the lines of the page about the names that programs import."""
    yield from ("# Python", "")
    yield "Generated from the docstrings. [From Python](../how-to/python-agent.md) has complete programs."
    yield from ("", "## The package deedbook", "")
    for name in deedbook.__all__:
        yield from (f"::: deedbook.{name}", "")
    yield from ("## Audits: deedbook.audit", "")
    for name in deedbook.audit.__all__:
        yield from (f"::: deedbook.audit.{name}", "")


def python_nouns_page() -> Iterator[str]:
    """Yield the lines of the page about handoffs, reasonings and sessions, which a ledger returns."""
    yield from ("# Python: handoffs, reasonings, sessions", "")
    yield "`ledger.handoff(id)`, `ledger.reasoning(id)` and `ledger.session(id)` return these objects. An `AsyncLedger`"
    yield from ("returns the same, whose methods are awaited.", "")
    for name, value in vars(nouns).items():
        if isinstance(value, type) and issubclass(value, nouns.Noun) and value is not nouns.Noun:
            yield from (f"::: {value.__module__}.{name}", "")


def python_queries_page() -> Iterator[str]:
    """Yield the lines of the page about the queries of a ledger."""
    yield from ("# Python: queries", "")
    yield from ("`ledger.handoffs.next(agent=…)` and the other queries, by the attribute of the ledger.", "")
    for name, value in vars(queries).items():
        if isinstance(value, type) and value.__module__ == queries.__name__ and not name.startswith(("_", "Async")):
            yield from (f"::: {value.__module__}.{name}", "")
