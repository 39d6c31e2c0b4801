"""A temporary failure pauses a search. Its user resumes it, with any model, and no answer is paid for twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tot_mind import Mind
from tot_playing import check, events, play_part, read

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.processes import Processes
from deedbook.consumers.thoughts.run import prepare, resume_task, stop_task
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions
from deedbook.consumers.thoughts.thinkers.registry import thinker_named
from deedbook.ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.home.config import Settings

PROBLEM = "Name a colour letter by letter"
OPTIONS = TaskOptions(
    "planning", Overrides(strategy="BFS", depth=2, branching=3, generation="propose", evaluation="score")
)


@pytest.fixture
def mind() -> Iterator[Mind]:
    made = Mind()
    yield made
    made.close()


def settings_of(ledger: Ledger, mind: Mind, model: str = "stub") -> Settings:
    return msgspec.structs.replace(ledger.settings(), actions=mind.actions(model))


def run(ledger: Ledger, mind: Mind) -> dict[str, Any]:
    """Play a new task, in threads of this process, until it is over or pauses."""
    settings = settings_of(ledger, mind)
    with ledger.client() as client:
        part = prepare(settings, client, PROBLEM, OPTIONS)
    return play_part(ledger, thinker_named("llm", part.actions), part)


def resume(ledger: Ledger, mind: Mind, task_id: str, model: str = "stub") -> dict[str, Any]:
    with ledger.client() as client:
        return resume_task(settings_of(ledger, mind, model), task_id, client=client)


def digest_of(ledger: Ledger, task_id: str) -> str:
    complete = read(ledger, task_id).complete
    assert complete is not None
    digest: str = complete.data.payload.tree_digest
    return digest


def recorded(ledger: Ledger, task_id: str) -> int:
    return sum(isinstance(event.data, kinds.TotModelAnswered) for event in events(ledger, f"tot/{task_id}"))


def test_search_that_was_killed_paused_and_resumed_with_other_models_grows_the_same_tree_and_pays_nothing_twice(
    ledger: Ledger, mind: Mind
) -> None:
    calm = Mind()
    undisturbed = run(ledger, calm)
    calm.close()
    assert undisturbed["error"] is None
    mind.holds_from = 6
    settings = settings_of(ledger, mind)
    with ledger.client() as client:
        part = prepare(settings, client, PROBLEM, OPTIONS)
        with Processes(part) as actors:
            assert mind.holding.wait(60)
            position = 0
            while recorded(ledger, part.opening.task_id) < mind.holds_from:
                position = client.entries(position, stream=f"tot/{part.opening.task_id}", wait_s=1.0).next_index
                assert not actors.is_done()
            for child in actors._children.values():
                child._process.kill()
    mind.gone.add("stub")
    mind.release.set()
    mind.holds_from, mind.answers_max = 10_000, 12
    paused = play_part(ledger, thinker_named("llm", mind.actions("second")), part)
    assert (paused["error"]["code"], paused["error"]["recoverable"]) == ("LLM_UNAVAILABLE", True)
    assert (paused["paused"]["retry_after_s"], paused["answer"]) == (3600, None)
    assert recorded(ledger, part.opening.task_id) == 12
    mind.answers_max = 10_000
    found = resume(ledger, mind, part.opening.task_id, "third")
    assert (found["answer"], found["paused"], found["error"]) == (undisturbed["answer"], None, None)
    assert digest_of(ledger, part.opening.task_id) == digest_of(ledger, undisturbed["task_id"])
    assert mind.answered == calm.answered
    assert set(mind.answered.values()) == {1}
    assert mind.models == {"stub", "second", "third"}
    said = [event.data for event in events(ledger, f"tot/{part.opening.task_id}")]
    assert [data.thinker for data in said if isinstance(data, kinds.TotResumed)] == ["llm:third"]
    check(ledger, part.opening.task_id)


def test_of_two_resumes_at_once_one_goes_on_and_the_other_is_told(ledger: Ledger, mind: Mind) -> None:
    mind.answers_max = 3
    paused = run(ledger, mind)
    mind.answers_max, mind.holds_from = 10_000, 4
    results = list[dict[str, Any]]()
    first = threading.Thread(target=lambda: results.append(resume(ledger, mind, paused["task_id"])))
    first.start()
    assert mind.holding.wait(60)
    with pytest.raises(Unavailable, match="another process") as refusal:
        resume(ledger, mind, paused["task_id"])
    assert refusal.value.code == "STORE_IN_USE"
    mind.release.set()
    first.join(60)
    assert results[0]["error"] is None
    assert set(mind.answered.values()) == {1}


def test_stopped_task_is_over_for_good_by_its_users_word(ledger: Ledger, mind: Mind) -> None:
    mind.answers_max = 0
    paused = run(ledger, mind)
    assert paused["paused"] is not None
    with ledger.client() as client:
        with pytest.raises(Refused, match="give a reason"):
            stop_task(settings_of(ledger, mind), paused["task_id"], " ", client=client)
        stopped = stop_task(settings_of(ledger, mind), paused["task_id"], "too dear", client=client)
        assert stop_task(settings_of(ledger, mind), paused["task_id"], "again", client=client) == stopped
    assert (stopped["error"]["code"], stopped["error"]["message"]) == ("SEARCH_STOPPED", "too dear")
    assert stopped["paused"] is None
    mind.answers_max = 10_000
    assert resume(ledger, mind, paused["task_id"]) == stopped | {"pids": {}}
    assert not mind.answered


def test_task_is_not_resumed_without_a_model(ledger: Ledger, mind: Mind) -> None:
    mind.answers_max = 1
    paused = run(ledger, mind)
    with ledger.client() as client, pytest.raises(Refused, match="no model is configured"):
        resume_task(ledger.settings(), paused["task_id"], client=client)
    assert read(ledger, paused["task_id"]).paused is not None
