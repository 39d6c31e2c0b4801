"""What stands in a ledger's schema of PostgreSQL beside the views: the books, and words of SQLite's as functions.

A full-text table is a row for each event: its ``words``, each between spaces of its own, how many there are
(``length``), and the ``lexemes`` that an index finds it by. A ``tsvector`` keeps no place beyond 16,383 and at most 255
of a word, so it holds none here: what must stand side by side, and how often it does, is looked for in ``words``.
How many rows hold a word is counted beside them (``counts_of``): a rank needs that, and would read each of those rows.
Ranks are FTS5's own (BM25, k1 = 1.2, b = 0.75), so that both stores answer in the same order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

FORMAT: Final = 2
lexeme_max_chars: Final = 500  # PostgreSQL's words have no more than 2,046 bytes
word_max_bytes: Final = 32_768  # FTS5's
ESCAPE: Final = "\ue000"
_LAST: Final = chr(0x10FFFF)
# BM25, k1 = 1.2 and b = 0.75, in the order of FTS5's own sums; OFFSET keeps what is counted from being counted twice.
_MOST: Final = "2.2::float8"
_NORM: Final = "1.2::float8 * (0.25::float8 + 0.75::float8 * w.length / p.average)"
_PHRASE: Final = re.compile(r'"([^"]*)"( \*)?|\b(AND)\b')

# Private of Unicode, so that no text has it but by design; both ways are undone in reading.
ESCAPED: Final = {ESCAPE: ESCAPE + "e", "\0": ESCAPE + "0"}

BOOKS: Final = f"""
CREATE TABLE deedbook (ledger text PRIMARY KEY, format bigint NOT NULL);
CREATE TABLE deedbook_views (
    view text COLLATE "C" NOT NULL, version bigint NOT NULL, is_live bigint NOT NULL, position bigint NOT NULL,
    last_id text NOT NULL, PRIMARY KEY (view, is_live)
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
        """The phrase as it stands among words, each between spaces of its own, as a literal."""
        return _literal(" " + "  ".join(self.words) + ("" if self.is_beginning else " "))

    @property
    def lexemes(self) -> str:
        """The tsquery of what has all its words somewhere."""
        *first, last = self.words
        is_open = self.is_beginning and len(last) < lexeme_max_chars
        return " & ".join([*map(lexeme, first), lexeme(last) + (":*" if is_open else "")])

    @property
    def is_exact(self) -> bool:
        """Whether its lexemes alone do not say that it is there."""
        return len(self.words) > 1 or len(self.words[0]) >= lexeme_max_chars

    @property
    def rows(self) -> str:
        """The SQL for how many rows hold it; of a word alone, or the only one that begins so, that is kept."""
        counted = f"(SELECT count(*) FROM search_words w WHERE {_held([[self]])})"  # noqa: S608
        if self.is_exact:
            return counted
        last = self.words[0] + (_LAST if self.is_beginning else "")
        kept = f"deedbook_counts_search_words c WHERE c.word BETWEEN {_literal(self.words[0])} AND {_literal(last)}"
        known = f"SELECT CASE WHEN count(*) < 2 THEN coalesce(sum(c.rows), 0) END FROM {kept}"  # noqa: S608 - fixed texts
        return f"coalesce(({known}), {counted})"

    @property
    def times(self) -> str:
        """The SQL for how often it stands in the words ``w.words``."""
        if len(self.words) > 1 and self.words[0] == self.words[-1]:  # it may overlap itself
            return f"regexp_count(w.words, '(?=' || {self.text} || ')')"
        return f"(octet_length(w.words) - octet_length(replace(w.words, {self.text}, ''))) / octet_length({self.text})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def lexeme(word: str) -> str:
    """Return a word as a tsvector or tsquery reads it; a very long one by its beginning."""
    return f"'{word[:lexeme_max_chars]}'"


def stored_words(text: str) -> tuple[str, int, str]:
    """Return what is kept of words that stand apart: the words between spaces, their number, the tsvector's text."""
    words = [word.encode()[:word_max_bytes].decode(errors="ignore") for word in text.split()]
    return " " + "  ".join(words) + " ", len(words), " ".join(map(lexeme, dict.fromkeys(words)))


def counts_of(name: str) -> str:
    """Return the name of the table that says how many rows of a full-text table hold each lexeme."""
    return f"deedbook_counts_{name}"


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """Return how many of several rows' words hold each lexeme."""
    return Counter(word for text in texts for word in {word[:lexeme_max_chars] for word in text.split()})


def hits_of(expression: str, *, is_ranked: bool) -> str:
    """Return the SELECT of what a question to the full-text index finds: ``rowid``, and if args for ``rank``, FTS5's.

    It is text and no function, so that nothing of the question is read again for each of a million hits.
    """
    clauses = _clauses(expression)
    if not is_ranked:
        return f"(SELECT w.event_index AS rowid FROM search_words w WHERE {_held(clauses)})"  # noqa: S608
    phrases = list(enumerate(one for clause in clauses for one in clause))
    counts = ", ".join(f"{one.rows} AS n{place}" for place, one in phrases)
    weights = ", ".join(
        f"greatest(ln((t.rows - n{place} + 0.5) / (n{place} + 0.5)::float8), 1e-6::float8) AS w{place}"
        for place, _ in phrases
    )
    times = ", ".join(f"({one.times})::float8 AS t{place}" for place, one in phrases)
    rank = " + ".join(f"p.w{place} * (t{place} * {_MOST} / (t{place} + h.norm))" for place, _ in phrases)
    return f"""(
    WITH n AS MATERIALIZED (SELECT {counts}), p AS MATERIALIZED (
        SELECT t.words::float8 / greatest(t.rows, 1) AS average, {weights}
        FROM n, deedbook_tables t WHERE t.name = 'search_words' AND t.is_live = 1
    ) SELECT h.rowid, -({rank}) AS rank FROM p, LATERAL (
        SELECT w.event_index AS rowid, {_NORM} AS norm, {times} FROM search_words w WHERE {_held(clauses)} OFFSET 0
    ) h)"""  # noqa: S608


def _clauses(expression: str) -> list[list[_Phrase]]:
    """Return phrases joined by OR, and those by AND.

    They stand in quotation marks, a beginning before a ``*``.
    """
    clauses: list[list[_Phrase]] = [[]]
    for words, star, is_and in _PHRASE.findall(expression):
        if is_and:
            clauses.append([])
        else:
            clauses[-1].append(_Phrase(tuple(words.split()), bool(star)))
    return clauses


def _found(clauses: Sequence[Sequence[_Phrase]]) -> str:
    """Return the condition that finds by its lexemes what may hold a phrase of each clause."""
    lexemes = " & ".join(f"({' | '.join(f'({one.lexemes})' for one in clause)})" for clause in clauses)
    return f"w.lexemes @@ {_literal(lexemes)}::tsquery"


def _held(clauses: Sequence[Sequence[_Phrase]]) -> str:
    """Return the condition that a phrase of each clause is there."""
    exact = [clause for clause in clauses if any(one.is_exact for one in clause)]
    held = [f"({' OR '.join(f'strpos(w.words, {one.text}) > 0' for one in clause)})" for clause in exact]
    return " AND ".join([_found(clauses), *held])
