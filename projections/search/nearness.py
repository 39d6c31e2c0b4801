"""Rank events by nearness to a query, with a score: the one ranking for search, related work and similar sessions.

Events are ranked by BM25 over any of the query's words, their other forms and prefixes (``words.forms_of``). If the
extra ``semantic`` is installed, they are also ranked by the cosine of their meaning, and the two lists are joined by
reciprocal rank (Cormack, Clarke and Büttcher, 2009, k = 60). If no word is found, spellings (``hash-v1``) are compared
among the newest events. So there is always an answer, and ``score`` tells how good it is. ``score`` is the BM25 of an
event divided by that of the question's own words, at most 1. It grows with the query's words in the event, weighted by
rarity (idf), and falls with other words. By meaning, it says how far the event's cosine exceeds the average of the
twenty events after the nearest one. ``near`` is a word for the score: near, related or far. Every list is in the order
of the score; the ranks choose the candidates, and decide among equal scores. A text that has only one of several words
is always far, because a young ledger does not know yet which words are common. Measured on 60 real reports of five
projects, each with two questions: one rewords its title, and one shares no word with it. The report is the first hit
for 71 of 120 questions, and among five for 88 (by the share of found words, without BM25: 59 and 83). ``related_min``
and ``near_min`` were chosen with half of the questions. In the other half, 29 of 30 reworded titles find their report
near. Of 39 new tasks, 5 find something related, and none something near. Among 84 sessions of the tests, 23 of 24 new
tasks and 7 of 20 paraphrases find theirs among five (whole words alone: 22 and 2). Rejected: joining ``hash-v1`` always
(a millisecond a text); stems in the index (``organiz`` finds no "organize", and a match must be stemmed again to show
it); counting several events of a session together (no better).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deedbook.projections.answers.query import QueryContext, Where
from deedbook.projections.briefs.embedding import HASH_V1, best_embedder, similarities
from deedbook.projections.search.answers import Nearness
from deedbook.projections.search.words import Form, features_of, forms_of
from deedbook.projections.stores.dialect import Expression, stated

terms_max: Final = 24  # the number of searched words: the rarest ones of the query
terms_weighed_max: Final = 96
candidates_max: Final = 300
matches_max: Final = 3_000
of_stream_max: Final = 8  # a session with a thousand findings must leave room for others
counted_max: Final = 5_000
events_weighed_min: Final = 1_000  # with fewer events than this, the words of a query would weigh almost nothing
meanings_compared_max: Final = 5_000  # 0.2 s
spellings_compared_max: Final = 300  # a millisecond each
run_compared: Final = 20  # unrelated Chinese texts have a cosine of .75: only outliers among the nearest are near
text_compared_max_chars: Final = 2_000
score_digits: Final = 2
related_min, near_min = 0.40, 0.55
one_word_max: Final = 0.24  # the highest score of a text that has only one of a query's several words
bm25_k1, bm25_b = 0.5, 0.4  # a repeated word adds little, and a long text has many words by chance
usual_words: Final = 50
_rank_constant: Final = 60
MATCHES: Final = stated(
    sqlite="search_words JOIN events e ON e.event_index = search_words.rowid WHERE search_words MATCH ?",
    postgres="deedbook_matches(?) search_words JOIN events e ON e.event_index = search_words.rowid WHERE TRUE",
)
_COUNTING: Final = stated(
    sqlite="SELECT 1 FROM search_words WHERE search_words MATCH ? AND rowid <= ?",
    postgres="SELECT 1 FROM deedbook_matches(?) search_words WHERE rowid <= ?",
)


class NearEvent(NamedTuple):
    """An event, and its nearness to the query, from 0 to 1."""

    event_index: int
    stream: str
    score: float

    @property
    def name(self) -> str:
        """The name of its stream."""
        return self.stream.partition("/")[2]

    @property
    def near(self) -> Nearness:
        """The word for the score."""
        return nearness_of(self.score)


class Question(NamedTuple):
    """A text to compare others with: the forms and weights of its words, and the BM25 of a text of only these words."""

    text: str
    forms: Sequence[Form]
    weights: Mapping[str, float]
    best: float

    @classmethod
    def weigh(cls, context: QueryContext, text: str) -> Question:
        """Weigh the words of a text by their rarity among all texts."""
        forms = forms_of(text)[:terms_weighed_max]
        weights = _weights(context, forms)
        # Limit the question's length: otherwise a short text would score high with a few of its words.
        length = min(features_of(text).total(), usual_words)
        return cls(text, forms, weights, math.fsum(weights.values()) / (1 + _saturation(length)))

    def score(self, text: str) -> float:
        """Return the text's BM25, divided by that of a text of only the question's words: at most 1."""
        features = features_of(text)
        saturation = _saturation(features.total())
        common = [
            value * count / (count + saturation) for key, value in self.weights.items() if (count := features[key])
        ]
        score = min(math.fsum(common) / self.best, 1.0) if common else 0.0
        return score if len(common) > 1 or len(self.weights) == 1 else score * one_word_max


def nearest(
    context: QueryContext, question: Question, where: Where, *, count_max: int = candidates_max
) -> list[NearEvent]:
    """Return the events that meet conditions (on ``events e``), nearest first; none for a query without a word."""
    if not question.forms:
        return []
    rarest = sorted(question.forms, key=lambda form: -question.weights[form.key])[:terms_max]
    by_words = _by_words(context, rarest, where)
    by_meaning = _by_meaning(context, question.text, where, is_needed=not by_words)
    ranks: dict[int, float] = {}
    for ranked in (by_words, by_meaning):
        for rank, event_index in enumerate(ranked, 1):
            ranks[event_index] = ranks.get(event_index, 0.0) + 1 / (_rank_constant + rank)
    first = sorted(ranks, key=lambda index: (-ranks[index], -index))[:count_max]
    marks = ", ".join("?" * len(first))
    sql = (
        "SELECT t.event_index, t.text, e.stream FROM search_texts t JOIN events e USING (event_index) "  # noqa: S608
        f"WHERE t.event_index IN ({marks})"
    )
    rows = {row["event_index"]: row for row in context.rows(sql, first)}
    scores = {index: max(question.score(rows[index]["text"]), by_meaning.get(index, 0.0)) for index in first}
    first.sort(key=lambda index: -scores[index])  # a stable sort: the rank decides among equals
    return [NearEvent(index, rows[index]["stream"], round(scores[index], score_digits)) for index in first]


def nearness_of(score: float) -> Nearness:
    """Return the word for a score."""
    return "near" if score >= near_min else "related" if score >= related_min else "far"


def by_stream(events: Sequence[NearEvent]) -> dict[str, NearEvent]:
    """Return the nearest event of each stream, in the order of the scores."""
    streams: dict[str, NearEvent] = {}
    for event in events:
        streams.setdefault(event.stream, event)
    return streams


def weight(count: int, total: int) -> float:
    """Return the weight of a word that is in ``count`` of ``total`` texts (BM25's idf, never below zero)."""
    return math.log(1 + (max(total - count, 0) + 0.5) / (count + 0.5))


def _saturation(words: int) -> float:
    """Return how often a text of this length must contain a word to get half of the word's weight."""
    return bm25_k1 * (1 - bm25_b + bm25_b * words / usual_words)


def _weights(context: QueryContext, forms: Sequence[Form]) -> dict[str, float]:
    # If the query is about a time in the past, the index also has the words of later events. Do not count these.
    last = context.count("SELECT coalesce(max(event_index), 0) FROM search_texts")
    counting = f"SELECT count(*) FROM ({_COUNTING} LIMIT ?)"  # noqa: S608 - fixed texts
    total = max(last, events_weighed_min)
    return {form.key: weight(context.count(counting, (form.sql, last, counted_max)), total) for form in forms}


def _by_words(context: QueryContext, forms: Sequence[Form], where: Where) -> list[int]:
    """Return the events that contain any of the words, best first by BM25, the newest among equals."""
    expression = Expression(" OR ".join(form.sql for form in forms))
    sql = (
        f"SELECT e.event_index, e.stream FROM {MATCHES}{where.more} "  # noqa: S608 - fixed texts
        "ORDER BY search_words.rank, e.event_index DESC LIMIT ?"
    )
    indexes: list[int] = []
    counts: Counter[str] = Counter()
    for row in context.rows(sql, (expression, *where.values, matches_max)):
        counts[row["stream"]] += 1
        if counts[row["stream"]] <= of_stream_max:
            indexes.append(row["event_index"])
    return indexes[:candidates_max]


def _by_meaning(context: QueryContext, question: str, where: Where, *, is_needed: bool) -> dict[int, float]:
    """Return the events nearest to the question by cosine, each with a score from 0 to 1.

    The score says how far the event's cosine exceeds the average of the ``run_compared`` events after the nearest one.
    Only the newest events are compared: by meaning, or without the extra ``semantic`` by spelling, if ``is_needed``.
    """
    is_semantic = not best_embedder().is_same(HASH_V1)
    count = meanings_compared_max if is_semantic else spellings_compared_max if is_needed else 0
    if not count:
        return {}
    sql = (
        "SELECT e.event_index, substr(t.text, 1, ?) AS text FROM search_texts t "  # noqa: S608 - fixed texts
        f"JOIN events e USING (event_index) WHERE TRUE{where.more} ORDER BY e.event_index DESC LIMIT ?"
    )
    rows = context.rows(sql, (text_compared_max_chars, *where.values, count))
    cosines = similarities(question, [row["text"] for row in rows])
    nearest_first = sorted(zip(cosines, [row["event_index"] for row in rows], strict=True), reverse=True)
    run = [cosine for cosine, _ in nearest_first[1 : run_compared + 1]]
    usual = min(max(math.fsum(run) / len(run), 0.0), 0.99) if run else 0.99
    most = 1.0 if is_semantic else related_min / 2  # without a common word, spellings are a hint only
    above = ((max(0.0, (cosine - usual) / (1 - usual)), index) for cosine, index in nearest_first[:candidates_max])
    # Events that are no outliers are dropped, because their rank would displace events with common words.
    return {index: most * score for score, index in above if score or is_needed}
