"""Each embedder's threshold of similarity, tested with pairs of equal meaning and with unrelated pairs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from msgspec.structs import replace
from paraphrases import PAIRS, TASKS

from deedbook.ledger.errors import Refused
from deedbook.projections.briefs.embedding import (
    HASH_V1,
    Embedder,
    Embedding,
    _semantic,
    best_embedder,
    cosine_similarity,
    embed_text,
    is_embedding_of,
    pack,
)
from deedbook.projections.briefs.gates import should_fetch_full_reasoning

semantic = pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the extra semantic")
BRIEF, OTHER_WORDS = PAIRS[0]
ELSEWHERE = Embedder("minilm", "2", 384, 1.0)


def shares(embedder: Embedder) -> tuple[float, float]:
    """Return two shares that reach the threshold: of unrelated pairs, and of briefs with their own first sentence."""
    tasks = [embed_text(task, embedder) for _, task in PAIRS]
    briefs = [embed_text(brief, embedder) for brief, _ in PAIRS]
    first = [embed_text(brief.replace("。", ". ").partition(". ")[0], embedder) for brief, _ in PAIRS]
    unrelated = [cosine_similarity(a, b) for i, a in enumerate(briefs) for j, b in enumerate(tasks) if i != j]
    related = [cosine_similarity(a, b) for a, b in zip(briefs, first, strict=True)]
    return (
        sum(value > embedder.threshold for value in unrelated) / len(unrelated),
        sum(value > embedder.threshold for value in related) / len(related),
    )


def test_hashed_spellings_raise_no_false_alarm_and_know_what_is_repeated() -> None:
    false_alarms, known = shares(HASH_V1)
    assert false_alarms <= 0.01
    assert known >= 0.8


@semantic
def test_meanings_raise_hardly_a_false_alarm_and_know_other_words() -> None:
    embedder = best_embedder()
    assert embedder.name == "wordllama"
    false_alarms, known = shares(embedder)
    assert false_alarms <= 0.01
    assert known >= 0.9
    near = [cosine_similarity(embed_text(a, embedder), embed_text(b, embedder)) > embedder.threshold for a, b in PAIRS]
    spelt = [cosine_similarity(embed_text(a), embed_text(b)) > HASH_V1.threshold for a, b in PAIRS]
    assert sum(near) > sum(spelt)
    assert is_embedding_of(pack(embed_text(BRIEF, embedder)), BRIEF)
    assert not is_embedding_of(pack(embed_text("bake a cake", embedder)), BRIEF)


@pytest.mark.parametrize("task", [task for _, task in PAIRS])
def test_the_reasonings_own_task_always_fires(task: str) -> None:
    brief = "Qwxz jvkq."
    assert not should_fetch_full_reasoning(embedding=embed_text(brief), task=task)
    answer = should_fetch_full_reasoning(embedding=embed_text(brief), task=f" {task}\n", own_task=task)
    assert [rule.name for rule in answer.all_rules] == ["task_similarity"]
    embedder = best_embedder()
    assert f"above {embedder.threshold} by {embedder.name}" in answer.all_rules[0].reason


def test_a_task_in_some_of_the_same_words_is_recognized_and_one_in_quite_other_words_is_not_claimed() -> None:
    def is_recognized(own_task: str, task: str) -> bool:
        answer = should_fetch_full_reasoning(task=task, own_task=own_task)
        return any(rule.name == "task_similarity" for rule in answer.all_rules)

    assert all(is_recognized(own_task, task) for own_task, task in TASKS)
    assert not any(is_recognized(own_task, task) for own_task, _ in TASKS for other, task in TASKS if other != own_task)
    if best_embedder() is HASH_V1:  # as the README says
        assert not any(is_recognized(brief, task) for brief, task in PAIRS)


def test_vector_of_an_embedder_that_is_not_here_is_not_compared_and_the_texts_are() -> None:
    foreign = Embedding([1.0] * 384, ELSEWHERE)
    alone = should_fetch_full_reasoning(embedding=foreign, task=OTHER_WORDS)
    assert (alone.similarity, bool(alone)) == (None, False)
    assert "the embedder minilm" in alone.not_compared
    assert should_fetch_full_reasoning(embedding=foreign, task=OTHER_WORDS, own_task=OTHER_WORDS)
    with pytest.raises(Refused) as refused:
        embed_text(BRIEF, ELSEWHERE)
    assert refused.value.code == "EMBEDDER_MISMATCH"


def test_threshold_that_a_signer_wrote_beside_a_vector_disarms_nothing() -> None:
    vector = Embedding(embed_text(BRIEF), HASH_V1._replace(threshold=1.0))
    assert should_fetch_full_reasoning(embedding=vector, task=BRIEF)


@pytest.mark.parametrize("embedder", [HASH_V1, best_embedder()])
def test_forged_vector_of_another_length_is_that_of_no_text(embedder: Embedder) -> None:
    """The validator reports such a vector and does not crash. A brief with such a vector is made again."""
    assert not is_embedding_of(replace(pack(embed_text(BRIEF, embedder)), values="AAAA"), BRIEF)


def test_without_the_extra_briefs_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("deedbook.projections.briefs.embedding.import_module", missing)
    _semantic.cache_clear()
    try:
        assert best_embedder() == HASH_V1
    finally:
        _semantic.cache_clear()
