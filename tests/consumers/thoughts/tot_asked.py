"""A model's thinker beside a server of its own, and the requests of a search to it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llm_stub import API_KEY
from thinking_model import ThinkingModel, data_of
from tot_driver import judged_by, wanted

from deedbook.consumers.sdk.llm.model import LlmClient, read_endpoint
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llm_stub import Received
    from thinking_model import Behaviour

PROBLEM = "Move a shop from one street to another"
ROOT = [kinds.ThoughtNode(id="root", depth=0, content=PROBLEM)]
PATHS = [[*ROOT, kinds.ThoughtNode(id=id_, depth=1, parent_id="root", content=f"way {id_}")] for id_ in ("a", "b", "c")]


@contextmanager
def thinking(behaviour: Behaviour | None = None, **settings: Any) -> Iterator[tuple[ThinkingModel, LlmThinker]]:
    model = ThinkingModel(behaviour)
    given = {"base_url": model.url, "model": "stub-model", "timeout_s": 20.0, "attempts_max": 1} | settings
    try:
        yield model, LlmThinker(LlmClient(read_endpoint(LlmSettings(**given), {"KEY": API_KEY}.get)))
    finally:
        model.close()


def generate(thinker: LlmThinker, k: int = 3, strategy: Any = "independent_sampling", depth_max: int = 4) -> Any:
    context = kinds.ThoughtContext(problem=PROBLEM, current_depth=1, max_depth=depth_max)
    return thinker.generate(ROOT, wanted(ROOT, strategy, k, context))


def evaluate(thinker: LlmThinker, strategy: Any = "independent_scoring") -> Any:
    context = kinds.ThoughtContext(problem=PROBLEM, current_depth=1, max_depth=4)
    criteria = ["correctness", "progress", "feasibility"]
    return thinker.evaluate(PATHS, judged_by(PATHS, strategy, criteria, context))


def with_fields(answer: dict[str, Any], /, **fields: Any) -> dict[str, Any]:
    """Return an answer with fields added to it, its candidates and its evaluations."""
    lists = {name: [one | fields for one in answer[name]] for name in ("candidates", "evaluations") if name in answer}
    return answer | fields | lists


def mended(received: Received, bad: Any, answer: Any) -> Any:
    """Return the answer of a model that improves only after it is told its mistake."""
    return bad if data_of(received, "fault") is None else answer
