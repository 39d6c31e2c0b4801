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
from typing import Annotated, Any, Final

import msgspec

from deedbook.projections.answers.query import Answer, Arguments, Limit, QueryContext, Where, with_json
from deedbook.projections.briefs.embedding import STOP_WORDS, best_embedder, embed_text
from deedbook.projections.reports.queries import AI_ID
from deedbook.projections.reports.report import is_same
from deedbook.projections.search.nearness import Near, by_stream, nearest, related_min, score_digits, weight
from deedbook.projections.search.words import features_of, stem_of
from deedbook.projections.sessions.queries import corrections_of

overlap_compared_max: Final = 150
overlap_min: Final = 0.22
overlap_words_min: Final = 3
shared_shown_max: Final = 8
# Words weigh as among so many more reports without them: of two reports alone, all that is shared would be common.
reports_imagined: Final = 50
_GENERIC: Final = {
    stem_of(word) for word in (*STOP_WORDS, "finding", "session", "task", "test", "work", "done", "complete")
}
_SESSIONS: Final = (
    f"SELECT s.id AS session_id, r.report_id, r.event_index, coalesce(r.ai_id, {AI_ID}) AS ai_id, "  # noqa: S608
    "s.author, s.happened_ms, coalesce(nullif(s.task, ''), nullif(r.task, ''), r.task_summary, '') AS task, "
    "coalesce(r.task_summary, '') AS outcome, coalesce(r.key_findings, '[]') AS key_findings, s.imported "
    "FROM sessions s LEFT JOIN handoff_reports r ON r.session_id = s.id"
)
_REASONED: Final = "e.stream >= 'reasoning/' AND e.stream < 'reasoning0'"

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


def similar_sessions(context: QueryContext, args: LikeTask) -> Answer:
    """Return ``{"sessions", "total_found", "embedder"}``: sessions, with a report or without, nearest to a task first.

    Each with ``score`` and ``near``: there is always a nearest, and it may be far.
    """
    where = _sessions_where(args)
    where.given("e.accepted_ms >= ?", args.since_ms)
    streams = by_stream(nearest(context, args.task, where))
    sessions = _scored(context, list(streams.values())[: args.limit])
    return {"sessions": sessions, "total_found": len(streams), "embedder": str(best_embedder())}


def _scored(context: QueryContext, chosen: list[Near]) -> list[Answer]:
    rows = {row["session_id"]: row for row in _read(context, _of_streams(context, f"{_SESSIONS} WHERE s.id", chosen))}
    return [rows[near.name] | near.scored for near in chosen if near.name in rows]


def related_work(context: QueryContext, args: LikeTask) -> Answer:
    """Return ``dead_ends``, ``reasonings`` and ``sessions`` that are not far from a task, nearest first.

    Sessions without a report count like others: what failed there failed all the same.
    """
    where = Where()
    of_sessions = _sessions_where(args)
    where.add(f"({of_sessions.sql.removeprefix(' WHERE ')} OR {_REASONED})", *of_sessions.values)
    events = [near for near in nearest(context, args.task, where) if near.score >= related_min]
    own = {near.event_index: near.score for near in events}
    streams = by_stream([near for near in events if near.stream.startswith("session/")])
    sql = (
        "SELECT d.session_id, s.author, s.ai_id, d.event_index, d.approach, d.why_failed, d.basis, d.impact, "
        "d.at, d.happened_ms, s.imported FROM dead_ends d JOIN sessions s ON s.id = d.session_id "
        "WHERE NOT EXISTS (SELECT 1 FROM corrections c JOIN events e ON e.id = c.target "
        "WHERE c.session_id = d.session_id AND e.event_index = d.event_index AND c.kind = 'dead_end.retracted') "
        "AND d.session_id"
    )
    dead_ends = [
        with_json(row, "imported") | streams[f"session/{row['session_id']}"].scored
        for row in _of_streams(context, sql, list(streams.values()))
    ]
    dead_ends.sort(key=lambda row: (-own.get(row["event_index"], 0), -row["score"], row["event_index"]))
    reasoned = list(by_stream([near for near in events if near.stream.startswith("reasoning/")]).values())
    sql = "SELECT id, task, conclusion, author, ai_id, status, ref, updated_ms FROM reasonings WHERE id"
    rows = {row["id"]: row for row in _of_streams(context, sql, reasoned)}
    reasonings = [row | near.scored for near in reasoned if (row := rows.get(near.name)) is not None]
    sessions = _scored(context, list(streams.values())[: args.limit])
    answer = {"dead_ends": dead_ends[: args.limit], "reasonings": reasonings[: args.limit], "sessions": sessions}
    return answer | {"total_found": len(dead_ends) + len(reasonings) + len(streams), "embedder": str(best_embedder())}


def overlapping(context: QueryContext, args: Since) -> Answer:
    """Return ``{"overlaps", "total_found", "threshold", "not_compared"}``: pairs of reports about the same work.

    Each tells both ``sessions`` and the words that they share (``shared``), nearest first. The newest are compared;
    ``not_compared`` counts the others.
    """
    where = Where()
    where.given("r.happened_ms >= ?", args.since_ms)
    total = context.count(f"SELECT count(*) FROM handoff_reports r{where.sql}", where.values)  # noqa: S608 - fixed texts
    sql = f"{_SESSIONS}{where.sql}{' AND' if where.values else ' WHERE'} r.report_id IS NOT NULL"
    rows = context.rows(f"{sql} ORDER BY r.event_index DESC LIMIT ?", (*where.values, overlap_compared_max))
    reports = _read(context, rows)
    texts = ["\n".join((one["task"], one["outcome"], *one["key_findings"])) for one in reports]
    words = [{word for word in features_of(text) if len(word) > 1 and not word.isdigit()} - _GENERIC for text in texts]
    counts = Counter(word for of in words for word in of)
    weights = {word: weight(count, len(reports) + reports_imagined) for word, count in counts.items()}
    lengths = [math.sqrt(math.fsum(weights[word] for word in of)) for of in words]
    spellings = [embed_text(text) for text in texts]
    overlaps: list[dict[str, Any]] = []
    for newer, older in combinations(range(len(reports)), 2):
        shared = words[newer] & words[older]
        by_words = math.fsum(weights[word] for word in shared) / (lengths[newer] * lengths[older] or 1.0)
        if len(shared) < overlap_words_min or by_words < overlap_min / 2:
            continue  # spellings are slow to compare, and do not make a pair alone
        score = round((by_words + math.fsum(map(float.__mul__, spellings[newer], spellings[older]))) / 2, score_digits)
        if score >= overlap_min:
            rarest = sorted(shared, key=lambda word: (-weights[word], word))[:shared_shown_max]
            pair = {"score": score, "sessions": [reports[newer], reports[older]]}
            overlaps.append(pair | {"shared": [word.replace(" ", "") for word in rarest]})
    overlaps.sort(key=lambda pair: -pair["score"])  # of equals the newest stay first
    answer = {"overlaps": overlaps[: args.limit], "total_found": len(overlaps)}
    return answer | {"threshold": overlap_min, "not_compared": max(0, total - len(reports))}


def _read(context: QueryContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what an answer says of sessions: no finding that was taken back, no outcome that is the task again."""
    taken_back: dict[str, list[str]] = {row["session_id"]: [] for row in rows}
    for one in corrections_of(context, *taken_back):
        taken_back[one["session_id"]].append(one["text"])
    sessions = []
    for row in (with_json(row, "imported", "key_findings") for row in rows):
        retracted = taken_back[row["session_id"]]
        findings = [text for text in row["key_findings"] if not any(is_same(one, text) for one in retracted)]
        outcome = row["outcome"] if row["outcome"] != row["task"] else ""
        sessions.append(row | {"key_findings": findings, "outcome": outcome})
    return sessions


def _sessions_where(args: LikeTask) -> Where:
    where = Where()
    where.add("e.stream >= 'session/' AND e.stream < 'session0'")
    where.given("e.stream <> 'session/' || ?", args.session_id)
    where.given(f"substr(e.stream, 9) IN (SELECT s.id FROM sessions s WHERE {AI_ID} = ?)", args.ai_id)  # noqa: S608
    return where


def _of_streams(context: QueryContext, sql: str, streams: list[Near]) -> list[dict[str, Any]]:
    """Return the rows of a SELECT, which ends in the column that names what streams are of."""
    marks = ", ".join("?" * len(streams))
    return context.rows(f"{sql} IN ({marks})", [near.name for near in streams])
