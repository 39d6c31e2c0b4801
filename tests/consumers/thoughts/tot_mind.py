"""A double of a model that thinks: the question alone determines its answer, so every search with it is the same.

It counts what it answered by the digest of the prompt; it can be busy (429), and it can hold questions until the asking
process is dead.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import llm_stub
import msgspec
from blake3 import blake3

from deedbook.consumers.sdk.llm.model import prompt_digest
from deedbook.consumers.sdk.llm.settings import LlmSettings, Message
from deedbook.ledger.home.config import Actions

if TYPE_CHECKING:
    from llm_stub import Received, Reply

DEPTH = 2
BUSY = llm_stub.Reply(429, headers={"retry-after": "3600"})


class Mind(llm_stub.Vendor):
    """Answers ``answers_max`` questions at most, and refuses the rest as busy; from ``holds_from`` on it waits.

    ``gone`` are the models of killed processes. Their requests may be read after their end, and are not counted.
    """

    def __init__(self) -> None:
        self.answered = Counter[str]()
        self.models = set[str]()
        self.answers_max = self.holds_from = 10_000
        self.gone = set[str]()
        self.holding = threading.Event()
        self.release = threading.Event()
        self._asked = threading.local()
        self._lock = threading.Lock()
        super().__init__()

    def actions(self, model: str = "stub") -> Actions:
        """Return the settings of a folder that has this model."""
        table = LlmSettings(base_url=self.url, model=model, timeout_s=20.0, attempts_max=1)
        return Actions(llm=msgspec.to_builtins(table))

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        self._asked.body = json.loads(body)
        return super().read(path, headers, body)

    def beyond_script(self) -> Reply:
        body = self._asked.body
        messages = [Message(**message) for message in body["messages"]]
        if self.answered.total() >= self.holds_from:
            self.holding.set()
            self.release.wait(60)
        with self._lock:
            if body["model"] in self.gone:
                return BUSY
            if self.answered.total() >= self.answers_max:
                return BUSY
            self.answered[prompt_digest(messages)] += 1
            self.models.add(body["model"])
        return llm_stub.says_json(think(*(message.content for message in messages)))

    def close(self) -> None:
        self.release.set()
        super().close()


def think(asked: str, told: str) -> dict[str, Any]:
    """Return the answer to a question."""
    about = json.loads(re.search(r"\{.*\}", told, re.DOTALL)[0])  # type: ignore[index]
    steps = about.get("steps_so_far", about.get("steps", []))
    path = "".join(step[-1] for step in steps)
    worth = blake3(path.encode()).digest()[0] % 40 / 10 + 5
    if "Decompose" in asked:
        return {"thought_granularity": "letter", "intermediate_steps": ["one"], "depth_estimate": DEPTH}
    if "steps_so_far" in about:
        thoughts = [{"content": f"after {path or 'nothing'}: {letter}", "action_type": "letter"} for letter in "abc"]
        return {"candidates": [thought | {"is_solution": len(path) + 1 == DEPTH} for thought in thoughts]}
    if "Judge" in asked:
        return {"score": worth, "confidence": 0.5, "reasoning": f"of {path}"}
    return {"answer": path, "reasoning_trace": steps, "confidence": 0.9, "is_valid": True}
