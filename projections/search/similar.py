"""Similar work: sessions like a task, their dead ends and reasonings, and pairs of reports about the same work.

Nearness to a task is that of ``search.nearness``. Two reports are compared as a whole: the mean of their common words
(cosine over idf; the forms of a word count as one word; numbers and words of every report are ignored) and of their
spellings (``hash-v1``), so that a report of "Finding 1" is like no other. Three of the common words must be in few
reports, because "verified", "phase" and "passing" do not show similar work. Measured on 12 reports retold in two
languages among 60 others: all 12 pairs and no other. On 62 real reports of five projects: 42 pairs within a project and
6 across two; 97 and 25 without that rule. Rejected: ``wordllama`` for pairs (unrelated Chinese reports reach .79, pairs
begin at .57); a longer list of words that any report has (55 and 8).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Final

import msgspec

from deedbook.projections.answers.query import Arguments, Limit, QueryContext, Since, Until, Where, with_json
from deedbook.projections.briefs.embedding import STOP_WORDS, best_embedder, embed_text
from deedbook.projections.records.marks import decoded
from deedbook.projections.reports.queries import AI_ID
from deedbook.projections.reports.report import is_same
from deedbook.projections.search.answers import (
    ComparedSession,
    Overlap,
    Overlaps,
    RelatedDeadEnd,
    RelatedReasoning,
    RelatedWork,
    SimilarSession,
    SimilarSessions,
)
from deedbook.projections.search.nearness import (
    NearEvent,
    Question,
    by_stream,
    nearest,
    nearness_of,
    related_min,
    score_digits,
    weight,
)
from deedbook.projections.search.queries import excerpt_of, terms_of
from deedbook.projections.search.words import features_of, stem_of, words_of
from deedbook.projections.sessions.queries import corrections_of_texts

overlap_compared_max: Final = 150
overlap_min: Final = 0.20
overlap_words_min: Final = 3  # a pair must share this many words that are in few reports
few_reports_min, few_reports_share = 4, 1 / 16
shared_shown_max: Final = 8
# Words are weighted as if there were this many more reports without them: otherwise, of two reports, every shared word
# would count as common.
reports_imagined: Final = 50
_BOILERPLATE: Final = ("finding", "found", "outcome", "session", "task", "test", "work", "done", "complete")
_GENERIC: Final = {stem_of(word) for word in (*STOP_WORDS, *_BOILERPLATE)}
_TASK: Final = "coalesce(nullif(s.task, ''), nullif(r.task, ''), r.task_summary, '')"
_SESSIONS: Final = (
    f"SELECT s.id AS session_id, r.report_id, r.event_index, coalesce(r.ai_id, {AI_ID}) AS ai_id, "  # noqa: S608
    f"s.author, s.happened_ms, {_TASK} AS task, "
    "coalesce(r.task_summary, '') AS outcome, coalesce(r.key_findings, '[]') AS key_findings, s.imported "
    "FROM sessions s LEFT JOIN handoff_reports r ON r.session_id = s.id"
)
_REASONED: Final = "e.stream >= 'reasoning/' AND e.stream < 'reasoning0'"

Task = Annotated[str, msgspec.Meta(min_length=1, max_length=40_000, description="The task in words.")]


class TaskQuestion(Arguments, frozen=True):
    """``task`` is in words; the answer leaves out ``session`` (a resumed session need not find itself)."""

    task: Task
    ai_id: str | None = None
    session: str | None = None
    since: Since | None = None
    limit: Limit = 5


class OverlapFilter(Arguments, frozen=True):
    """The reports are those from ``since`` until ``until``; an imported one counts by its claimed time."""

    since: Since | None = None
    until: Until | None = None
    limit: Limit = 20


def similar_sessions(context: QueryContext, args: TaskQuestion) -> SimilarSessions:
    """Return the sessions nearest to a task."""
    where = _sessions_where(args)
    where.add_optional("e.accepted_ms >= ?", args.since)
    streams = by_stream(nearest(context, Question.weigh(context, args.task), where))
    sessions = _scored(context, args.task, list(streams.values())[: args.limit])
    return SimilarSessions(items=sessions, total=len(streams), embedder=str(best_embedder()))


def _scored(context: QueryContext, task: str, chosen: list[NearEvent]) -> list[SimilarSession]:
    if not chosen:
        return []
    rows = {row["session_id"]: row for row in _read(context, _of_streams(context, f"{_SESSIONS} WHERE s.id", chosen))}
    marks = ", ".join("?" * len(chosen))
    sql = f"SELECT event_index, text FROM search_texts WHERE event_index IN ({marks})"  # noqa: S608 - fixed texts
    texts = {row["event_index"]: row["text"] for row in context.rows(sql, [event.event_index for event in chosen])}
    terms = terms_of(task)
    return [
        SimilarSession(
            **rows[event.name],
            excerpt=excerpt_of(texts[event.event_index], terms),
            score=event.score,
            near=event.near,
        )
        for event in chosen
        if event.name in rows
    ]


def related_work(context: QueryContext, args: TaskQuestion) -> RelatedWork:
    """Return dead ends, reasonings and sessions that are not far from a task.

    Sessions without a report count like others: their dead ends are as valid.
    """
    question = Question.weigh(context, args.task)
    where = Where()
    of_sessions = _sessions_where(args)
    where.add(f"({of_sessions.sql.removeprefix(' WHERE ')} OR {_REASONED})", *of_sessions.values)
    events = [event for event in nearest(context, question, where) if event.score >= related_min]
    streams = list(by_stream([event for event in events if event.stream.startswith("session/")]).values())
    dead_ends = _dead_ends(context, streams, question, {event.event_index: event.score for event in events})
    reasonings = _reasonings(context, [event for event in events if event.stream.startswith("reasoning/")])
    return RelatedWork(
        dead_ends=dead_ends[: args.limit],
        reasonings=reasonings[: args.limit],
        sessions=_scored(context, args.task, streams[: args.limit]),
        total=len(dead_ends) + len(reasonings) + len(streams),
        embedder=str(best_embedder()),
    )


def _dead_ends(
    context: QueryContext, streams: list[NearEvent], question: Question, scores: Mapping[int, float]
) -> list[RelatedDeadEnd]:
    """Return the dead ends that are related themselves or whose session had a related task, in the order of scores.

    A report has the words of all findings, so a related report does not prove that each dead end of its session is
    related.
    """
    sql = (
        "SELECT d.session_id, s.author, s.ai_id, d.event_index, d.approach, d.why_failed, d.basis, d.impact, "  # noqa: S608
        f"d.at, d.happened_ms, s.imported, {_TASK} AS task FROM dead_ends d JOIN sessions s ON s.id = d.session_id "
        "LEFT JOIN handoff_reports r ON r.session_id = s.id "
        "WHERE NOT EXISTS (SELECT 1 FROM corrections c JOIN events e ON e.id = c.target "
        "WHERE c.session_id = d.session_id AND e.event_index = d.event_index AND c.kind = 'dead_end.retracted') "
        "AND d.session_id"
    )
    dead_ends: list[tuple[float, RelatedDeadEnd]] = []
    for row in _of_streams(context, sql, streams):
        own = max(question.score(f"{row['approach']}\n{row['why_failed']}"), scores.get(row["event_index"], 0.0))
        score = round(max(own, question.score(row.pop("task"))), score_digits)
        if score >= related_min:
            fields = row | {"imported": decoded(row["imported"]), "score": score, "near": nearness_of(score)}
            dead_ends.append((own, RelatedDeadEnd(**fields)))
    dead_ends.sort(key=lambda pair: (-pair[1].score, -pair[0], pair[1].event_index))
    return [dead_end for _, dead_end in dead_ends]


def _reasonings(context: QueryContext, events: list[NearEvent]) -> list[RelatedReasoning]:
    reasoned = list(by_stream(events).values())
    sql = "SELECT id, task, conclusion, author, ai_id, status, ref, updated_ms FROM reasonings WHERE id"
    rows = {row["id"]: row for row in _of_streams(context, sql, reasoned)}
    return [
        RelatedReasoning(**rows[event.name], score=event.score, near=event.near)
        for event in reasoned
        if event.name in rows
    ]


def overlapping(context: QueryContext, args: OverlapFilter) -> Overlaps:
    """Return pairs of reports about the same work."""
    where = Where()
    where.within("r.happened_ms", args.since, args.until)
    total = context.count(f"SELECT count(*) FROM handoff_reports r{where.sql}", where.values)  # noqa: S608 - fixed texts
    sql = f"{_SESSIONS}{where.sql}{' AND' if where.values else ' WHERE'} r.report_id IS NOT NULL"
    rows = context.rows(f"{sql} ORDER BY r.event_index DESC LIMIT ?", (*where.values, overlap_compared_max))
    reports = [ComparedSession(**row) for row in _read(context, rows)]
    texts = ["\n".join((report.task, report.outcome, *report.key_findings)) for report in reports]
    words = [{word for word in features_of(text) if _is_counted(word)} - _GENERIC for text in texts]
    counts = Counter(word for features in words for word in features)
    few = max(few_reports_min, len(reports) * few_reports_share)
    rare = {word for word, count in counts.items() if count <= few}
    weights = {word: weight(count, len(reports) + reports_imagined) for word, count in counts.items()}
    lengths = [math.sqrt(math.fsum(weights[word] for word in features)) for features in words]
    spellings = [embed_text(text) for text in texts]
    overlaps: list[Overlap] = []
    for newer, older in combinations(range(len(reports)), 2):
        shared = words[newer] & words[older]
        by_words = math.fsum(weights[word] for word in shared) / (lengths[newer] * lengths[older] or 1.0)
        if len(shared & rare) < overlap_words_min or by_words < overlap_min / 2:
            continue  # spellings are slow to compare, and are not enough for a pair
        score = round((by_words + math.fsum(map(float.__mul__, spellings[newer], spellings[older]))) / 2, score_digits)
        if score >= overlap_min:
            rarest = sorted(shared, key=lambda word: (-weights[word], word))[:shared_shown_max]
            pair = Overlap(
                score=score, sessions=[reports[newer], reports[older]], shared=_spelled(rarest, texts[newer])
            )
            overlaps.append(pair)
    overlaps.sort(key=lambda pair: -pair.score)  # a stable sort: among equals, the newest come first
    return Overlaps(
        items=overlaps[: args.limit],
        total=len(overlaps),
        threshold=overlap_min,
        not_compared=max(0, total - len(reports)),
    )


def _is_counted(feature: str) -> bool:
    """Return whether a feature can show similarity: single characters and numbers cannot."""
    return len(feature) > 1 and not feature.replace(" ", "").isdigit()


def _spelled(features: Sequence[str], text: str) -> list[str]:
    """Return the words of a text that have these features, in their most frequent spelling."""
    forms: dict[str, Counter[str]] = {}
    for word in words_of(text):
        forms.setdefault(stem_of(word), Counter())[word] += 1
    return [
        forms[feature].most_common(1)[0][0] if feature in forms else feature.replace(" ", "") for feature in features
    ]


def _read(context: QueryContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fields of ``ComparedSession``."""
    taken_back: dict[str, list[str]] = {row["session_id"]: [] for row in rows}
    for correction in corrections_of_texts(context, *taken_back):
        taken_back[correction["session_id"]].append(correction["text"])
    sessions = []
    for row in (with_json(row, "key_findings") for row in rows):
        retracted = taken_back[row["session_id"]]
        findings = [
            text for text in row["key_findings"] if not any(is_same(correction, text) for correction in retracted)
        ]
        outcome = row["outcome"] if row["outcome"] != row["task"] else ""
        imported = decoded(row["imported"])
        sessions.append(row | {"key_findings": findings, "outcome": outcome, "imported": imported})
    return sessions


def _sessions_where(args: TaskQuestion) -> Where:
    where = Where()
    where.add("e.stream >= 'session/' AND e.stream < 'session0'")
    where.add_optional("e.stream <> 'session/' || ?", args.session)
    where.add_optional(f"substr(e.stream, 9) IN (SELECT s.id FROM sessions s WHERE {AI_ID} = ?)", args.ai_id)  # noqa: S608
    return where


def _of_streams(context: QueryContext, sql: str, streams: list[NearEvent]) -> list[dict[str, Any]]:
    """Return the rows of a SELECT that ends in the column with the names of streams."""
    marks = ", ".join("?" * len(streams))
    return context.rows(f"{sql} IN ({marks})", [near.name for near in streams])
