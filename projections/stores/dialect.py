"""The SQL fragments that differ between the two stores; queries contain SQLite's form.

Most SQL is common. PostgreSQL lacks some functions of SQLite (``json_each``, ``instr`` …). The PostgreSQL store defines
these, so that queries can use them (``projections.stores.postgres_schema``). Only a few fragments with a different
grammar remain. Rejected: a query builder, which would hide both forms; and a second text of each query, because one of
the two would be wrong some day. A test runs every query on both stores and compares the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_OTHERS: Final[dict[str, str]] = {}
# In a query's SQL, quoted text is skipped; the other tokens are marks of bound values and SQLite's name of the file's
# own schema. PostgreSQL assumes 100 rows for a subquery and 10 for an array; for 10 it uses an index.
_LISTED: Final = r"(?<!NOT )IN \((SELECT (?:value|CAST\(value AS BIGINT\)) FROM json_each\(\?[0-9]*\))\)"
_TOKENS: Final = r"""'(?:[^']|'')*'|"[^"]*"|\?(?P<number>[0-9]*)|\b(?P<main>main\.)"""


class Expression(str):
    """A query of the full-text index in FTS5's language: words in quotation marks, ``*``, ``OR``, ``AND``."""

    __slots__ = ()


def stated(*, sqlite: str, postgres: str) -> str:
    """Return SQLite's text of a fragment, which the PostgreSQL store replaces by the other one."""
    _OTHERS[sqlite] = postgres
    return sqlite


def for_postgres(sql: str, schema: str) -> str:
    """Return a query's SQL for PostgreSQL: with its own fragments, ``$1`` for bound values, and its schema."""
    return re.sub(
        _TOKENS, _numbered(schema), restated(sql).replace("IN ()", "IN (NULL)")
    )  # PostgreSQL accepts no empty list


def restated(sql: str) -> str:
    """Return a query's SQL with PostgreSQL's fragments."""
    for ours, theirs in _OTHERS.items():
        sql = sql.replace(ours, theirs)
    return re.sub(_LISTED, r"= ANY (ARRAY(\1))", sql)


def _numbered(schema: str) -> Callable[[re.Match[str]], str]:
    count = 0

    def written(token: re.Match[str]) -> str:
        nonlocal count
        if token["main"]:
            return f'"{schema}".'
        if token["number"] is None:
            return token[0]
        count = int(token["number"] or count + 1)
        return f"${count}"

    return written
