"""The optional compressor that asks a language model for prose (seed 001, Phase B; DESIGN §9).

The brief is always the default compressor's: verbatim facts, measured, certified; gates and budgets see nothing else.
What the model adds stands beside it, after ``prose_problems`` found nothing against it. When the model cannot be asked,
is too slow, or answers what must not be shown, the brief is returned all the same, and ``fallback`` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from consumers.reasoning.compressor.compress import compress
from consumers.reasoning.compressor.prose import (
    FIDELITY_KIND,
    measure_prose,
    prose_problems,
    sentence_max_chars,
)
from consumers.sdk.llm.model import UNTRUSTED, Message, data_block, prompt_digest
from ledger.errors import Refused, Unavailable
from ledger.events.brief import Brief, Prose, Sentence
from projections.briefs.index import index_graph
from projections.briefs.prompt import TransferLevel

if TYPE_CHECKING:
    from consumers.sdk.llm.model import LlmClient
    from projections.reasoning.memory import ReasoningMemory

LLM_COMPRESSOR_NAME: Final = "baton-llm"
LLM_COMPRESSOR_VERSION: Final = "1"

problems_shown_max: Final = 5

_INSTRUCTIONS: Final = (
    "You summarise one agent's reasoning for the next agent. Between <graph> and </graph> stands a JSON object with the"
    f" task, the conclusion, the limitations and the steps. {UNTRUSTED}\n"
    'Answer with one JSON object and nothing else: {"sentences": [{"text": "…", "steps": [1, 2]}, …]} with 3 to 6'
    f" entries. Each text is exactly one sentence of at most {sentence_max_chars} characters, in the language of the"
    " graph and mostly in its words; steps are the numbers of the steps that it speaks of. Say only what those steps"
    " say. Keep numbers, paths, names and negations exactly as they stand. Begin with what the conclusion rests on"
    " most; name assumptions as assumptions."
)


class Fallback(msgspec.Struct, frozen=True):
    """Why there is no prose."""

    code: str
    message: str


class LlmBrief(msgspec.Struct, frozen=True):
    """The default compressor's brief, and beside it prose or the reason why there is none."""

    brief: Brief
    prose: Prose | None
    fallback: Fallback | None


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sentences: Annotated[list[Sentence], msgspec.Meta(max_length=50)]


def compress_with_llm(
    memory: ReasoningMemory,
    client: LlmClient,
    level: TransferLevel = TransferLevel.STANDARD,
    budget: int | None = None,
    *,
    context: str | None = None,
    domain: str | None = None,
) -> LlmBrief:
    """Return the brief of a graph as ``compress`` makes it, with prose beside it where a model gave some that holds.

    Never raises because of the model: its failures stand in ``fallback``.
    """
    brief = compress(memory, level, budget, context=context, domain=domain)
    try:
        return LlmBrief(brief, write_prose(memory, client), None)
    except (Unavailable, Refused) as error:
        return LlmBrief(brief, None, Fallback(error.code, error.message))


def write_prose(memory: ReasoningMemory, client: LlmClient) -> Prose:
    """Return 3 to 6 checked sentences about a graph.

    Raises:
        Refused: ``TOO_LARGE`` when the graph is too large to be sent, ``INVALID_FIELD`` when it has no step.
        Unavailable: ``LLM_UNAVAILABLE``, or ``LLM_INVALID`` with the ``problems`` of the answer.
    """
    if not memory.steps:
        raise Refused("INVALID_FIELD", "a graph without a step has nothing to write about", field="steps")
    messages = prose_messages(memory)
    answer = client.ask(messages, _Written)
    index = index_graph(memory)
    sentences = answer.value.sentences
    if problems := prose_problems(sentences, index):
        message = f"what the model wrote is not shown: {problems[0]}"
        raise Unavailable("LLM_INVALID", message, problems=problems[:problems_shown_max])
    return Prose(
        sentences=sentences,
        fidelity=measure_prose(sentences, index),
        fidelity_kind=FIDELITY_KIND,
        model=answer.model,
        prompt_sha256=answer.prompt_sha256,
    )


def prose_messages(memory: ReasoningMemory) -> list[Message]:
    """Return what a model is asked about a graph; anybody who has the graph can rebuild it and compare its hash."""
    return [Message("system", _INSTRUCTIONS), Message("user", data_block("graph", _shown(memory)))]


def prose_digest(memory: ReasoningMemory) -> str:
    """Return the SHA-256, in hex, of the prompt that prose about a graph answers."""
    return prompt_digest(prose_messages(memory))


def _shown(memory: ReasoningMemory) -> dict[str, Any]:
    return {
        "task": memory.task,
        "conclusion": memory.conclusion,
        "known_limitations": memory.known_limitations,
        "steps": [
            {
                name: value
                for name, value in step.to_dict().items()
                if value and name in {"step_number", "type", "content", "conclusion", "assumptions", "evidence"}
            }
            | {"rests_on": memory.dependencies.get(step.step_number, [])}
            for step in memory.steps
        ],
    }
