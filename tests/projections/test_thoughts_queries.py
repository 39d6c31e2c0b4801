"""Queries about trees of thoughts: whole trees, trees at every index, and the proof that six agents took part."""

from __future__ import annotations

import json

import pytest
import tot_story as told
from building import key_named
from folding import digests_of, rows_of
from tot_story import BEST, NODES, STORY, TASK

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.views.fold import VIEW as THOUGHT_VIEW
from deedbook.ledger.errors import Refused
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

OTHER = "tot-20260213-090000-0000ab"


@pytest.fixture
def searched(ledger):
    """The ledger after the whole story."""
    told.register(ledger)
    ledger.start = ledger.size
    told.play(ledger)
    return ledger


def test_tree_is_a_whole_thought_tree(searched, reader):
    tree = reader.answer("tot.tree", {"id": TASK})
    assert tree.keys() == {
        *("task_id", "problem", "task_type", "search_config", "nodes", "root_id", "search_state"),
    }
    assert (tree["task_id"], tree["problem"], tree["task_type"]) == (TASK, "4 9 10 13", "math_reasoning")
    config = tree["search_config"]
    assert (config["strategy"], config["max_depth"], config["branching_factor"]) == ("DFS", 3, 2)
    assert (config["pruning_threshold"], config["beam_width"]) == (5, None)
    assert tree["search_state"] == {"current_depth": 3, "frontier": [], "best_path": BEST}
    assert (tree["root_id"], next(iter(tree["nodes"]))) == ("root", "root")
    assert tree["nodes"]["node_3_1"] == {
        "id": "node_3_1",
        "parent_id": "node_2_1",
        "children_ids": [],
        "depth": 3,
        "content": "8 + 10 = 18 (left: 18)",
        "action_type": "addition",
        "evaluation": {"score": 0.5, "confidence": 0.99, "reasoning": "18 is not 24", "dimension_scores": {}},
        "status": "pruned",
        "metadata": {},
    }
    assert (tree["nodes"]["root"]["parent_id"], tree["nodes"]["root"]["evaluation"]) == (None, None)
    assert {id_: one["children_ids"] for id_, one in tree["nodes"].items()} == {
        id_: one.children_ids for id_, one in NODES.items()
    }


def test_tree_at_every_index_is_the_fold_of_what_was_said_until_then(searched, reader):
    for count in range(1, len(STORY) + 1):
        events = [searched.event(searched.start + at) for at in range(count)]
        expected = rows_of(THOUGHT_VIEW, TASK, events)
        tree, shown = (reader.answer(of, {"id": TASK}, searched.start + count - 1) for of in ("tot.tree", "tot.show"))
        (row,) = expected["tot_tasks"]
        assert tree["search_state"] == json.loads(row["search_state"])
        assert (shown["status"], shown["tree_digest"]) == (row["status"], row["tree_digest"])
        nodes = [(one["id"], one["status"], one["score"]) for one in expected.get("tot_nodes", [])]
        assert nodes == [
            (one["id"], one["status"], (one["evaluation"] or {}).get("score")) for one in tree["nodes"].values()
        ]


def test_view_folded_entry_by_entry_and_rebuilt_is_the_same(ledger, reader):
    told.register(ledger)
    ids = []
    for one in STORY:
        ids.append(
            ledger.emit(told.agent(one.role), f"tot/{TASK}", one.data, causes=[ids[cause] for cause in one.causes]).id
        )
        reader.catch_up()
    live = {query: reader.answer(query, {"id": TASK}) for query in ("tot.show", "tot.tree", "tot.prove")}
    digest = digests_of(reader.store)["tot"]
    assert verify_views(ledger.reads, reader.store, VIEWS) == []
    reader.rebuild(["tot"])
    assert digests_of(reader.store)["tot"] == digest
    assert live == {query: reader.answer(query, {"id": TASK}) for query in live}


def test_list_filters_and_pages(searched, reader):
    told.play(searched, told.story(OTHER)[:4], OTHER)
    found = reader.answer("tot.list")
    assert [(one["id"], one["status"]) for one in found["items"]] == [(OTHER, "searching"), (TASK, "solved")]
    assert [one["id"] for one in reader.answer("tot.list", {"status": "solved"})["items"]] == [TASK]
    assert reader.answer("tot.list", {"task_type": "planning"})["total"] == 0
    page = reader.answer("tot.list", {"limit": 1})
    assert reader.answer("tot.list", {"limit": 1, "after": page["next"]})["items"][0]["id"] == TASK


def test_task_shows_its_solution_with_all_its_fields(searched, reader):
    shown = reader.answer("tot.show", {"id": "tot-20260212"})
    assert shown["solution"] == {
        "answer": "(10 - (13 - 9)) × 4 = 24",
        "reasoning_trace": ["13 - 9 = 4", "10 - 4 = 6", "4 × 6 = 24"],
        "confidence": 0.99,
        "verification": {"is_valid": True, "by": "program", "validation_errors": []},
        "alternative_solutions": [],
    }
    assert shown["stats"] == shown["claimed_stats"]
    assert (shown["waiting"], len(shown["roles"])) == ([], 6)


def test_task_is_found_by_its_beginning_and_by_nothing_else(searched, reader):
    told.play(searched, told.story(OTHER)[:1], OTHER)
    for query in ("tot.show", "tot.tree", "tot.prove"):
        for asked, code in (
            ("tot-2026", "REF_AMBIGUOUS"),
            ("tot-2027", "NOT_FOUND"),
            ("", "NOT_FOUND"),
            ("tot/", "NOT_FOUND"),
        ):
            with pytest.raises(Refused) as refused:
                reader.answer(query, {"id": asked})
            assert refused.value.code == code


def test_proof_names_request_signer_key_and_index_of_every_answer(searched, reader):
    proof = reader.answer("tot.prove", {"id": TASK})
    answers = [at for at, one in enumerate(STORY) if isinstance(one.data, kinds.Answer)]
    assert [one["answer_index"] - searched.start for one in proof["answers"]] == answers
    for at, answer in zip(answers, proof["answers"], strict=True):
        event, asked = searched.event(searched.start + at), searched.event(searched.start + STORY[at].causes[0])
        assert (answer["answer_id"], answer["request_id"]) == (event.id, asked.id)
        assert (answer["signer"], answer["key"], answer["role"]) == (event.author, event.key, STORY[at].role)
        assert (answer["asked_by"], answer["asked_key"]) == (asked.author, asked.key)
        assert (answer["request_index"], answer["accepted_ms"]) == (asked.index, event.accepted_ms)
    assert (proof["unanswered"], proof["answered_itself"], proof["never_ran"], proof["missing"]) == ([], [], [], [])
    assert proof["passed"] is True


def test_proof_of_a_search_that_goes_on_names_what_waits(ledger, reader):
    told.register(ledger)
    told.play(ledger, STORY[:7])
    proof = reader.answer("tot.prove", {"id": TASK})
    assert [(one["type"], one["receiver"]) for one in proof["unanswered"]] == [
        ("initialize_search", "explorer"),
        ("generate_thoughts", "generator"),
    ]
    assert proof["never_ran"] == ["generator", "evaluator", "synthesizer"]
    assert (proof["missing"], proof["passed"]) == (["generator"], False)


def test_proof_fails_when_one_agent_answers_itself_by_another_key(ledger, reader):
    keys = {role: ledger.delegate("alice", key_named(f"alice as {role}")) for role in told.ROLES}
    roles = [kinds.RoleBinding(role=role, agent="alice", key=key.public.hex()) for role, key in keys.items()]
    ids = []
    for one in [STORY[0]._replace(data=told.started(roles=roles)), *STORY[1:]]:
        causes = [ids[cause] for cause in one.causes]
        ids.append(ledger.emit("alice", f"tot/{TASK}", one.data, key=keys[one.role], causes=causes).id)
    proof = reader.answer("tot.prove", {"id": TASK})
    assert proof["answered_itself"] == [one["answer_id"] for one in proof["answers"]]
    assert (proof["never_ran"], proof["passed"]) == ([], False)


def test_proof_fails_when_a_solved_search_had_no_evaluator(ledger, reader):
    told.register(ledger)
    path = kinds.SynthesizePayload(best_path=[told.ROOT], problem=told.PROBLEM, task_type="math_reasoning")
    asked = told.Said(
        "explorer",
        kinds.SynthesizeSolution(
            sender="explorer", to="synthesizer", type="synthesize_solution", task_id=TASK, payload=path
        ),
        (5,),
    )
    told.play(ledger, [*STORY[:6], asked, STORY[-2]._replace(causes=(6,))])
    proof = reader.answer("tot.prove", {"id": TASK})
    assert proof["never_ran"] == proof["missing"] == ["generator", "evaluator"]
    assert proof["passed"] is False
