"""Trees of thoughts: given these messages, expect these rows."""

from __future__ import annotations

import json

import msgspec
import pytest
import tot_story as told
from folding import rows_of
from tot_story import BEST, NODES, STATS, STORY, TASK

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.views.fold import VIEW as THOUGHT_VIEW
from deedbook.consumers.thoughts.views.fold import TaskRecord, fold
from deedbook.consumers.thoughts.views.tree import Costs, best_path, frontier, search_state, stats_of, with_children
from deedbook.ledger.errors import Refused

EVENTS = told.events()
END = len(STORY)
CONFIG = told.CONFIG


def rows(count=END):
    """Return the rows after the first ``count`` events of the story."""
    return rows_of(THOUGHT_VIEW, TASK, EVENTS[:count])


def task(count=END):
    (row,) = rows(count)["tot_tasks"]
    return row


def state(count):
    """Return the state of the search after the first ``count`` events."""
    return json.loads(task(count)["search_state"])


def record(*events):
    made = TaskRecord(TASK)
    for event in events:
        made = fold(made, event)
    return made


def test_the_whole_story_gives_the_whole_tree():
    found = {row["id"]: row for row in rows()["tot_nodes"]}
    assert list(found) == ["root", "node_1_1", "node_1_2", "node_2_1", "node_2_2", "node_3_1", "node_3_2"]
    for id_, node in NODES.items():
        row = found[id_]
        assert (row["parent_id"], row["depth"], row["content"]) == (node.parent_id, node.depth, node.content)
        assert (row["status"], json.loads(row["children_ids"])) == (node.status, node.children_ids)
        score = None if node.evaluation is None else node.evaluation.score
        assert (row["score"], row["action_type"]) == (score, node.action_type)


def test_a_node_says_which_thought_it_was():
    found = {row["id"]: row for row in rows()["tot_nodes"]}
    assert (found["root"]["temp_id"], found["root"]["source_id"]) == (None, None)
    assert (found["node_1_2"]["temp_id"], found["node_1_2"]["source_id"]) == ("cand_2", EVENTS[7].id)
    assert (found["node_1_2"]["added_index"], found["node_3_2"]["temp_id"]) == (8, "cand_1")


def test_a_node_comes_from_the_answer_that_still_had_its_thought():
    first, second = (told.generated([one]) for one in (told.N11, told.N12))
    again = kinds.TotNodesAdded(nodes=[told.N12], temp_ids=["cand_1"])
    events = [
        *EVENTS[:7],
        told.spoken("generator", first, index=7, causes=(6,)),
        told.spoken("explorer", kinds.TotNodesAdded(nodes=[told.N11], temp_ids=["cand_1"]), index=8, causes=(7,)),
        told.spoken("explorer", told.generate(told.ROOT), index=9),
        told.spoken("generator", second, index=10, causes=(9,)),
        told.spoken("explorer", again, index=11, causes=(7, 10)),
    ]
    origins = record(*events).origins
    assert (origins["node_1_1"].source_id, origins["node_1_2"].source_id) == (events[7].id, events[10].id)


def test_stats_are_those_that_the_explorer_counted():
    found = task()
    assert json.loads(found["stats"]) == msgspec.to_builtins(STATS)
    assert json.loads(found["claimed_stats"]) == json.loads(found["stats"])
    assert found["tree_digest"] == told.DIGEST


@pytest.mark.parametrize(
    ("count", "status"), [(1, "started"), (3, "started"), (4, "searching"), (33, "searching"), (34, "solved")]
)
def test_the_status_follows_the_search(count, status):
    assert task(count)["status"] == status


def test_a_search_that_found_nothing_has_failed():
    none = kinds.Failure(code="SEARCH_EXHAUSTED", message="Nothing is left.", recoverable=False)
    closing = told.complete(best_path=[], tree=None, tree_digest=task(12)["tree_digest"])
    last = told.spoken("explorer", msgspec.structs.replace(closing, error=none), index=12, causes=(3,))
    (row,) = rows_of(THOUGHT_VIEW, TASK, [*EVENTS[:12], last])["tot_tasks"]
    assert (row["status"], row["solution"], row["ended_index"]) == ("failed", None, 12)
    assert json.loads(row["failure"])["code"] == "SEARCH_EXHAUSTED"


def test_an_answer_that_does_not_hold_is_not_solved():
    wrong = kinds.Verification(is_valid=False, by="program", validation_errors=["13 - 9 is 4, not 5"])
    payload = msgspec.structs.replace(STORY[-2].data.payload, verification=wrong)
    answer = told.spoken(
        "synthesizer", msgspec.structs.replace(STORY[-2].data, payload=payload), index=32, causes=(31,)
    )
    (row,) = rows_of(THOUGHT_VIEW, TASK, [*EVENTS[:-2], answer, EVENTS[-1]])["tot_tasks"]
    assert row["status"] == "unverified"
    assert json.loads(row["solution"])["verification"]["validation_errors"] == ["13 - 9 is 4, not 5"]


def test_the_best_path_and_the_frontier_move_with_the_search():
    assert state(4) == {"current_depth": 0, "frontier": [], "best_path": []}
    assert state(6) == {"current_depth": 0, "frontier": ["root"], "best_path": ["root"]}
    assert state(11) == {"current_depth": 1, "frontier": ["node_1_1", "node_1_2"], "best_path": ["root", "node_1_1"]}
    assert state(12)["frontier"] == ["node_1_1"]
    # Depth first: the frontier begins with the deepest nodes; of equally deep ones, the best comes first.
    assert state(17)["frontier"] == ["node_2_1", "node_2_2"]
    assert state(17)["best_path"] == ["root", "node_1_1", "node_2_1"]
    after_back = state(25)
    assert after_back == {"current_depth": 2, "frontier": ["node_2_2"], "best_path": ["root", "node_1_1", "node_2_1"]}
    assert state(34) == {"current_depth": 3, "frontier": [], "best_path": BEST}


def test_breadth_first_expands_level_by_level():
    nodes = {one.id: one for one in (told.final("expanded", told.ROOT), told.N11, told.N12, told.N21)}
    assert frontier(nodes, CONFIG) == ["node_2_1", "node_1_1", "node_1_2"]
    broad = msgspec.structs.replace(CONFIG, strategy="BFS")
    assert frontier(nodes, broad) == ["node_1_1", "node_1_2", "node_2_1"]
    better = msgspec.structs.replace(told.N12, evaluation=told.SCORES["node_3_2"])
    assert frontier(nodes | {"node_1_2": better}, broad) == ["node_1_2", "node_1_1", "node_2_1"]
    assert frontier(nodes, msgspec.structs.replace(CONFIG, max_depth=2)) == ["node_1_1", "node_1_2"]
    assert frontier(nodes, None) == []


def test_what_is_below_a_pruned_node_is_neither_expanded_nor_best():
    pruned = msgspec.structs.replace(NODES["node_1_1"], status="pruned")
    nodes = NODES | {"node_1_1": pruned, "node_2_2": told.N22, "node_1_2": told.N12}
    assert frontier(nodes, CONFIG) == ["node_1_2"]
    assert best_path(nodes) == ["root"]


def test_a_terminal_node_is_better_than_a_higher_score():
    ended = msgspec.structs.replace(NODES["node_1_2"], status="terminal")
    nodes = {id_: one for id_, one in NODES.items() if id_ != "node_3_2"} | {"node_1_2": ended}
    assert best_path(nodes) == ["root", "node_1_2"]
    assert stats_of(nodes, backtracks=0, costs=Costs(), rounds=0).best_score == 8.5


def test_ends_of_one_score_go_by_confidence_and_then_by_age():
    def ended(id_, confidence):
        judged = kinds.Evaluation(score=9.0, confidence=confidence)
        return told.node(id_, id_, parent_id="root", status="terminal", evaluation=judged)

    sure, first, second = ended("node_1_3", 0.9), ended("node_1_1", 0.5), ended("node_1_2", 0.5)
    nodes = {"root": told.ROOT, "node_1_1": first, "node_1_2": second}
    assert best_path(nodes) == ["root", "node_1_1"]
    assert best_path(nodes | {"node_1_3": sure}) == ["root", "node_1_3"]


def test_an_empty_tree_has_no_path_and_no_stats():
    assert search_state({}, CONFIG) == kinds.SearchState(current_depth=0, frontier=[], best_path=[])
    assert stats_of({}, backtracks=0, costs=Costs(), rounds=0).best_score is None
    assert with_children({}) == {}


def test_every_message_has_a_row_that_names_its_request():
    found = rows()["tot_messages"]
    assert [row["event_index"] for row in found] == list(range(len(STORY)))
    for position, (row, one) in enumerate(zip(found, STORY, strict=True)):
        event = EVENTS[position]
        assert (row["sender"], row["signer"], row["key"]) == (one.role, told.agent(one.role), event.key)
        assert (row["event_id"], row["accepted_ms"]) == (event.id, event.accepted_ms)
        is_answer = isinstance(one.data, kinds.Answer)
        asked = EVENTS[one.causes[0]].id if is_answer else event.id if isinstance(one.data, kinds.Question) else None
        assert row["request_id"] == asked


def test_a_failed_answer_is_told_as_its_error():
    failed = kinds.Failure(code="GENERATION_FAILED", message="The model gave nothing.", recoverable=True)
    said = told.spoken("generator", told.generated([], payload=None, error=failed), index=7, causes=(6,))
    found = rows_of(THOUGHT_VIEW, TASK, [*EVENTS[:7], said])
    row = found["tot_messages"][-1]
    assert (row["event_id"], row["request_id"]) == (said.id, EVENTS[6].id)
    assert json.loads(row["error"]) == {
        "code": "GENERATION_FAILED",
        "message": "The model gave nothing.",
        "recoverable": True,
        "retry_after_s": None,
    }


def test_what_the_gate_would_refuse_is_not_folded():
    with pytest.raises(Refused):
        record(*EVENTS[:7], EVENTS[8])


def test_the_state_survives_its_packed_form_after_every_event():
    decoder, made = msgspec.msgpack.Decoder(TaskRecord), TaskRecord(TASK)
    for event in EVENTS:
        made = decoder.decode(msgspec.msgpack.encode(fold(made, event)))
    assert msgspec.msgpack.encode(made) == msgspec.msgpack.encode(record(*EVENTS))
    assert THOUGHT_VIEW.rows(made) == THOUGHT_VIEW.rows(record(*EVENTS))


BUSY = kinds.Failure(code="LLM_UNAVAILABLE", message="429", recoverable=True, retry_after_s=60)


def paid(index, digit, cause, sender="generator"):
    data = kinds.TotModelAnswered(
        sender=sender, task_id=TASK, prompt_sha256=digit * 64, model="m", answer={}, usage=told.USAGE
    )
    return told.spoken(sender, data, index=index, causes=(cause,))


def test_paused_task_shows_why_and_resumed_with_whom():
    pause = told.spoken("explorer", kinds.TotPaused(sender="explorer", task_id=TASK, error=BUSY), index=7, causes=(6,))
    going = kinds.TotResumed(sender="orchestrator", task_id=TASK, thinker="llm:other")
    events = [*EVENTS[:7], pause, told.spoken("orchestrator", going, index=8)]
    (row,) = rows_of(THOUGHT_VIEW, TASK, events[:-1])["tot_tasks"]
    assert (row["status"], row["thinker"], row["ended_index"]) == ("paused", "game24", None)
    assert json.loads(row["failure"])["retry_after_s"] == 60
    (row,) = rows_of(THOUGHT_VIEW, TASK, events)["tot_tasks"]
    assert (row["status"], row["thinker"], row["failure"]) == ("searching", "llm:other", None)


def test_task_that_its_user_stopped_has_failed_also_when_it_was_paused():
    pause = told.spoken("explorer", kinds.TotPaused(sender="explorer", task_id=TASK, error=BUSY), index=7, causes=(6,))
    end = kinds.Failure(code="SEARCH_STOPPED", message="enough", recoverable=False)
    stop = told.spoken("orchestrator", kinds.TotError(sender="orchestrator", task_id=TASK, error=end), index=8)
    (row,) = rows_of(THOUGHT_VIEW, TASK, [*EVENTS[:7], pause, stop])["tot_tasks"]
    assert (row["status"], row["ended_index"], json.loads(row["failure"])["code"]) == ("failed", 8, "SEARCH_STOPPED")


def test_cost_is_what_answers_say_and_what_was_paid_for_requests_that_wait():
    asked = [*EVENTS[:7], paid(900, "a", 6), paid(901, "b", 6)]

    def usage(*events):
        stats = json.loads(rows_of(THOUGHT_VIEW, TASK, events)["tot_tasks"][0]["stats"])
        return stats["llm_calls"], stats["tokens_in"], stats["tokens_out"]

    assert usage(*asked) == (2, 200, 20)
    # The message has the whole cost of its request: of both paid answers and of a failed call.
    whole = told.spoken("generator", told.generated([told.N11], usage=kinds.Usage(3, 200, 20)), index=902, causes=(6,))
    assert usage(*asked, whole) == (3, 200, 20)
    # The cost never shrinks, even if an agent reports less, for example after a restart.
    lost = told.spoken("generator", told.generated([told.N11], usage=kinds.Usage()), index=902, causes=(6,))
    assert usage(*asked, lost) == (2, 200, 20)
    failed = told.generated([], payload=None, error=BUSY, usage=kinds.Usage(requests=4))
    assert usage(*EVENTS[:7], told.spoken("generator", failed, index=902, causes=(6,))) == (4, 0, 0)
    row = rows_of(THOUGHT_VIEW, TASK, asked)["tot_messages"][-1]
    assert json.loads(row["usage"]) == {"requests": 1, "tokens_in": 100, "tokens_out": 10}


def test_dimensions_of_an_evaluation_stay_with_its_node():
    judged = [
        kinds.NodeEvaluation(node_id=one.id, score=5, confidence=1, dimension_scores={"progress": 4.5})
        for one in (told.N11, told.N12)
    ]
    said = told.evaluated([told.N11, told.N12], payload=kinds.ResultsPayload(evaluations=judged))
    found = rows_of(THOUGHT_VIEW, TASK, [*EVENTS[:10], told.spoken("evaluator", said, index=10, causes=(9,))])
    assert [row["dimension_scores"] for row in found["tot_nodes"]] == ["{}", *['{"progress":4.5}'] * 2]


def test_cost_that_nobody_can_have_had_breaks_no_state():
    most = kinds.Usage(requests=2**53 - 1, tokens_in=2**53 - 1)
    claimed = told.spoken("generator", told.generated([told.N11], usage=most), index=7, causes=(6,))
    made = record(*EVENTS[:7], claimed, told.spoken("explorer", told.generate(told.ROOT), index=8))
    again = told.spoken("generator", told.generated([told.N12], usage=most), index=9, causes=(8,))
    after = msgspec.msgpack.decode(msgspec.msgpack.encode(fold(made, again)), type=TaskRecord)
    assert after.costs.total == most
