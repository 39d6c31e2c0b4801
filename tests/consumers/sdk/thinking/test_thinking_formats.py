"""Every form in which a response carries thinking, and refusals of responses that carry none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pieces import pieces

from deedbook.consumers.sdk.thinking.extract import extract_reasoning, extract_reasoning_from_minimax
from deedbook.consumers.sdk.thinking.response import Note, read_tags
from deedbook.ledger.errors import Refused


def refusal_of(response: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        extract_reasoning(response)
    return refused.value


def contents(response: Any) -> list[str]:
    return [step.content for step in extract_reasoning(response).memory.steps]


ANTHROPIC = {
    "model": "claude-sonnet-4.5",
    "content": [
        {"type": "thinking", "thinking": "The disk is full.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "1", "name": "df", "input": {}},
        {"type": "thinking", "thinking": "So the backup stops."},
        {"type": "text", "text": "Move the backup."},
    ],
}
TWO = ["The disk is full.", "So the backup stops."]


def message(**fields: Any) -> dict[str, Any]:
    return {"model": "deepseek", "choices": [{"index": 0, "message": {"role": "assistant"} | fields}]}


FORMS = {
    "minimax": ({"thinking": "\n".join(TWO), "content": "Move the backup."}, "minimax"),
    "minimax, a list of texts": ({"thinking": TWO, "answer": "Move the backup."}, "minimax"),
    "minimax, a list of objects": (
        {"thinking": [{"thinking": TWO[0]}, {"text": TWO[1]}], "text": "Move the backup."},
        "minimax",
    ),
    "a message with thinking": ({"message": {"thinking": " ".join(TWO), "content": "Move the backup."}}, "minimax"),
    "anthropic": (ANTHROPIC, "anthropic"),
    "anthropic, the blocks alone": (ANTHROPIC["content"], "anthropic"),
    "anthropic, in a transcript": ({"type": "assistant", "message": ANTHROPIC}, "anthropic"),
    "deepseek": (message(reasoning_content=" ".join(TWO), content="Move the backup."), "openai"),
    "compatible": (message(reasoning=" ".join(TWO), content="Move the backup."), "openai"),
    "compatible, with details": (
        message(reasoning_details=[{"text": one} for one in TWO], content="Move the backup."),
        "openai",
    ),
    "a message alone": ({"reasoning_content": " ".join(TWO), "content": "Move the backup."}, "openai"),
    "tags in a message": (message(content=f"<think>{' '.join(TWO)}</think>Move the backup."), "openai"),
    "tags in a text": (f"<think>{' '.join(TWO)}</think>\n\nMove the backup.", "text"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_steps_and_conclusion(name: str) -> None:
    response, form = FORMS[name]
    found = extract_reasoning(response)
    assert found.format == form
    assert [step.content for step in found.memory.steps] == TWO
    assert (found.memory.conclusion, found.conclusion_from) == ("Move the backup.", "answer")
    if not isinstance(response, str):
        encoded = json.dumps(response)
        assert extract_reasoning(encoded) == extract_reasoning(encoded.encode()) == found
    assert extract_reasoning_from_minimax(response) == found.memory


def test_redacted_blocks_and_signatures_are_reported() -> None:
    found = extract_reasoning(ANTHROPIC)
    assert found.notes == [Note("redacted", "content[1]")]
    assert [(source.path, source.signature) for source in found.sources if source.thinking] == [
        ("content[0].thinking", "c2ln"),
        ("content[4].thinking", ""),
    ]
    assert found.memory.ai_id == "claude-sonnet-4.5"


def test_other_choices_are_named_and_not_mixed_in() -> None:
    response = message(reasoning_content="The disk is full.")
    response["choices"].append({"index": 1, "message": {"reasoning_content": "The cable is loose."}})
    found = extract_reasoning(response)
    assert contents(response) == ["The disk is full."]
    assert found.notes == [Note("other_choice", "choices[1]")]


def test_what_is_given_wins_over_what_the_response_says() -> None:
    response = {"thinking": "x", "model": "m", "prompt": "Why?"}
    assert extract_reasoning(response).memory.task == "Why?"
    memory = extract_reasoning(response, task="How?", ai_id="n").memory
    assert (memory.task, memory.ai_id) == ("How?", "n")


def test_answer_that_speaks_of_tags_beside_real_thinking_is_left_alone() -> None:
    found = extract_reasoning(message(reasoning_content="The disk is full.", content="Write <think>x</think> there."))
    assert len(found.memory.steps) == 1
    assert found.memory.conclusion == "Write <think>x</think> there."


# Tags


@pytest.mark.parametrize(
    ("text", "steps", "conclusion", "notes"),
    [
        ("<think>a</think>b", ["a"], "b", []),
        ("<THINK>a</Think>b", ["a"], "b", []),
        ("<thinking>a</thinking>b", ["a"], "b", []),
        ("x<think>a</think>y<think>b</think>z", ["a", "b"], "z", []),
        ("<think>a", ["a"], "", ["unclosed_tag"]),
        ("b<think>a", ["a"], "b", ["unclosed_tag"]),
        ("a</think>b", ["a"], "b", ["unopened_tag"]),
        ("<think>a<think>b</think>c</think>d", ["a", "b", "c"], "d", []),
        ("<think>a<think>b</think>d", ["a", "b"], "d", ["unclosed_tag"]),
        ("<think>a</think>b</think>c", ["a"], "c", []),
        ("<think></think><think>a</think>", ["a"], "", []),
        ("<think>1 < 2 and <thin> and </ think></think>b", ["1 < 2 and <thin> and </ think>"], "b", []),
        ("[note] {x} <think>a</think>b", ["a"], "b", []),
        ('{"no json <think>a</think>b', ["a"], "b", []),
    ],
)
def test_tags_are_read_however_carelessly_they_stand(
    text: str, steps: list[str], conclusion: str, notes: list[str]
) -> None:
    found = extract_reasoning(text)
    assert [step.content for step in found.memory.steps] == steps
    assert found.memory.conclusion == conclusion
    assert [note.kind for note in found.notes] == notes
    assert "".join(piece.text for piece in pieces(found)) == text


def test_text_without_tags_is_all_answer() -> None:
    assert read_tags("just an answer") == ((), ((0, 14),), False, False)


def test_a_hundred_thousand_tags_are_read() -> None:
    assert len(read_tags("<think>a" * 100_000).thinking) == 100_000


# Refused


@pytest.mark.parametrize(
    "response",
    [
        "",
        b"",
        "no thinking here",
        "{not json",
        "{}",
        "[]",
        "null",
        "42",
        None,
        42,
        {"thinking": ""},
        {"thinking": " \n "},
        {"thinking": None, "content": "x"},
        {"thinking": []},
        {"content": [{"type": "text", "text": "x"}]},
        message(content="x"),
        message(reasoning_content=""),
        "<think></think>x",
        b"\xff\xfe<think>x",
        '{"thinking": NaN}',
    ],
)
def test_response_without_readable_thinking_is_refused(response: Any) -> None:
    assert refusal_of(response).code == "INVALID_FORMAT"


def test_response_with_nothing_but_redacted_thinking_says_so() -> None:
    refusal = refusal_of({"content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "y"}]})
    assert (refusal.code, refusal.details) == ("INVALID_FORMAT", {"redacted": ["content[0]"]})


@pytest.mark.parametrize(
    ("response", "field"),
    [
        ({"thinking": 7}, "thinking"),
        ({"thinking": ["x", 7]}, "thinking[1]"),
        ({"content": [{"type": "thinking", "thinking": ["x"]}]}, "content[0].thinking"),
        ({"content": ["x"]}, "content[0]"),
        ({"choices": []}, "choices[0].message"),
        ({"choices": [{"message": "x"}]}, "choices[0].message"),
        (message(reasoning_content=7), "choices[0].message.reasoning_content"),
        ({"thinking": "half a pair: \ud800"}, "thinking"),
        ('{"thinking": "half a pair: \\ud800"}', "thinking"),
        ({"thinking": "x", "model": 7}, "model"),
    ],
)
def test_field_that_is_not_what_it_should_be_is_named(response: Any, field: str) -> None:
    refusal = refusal_of(response)
    assert (refusal.code, refusal.details["field"]) == ("INVALID_FIELD", field)


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("half a pair \ud800 <think>x", "INVALID_FORMAT"),
        ('{"thinking": "a", "thinking": "b"}', "DUPLICATE_KEY"),
        ('{"thinking": ' + "[" * 100 + "]" * 100 + "}", "NESTING_TOO_DEEP"),
        (b"x" * (16 * 1024**2 + 1), "TOO_LARGE"),
        ("<think>" + "x" * 5_000_000, "TOO_LARGE"),
    ],
)
def test_bytes_that_no_event_could_hold_are_refused_with_their_code(response: Any, code: str) -> None:
    assert refusal_of(response).code == code
