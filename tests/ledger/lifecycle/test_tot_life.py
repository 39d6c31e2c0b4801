"""A search accepts no message that is repeated, comes from the wrong one of its six agents, or names unknown nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story as story
from given import fold, refusal
from tot_story import N11, N12, N21, N32, NODES, ROOT, TASK, spoken

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.transition import TotState, node_states, transition, tree_digest
from deedbook.ledger.format.codec import decode_packed, encode_packed

if TYPE_CHECKING:
    from deedbook.ledger.errors import Refused
    from deedbook.ledger.events.fields import EventData

EVENTS = story.events()
STORY = story.STORY
COMPLETE = len(STORY) - 1
FAILED = kinds.Failure(code="GENERATION_FAILED", message="The model gave nothing.", recoverable=True)
# The first position of each message in the story. A level has five messages: generate to results.
DECOMPOSE, SHAPED, INITIALIZE, ROOTED, GENERATE, GENERATED, ADDED, EVALUATE, RESULTS, PRUNED = (
    *(1, 2, 3, 4),
    *(6, 7, 8, 9, 10, 11),
)


def after(count: int) -> TotState:
    """Return the state after the first ``count`` events of the story."""
    return fold(transition, *EVENTS[:count])


def refused(count: int, role: str, data: EventData, causes: tuple[int, ...] = (), **given: Any) -> Refused:
    """Return the refusal of a message after the first ``count`` events of the story."""
    return refusal(transition, after(count), spoken(role, data, index=900, causes=causes, **given))


def changed(position: int, **fields: Any) -> Any:
    """Return the data at a position of the story, with other fields."""
    return msgspec.structs.replace(STORY[position].data, **fields)


def payload_changed(position: int, **fields: Any) -> Any:
    """Return the data at a position of the story, with other fields in its payload."""
    return changed(position, payload=msgspec.structs.replace(STORY[position].data.payload, **fields))  # type: ignore[attr-defined]  # a message


def test_whole_story_is_allowed_and_leaves_nothing_open() -> None:
    state = after(len(STORY))
    assert (state.is_decomposed, state.is_ended, state.waiting, state.drawn) == (True, True, {}, {})
    assert {id_: node.status for id_, node in state.nodes.items()} == {id_: one.status for id_, one in NODES.items()}
    assert tree_digest(state.nodes) == story.DIGEST
    assert state.answered[EVENTS[DECOMPOSE].id] == EVENTS[SHAPED].id
    assert state.answered[EVENTS[INITIALIZE].id] == EVENTS[COMPLETE].id


def test_state_survives_its_packed_form_after_every_event() -> None:
    state: TotState | None = None
    decoder = msgspec.msgpack.Decoder(TotState)
    for event in EVENTS:
        state = transition(state, event)
        assert decode_packed(encode_packed(state), decoder) == state
        state = decode_packed(encode_packed(state), decoder)
    assert state == after(len(STORY))


@pytest.mark.parametrize("position", range(1, len(STORY)))
def test_every_message_is_said_by_its_role_with_the_key_bound_at_the_start(position: int) -> None:
    one = STORY[position]
    wrong = next(role for role in story.ROLES if role != one.role)
    for author, key in ((wrong, wrong), (one.role, wrong), (wrong, one.role)):
        found = refused(position, author, one.data, one.causes, key=key)
        assert (found.code, found.details) == ("NOT_AUTHORIZED", {"role": one.role})


@pytest.mark.parametrize("position", range(1, len(STORY)))
def test_nothing_is_said_of_a_task_that_nobody_started(position: int) -> None:
    assert refusal(transition, None, EVENTS[position]).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("position", [at for at, one in enumerate(STORY) if hasattr(one.data, "task_id")])
def test_message_of_another_task_is_refused(position: int) -> None:
    other = changed(position, task_id="tot-20260212-100000-zzzzzz")
    event = spoken(STORY[position].role, other, index=900, causes=STORY[position].causes)
    state = after(position) if position else None
    assert refusal(transition, state, event).details == {"path": "$.data.task_id"}


def test_task_is_started_once_by_its_orchestrator() -> None:
    assert refusal(transition, after(1), EVENTS[0]).code == "TRANSITION_NOT_ALLOWED"
    assert refusal(transition, None, spoken("explorer", story.started(), index=0)).code == "NOT_AUTHORIZED"


def test_six_roles_have_six_keys() -> None:
    roles = story.started().roles
    twice = [*roles[:5], msgspec.structs.replace(roles[5], role=roles[0].role)]
    one_key = [*roles[:5], msgspec.structs.replace(roles[5], key=roles[4].key)]
    one_agent = [msgspec.structs.replace(role, agent=story.agent("orchestrator")) for role in roles]
    for bound in (twice, one_key):
        found = refusal(transition, None, spoken("orchestrator", story.started(roles=bound), index=0))
        assert (found.code, found.details) == ("INVALID_FIELD", {"path": "$.data.roles"})
    # One agent may play all roles, if it delegates a key to each.
    assert transition(None, spoken("orchestrator", story.started(roles=one_agent), index=0)).roles.keys() == set(
        story.ROLES
    )


@pytest.mark.parametrize("position", [at for at, one in enumerate(STORY) if isinstance(one.data, kinds.Answer)])
def test_answer_names_the_request_it_answers_and_is_given_once(position: int) -> None:
    one = STORY[position]
    for causes in ((), (0,), (position,)):
        found = refused(position, one.role, one.data, causes)
        assert found.code == "TRANSITION_NOT_ALLOWED"
        assert "that it answers in its causes" in str(found)
    if position != COMPLETE:
        again = refused(position + 1, one.role, one.data, one.causes)
        assert again.code == "TRANSITION_NOT_ALLOWED"
        assert "is already answered" in str(again)


def test_answer_to_two_requests_is_refused() -> None:
    second = spoken("explorer", story.generate(ROOT), index=500)
    both = spoken("generator", story.generated([N11]), index=501, causes=(GENERATE, 500))
    found = refusal(transition, transition(after(GENERATE + 1), second), both)
    assert (found.code, found.details) == ("INVALID_FIELD", {"path": "$.causes"})


def test_answer_to_another_sort_of_request_is_refused() -> None:
    found = refused(GENERATE + 1, "evaluator", story.evaluated([N11]), (GENERATE,))
    assert found.code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("position", [SHAPED, GENERATED, RESULTS, COMPLETE - 1])
def test_answer_has_a_payload_or_an_error(position: int) -> None:
    one = STORY[position]
    nothing = refused(position, one.role, changed(position, payload=None), one.causes)
    assert (nothing.code, nothing.details) == ("INVALID_FIELD", {"path": "$.data.payload"})
    failed = spoken(one.role, changed(position, payload=None, error=FAILED), index=900, causes=one.causes)
    assert one.causes[0] not in transition(after(position), failed).waiting


def test_failed_generation_leaves_nothing_to_add_and_may_be_asked_again() -> None:
    failed = spoken("generator", changed(GENERATED, payload=None, error=FAILED), index=7, causes=(GENERATE,))
    state = transition(after(GENERATED), failed)
    found = refusal(transition, state, EVENTS[ADDED])
    assert found.code == "INVALID_FIELD"
    assert transition(state, spoken("explorer", story.generate(ROOT), index=8, causes=(7,))).waiting


def test_failed_decomposition_is_not_searched() -> None:
    failed = spoken("decomposer", changed(SHAPED, payload=None, error=FAILED), index=2, causes=(DECOMPOSE,))
    assert refusal(transition, transition(after(SHAPED), failed), EVENTS[INITIALIZE]).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("count", "position"),
    [
        # After the first ``count`` events of the story, the message at ``position`` comes.
        (SHAPED, DECOMPOSE),  # the request comes a second time, before its answer
        (SHAPED, INITIALIZE),  # the search begins before the answer with the decomposition
        (INITIALIZE, GENERATE),  # this message and the next four come before the search begins
        (INITIALIZE, ROOTED),
        (INITIALIZE, EVALUATE),
        (INITIALIZE, PRUNED),
        (INITIALIZE, COMPLETE),
        (ROOTED, DECOMPOSE),  # this message and the next come a second time, during the search
        (ROOTED, INITIALIZE),
    ],
)
def test_message_out_of_order_is_refused(count: int, position: int) -> None:
    one = STORY[position]
    assert refused(count, one.role, one.data, one.causes).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("position", [at for at, one in enumerate(STORY) if isinstance(one.data, kinds.Message)])
def test_message_goes_to_the_role_that_the_protocol_says(position: int) -> None:
    one = STORY[position]
    wrong = next(role for role in story.ROLES if role not in (one.role, STORY[position].data.to))  # type: ignore[attr-defined]  # a message
    for fields in ({"to": wrong}, {"sender": wrong}, {"to": one.role}):
        found = refused(position, one.role, changed(position, **fields), one.causes)
        assert (found.code, found.details) == ("INVALID_FIELD", {"path": "$.data.from"})


@pytest.mark.parametrize(
    ("node", "path"),
    [
        (msgspec.structs.replace(N11, id="root"), "$.data.nodes[0].id"),
        (msgspec.structs.replace(N11, parent_id="node_9_9"), "$.data.nodes[0].parent_id"),
        (msgspec.structs.replace(N11, parent_id=None, depth=0), "$.data.nodes[0].parent_id"),
        (msgspec.structs.replace(N11, depth=2), "$.data.nodes[0].depth"),
        (msgspec.structs.replace(N11, depth=0), "$.data.nodes[0].depth"),
        (msgspec.structs.replace(N11, status="terminal"), "$.data.nodes[0]"),
        (msgspec.structs.replace(N11, evaluation=story.SCORES["node_1_1"]), "$.data.nodes[0]"),
        (msgspec.structs.replace(N11, children_ids=["node_2_1"]), "$.data.nodes[0]"),
        (msgspec.structs.replace(N11, content="13 - 9 = 5 (left: 4 5 10)"), "$.data.nodes"),
        (msgspec.structs.replace(N11, action_type="magic"), "$.data.nodes"),
    ],
)
def test_node_that_does_not_fit_is_refused(node: kinds.ThoughtNode, path: str) -> None:
    found = refused(ADDED, "explorer", kinds.TotNodesAdded(nodes=[node, N12], temp_ids=["cand_1", "cand_2"]), (7,))
    assert (found.code, found.details["path"]) == ("INVALID_FIELD", path)


@pytest.mark.parametrize(
    ("temp_ids", "causes"),
    [
        (["cand_1", "cand_3"], (GENERATED,)),  # cand_3 is unknown
        (["cand_1", "cand_1"], (GENERATED,)),  # twice
        (["cand_2", "cand_1"], (GENERATED,)),  # swapped: node_1_1 is not the thought of cand_2
        (["cand_1"], (GENERATED,)),
        ([], (GENERATED,)),
        (["cand_1", "cand_2"], ()),  # caused by no answer
        (["cand_1", "cand_2"], (GENERATE,)),  # caused by the request
    ],
)
def test_nodes_come_from_thoughts_of_the_generator(temp_ids: list[str], causes: tuple[int, ...]) -> None:
    added = kinds.TotNodesAdded(nodes=[N11, N12], temp_ids=temp_ids)
    assert refused(ADDED, "explorer", added, causes).code == "INVALID_FIELD"


def test_temporary_id_becomes_one_node_and_the_others_may_come_later() -> None:
    first = spoken("explorer", kinds.TotNodesAdded(nodes=[N12], temp_ids=["cand_2"]), index=8, causes=(GENERATED,))
    state = transition(after(ADDED), first)
    again = msgspec.structs.replace(N12, id="node_1_3")
    twice = spoken("explorer", kinds.TotNodesAdded(nodes=[again], temp_ids=["cand_2"]), index=9, causes=(GENERATED,))
    assert refusal(transition, state, twice).details["path"] == "$.data.temp_ids"
    other = spoken("explorer", kinds.TotNodesAdded(nodes=[N11], temp_ids=["cand_1"]), index=9, causes=(GENERATED,))
    assert transition(state, other).drawn == {}


def test_thought_from_one_node_cannot_grow_from_another() -> None:
    moved = msgspec.structs.replace(N21, parent_id="node_1_2")
    state = transition(after(EVALUATE), spoken("explorer", story.generate(N11), index=500))
    state = transition(state, spoken("generator", story.generated([N21]), index=501, causes=(500,)))
    added = kinds.TotNodesAdded(nodes=[moved], temp_ids=["cand_1"])
    found = refusal(transition, state, spoken("explorer", added, index=502, causes=(501,)))
    assert (found.code, found.details["path"]) == ("INVALID_FIELD", "$.data.nodes")


def test_two_candidates_with_one_temporary_id_are_refused() -> None:
    candidate = kinds.Candidate(temp_id="cand_1", content="x")
    twice = payload_changed(GENERATED, candidates=[candidate, candidate])
    assert refused(GENERATED, "generator", twice, (GENERATE,)).code == "INVALID_FIELD"


def test_root_is_alone_and_there_is_one() -> None:
    together = kinds.TotNodesAdded(nodes=[ROOT, N11])
    assert refused(ROOTED, "explorer", together).details == {"path": "$.data.nodes"}
    drawn = kinds.TotNodesAdded(nodes=[ROOT], temp_ids=["cand_1"])
    assert refused(ROOTED, "explorer", drawn).details == {"path": "$.data.nodes"}
    second = kinds.TotNodesAdded(nodes=[msgspec.structs.replace(ROOT, id="root2")])
    assert refused(GENERATE, "explorer", second).details == {"path": "$.data.nodes[0].parent_id"}


@pytest.mark.parametrize("status", ["pruned", "terminal"])
def test_nothing_grows_from_a_pruned_or_terminal_node(status: str) -> None:
    state = transition(after(PRUNED), spoken("explorer", story.marked(status, "node_1_2"), index=500))
    asked = refusal(transition, state, spoken("explorer", story.generate(N12), index=501))
    assert asked.code == "TRANSITION_NOT_ALLOWED"
    # The same holds if the node was pruned after the generator was asked.
    state = transition(after(PRUNED), spoken("explorer", story.generate(N11), index=500))
    state = transition(state, spoken("generator", story.generated([N21]), index=501, causes=(500,)))
    state = transition(state, spoken("explorer", story.marked(status, "node_1_1"), index=502))
    added = kinds.TotNodesAdded(nodes=[N21], temp_ids=["cand_1"])
    late = refusal(transition, state, spoken("explorer", added, index=503, causes=(501,)))
    assert late.code == "TRANSITION_NOT_ALLOWED"


def test_message_about_a_node_shows_it_as_it_is_in_the_tree() -> None:
    other = msgspec.structs.replace(N11, content="13 - 9 = 5")
    unknown = msgspec.structs.replace(N11, id="node_9_9")
    path = kinds.SynthesizePayload(best_path=[ROOT, other], problem=story.PROBLEM, task_type="math_reasoning")
    for data in (
        story.generate(other),
        story.generate(unknown),
        story.evaluate([N12, other]),
        story.evaluate([unknown]),
        changed(COMPLETE - 2, payload=path),
        story.marked("pruned", "node_9_9"),
        kinds.TotBacktracked(node_id="node_9_9", reason="r"),
        kinds.TotBacktracked(node_id="root", to_node_id="node_9_9", reason="r"),
    ):
        found = refused(EVALUATE, "explorer", data)
        assert (found.code, set(found.details)) == ("INVALID_FIELD", {"node_id"})


@pytest.mark.parametrize("fields", [{"ranking": ["root"]}, {"pruning_suggestions": ["node_9_9"]}])
def test_evaluation_of_what_nobody_asked_about_is_refused(fields: dict[str, list[str]]) -> None:
    found = refused(RESULTS, "evaluator", payload_changed(RESULTS, **fields), (EVALUATE,))
    assert found.code == "INVALID_FIELD"
    asked_one = transition(after(RESULTS), spoken("explorer", story.evaluate([N12]), index=500))
    both = spoken("evaluator", STORY[RESULTS].data, index=501, causes=(500,))
    assert refusal(transition, asked_one, both).details == {"node_id": "node_1_1"}


def tree_with(**nodes: kinds.ThoughtNode) -> kinds.ThoughtTree:
    return msgspec.structs.replace(story.tree(), nodes=NODES | nodes)


N32_LEFT = NODES["node_3_2"]
DIFFERENT = {
    "digest": {"tree_digest": "0" * 64, "tree": None},
    "digest beside the right tree": {"tree_digest": "0" * 64},
    "content": {"tree": tree_with(node_3_2=msgspec.structs.replace(N32_LEFT, content="4 × 6 = 25"))},
    "status": {"tree": tree_with(node_3_2=msgspec.structs.replace(N32_LEFT, status="pruned"))},
    "score": {"tree": tree_with(node_3_2=msgspec.structs.replace(N32_LEFT, evaluation=story.SCORES["node_1_1"]))},
    "not evaluated": {"tree": tree_with(node_3_2=N32)},
    "children": {"tree": tree_with(node_3_2=msgspec.structs.replace(N32_LEFT, children_ids=["root"]))},
    "one node twice": {"tree": tree_with(node_9_9=N32_LEFT)},
    "key": {
        "tree": msgspec.structs.replace(
            story.tree(), nodes={"node_9_9" if id_ == "node_3_2" else id_: one for id_, one in NODES.items()}
        )
    },
    "left out": {"tree": msgspec.structs.replace(story.tree(), nodes={"root": NODES["root"]})},
    "problem": {"tree": msgspec.structs.replace(story.tree(), problem="1 1 1 1")},
    "task type": {"tree": msgspec.structs.replace(story.tree(), task_type="planning")},
    "search": {
        "tree": msgspec.structs.replace(
            story.tree(), search_config=msgspec.structs.replace(story.CONFIG, strategy="BFS")
        )
    },
    "root": {"tree": msgspec.structs.replace(story.tree(), root_id="node_1_1")},
    "task": {"tree": story.tree("tot-20260212-100000-zzzzzz")},
    "its own digest": {
        "tree": msgspec.structs.replace(story.tree(), nodes={"root": ROOT}),
        "tree_digest": tree_digest(node_states([ROOT])),
    },
}


@pytest.mark.parametrize("fields", DIFFERENT.values(), ids=DIFFERENT)
def test_closing_tree_that_differs_from_the_search_is_refused(fields: dict[str, Any]) -> None:
    found = refused(COMPLETE, "explorer", story.complete(**fields), STORY[COMPLETE].causes)
    assert (found.code, found.details) == ("VERSION_MISMATCH", {"tree_digest": story.DIGEST})


def test_closing_tree_may_be_a_digest_alone_and_its_nodes_in_any_order() -> None:
    turned = msgspec.structs.replace(story.tree(), nodes=dict(reversed(NODES.items())))
    for fields in ({"tree": None}, {"tree": turned}, {"tree": None, "tree_ref": "blake3:" + "1" * 64}):
        event = spoken("explorer", story.complete(**fields), index=900, causes=(INITIALIZE,))
        assert transition(after(COMPLETE), event).is_ended


def test_closing_path_that_differs_from_the_search_is_refused() -> None:
    path = [msgspec.structs.replace(N32_LEFT, content="4 × 6 = 25")]
    found = refused(COMPLETE, "explorer", story.complete(best_path=path), (INITIALIZE,))
    assert found.code == "INVALID_FIELD"


def test_after_the_end_only_words_for_people_follow() -> None:
    state = after(len(STORY))
    for position, one in enumerate(STORY):
        event = spoken(one.role, one.data, index=900, causes=one.causes)
        if isinstance(one.data, kinds.TotLogWritten | kinds.TotError):
            assert transition(state, event) == state
        else:
            assert refusal(transition, state, event).code == "TRANSITION_NOT_ALLOWED", position


def test_messages_do_not_belong_on_the_stream_of_another_task() -> None:
    other = spoken("orchestrator", story.started(), index=0, task="tot-20260212-100000-zzzzzz")
    assert refusal(transition, None, other).details == {"path": "$.data.task_id"}
    assert other.name != TASK
