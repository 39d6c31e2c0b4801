"""A Tree-of-Thoughts task on a real ledger: registered keys, the bound key of each role, the table of bad messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story as story
from building import Ledger, body_fields, key_named

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.transition import RULES, TotState, tree_digest
from deedbook.ledger.client.author import Draft
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.lifecycle.machine import FamilyState
from deedbook.ledger.log.keys import stream_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.format.identity import Key

STREAM = f"tot/{story.TASK}"


def code_of(submit: Callable[[], Any], ledger: Ledger) -> str:
    """Return the code of a refusal, which must leave the log unchanged."""
    return ledger.refusal_of(submit).code


def life(ledger: Ledger) -> TotState:
    """Return the state of the task that the gate has stored."""
    with ledger.log.snapshot() as snapshot:
        record = snapshot.record(stream_key(STREAM))
    assert record is not None
    assert isinstance(record.state, FamilyState)
    return RULES.unpack(record.state)


def test_whole_story_is_accepted_and_remembered(ledger: Ledger) -> None:
    story.register(ledger)
    story.play(ledger)
    assert life(ledger).is_ended
    assert tree_digest(life(ledger).nodes) == story.DIGEST


def test_role_needs_the_key_bound_at_the_start(ledger: Ledger) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:7])
    answer = story.STORY[7].data

    def answered_by(author: str, key: Key | None = None) -> Callable[[], Any]:
        return lambda: ledger.emit(author, STREAM, answer, key=key, causes=[ids[6]])

    # The explorer answers for the generator: first in its own name, then in the generator's.
    assert code_of(answered_by(story.agent("explorer")), ledger) == "NOT_AUTHORIZED"
    in_its_name = answered_by(story.agent("generator"), ledger.keys[story.agent("explorer")])
    assert code_of(in_its_name, ledger) == "AUTHOR_MISMATCH"
    # Another key of the right agent is not the one that was bound.
    other = ledger.delegate(story.agent("generator"), key_named("another"))
    assert code_of(answered_by(story.agent("generator"), other), ledger) == "NOT_AUTHORIZED"
    answered_by(story.agent("generator"))()


def test_roles_may_be_delegated_keys_of_one_agent(ledger: Ledger) -> None:
    keys = {role: ledger.delegate("alice", key_named(f"alice as {role}")) for role in story.ROLES}
    roles = [kinds.RoleBinding(role=role, agent="alice", key=key.public.hex()) for role, key in keys.items()]
    ids: list[str] = []
    for one in [story.STORY[0]._replace(data=story.started(roles=roles)), *story.STORY[1:]]:
        causes = [ids[cause] for cause in one.causes]
        ids.append(ledger.emit("alice", STREAM, one.data, key=keys[one.role], causes=causes).id)
    assert life(ledger).is_ended


def test_agent_without_a_role_that_works_says_nothing(ledger: Ledger) -> None:
    ledger.register(story.agent("orchestrator"), "admin")
    submit = lambda: ledger.emit(story.agent("orchestrator"), STREAM, story.started())  # noqa: E731 - called twice
    assert code_of(submit, ledger) == "NOT_AUTHORIZED"


def test_answer_is_given_once_however_often_it_is_sent(ledger: Ledger) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:8])
    generator, answer = story.agent("generator"), story.STORY[7].data
    size, _ = ledger.head()
    repeat = ledger.emit(generator, STREAM, answer, causes=[ids[6]])
    assert (repeat.is_repeat, repeat.id, ledger.head()[0]) == (True, ids[7], size)
    ledger.clock.advance(1)  # the same answer at another time is another answer
    again = lambda: ledger.emit(generator, STREAM, answer, causes=[ids[6]])  # noqa: E731 - called by the check
    assert code_of(again, ledger) == "TRANSITION_NOT_ALLOWED"


def test_two_answers_in_one_submission_leave_nothing_behind(ledger: Ledger) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:7])
    generator = story.agent("generator")
    first = Draft(stream=STREAM, data=story.STORY[7].data, causes=[ids[6]])
    second = Draft(stream=STREAM, data=story.generated([story.N12]), causes=[ids[6]])
    submission = ledger.sign(generator, first, second)
    assert code_of(lambda: ledger.submit(submission), ledger) == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("position", "fields", "code"),
    [
        (1, {"type": "initialize_search"}, "INVALID_FIELD"),
        (1, {"from": "boss"}, "INVALID_FIELD"),
        (1, {"from": None}, "INVALID_FIELD"),
        (1, {"payload": {"problem": "", "task_type": "planning"}}, "INVALID_FIELD"),
        (1, {"payload": {"problem": "p"}}, "INVALID_FIELD"),
        (1, {"payload": {"problem": "p", "task_type": "t", "mood": 1}}, "UNKNOWN_FIELD"),
        (1, {"mood": 1}, "UNKNOWN_FIELD"),
        (1, {"error": {"code": "INVALID_FORMAT", "message": "m"}}, "INVALID_FIELD"),
        (7, {"payload": {"candidates": [{"temp_id": f"c{at}", "content": "x"} for at in range(10_000)]}}, "TOO_LARGE"),
        (7, {"payload": {"candidates": [{"temp_id": "a/b", "content": "x"}]}}, "INVALID_FIELD"),
        (10, {"payload": {"evaluations": [{"node_id": "node_1_1", "score": 11, "confidence": 1}]}}, "INVALID_FIELD"),
        (10, {"payload": {"evaluations": [{"node_id": "node_1_1", "score": 7, "confidence": 2}]}}, "INVALID_FIELD"),
    ],
)
def test_message_of_the_wrong_shape_is_refused(
    ledger: Ledger, position: int, fields: dict[str, Any], code: str
) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:position])
    one = story.STORY[position]
    data = {name: value for name, value in (msgspec.to_builtins(one.data) | fields).items() if value is not None}
    author, causes = story.agent(one.role), [ids[cause] for cause in one.causes]
    kind = f"tot.{msgspec.to_builtins(one.data)['type']}"
    head = {"ledger": ledger.id, "author": author, "at": ledger.clock.text(), "causes": causes}
    body = body_fields(kind, STREAM, data, **head)
    submission = ledger.sign_bytes(author, encode_canonical(body))
    assert code_of(lambda: ledger.submit(submission), ledger) == code


def test_path_is_one_from_the_root_down_and_closes_as_it_was_searched(ledger: Ledger) -> None:
    story.register(ledger)
    nodes = [story.NODES[id_] for id_ in story.BEST]
    paths = [nodes[1:], nodes[::-1], [*nodes, nodes[-1]], [nodes[0], *nodes[2:]]]
    ids = story.play(ledger, story.STORY[:-3])
    explorer, asked = story.agent("explorer"), story.STORY[-3].data
    for path in paths:
        payload = msgspec.structs.replace(asked.payload, best_path=path)  # type: ignore[attr-defined]  # it has one
        wrong = msgspec.structs.replace(asked, payload=payload)
        submit = lambda data=wrong: ledger.emit(explorer, STREAM, data, causes=[ids[3]])  # noqa: E731 - called by the check
        assert code_of(submit, ledger) == "INVALID_FIELD"
    for one in story.STORY[-3:-1]:
        draft = Draft(stream=STREAM, data=one.data, causes=[ids[cause] for cause in one.causes])
        ids.append(ledger.submit(ledger.sign(story.agent(one.role), draft))[0].id)
    for path in paths:
        closing = story.complete(best_path=path)
        submit = lambda data=closing: ledger.emit(explorer, STREAM, data, causes=[ids[3]])  # noqa: E731 - called by the check
        assert code_of(submit, ledger) == "INVALID_FIELD"
    praised = msgspec.structs.replace(nodes[-1], evaluation=kinds.Evaluation(score=10.0, confidence=1.0))
    closing = story.complete(best_path=[*nodes[:-1], praised])
    submit = lambda data=closing: ledger.emit(explorer, STREAM, data, causes=[ids[3]])  # noqa: E731 - called by the check
    assert code_of(submit, ledger) == "VERSION_MISMATCH"
    ledger.emit(explorer, STREAM, story.complete(best_path=[]), causes=[ids[3]])


@pytest.mark.parametrize("position", [1, 3, 31])
def test_request_about_another_problem_than_the_tasks_is_refused(ledger: Ledger, position: int) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:position])
    one: Any = story.STORY[position]
    for fields in ({"problem": "1 1 1 1"}, {"task_type": "planning"}):
        other = msgspec.structs.replace(one.data, payload=msgspec.structs.replace(one.data.payload, **fields))
        causes = [ids[cause] for cause in one.causes]
        submit = lambda data=other: ledger.emit(story.agent(one.role), STREAM, data, causes=causes)  # noqa: E731, B023 - called by the check
        assert code_of(submit, ledger) == "INVALID_FIELD"


def test_logs_with_a_tree_replay_to_the_same_states(ledger: Ledger) -> None:
    story.register(ledger)
    story.play(ledger, story.STORY[:20])
    before = life(ledger)
    path = ledger.home.path
    ledger.close()
    with Ledger(path) as again:
        assert life(again) == before


def test_paid_answer_is_kept_once_within_the_size_of_an_entry_and_a_pause_is_resumed_once(ledger: Ledger) -> None:
    story.register(ledger)
    ids = story.play(ledger, story.STORY[:7])
    generator, orchestrator = story.agent("generator"), story.agent("orchestrator")

    def paid(length: int) -> kinds.TotModelAnswered:
        answer = {"candidates": ["x" * length]}
        return kinds.TotModelAnswered(
            sender="generator", task_id=story.TASK, prompt_sha256="5c" * 32, model="m", answer=answer
        )

    def resume() -> Any:
        data = kinds.TotResumed(sender="orchestrator", task_id=story.TASK, thinker="llm:other")
        return ledger.emit(orchestrator, STREAM, data)

    assert code_of(lambda: ledger.emit(generator, STREAM, paid(48 * 1024), causes=[ids[6]]), ledger) == "TOO_LARGE"
    ledger.emit(generator, STREAM, paid(40 * 1024), causes=[ids[6]])
    again = lambda: ledger.emit(generator, STREAM, paid(1), causes=[ids[6]])  # noqa: E731 - called by the check
    assert code_of(again, ledger) == "TRANSITION_NOT_ALLOWED"
    assert code_of(resume, ledger) == "TRANSITION_NOT_ALLOWED"
    error = kinds.Failure(code="LLM_UNAVAILABLE", message="429", recoverable=True)
    pause = kinds.TotPaused(sender="explorer", task_id=story.TASK, error=error)
    ledger.emit(story.agent("explorer"), STREAM, pause, causes=[ids[6]])
    resume()
    ledger.clock.advance(1)  # another resume is no repetition of the first
    assert code_of(resume, ledger) == "TRANSITION_NOT_ALLOWED"
