"""A brief carries the vector of its sentences, if both fit into an entry, and a receiver can recognise a forged one."""

from __future__ import annotations

import pytest
from graphs import CHINESE, audit_graph, chain, graph
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.certificate import check_certificate
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.workers import fitting
from deedbook.ledger.events.reasoning import ReasoningBriefed
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import entry_size_max_bytes
from deedbook.projections.briefs.embedding import best_embedder, cosine_similarity, embed_text, pack, unpack
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt


@pytest.mark.parametrize("memory", [audit_graph(), graph(CHINESE), chain(30)], ids=["audit", "chinese", "chain"])
def test_brief_carries_the_vector_of_its_sentences_and_who_made_it(memory: object) -> None:
    brief = compress(memory, TransferLevel.STANDARD)  # type: ignore[arg-type]  # each is a graph
    assert brief.embedding is not None
    vector = unpack(brief.embedding)
    assert vector.embedder == best_embedder()
    assert cosine_similarity(vector, embed_text(brief.reasoning_brief, vector.embedder)) > 0.99


def test_certificate_catches_a_forged_vector() -> None:
    memory = audit_graph()
    brief = compress(memory, TransferLevel.STANDARD)
    assert check_certificate(brief, memory) == []
    forged = replace(brief, embedding=pack(embed_text("nothing of interest")))
    assert [problem.field for problem in check_certificate(forged, memory)] == ["embedding"]
    assert check_certificate(replace(brief, embedding=None), memory) == []


def test_vector_is_left_out_where_it_would_cost_the_brief_its_entry() -> None:
    brief = compress(audit_graph(), TransferLevel.STANDARD)
    prompt = to_context_prompt(brief)
    small = ReasoningBriefed(brief=brief, prompt=prompt.prompt, tokens=prompt.tokens)
    assert fitting(small) == small
    room = entry_size_max_bytes - 3 * 1024 - len(encode_canonical(small))
    tight = replace(small, brief=replace(brief, context="x" * (room + 100)))
    assert fitting(tight).brief == replace(tight.brief, embedding=None)
    assert len(encode_canonical(fitting(tight))) < entry_size_max_bytes - 3 * 1024
