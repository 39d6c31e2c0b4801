"""What stands in a ledger's schema of PostgreSQL beside the views: the books, and words of SQLite's as functions.

A full-text table is a row for each event: its ``words``, each between spaces of its own, how many there are
(``length``), and the ``lexemes`` that an index finds it by. A ``tsvector`` keeps no place beyond 16,383 and at most 255
of a word, so it holds none here: what must stand side by side, and how often it does, is looked for in ``words``.
Ranks are FTS5's own (BM25, k1 = 1.2, b = 0.75), so that both stores answer in the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

FORMAT: Final = 1
lexeme_max_chars: Final = 500  # PostgreSQL's words have no more than 2,046 bytes
word_max_bytes: Final = 32_768  # FTS5's
ESCAPE: Final = "\ue000"
_PHRASE: Final = re.compile(r'"([^"]*)"( \*)?|\b(AND)\b')

# Private of Unicode, so that no text has it but by design; both ways are undone in reading.
ESCAPED: Final = {ESCAPE: ESCAPE + "e", "\0": ESCAPE + "0"}

BOOKS: Final = f"""
CREATE TABLE baton_ledger (ledger text PRIMARY KEY, format bigint NOT NULL);
CREATE TABLE baton_views (
    view text COLLATE "C" NOT NULL, version bigint NOT NULL, is_live bigint NOT NULL, position bigint NOT NULL,
    last_id text NOT NULL, PRIMARY KEY (view, is_live)
);
CREATE TABLE baton_tables (
    view text NOT NULL, is_live bigint NOT NULL, name text NOT NULL, words bigint NOT NULL DEFAULT 0,
    texts bigint NOT NULL DEFAULT 0, PRIMARY KEY (view, is_live, name)
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
CREATE FUNCTION baton_holds(words text, clauses json) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM json_array_elements(clauses) AS clause (one) WHERE NOT EXISTS (
            SELECT 1 FROM json_array_elements_text(clause.one) AS phrase (text) WHERE strpos(words, phrase.text) > 0
        )
    ) $$;
CREATE FUNCTION baton_hits(asked text) RETURNS TABLE (rowid bigint, words text, length bigint)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH q AS MATERIALIZED (
        SELECT (a ->> 'lexemes')::tsquery AS lexemes, (a ->> 'is_exact')::boolean AS is_exact, a -> 'clauses' AS clauses
        FROM (SELECT asked::json AS a) AS once
    )
    SELECT w.event_index, w.words, w.length FROM q JOIN search_words w ON w.lexemes @@ q.lexemes
    WHERE NOT q.is_exact OR baton_holds(w.words, q.clauses) $$;
CREATE FUNCTION baton_times(words text, phrase text, is_overlapping boolean) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN is_overlapping THEN regexp_count(words, '(?=' || phrase || ')')
        ELSE (length(words) - length(replace(words, phrase, ''))) / length(phrase) END $$;
CREATE FUNCTION baton_matches(asked text) RETURNS TABLE (rowid bigint, rank double precision)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH total AS (
        SELECT texts, words::double precision / greatest(texts, 1) AS average FROM baton_tables
        WHERE name = 'search_words' AND is_live = 1
    ), phrases AS MATERIALIZED (
        SELECT one ->> 'phrase' AS phrase, (one ->> 'is_overlapping')::boolean AS is_overlapping, greatest(
            ln((t.texts - hits.count + 0.5) / (hits.count + 0.5)::double precision), 1e-6
        ) AS weight
        FROM total t, json_array_elements(asked::json -> 'phrases') AS each (one),
            LATERAL (SELECT count(*) FROM baton_hits((one -> 'asked')::text)) hits
    )
    SELECT h.rowid, (
        SELECT -sum(p.weight * (times * 2.2) / (times + 1.2 * (0.25 + 0.75 * h.length / t.average)))
        FROM phrases p, baton_times(h.words, p.phrase, p.is_overlapping) AS times WHERE times > 0
    ) FROM baton_hits(asked) h, total t $$;
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
        """The phrase as it stands among words, each between spaces of its own."""
        return " " + "  ".join(self.words) + ("" if self.is_beginning else " ")

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


def lexeme(word: str) -> str:
    """Return a word as a tsvector or tsquery reads it; a very long one by its beginning."""
    return f"'{word[:lexeme_max_chars]}'"


def stored_words(text: str) -> tuple[str, int, str]:
    """Return what is kept of words that stand apart: the words between spaces, their number, the tsvector's text."""
    words = [word.encode()[:word_max_bytes].decode(errors="ignore") for word in text.split()]
    return " " + "  ".join(words) + " ", len(words), " ".join(map(lexeme, dict.fromkeys(words)))


def asked_of(expression: str) -> str:
    """Return a question to the full-text index as ``baton_matches`` takes it.

    An expression is phrases, in quotation marks and a beginning before a ``*``, joined by OR, and those by AND.
    """
    clauses: list[list[_Phrase]] = [[]]
    for words, star, is_and in _PHRASE.findall(expression):
        if is_and:
            clauses.append([])
        else:
            clauses[-1].append(_Phrase(tuple(words.split()), bool(star)))
    phrases = [
        {"phrase": one.text, "is_overlapping": one.words[0] == one.words[-1] and len(one.words) > 1,
         "asked": _asked([[one]])}
        for clause in clauses for one in clause
    ]  # fmt: skip
    return json.dumps(_asked(clauses) | {"phrases": phrases})


def _asked(clauses: Sequence[Sequence[_Phrase]]) -> dict[str, object]:
    return {
        "lexemes": " & ".join(f"({' | '.join(f'({one.lexemes})' for one in clause)})" for clause in clauses),
        "is_exact": any(one.is_exact for clause in clauses for one in clause),
        "clauses": [[one.text for one in clause] for clause in clauses],
    }
