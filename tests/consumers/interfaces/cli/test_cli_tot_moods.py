"""`deed tot run` with a model in every mood: no paid answer is lost, and a healthy model finishes another's search."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from moods import HEALTHY, MOODS, OFTEN, OPTIONS, Mood, digest_of, kind_of
from thinking_model import ThinkingModel, text_of

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.run import read_task
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.home.location import CONFIG_FILE
from deedbook.ledger.home.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calling import Deed

PROBLEM = "Migrate a 400 GB database with at most 5 minutes of downtime"
TABLE = [
    pytest.param(mood, id=name, marks=() if name in OFTEN else pytest.mark.long_run) for name, mood in MOODS.items()
]


@pytest.fixture
def model() -> Iterator[ThinkingModel]:
    made = ThinkingModel(depth=3)
    yield made
    made.close()


def configure(alone: Deed, model: ThinkingModel, name: str = "moody", **fields: object) -> None:
    """Name the model in ``[llm]``, and trust that as its owner would."""
    lines = {"base_url": model.url, "model": name, "timeout_s": 20.0, "parallel_max": 1, "attempts_max": 2} | fields
    table = "\n".join(f"{field} = {json.dumps(value)}" for field, value in lines.items())
    (alone.home / CONFIG_FILE).write_text(f"[llm]\n{table}\n")
    alone("trust", "--yes")


def searched(alone: Deed, *words: object) -> dict[str, Any]:
    """Call a verb that searches; return its data, or the details of its error."""
    document: dict[str, Any] = json.loads(alone.run("tot", *words, "--no-logs", "--json").out)
    return document["data"] if "data" in document else document["error"] | document["error"]["details"]


def paid(alone: Deed, task_id: str) -> list[kinds.TotModelAnswered]:
    with open_client(read_settings(home=alone.home)) as client:
        events = read_task(client, task_id)
    return [event.data for event in events if isinstance(event.data, kinds.TotModelAnswered)]


def test_criteria_of_ones_own_reach_the_questions_the_scores_and_the_result(alone: Deed, model: ThinkingModel) -> None:
    names = ("cost", "time to repair")
    model.behaviour = lambda r, n, a: a | {"dimension_scores": dict.fromkeys(names, 7)} if kind_of(a) == "score" else a
    configure(alone, model)
    words = [word for name in names for word in ("--criterion", name)]
    found = searched(alone, "run", PROBLEM, "--task-type", "planning", *OPTIONS, *words)
    assert found["dimension_scores"] == {"cost": 7, "time to repair": 7}
    judged = [text_of(one) for one in model.received if '"score"' in text_of(one)]
    assert all('{"cost": 0 to 10, "time to repair": 0 to 10}' in text for text in judged)
    tree = alone.data("tot", "show", found["task_id"])
    assert tree["nodes"]["node_1_1"]["evaluation"]["dimension_scores"] == found["dimension_scores"]
    assert "scores of node_3_1: cost 7, time to repair 7" in alone("tot", "show", found["task_id"])
    alone.refuses("INVALID_FIELD", "tot", "run", PROBLEM, "--task-type", "planning", "--criterion", '"')


def test_best_path_is_the_answer_when_its_user_wants_no_other_and_asks_no_model(
    alone: Deed, model: ThinkingModel
) -> None:
    model.behaviour = MOODS["malformed"].behaviour
    configure(alone, model)
    empty = searched(alone, "run", PROBLEM, "--task-type", "planning", *OPTIONS)
    assert empty["paused"]["best_path"] is None
    alone.refuses("USAGE", "tot", "resume", empty["task_id"], "--best-path")
    model.behaviour = MOODS["answer cut off"].behaviour
    paused = searched(alone, "run", PROBLEM, "--task-type", "planning", *OPTIONS)
    assert paused["paused"]["best_path"] == f"deed tot resume {paused['task_id']} --best-path"
    assert paused["best_path"] == ["step 1, way 1", "step 2, way 1", "step 3, way 1"]
    (alone.home / CONFIG_FILE).write_text("")
    model.received.clear()
    found = searched(alone, "resume", paused["task_id"], "--best-path")
    assert found["answer"] == "1. step 1, way 1\n2. step 2, way 1\n3. step 3, way 1"
    assert (found["verification"]["by"], model.received) == ("nobody", [])
    text = alone("tot", "show", paused["task_id"])
    assert "checked by nobody" in text
    assert "this answer is the best path itself" in text


@pytest.mark.parametrize("mood", TABLE)
def test_no_mood_of_a_model_loses_a_paid_answer(alone: Deed, model: ThinkingModel, mood: Mood) -> None:
    model.behaviour = mood.behaviour
    hangs = mood.code in ("LLM_UNAVAILABLE", "EVALUATION_TIMEOUT")
    configure(alone, model, timeout_s=3.0 if hangs else 20.0)
    first = searched(alone, "run", PROBLEM, "--task-type", "planning", *OPTIONS, *mood.options)
    task_id = first["task_id"]
    assert (alone.data("tot", "list")["items"][0]["status"], first.get("code")) == (mood.ends, mood.code)
    assert len(model.received) == mood.requests == alone.data("tot", "list")["items"][0]["stats"]["llm_calls"]
    if mood.ends != "paused":
        return
    assert first["recoverable"]
    before, usable = {digest_of(one) for one in model.received}, [one for one in paid(alone, task_id) if one.answer]
    model.received.clear()
    model.behaviour = lambda r, n, a: a
    configure(alone, model, "healthy")
    again = searched(alone, "resume", task_id)
    assert again["verification"] == {"is_valid": True, "by": "model", "validation_errors": []}
    assert len(model.received) == mood.later
    kept = paid(alone, task_id)
    assert [one for one in kept if one in usable] == usable
    assert again["stats"]["llm_calls"] == mood.requests + mood.later
    # The first question is the one that failed, and no question with a usable answer is asked again.
    assert digest_of(model.received[0]) in before
    prompts = [one.prompt_sha256 for one in kept if one.answer]
    assert len(prompts) == len({*prompts}) == HEALTHY
