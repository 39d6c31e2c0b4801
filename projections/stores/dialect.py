"""What two stores do not say alike: a fragment of SQL is stated once for each, and stands in queries as SQLite's.

Most SQL is common. Of SQLite's words that PostgreSQL lacks (``json_each``, ``instr`` …) the PostgreSQL store makes
functions of the same name, so a query needs no second text for them (``projections.stores.postgres_schema``). What is
left is a handful of fragments whose grammar differs. Refused: a query builder, which would hide both; and a second text
of each query, of which one would be wrong some day. Both are held equal by a test that puts every query to both stores.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_OTHERS: Final[dict[str, str]] = {}
# Quoted text is skipped; outside of it stand marks of what is bound, and SQLite's name of the file's own schema.
# PostgreSQL takes a subquery for a hundred rows, and an array for ten, which it looks for by an index.
_LISTED: Final = r"(?<!NOT )IN \((SELECT (?:value|CAST\(value AS BIGINT\)) FROM json_each\(\?[0-9]*\))\)"
_TOKENS: Final = r"""'(?:[^']|'')*'|"[^"]*"|\?(?P<number>[0-9]*)|\b(?P<main>main\.)"""


class Expression(str):
    """A question to the full-text index, in FTS5's language: words in quotation marks, ``*``, ``OR``, ``AND``."""

    __slots__ = ()


def stated(*, sqlite: str, postgres: str) -> str:
    """Return SQLite's text of a fragment, in whose place the PostgreSQL store puts the other one."""
    _OTHERS[sqlite] = postgres
    return sqlite


def for_postgres(sql: str, schema: str) -> str:
    """Return a query's SQL as PostgreSQL reads it: with its own fragments, ``$1`` for what is bound, and its schema."""
    return re.sub(_TOKENS, _numbered(schema), restated(sql).replace("IN ()", "IN (NULL)"))  # no list is empty there


def restated(sql: str) -> str:
    """Return a query's SQL with PostgreSQL's own fragments."""
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
