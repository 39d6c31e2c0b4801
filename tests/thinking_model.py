"""A test double of a language model that answers the questions of a search; a test decides how it behaves.

A behaviour is a function of the request, its number, and the answer of a good model. The double sends its return value:
a ``Reply`` unchanged, a text as the model's answer, anything else as an answer in JSON.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

from llm_stub import Received, Reply, Vendor, says, says_json

if TYPE_CHECKING:
    from collections.abc import Callable

    Behaviour = Callable[[Received, int, dict[str, Any]], Any]


def data_of(received: Received, name: str = "thoughts") -> Any:
    """Return the data in the block ``name`` of a question; None if it has no such block."""
    block = re.search(rf"<{name}>\n(.*?)\n</{name}>", text_of(received), re.DOTALL)
    return None if block is None else json.loads(block[1])


def text_of(received: Received) -> str:
    system = [received.body["system"]] if "system" in received.body else []
    return "\n".join([*system, *(message["content"] for message in received.body["messages"])])


def good(received: Received, depth: int) -> dict[str, Any]:
    """Return the answer of a model that solves every problem in ``depth`` steps."""
    text, data = text_of(received), data_of(received)
    score = {"score": 8, "confidence": 0.9, "reasoning": "it goes on"}
    if '"depth_estimate"' in text:
        return {"thought_granularity": "step", "intermediate_steps": ["go on"], "depth_estimate": depth}
    if "steps_so_far" in data:
        step, sample = len(data["steps_so_far"]) + 1, re.search(r"propose only number (\d+)", text)
        asked = re.search(r"Propose (\d+) next steps", text)
        numbers = [int(sample[1])] if sample else range(1, int(asked[1] if asked else 1) + 1)
        contents = [f"step {step}, way {number}" for number in numbers]
        solved = {"is_solution": step == depth}
        return {"candidates": [{"content": content, "metadata": solved} for content in contents]}
    if '"evaluations"' in text:
        return {"evaluations": [score | {"node_id": one["node_id"]} for one in data["candidates"]]}
    if '"answer"' in text:
        return {
            "answer": " → ".join(data["steps"]),
            "reasoning_trace": data["steps"],
            "confidence": 1,
            "verification": {"is_valid": True},
        }
    return score


class ThinkingModel(Vendor):
    """A model that solves every problem in ``depth`` steps; ``behaviour`` may change its answers."""

    def __init__(self, behaviour: Behaviour | None = None, depth: int = 4) -> None:
        self.behaviour = behaviour or (lambda _received, _number, answer: answer)
        self.depth = depth
        self.asked = self.under_way = self.most_under_way = 0
        self._lock = threading.Lock()
        super().__init__()

    def reply_to(self, received: Received) -> Reply:
        with self._lock:
            self.asked += 1
            number, self.under_way = self.asked, self.under_way + 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            said = self.behaviour(received, number, good(received, self.depth))
        finally:
            with self._lock:
                self.under_way -= 1
        return said if isinstance(said, Reply) else says(said) if isinstance(said, str) else says_json(said)
