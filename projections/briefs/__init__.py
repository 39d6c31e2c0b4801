"""Briefs: what travels in place of a reasoning graph, and how much of it is kept (DESIGN §9; seed 001).

    >>> from projections.briefs import measure
    >>> from projections.reasoning.memory import memory_from_dict
    >>> steps = [{"step": 1, "type": "observation", "content": "The disk is 97 % full"},
    ...          {"step": 2, "type": "conclusion", "content": "Delete the old exports"}]
    >>> graph = {"task": "Why is it slow?", "conclusion": "Delete the old exports",
    ...          "steps": steps, "dependencies": {"2": [1]}}
    >>> memory, _ = memory_from_dict(graph)
    >>> measure(memory, "The disk is 97 % full. Delete the old exports.").band
    'high'

The words used here: a *fact* is a step as the receiver gets it, verbatim; a *unit* is a critical text of the graph
(``critical``); a *part* is one of the three figures of a fidelity (recall R, anchors A, edges E); a *veto* caps a
fidelity because the text says what the graph does not; a *lead* is the 3 to 6 sentences that a brief begins with.

Everything is a function of its arguments; only the tokenizer is loaded, at the first count. Making briefs is a
consumer's work (``consumers.reasoning.compressor``). Names are loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from projections.briefs.brief import CertificateProblem, check_certificate
    from projections.briefs.embedding import (
        HASH_V1,
        Embedder,
        Embedding,
        cosine_similarity,
        embed_text,
        pack,
        unpack,
    )
    from projections.briefs.fidelity import band_of, measure
    from projections.briefs.gates import (
        MAX_INFORMATION_LOSS_TOLERANCE,
        MIN_FIDELITY_FOR_MINIMAL,
        MIN_FIDELITY_FOR_STANDARD,
        FetchAnswer,
        GateAnswer,
        check_level,
        choose_level,
        should_fetch_full_reasoning,
    )
    from projections.briefs.prompt import Prompt, TransferLevel, to_context_prompt
    from projections.briefs.tokens import count_tokens, tokenizer

__all__ = [
    "HASH_V1",
    "MAX_INFORMATION_LOSS_TOLERANCE",
    "MIN_FIDELITY_FOR_MINIMAL",
    "MIN_FIDELITY_FOR_STANDARD",
    "CertificateProblem",
    "Embedder",
    "Embedding",
    "FetchAnswer",
    "GateAnswer",
    "Prompt",
    "TransferLevel",
    "band_of",
    "check_certificate",
    "check_level",
    "choose_level",
    "cosine_similarity",
    "count_tokens",
    "embed_text",
    "measure",
    "pack",
    "should_fetch_full_reasoning",
    "to_context_prompt",
    "tokenizer",
    "unpack",
]

__getattr__ = front_door(
    __name__,
    {
        "brief": ("CertificateProblem", "check_certificate"),
        "embedding": ("HASH_V1", "Embedder", "Embedding", "cosine_similarity", "embed_text", "pack", "unpack"),
        "fidelity": ("band_of", "measure"),
        "gates": (
            "MAX_INFORMATION_LOSS_TOLERANCE",
            "MIN_FIDELITY_FOR_MINIMAL",
            "MIN_FIDELITY_FOR_STANDARD",
            "FetchAnswer",
            "GateAnswer",
            "check_level",
            "choose_level",
            "should_fetch_full_reasoning",
        ),
        "prompt": ("Prompt", "TransferLevel", "to_context_prompt"),
        "tokens": ("count_tokens", "tokenizer"),
    },
)
