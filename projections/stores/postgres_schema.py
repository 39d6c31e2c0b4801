"""The contents of a ledger's PostgreSQL schema beside the views: bookkeeping, and functions that only SQLite has.

A full-text table has a row for each event: its ``words``, each with a space before and after it, their number
(``length``), and the ``lexemes`` for the index. A ``tsvector`` can store no position beyond 16,383, and at most 255
positions of a word, so it stores no positions here: phrases are searched and counted in ``words``. A separate table
(``counts_of``) stores how many rows contain each word, because a rank needs this number, and reading all these rows
would take long. Ranks are computed as in SQLite's FTS5 (BM25, k1 = 1.2, b = 0.75), so both stores answer in the same
order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

FORMAT: Final = 3
lexeme_max_chars: Final = 500  # a lexeme in PostgreSQL has at most 2,046 bytes
word_max_bytes: Final = 32_768  # SQLite's FTS5 cuts longer words, too
ESCAPE: Final = "\ue000"
_LAST: Final = chr(0x10FFFF)
# BM25 with k1 = 1.2 and b = 0.75, added in the same order as in FTS5; OFFSET makes PostgreSQL count only once.
_MOST: Final = "2.2::float8"
_NORM: Final = "1.2::float8 * (0.25::float8 + 0.75::float8 * w.length / p.average)"
_PHRASE: Final = re.compile(r'"([^"]*)"( \*)?|\b(AND)\b')

# Escapes begin with a private-use character, which texts rarely contain; reading reverses both escapes.
ESCAPED: Final = {ESCAPE: ESCAPE + "e", "\0": ESCAPE + "0"}

BOOKS: Final = f"""
CREATE TABLE deedbook (ledger text PRIMARY KEY, format bigint NOT NULL);
CREATE TABLE deedbook_views (
    view text COLLATE "C" NOT NULL, version bigint NOT NULL, is_live bigint NOT NULL, position bigint NOT NULL,
    last_id text NOT NULL, log_size bigint NOT NULL, PRIMARY KEY (view, is_live)
);
CREATE TABLE deedbook_tables (
    view text NOT NULL, is_live bigint NOT NULL, name text NOT NULL, rows bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0, PRIMARY KEY (view, is_live, name)
);
SET LOCAL check_function_bodies = off;
CREATE FUNCTION json_of(text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos($1, '\\u0000') = 0 THEN $1::json
        ELSE regexp_replace($1, '(?<!\\\\)((\\\\\\\\)*)\\\\u0000', '\\1{ESCAPED[chr(0)]}', 'g')::json END $$;
CREATE FUNCTION json_each(text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT each.value FROM json_array_elements_text(json_of($1)) AS each (value) $$;
CREATE FUNCTION json_each(text, text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT each.value FROM json_array_elements_text(json_of($1) -> substr($2, 3)) AS each (value) $$;
CREATE FUNCTION json_extract(text, text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT json_of($1) ->> substr($2, 3) $$;
CREATE FUNCTION json_array_length(text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT json_array_length($1::json)::bigint $$;
CREATE FUNCTION instr(text, text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT strpos($1, $2)::bigint $$;
CREATE FUNCTION substr(text, bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT substr($1, $2::integer) $$;
CREATE FUNCTION max(bigint, bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN $1 IS NOT NULL AND $2 IS NOT NULL AND $3 IS NOT NULL THEN greatest($1, $2, $3) END $$;
""" + "".join(  # noqa: S608 - fixed texts
    f"CREATE AGGREGATE json_group_array({of}) "
    f"(SFUNC = array_append, STYPE = {of}[], INITCOND = '{{}}', FINALFUNC = array_to_json);"
    for of in ("bigint", "text", "json")
)


class _Phrase(NamedTuple):
    words: tuple[str, ...]
    is_beginning: bool

    @property
    def text(self) -> str:
        """The phrase as an SQL literal, in the form of ``words``: with a space before and after each word."""
        return _literal(" " + "  ".join(self.words) + ("" if self.is_beginning else " "))

    @property
    def lexemes(self) -> str:
        """The tsquery for rows that contain all its words anywhere."""
        *first, last = self.words
        is_open = self.is_beginning and len(last) < lexeme_max_chars
        return " & ".join([*map(lexeme, first), lexeme(last) + (":*" if is_open else "")])

    @property
    def is_exact(self) -> bool:
        """Whether the phrase itself must be compared, because its lexemes alone do not prove it."""
        return len(self.words) > 1 or len(self.words[0]) >= lexeme_max_chars

    @property
    def rows(self) -> str:
        """The SQL for the number of rows with the phrase; for a single word, or a unique prefix, the stored count."""
        counted = f"(SELECT count(*) FROM search_words w WHERE {_matches([[self]])})"  # noqa: S608
        if self.is_exact:
            return counted
        last = self.words[0] + (_LAST if self.is_beginning else "")
        counts = f"deedbook_counts_search_words c WHERE c.word BETWEEN {_literal(self.words[0])} AND {_literal(last)}"
        known = f"SELECT CASE WHEN count(*) < 2 THEN coalesce(sum(c.rows), 0) END FROM {counts}"  # noqa: S608 - fixed texts
        return f"coalesce(({known}), {counted})"

    @property
    def times(self) -> str:
        """The SQL for the number of times that the phrase occurs in ``w.words``."""
        if len(self.words) > 1 and self.words[0] == self.words[-1]:  # it may overlap itself
            return f"regexp_count(w.words, '(?=' || {self.text} || ')')"
        return f"(octet_length(w.words) - octet_length(replace(w.words, {self.text}, ''))) / octet_length({self.text})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def lexeme(word: str) -> str:
    """Return a word as a tsvector or tsquery reads it; a very long word is truncated."""
    return f"'{word[:lexeme_max_chars]}'"


def stored_words(text: str) -> tuple[str, int, str]:
    """Return the stored columns for separated words: the words between spaces, their number, the tsvector's text."""
    words = [word.encode()[:word_max_bytes].decode(errors="ignore") for word in text.split()]
    return " " + "  ".join(words) + " ", len(words), " ".join(map(lexeme, dict.fromkeys(words)))


def counts_of(name: str) -> str:
    """Return the name of the table that stores how many rows of a full-text table contain each lexeme."""
    return f"deedbook_counts_{name}"


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """Return how many rows contain each lexeme."""
    return Counter(word for text in texts for word in {word[:lexeme_max_chars] for word in text.split()})


def hits_of(expression: str, *, is_ranked: bool) -> str:
    """Return the SELECT of the hits of a full-text query: ``rowid`` and, with ``is_ranked``, ``rank`` as in FTS5.

    The SELECT is text, not an SQL function, so PostgreSQL does not parse the query again for each of a million hits.
    """
    clauses = _clauses(expression)
    if not is_ranked:
        return f"(SELECT w.event_index AS rowid FROM search_words w WHERE {_matches(clauses)})"  # noqa: S608
    phrases = list(enumerate(phrase for clause in clauses for phrase in clause))
    counts = ", ".join(f"{phrase.rows} AS n{number}" for number, phrase in phrases)
    weights = ", ".join(
        f"greatest(ln((t.rows - n{number} + 0.5) / (n{number} + 0.5)::float8), 1e-6::float8) AS w{number}"
        for number, _ in phrases
    )
    times = ", ".join(f"({phrase.times})::float8 AS t{number}" for number, phrase in phrases)
    rank = " + ".join(f"p.w{number} * (t{number} * {_MOST} / (t{number} + h.norm))" for number, _ in phrases)
    return f"""(
    WITH n AS MATERIALIZED (SELECT {counts}), p AS MATERIALIZED (
        SELECT t.words::float8 / greatest(t.rows, 1) AS average, {weights}
        FROM n, deedbook_tables t WHERE t.name = 'search_words' AND t.is_live = 1
    ) SELECT h.rowid, -({rank}) AS rank FROM p, LATERAL (
        SELECT w.event_index AS rowid, {_NORM} AS norm, {times} FROM search_words w WHERE {_matches(clauses)} OFFSET 0
    ) h)"""  # noqa: S608


def _clauses(expression: str) -> list[list[_Phrase]]:
    """Return phrases joined by OR within a clause; the clauses are joined by AND.

    Phrases are in quotation marks; a prefix is followed by ``*``.
    """
    clauses: list[list[_Phrase]] = [[]]
    for words, star, is_and in _PHRASE.findall(expression):
        if is_and:
            clauses.append([])
        else:
            clauses[-1].append(_Phrase(tuple(words.split()), bool(star)))
    return clauses


def _may_match(clauses: Sequence[Sequence[_Phrase]]) -> str:
    """Return the condition that finds, by lexemes, the rows that may contain a phrase of each clause."""
    lexemes = " & ".join(f"({' | '.join(f'({phrase.lexemes})' for phrase in clause)})" for clause in clauses)
    return f"w.lexemes @@ {_literal(lexemes)}::tsquery"


def _matches(clauses: Sequence[Sequence[_Phrase]]) -> str:
    """Return the condition that a row contains a phrase of each clause."""
    exact = [clause for clause in clauses if any(phrase.is_exact for phrase in clause)]
    conditions = [f"({' OR '.join(f'strpos(w.words, {phrase.text}) > 0' for phrase in clause)})" for clause in exact]
    return " AND ".join([_may_match(clauses), *conditions])
