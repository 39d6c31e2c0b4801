"""Reports that are about the same: sessions like a task, their dead ends, work that was done twice.

Texts are compared by the default embedder, by spellings; every answer names it and its threshold. A bounded number is
compared, the newest; ``not_compared`` counts the others, so that nobody takes "none found" for "none there".
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ledger.events.brief import PackedEmbedding
from projections.briefs.embedding import HASH_V1, Embedding, cosine_similarity, embed_text, unpack
from projections.query import Answer, Arguments, Limit, Moment, Where, with_json

similar_compared_max: Final = 2_000
unreported_compared_max: Final = 300  # their tasks have no stored vector
overlap_compared_max: Final = 150
score_digits: Final = 4
alike_min: Final = 0.40  # one in a thousand unrelated pairs: here a false alarm costs a reader, not a fetch

Task = Annotated[str, msgspec.Meta(min_length=1, max_length=40_000, description="What is to be done.")]
_COLUMNS: Final = (
    "SELECT session_id, report_id, event_index, ai_id, author, timestamp, task_summary, key_findings, "
    "task_embedding, findings_embedding, imported FROM handoff_reports"
)
_SUMMARY: Final = ("session_id", "report_id", "event_index", "ai_id", "author", "timestamp", "task_summary", "imported")


class LikeTask(Arguments, frozen=True):
    """A task in words; ``session_id`` is left out of the answer (one that resumes need not find itself)."""

    task: Task
    ai_id: str | None = None
    session_id: str | None = None
    limit: Limit = 5


class Since(Arguments, frozen=True):
    """Reports of ``since_ms`` (Unix ms) or later; an imported one has the time that it claims."""

    since_ms: int | None = None
    limit: Limit = 20


class Compared(NamedTuple):
    """A report's row with its vectors."""

    row: dict[str, Any]
    task: Embedding
    findings: Embedding

    @property
    def summary(self) -> dict[str, Any]:
        """What an answer says of it."""
        return with_json({name: self.row[name] for name in _SUMMARY}, "imported")


def similar_reports(moment: Moment, asked: LikeTask) -> Answer:
    """Return ``{"reports", "total_found", …}``: sessions whose task or findings are like a task, most similar first.

    ``score`` is the higher of both, and ``like`` says which it was.
    """
    found, left_out = _like(moment, asked)
    reports = [
        report.summary | {"key_findings": msgspec.json.decode(report.row["key_findings"]), "score": score, "like": like}
        for report, score, like in found[: asked.limit]
    ]
    return {"reports": reports, "total_found": len(found)} | _by(left_out)


def dead_ends_like(moment: Moment, asked: LikeTask) -> Answer:
    """Return ``{"dead_ends", "total_found", …}`` of sessions that a task is like, most similar first, then in order.

    Sessions without a report count by the task they were started with: what failed there failed all the same.
    """
    found, left_out = _like(moment, asked, "session_id IN (SELECT id FROM sessions WHERE dead_ends > 0)")
    scores = {report.row["session_id"]: score for report, score, _alike in found}
    unreported, others = _unreported(moment, asked)
    scores |= unreported
    dead_ends: list[dict[str, Any]] = []
    for session, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
        sql = (
            "SELECT d.session_id, s.author, s.ai_id, d.event_index, d.approach, d.why_failed, d.basis, d.impact, d.at, "
            "d.happened_ms, s.imported FROM dead_ends d JOIN sessions s ON s.id = d.session_id "
            "WHERE d.session_id = ? AND NOT EXISTS (SELECT 1 FROM corrections c JOIN events e ON e.id = c.target "
            "WHERE c.session_id = d.session_id AND e.event_index = d.event_index AND c.kind = 'dead_end.retracted') "
            "ORDER BY d.event_index"
        )
        rows = moment.rows(sql, (session,))
        dead_ends += [with_json(row, "imported") | {"score": score} for row in rows]
    return {"dead_ends": dead_ends[: asked.limit], "total_found": len(dead_ends)} | _by(left_out + others)


def overlapping(moment: Moment, asked: Since) -> Answer:
    """Return ``{"overlaps", "total_found", …}``: pairs of sessions whose task or findings are alike, nearest first.

    Each tells both ``sessions``, ``alike`` (task, findings or both) with their scores, and the two nearest findings.
    """
    where = Where()
    where.given("happened_ms >= ?", asked.since_ms)
    compared, left_out = _reports(moment, where, overlap_compared_max)
    pairs: list[tuple[float, Compared, Compared, dict[str, float]]] = []
    for newer, older in combinations(compared, 2):
        scores = {"task": _score(newer.task, older.task), "findings": _score(newer.findings, older.findings)}
        alike = {what: score for what, score in scores.items() if score > alike_min}
        if alike:
            pairs.append((max(alike.values()), newer, older, alike))
    pairs.sort(key=lambda pair: (-pair[0], -pair[1].row["event_index"], -pair[2].row["event_index"]))
    overlaps = [
        {
            "score": score,
            "alike": alike,
            "is_same_agent": newer.row["ai_id"] == older.row["ai_id"],
            "sessions": [newer.summary, older.summary],
            "nearest_findings": _nearest(newer, older),
        }
        for score, newer, older, alike in pairs[: asked.limit]
    ]
    return {"overlaps": overlaps, "total_found": len(pairs)} | _by(left_out)


def _like(
    moment: Moment, asked: LikeTask, condition: str | None = None
) -> tuple[list[tuple[Compared, float, str]], int]:
    """Return the reports above the threshold with score and what was alike, and how many were not compared."""
    where = Where(asked, "ai_id")
    if condition is not None:
        where.add(condition)
    where.given("session_id <> ?", asked.session_id)
    compared, left_out = _reports(moment, where, similar_compared_max)
    wanted = embed_text(asked.task)
    found = []
    for report in compared:
        scores = {"task": _score(wanted, report.task), "findings": _score(wanted, report.findings)}
        like = max(scores, key=scores.__getitem__)
        if scores[like] > alike_min:
            found.append((report, scores[like], like))
    found.sort(key=lambda each: (-each[1], -each[0].row["event_index"]))
    return found, left_out


def _unreported(moment: Moment, asked: LikeTask) -> tuple[dict[str, float], int]:
    """Return the scores of sessions with dead ends but without a report, by their own task, and how many were not."""
    where = Where()
    where.add("s.dead_ends > 0")
    where.add("NOT EXISTS (SELECT 1 FROM handoff_reports r WHERE r.session_id = s.id)")
    where.equal("coalesce(nullif(s.ai_id, ''), s.author)", asked.ai_id)
    where.given("s.id <> ?", asked.session_id)
    total = moment.count(f"SELECT count(*) FROM sessions s{where.sql}", where.values)  # noqa: S608 - fixed texts
    sql = f"SELECT s.id, s.task FROM sessions s{where.sql} ORDER BY s.started_index DESC LIMIT ?"  # noqa: S608
    rows = moment.rows(sql, (*where.values, unreported_compared_max))
    wanted = embed_text(asked.task)
    scores = {row["id"]: _score(wanted, embed_text(row["task"])) for row in rows}
    return {name: score for name, score in scores.items() if score > alike_min}, total - len(rows)


def _reports(moment: Moment, where: Where, count_max: int) -> tuple[list[Compared], int]:
    """Return the newest reports with their vectors, and how many were left out."""
    total = moment.count(f"SELECT count(*) FROM handoff_reports{where.sql}", where.values)  # noqa: S608 - fixed texts
    rows = moment.rows(f"{_COLUMNS}{where.sql} ORDER BY event_index DESC LIMIT ?", (*where.values, count_max))
    found = [Compared(row, _vector(row["task_embedding"]), _vector(row["findings_embedding"])) for row in rows]
    return found, total - len(rows)


def _vector(packed: str) -> Embedding:
    return unpack(msgspec.json.decode(packed, type=PackedEmbedding))


def _score(one: Embedding, other: Embedding) -> float:
    return round(cosine_similarity(one, other), score_digits)


def _nearest(newer: Compared, older: Compared) -> dict[str, Any]:
    """Return the two findings that are nearest to each other, one of each report."""
    mine, theirs = (
        [(text, embed_text(text)) for text in msgspec.json.decode(each.row["key_findings"])] for each in (newer, older)
    )
    pairs = [(_score(one[1], other[1]), one[0], other[0]) for one in mine for other in theirs]
    score, first, second = max(pairs, key=lambda pair: pair[0])
    return {"score": score, "findings": [first, second]}


def _by(not_compared: int) -> dict[str, Any]:
    embedder = {"name": HASH_V1.name, "version": HASH_V1.version}
    return {"threshold": alike_min, "embedder": embedder, "not_compared": not_compared}
