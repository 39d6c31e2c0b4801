"""The moods of a model: ways in which a model or its server may answer a search, and the result of the search.

A mood is a behaviour of ``ThinkingModel``. ``ends`` is the status of the task after its first run, ``code`` the error
of a pause or failure. ``requests`` is the number of requests in the first run. After a pause, the task continues with a
healthy model; ``later`` is the number of requests in this second run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_stub import Reply, never, says
from thinking_model import data_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from thinking_model import Behaviour

DEPTH = 3
OPTIONS = ("--strategy", "DFS", "--depth", DEPTH, "--branching", 2, "--generation", "propose", "--evaluation", "score")
HEALTHY = 11  # requests: for the shape, for thoughts and scores of three steps, for the answer
KINDS = {"depth_estimate": "shape", "candidates": "thoughts", "evaluations": "votes", "answer": "answer"}


class Mood(NamedTuple):
    behaviour: Behaviour
    ends: str = "solved"
    requests: int = HEALTHY
    code: str | None = None
    later: int = 0
    options: tuple[object, ...] = ()


def kind_of(answer: dict[str, Any]) -> str:
    """Return the kind of question to which this is a good model's answer."""
    return next((kind for name, kind in KINDS.items() if name in answer), "score")


def only(kind: str, spoil: Behaviour) -> Behaviour:
    """Return the behaviour that spoils one kind of answer."""
    return lambda r, n, a: spoil(r, n, a) if kind_of(a) == kind else a


def as_text(write: Callable[[str], str]) -> Behaviour:
    return lambda r, n, a: write(json.dumps(a, ensure_ascii=False))


def fields(kind: str, **changed: Any) -> Behaviour:
    return only(kind, lambda r, n, a: a | changed)


def unclaimed(received: Any, number: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return thoughts that do not claim to be a solution."""
    return {"candidates": [{"content": one["content"]} for one in answer["candidates"]]}


def flat(received: Any, number: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose metadata stand beside the content instead of inside ``metadata``."""
    if "candidates" in answer:
        return {"candidates": [{"content": one["content"]} | one["metadata"] for one in answer["candidates"]]}
    return answer | answer.pop("verification", {})


def shortened(received: Any, number: int, answer: dict[str, Any]) -> str:
    return json.dumps(answer)[:-5]


def at_step(number: int, kind: str, spoil: Behaviour) -> Behaviour:
    """Return the behaviour that spoils the answer about one step."""
    return only(kind, lambda r, n, a: spoil(r, n, a) if f"It is step {number} of" in text_of(r) else a)


def said(text: Any) -> Behaviour:
    return lambda r, n, a: text


def busy(number: int, answer: Any) -> Any:
    return Reply(429, headers={"retry-after": "0"}) if number % 2 else answer


BAD_CHECK = {"verification": {"is_valid": False, "validation_errors": ["too long a downtime"]}}
CUT = says('{"answer": "Migrate by a logical', finish_reason="length")
INVALID, AWAY, LATE = "LLM_INVALID", "LLM_UNAVAILABLE", "EVALUATION_TIMEOUT"
SAMPLES = ("--generation", "sample")

MOODS: dict[str, Mood] = {
    # Answers that can be read, although their form varies.
    "good": Mood(lambda r, n, a: a),
    "fence": Mood(as_text(lambda text: f"```json\n{text}\n```")),
    "prose": Mood(as_text(lambda text: f"Sure! Here it is:\n\n{text}\n\nLet me know if {{this}} helps.")),
    "prose and fence": Mood(as_text(lambda text: f"Here you are:\n```json\n{text}\n```\nHope it helps")),
    "think": Mood(as_text(lambda text: f'<think>hmm {{"a": 1}}</think>\n{text}')),
    "flat": Mood(flat),
    "temporary ids": Mood(
        only("thoughts", lambda r, n, a: {"candidates": [one | {"temp_id": "cand_1"} for one in a["candidates"]]})
    ),
    "dimensions": Mood(fields("score", dimension_scores={"correctness": 9, "progress": 8})),
    "score as text": Mood(fields("score", score="8.5")),
    "samples": Mood(lambda r, n, a: a, options=SAMPLES, requests=HEALTHY + 3),
    "four thoughts": Mood(
        only(
            "thoughts",
            lambda r, n, a: {
                "candidates": [one | {"content": f"{one['content']} {at}"} for one in a["candidates"] for at in (1, 2)]
            },
        )
    ),
    "slow": Mood(lambda r, n, a: a),
    "every other request busy": Mood(lambda r, n, a: busy(n, a), requests=2 * HEALTHY),
    "two of three malformed": Mood(lambda r, n, a: shortened(r, n, a) if n % 3 else a, requests=3 * HEALTHY),
    "one bad judge": Mood(only("score", lambda r, n, a: a if n % 4 else "no json here"), requests=HEALTHY + 3),
    # The search ends without a solution that the model itself calls a solution.
    "no claim": Mood(only("thoughts", unclaimed), "unverified"),
    "creative": Mood(only("thoughts", unclaimed), "unverified", HEALTHY + 3, options=SAMPLES),
    "not valid": Mood(fields("answer", **BAD_CHECK), "unverified"),
    "low at the end": Mood(at_step(DEPTH, "score", lambda r, n, a: a | {"score": 2}), "unverified", 23),
    "low": Mood(fields("score", score=2), "failed", 4, "SEARCH_EXHAUSTED"),
    # Servers that do not answer.
    "429 after five": Mood(lambda r, n, a: a if n <= 5 else Reply(429), "paused", 9, AWAY, 6),
    "429": Mood(said(Reply(429)), "paused", 2, AWAY, HEALTHY),
    "429 for an hour": Mood(said(Reply(429, headers={"retry-after": "3600"})), "paused", 1, AWAY, HEALTHY),
    "500": Mood(said(Reply(500)), "paused", 2, AWAY, HEALTHY),
    "401": Mood(said(Reply(401)), "paused", 1, AWAY, HEALTHY),
    "hang": Mood(lambda r, n, a: never(), "paused", 1, AWAY, HEALTHY),
    "judge hangs": Mood(only("score", lambda r, n, a: never()), "paused", 4, LATE, HEALTHY - 2),
    # Answers that cannot be used.
    "page": Mood(said("<html>502</html>"), "paused", 3, INVALID, HEALTHY),
    "malformed": Mood(shortened, "paused", 3, INVALID, HEALTHY),
    "refusal": Mood(said(says("", finish_reason="content_filter")), "paused", 3, INVALID, HEALTHY),
    "score 11": Mood(fields("score", score=11), "paused", 8, INVALID, HEALTHY - 2),
    "bad thoughts": Mood(fields("thoughts", candidates="none"), "paused", 4, INVALID, HEALTHY - 1),
    "no thoughts": Mood(fields("thoughts", candidates=[]), "paused", 4, INVALID, HEALTHY - 1),
    "bad thoughts at the end": Mood(at_step(DEPTH, "thoughts", said({"candidates": "none"})), "paused", 10, INVALID, 4),
    "bad judge at the end": Mood(at_step(DEPTH, "score", said("great idea")), "paused", 14, INVALID, 3),
    "answer in prose": Mood(only("answer", said("I think the answer is a replica.")), "paused", 13, INVALID, 1),
    "answer cut off": Mood(only("answer", said(CUT)), "paused", 13, INVALID, 1),
}
OFTEN = ("answer cut off",)


def digest_of(received: Any) -> str:
    """Return the digest that distinguishes one question from another."""
    return json.dumps([received.body["messages"], received.body.get("seed")], sort_keys=True)


def fault_of(received: Any) -> Any:
    return data_of(received, "fault")
