"""Work that is about the same: sessions like a task, what failed and was reasoned there, work that was done twice.

Nearness to a task is that of ``search.nearness``. A pair of reports is compared as a whole: the mean of what their
words have in common (cosine over idf; forms of a word are one, figures and words that any report has are none) and of
their spellings (``hash-v1``), so that a report of "Finding 1" is like no other. Measured on 12 pairs that were told
anew in two languages among 40 others: pairs .23 and more, all others .20 and less. Refused: ``wordllama`` for pairs
(unrelated Chinese reports reach .79, pairs begin at .57).
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from projections.briefs.embedding import STOP_WORDS, Embedding, best_embedder, cosine_similarity, embed_text
from projections.query import Answer, Arguments, Limit, Moment, Where, with_json
from projections.reports.corrections import is_same
from projections.search.nearness import Near, by_stream, near_word, nearest, related_min, score_digits, weight
from projections.search.words import features_of, stem_of
from projections.sessions.queries import corrections_of

overlap_compared_max: Final = 150
overlap_min: Final = 0.22
overlap_words_min: Final = 3
reports_imagined: Final = 50
"""Words weigh as among so many more reports without them: of two reports alone, all that is shared would be common."""

_GENERIC: Final = frozenset(map(stem_of, ("finding", "session", "task", "test", "work", "done", "complete")))
_AI_ID: Final = "coalesce(nullif(s.ai_id, ''), s.author)"
_SESSIONS: Final = (
    f"SELECT s.id AS session_id, r.report_id, r.event_index, coalesce(r.ai_id, {_AI_ID}) AS ai_id, "  # noqa: S608
    "s.author, s.happened_ms, coalesce(nullif(s.task, ''), nullif(r.task, ''), r.task_summary, '') AS task, "
    "coalesce(r.task_summary, '') AS outcome, coalesce(r.key_findings, '[]') AS key_findings, s.imported "
    "FROM sessions s LEFT JOIN handoff_reports r ON r.session_id = s.id"
)

Task = Annotated[str, msgspec.Meta(min_length=1, max_length=40_000, description="What is to be done.")]


class LikeTask(Arguments, frozen=True):
    """A task in words; ``session_id`` is left out of the answer (one that resumes need not find itself)."""

    task: Task
    ai_id: str | None = None
    session_id: str | None = None
    since_ms: int | None = None
    limit: Limit = 5


class Since(Arguments, frozen=True):
    """Reports of ``since_ms`` (Unix ms) or later; an imported one has the time that it claims."""

    since_ms: int | None = None
    limit: Limit = 20


def similar_sessions(moment: Moment, asked: LikeTask) -> Answer:
    """Return ``{"sessions", "total_found", "embedder"}``: sessions, with a report or without, nearest to a task first.

    Each with ``score`` and ``near``: there is always a nearest, and it may be far.
    """
    where = _sessions_where(asked)
    where.given("e.accepted_ms >= ?", asked.since_ms)
    streams = by_stream(nearest(moment, asked.task, where))
    chosen = list(streams.values())[: asked.limit]
    told = {one["session_id"]: one for one in _read(moment, _of_streams(moment, f"{_SESSIONS} WHERE s.id", chosen))}
    sessions = [told[_name(near)] | _how_near(near) for near in chosen if _name(near) in told]
    return {"sessions": sessions, "total_found": len(streams), "embedder": _embedder()}


def related_work(moment: Moment, asked: LikeTask) -> Answer:
    """Return ``{"dead_ends", "reasonings", "total_found", "embedder"}``: what is not far from a task, nearest first.

    Sessions without a report count like others: what failed there failed all the same.
    """
    events = [near for near in nearest(moment, asked.task, _sessions_where(asked)) if near.score >= related_min]
    own = {near.event_index: near.score for near in events}
    streams = by_stream(events)
    sql = (
        "SELECT d.session_id, s.author, s.ai_id, d.event_index, d.approach, d.why_failed, d.basis, d.impact, "
        "d.at, d.happened_ms, s.imported FROM dead_ends d JOIN sessions s ON s.id = d.session_id "
        "WHERE NOT EXISTS (SELECT 1 FROM corrections c JOIN events e ON e.id = c.target "
        "WHERE c.session_id = d.session_id AND e.event_index = d.event_index AND c.kind = 'dead_end.retracted') "
        "AND d.session_id"
    )
    dead_ends = [
        with_json(row, "imported") | _how_near(streams[f"session/{row['session_id']}"])
        for row in _of_streams(moment, sql, list(streams.values()))
    ]
    dead_ends.sort(key=lambda row: (-own.get(row["event_index"], 0), -row["score"], row["event_index"]))
    where = Where()
    where.add("e.stream >= 'reasoning/' AND e.stream < 'reasoning0'")
    reasoned = [near for near in by_stream(nearest(moment, asked.task, where)).values() if near.score >= related_min]
    sql = "SELECT id, task, conclusion, author, ai_id, status, ref, updated_ms FROM reasonings WHERE id"
    rows = {row["id"]: row for row in _of_streams(moment, sql, reasoned)}
    reasonings = [row | _how_near(near) for near in reasoned if (row := rows.get(_name(near))) is not None]
    found = {"dead_ends": dead_ends[: asked.limit], "reasonings": reasonings[: asked.limit]}
    return found | {"total_found": len(dead_ends) + len(reasonings), "embedder": _embedder()}


def overlapping(moment: Moment, asked: Since) -> Answer:
    """Return ``{"overlaps", "total_found", "threshold", "not_compared"}``: pairs of reports about the same work.

    Each tells both ``sessions`` and the words that they share (``shared``), nearest first. The newest are compared;
    ``not_compared`` counts the others.
    """
    where = Where()
    where.given("r.happened_ms >= ?", asked.since_ms)
    total = moment.count(f"SELECT count(*) FROM handoff_reports r{where.sql}", where.values)  # noqa: S608 - fixed texts
    sql = f"{_SESSIONS}{where.sql}{' AND' if where.values else ' WHERE'} r.report_id IS NOT NULL"
    rows = moment.rows(f"{sql} ORDER BY r.event_index DESC LIMIT ?", (*where.values, overlap_compared_max))
    told = [_told(session) for session in _read(moment, rows)]
    counts = Counter(word for one in told for word in one.words)
    weights = {word: weight(count, len(told) + reports_imagined) for word, count in counts.items()}
    lengths = [math.sqrt(math.fsum(weights[word] for word in one.words)) for one in told]
    pairs: list[tuple[float, int, int, list[str]]] = []
    for newer, older in combinations(range(len(told)), 2):
        shared = told[newer].words & told[older].words
        if len(shared) < overlap_words_min:
            continue
        by_words = math.fsum(weights[word] for word in shared) / (lengths[newer] * lengths[older])
        by_spelling = cosine_similarity(told[newer].spelling, told[older].spelling)
        score = round((by_words + by_spelling) / 2, score_digits)
        if score >= overlap_min:
            rarest = sorted(shared, key=lambda word: (-weights[word], word))
            pairs.append((score, newer, older, [word.replace(" ", "") for word in rarest[:8]]))
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    overlaps = [
        {
            "score": score,
            "is_same_agent": told[newer].session["ai_id"] == told[older].session["ai_id"],
            "sessions": [told[newer].session, told[older].session],
            "shared": shared,
        }
        for score, newer, older, shared in pairs[: asked.limit]
    ]
    return {
        "overlaps": overlaps,
        "total_found": len(pairs),
        "threshold": overlap_min,
        "not_compared": max(0, total - len(told)),
    }


class _Told(NamedTuple):
    """A report as pairs are compared: its session, the words that say something, how it is spelled."""

    session: dict[str, Any]
    words: set[str]
    spelling: Embedding


def _told(session: dict[str, Any]) -> _Told:
    text = "\n".join((session["task"], session["outcome"], *session["key_findings"]))
    words = {
        word
        for word in features_of(text)
        if word not in _GENERIC and word not in STOP_WORDS and not word.isdigit() and (len(word) > 1)
    }
    return _Told(session, words, embed_text(text))


def _read(moment: Moment, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what an answer says of sessions: no finding that was taken back, no outcome that is the task again."""
    taken_back: dict[str, list[str]] = {row["session_id"]: [] for row in rows}
    for one in corrections_of(moment, *taken_back):
        taken_back[one["session_id"]].append(one["text"])
    told = []
    for row in (with_json(row, "imported", "key_findings") for row in rows):
        retracted = taken_back[row["session_id"]]
        findings = [text for text in row["key_findings"] if not any(is_same(one, text) for one in retracted)]
        told.append(
            row | {"key_findings": findings, "outcome": row["outcome"] if row["outcome"] != row["task"] else ""}
        )
    return told


def _sessions_where(asked: LikeTask) -> Where:
    where = Where()
    where.add("e.stream >= 'session/' AND e.stream < 'session0'")
    where.given("e.stream <> 'session/' || ?", asked.session_id)
    where.given(f"substr(e.stream, 9) IN (SELECT s.id FROM sessions s WHERE {_AI_ID} = ?)", asked.ai_id)  # noqa: S608
    return where


def _of_streams(moment: Moment, sql: str, streams: list[Near]) -> list[dict[str, Any]]:
    """Return the rows of a SELECT, which ends in the column that names what streams are of."""
    marks = ", ".join("?" * len(streams))
    return moment.rows(f"{sql} IN ({marks})", [_name(near) for near in streams])


def _name(near: Near) -> str:
    return near.stream.partition("/")[2]


def _how_near(near: Near) -> dict[str, Any]:
    return {"score": near.score, "near": near_word(near.score)}


def _embedder() -> dict[str, str]:
    embedder = best_embedder()
    return {"name": embedder.name, "version": embedder.version}
