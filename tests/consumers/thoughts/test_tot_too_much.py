"""A search ends even if an answer is too large for an event or a submission, or if it could go on for ever."""

from __future__ import annotations

import msgspec
import pytest
import tot_story
from building import Ledger
from test_tot_order import Written
from tot_driver import solve
from tot_playing import check, events, play

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts import task
from deedbook.consumers.thoughts.conclusion import remembered
from deedbook.consumers.thoughts.settings import Overrides, search_config
from deedbook.consumers.thoughts.task import Task
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import batch_size_max_bytes, entry_size_max_bytes


class Wordy(Game24):
    """Solves the game, and explains it in as many words as an answer may have."""

    answer = "长" * 8_000

    def synthesize(self, asked):
        solution = super().synthesize(asked)
        return msgspec.structs.replace(solution, answer=self.answer, reasoning_trace=["为" * 1_900] * 3)


class Elaborate(Game24):
    """Decomposes the game at such length that no request for a search fits into an event."""

    def decompose(self, problem, task_type):
        shape = super().decompose(problem, task_type)
        return msgspec.structs.replace(shape, success_criteria="x" * 39_000)


class Grand(Written):
    """Gives every thought a long type of action, and finds nothing."""

    def generate(self, path, asked):
        told = [
            kinds.Candidate(temp_id=f"c{n}", content=f"{n}", action_type="型" * 200)
            for n in range(asked.num_candidates)
        ]
        return kinds.GeneratedPayload(candidates=told)

    def evaluate(self, paths, asked):
        judged = [kinds.NodeEvaluation(node_id=path[-1].id, score=5.0, confidence=0.5) for path in paths]
        return kinds.ResultsPayload(evaluations=judged)


class Speechless(Grand):
    """Takes every thought for a solution, and can express none of them."""

    def is_solution(self, path):
        return len(path) > 1

    def synthesize(self, asked):
        return kinds.Failure(code="INVALID_FORMAT", message="no words", recoverable=True)


class Lengthy(Grand):
    """Searches 40 levels deep, with one short and eight long thoughts on each."""

    def generate(self, path, asked):
        told = [
            kinds.Candidate(temp_id=f"c{n}", content=f"{n}" + "\x01" * 500 * (n > 0))
            for n in range(asked.num_candidates)
        ]
        return kinds.GeneratedPayload(candidates=told)

    def is_solution(self, path):
        return len(path) == 41

    def synthesize(self, asked):
        verification = kinds.Verification(is_valid=True, by="program")
        return kinds.Solution(answer="found", reasoning_trace=["so"], confidence=1.0, verification=verification)


@pytest.mark.parametrize("answer", ["长" * 8_000, "\x01" * 3_000])
def test_long_answer_is_remembered_whole_and_its_steps_cut(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(Wordy, "answer", answer)
    found = play(ledger, Wordy())
    check(ledger, found["task_id"])
    *_, last, concluded = (event.data for event in events(ledger, found["reasoning"]))
    assert isinstance(last, ReasoningExtended)
    assert last.steps[0].content[:-1] == answer[: len(last.steps[0].content) - 1]
    assert isinstance(concluded, ReasoningConcluded)
    assert concluded.conclusion == found["answer"] == answer


def test_long_path_with_long_alternatives_is_one_submission() -> None:
    asked = Overrides(strategy="DFS", depth=40, branching=9, threshold=0, evaluation="vote")
    found = solve("start", search_config("math", None, asked), Lengthy())
    task = Task(tot_story.TASK)
    task.apply(tot_story.spoken("orchestrator", tot_story.started(), index=0))
    for index, entry in enumerate(found.entries, 1):
        role, causes = getattr(entry.data, "sender", "explorer"), [int(cause[1:]) for cause in entry.causes]
        task.apply(tot_story.spoken(role, entry.data, index=index, causes=causes))
    sizes = [len(encode_canonical(said.data)) for said in remembered(task)]
    assert len(sizes) == 1 + 41 + 1 + 1
    assert max(sizes) < entry_size_max_bytes / 2
    assert sum(sizes) < batch_size_max_bytes / 2


def test_search_that_cannot_be_asked_for_ends_the_task(ledger: Ledger) -> None:
    found = play(ledger, Elaborate(), problem="4 9 10 13" + " " * 11_000)
    assert (found["error"]["code"], found["error"]["recoverable"]) == ("INVALID_FORMAT", False)
    assert isinstance(events(ledger, f"tot/{found['task_id']}")[-1].data, kinds.TotError)


def test_evaluations_are_asked_for_in_messages_that_an_entry_holds() -> None:
    config = search_config("math", None, Overrides(depth=1, branching=64, evaluation="vote"))
    found = solve("start", config, Grand())
    asked = [entry.data for entry in found.entries if isinstance(entry.data, kinds.EvaluateThoughts)]
    kept = [entry.data.nodes for entry in found.entries if isinstance(entry.data, kinds.TotNodesAdded)][1]
    assert sum(len(one.payload.candidates) for one in asked) == len(kept) > 24
    assert all(len(msgspec.json.encode(one.payload.candidates)) <= task.batch_size_max_bytes + 128 for one in asked)


def test_of_many_solutions_that_nobody_can_say_three_are_tried() -> None:
    config = search_config("math", None, Overrides(depth=1, branching=20))
    found = solve("start", config, Speechless())
    assert found.failure is not None
    assert found.failure.code == "INVALID_FORMAT"
    asked = [entry for entry in found.entries if isinstance(entry.data, kinds.SynthesizeSolution)]
    assert len({entry.data.payload.best_path[-1].id for entry in asked}) == 3
    assert len(asked) == 9
