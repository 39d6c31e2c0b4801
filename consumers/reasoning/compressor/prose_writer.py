"""Asks a language model for prose about a graph, and checks the prose before anybody reads it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.prose import (
    FIDELITY_KIND,
    measure_prose,
    problems_shown_max,
    prose_problems,
    sentence_max_chars,
)
from deedbook.consumers.sdk.llm.model import LlmClient, prompt_digest
from deedbook.consumers.sdk.llm.settings import Message
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, data_block
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.brief import Prose, Sentence
from deedbook.projections.briefs.index import index_graph
from deedbook.projections.reasoning.memory import ReasoningMemory

_INSTRUCTIONS: Final = (
    "You summarise one agent's reasoning for the next agent. Between <graph> and </graph> stands a JSON object with the"
    f" task, the conclusion, the limitations and the steps. {UNTRUSTED_NOTICE}\n"
    'Answer with one JSON object and nothing else: {"sentences": [{"text": "…", "steps": [1, 2]}, …]} with 3 to 6'
    f" entries. Each text is exactly one sentence of at most {sentence_max_chars} characters, in the language of the"
    " graph and mostly in its words; steps are the numbers of the steps that it speaks of. Say only what those steps"
    " say. Keep numbers, paths, names and negations exactly as they stand. Begin with what the conclusion rests on"
    " most; name assumptions as assumptions."
)


class _ProseAnswer(msgspec.Struct, frozen=True):
    sentences: Annotated[list[Sentence], msgspec.Meta(max_length=50)]


def write_prose(memory: ReasoningMemory, client: LlmClient) -> Prose:
    """Return 3 to 6 checked sentences about a graph.

    Raises Refused: ``TOO_LARGE`` when the graph is too large to be sent, ``INVALID_FIELD`` when it has no step.
    Unavailable: ``LLM_UNAVAILABLE``, or ``LLM_INVALID`` with the ``problems`` of the answer.
    """
    if not memory.steps:
        raise Refused("INVALID_FIELD", "the graph has no step, so there is nothing to write about", field="steps")
    messages, index = prose_messages(memory), index_graph(memory)
    sentences = client.ask(messages, _ProseAnswer).sentences
    if problems := prose_problems(sentences, index):
        message = f"the model's prose was rejected: {problems[0]}"
        raise Unavailable("LLM_INVALID", message, problems=problems[:problems_shown_max])
    return Prose(sentences, measure_prose(sentences, index), FIDELITY_KIND, client.model, prompt_digest(messages))


def prose_messages(memory: ReasoningMemory) -> list[Message]:
    """Return the request to a model about a graph.

    Anybody who has the graph can rebuild the request and compare its hash.
    """
    return [Message("system", _INSTRUCTIONS), Message("user", data_block("graph", _shown(memory)))]


def _shown(memory: ReasoningMemory) -> dict[str, Any]:
    names = ("step_number", "type", "content", "evidence", "assumptions", "conclusion")
    steps = []
    for step in memory.steps:
        fields = {name: value for name, value in step.to_dict().items() if value and name in names}
        steps.append(fields | {"rests_on": memory.dependencies.get(step.step_number, [])})
    own = {"task": memory.task, "conclusion": memory.conclusion, "known_limitations": memory.known_limitations}
    return own | {"steps": steps}
