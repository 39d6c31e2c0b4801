"""The source text comes back whole, whatever its content; a text that is too long is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pieces import pieces

from deedbook.consumers.sdk.thinking.extract import extract_reasoning
from deedbook.consumers.sdk.thinking.response import read_tags
from deedbook.consumers.sdk.thinking.steps import split_steps
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import ReasoningType, StepType
from deedbook.projections.reasoning.memory import check_graph

if TYPE_CHECKING:
    from deedbook.consumers.sdk.thinking.extract import Extraction

# Nothing is lost


_FRAGMENTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<THINKING>",
            "</thinking>",
            "\n\n",
            "\r\n",
            "\r",
            "1. ",
            "- ",
            "一、",
            "第一步：",
            "```\n",
            "So. ",
            "e.g. ",
            "……",
            "综上，更换。",
            "\u202e\u2066",
            "\x00\x1b[2J",
            "\u2028\x85\x1c",
            "🙂‍🙂",
            "x" * 1_200,
            "因此" * 300,
            " " * 50,
        ]
    ),
)
# No event can hold half of a surrogate pair; another test covers those.
_TEXTS = st.lists(_FRAGMENTS, max_size=12).map(lambda parts: "".join(parts).encode(errors="replace").decode())


def has_thinking(response: str | dict[str, str]) -> bool:
    if isinstance(response, dict):
        return bool(response["thinking"].strip())
    return any(response[slice(*region)].strip() for region in read_tags(response).thinking)


def check_lossless(found: Extraction) -> None:
    check_graph(found.memory)
    steps = {step.step_number: step for step in found.memory.steps}
    for number, source in enumerate(found.sources):
        parts = list(pieces(found, number))
        assert "".join(piece.text for piece in parts).encode() == source.text.encode()
        for piece in parts:
            if piece.step is not None:
                assert steps.pop(piece.step).content == piece.text
    assert steps == {}
    for step in found.memory.steps:
        assert step.content.strip() == step.content != ""
        assert step.type in get_args(StepType)
        assert step.reasoning_type in get_args(ReasoningType)


def words_outside_steps(found: Extraction, source: int) -> str:
    """Return the letters in the gaps within the thinking of a source; only list marks may be there."""
    text = found.sources[source].text
    kept = list(text)
    for span in found.spans.values():
        if span.source == source:
            kept[span.start : span.end] = "\0" * (span.end - span.start)
    inside = "".join("".join(kept[slice(*region)]) for region in found.sources[source].thinking)
    return "".join(sign for sign in inside if sign.isalpha())


@given(_TEXTS)
@example("<think>a<think>b</think>c</think>d")
@example("1. \n\n2. x")
def test_steps_and_gaps_give_the_source_back_byte_for_byte(text: str) -> None:
    for response in ({"thinking": text, "content": text}, f"<think>{text}"):
        if has_thinking(response):
            check_lossless(extract_reasoning(response))


@given(
    st.lists(st.sampled_from(["Alpha beta. ", "so gamma! ", "更换密钥。", "maybe delta\n", "\n\n", "\t"]), max_size=30)
)
def test_every_word_of_thinking_stands_in_a_step(parts: list[str]) -> None:
    text = "".join(parts)
    if text.strip():
        assert words_outside_steps(extract_reasoning({"thinking": text}), 0) == ""


def test_invisible_characters_stay_in_their_step() -> None:
    text = "The secret\u202e is \x00safe\u2066.\u2028 Really\x85?"
    found = extract_reasoning({"thinking": text})
    check_lossless(found)
    assert "\u202e" in found.memory.steps[0].content


# Bad input


@pytest.mark.parametrize(
    "thinking",
    [
        "x" * 1_100_000,
        "word. " * 1_000_000,
        "密" * 400_000,
    ],
    ids=["one word", "5 MB of sentences", "Chinese"],
)
def test_more_thinking_than_a_graph_holds_is_refused(thinking: str) -> None:
    with pytest.raises(Refused) as refused:
        extract_reasoning({"thinking": thinking})
    assert refused.value.code == "TOO_LARGE"


def test_more_steps_than_a_graph_holds_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        extract_reasoning({"thinking": "a\n\n" * 10_001})
    assert refused.value.code == "TOO_LARGE"
    assert "10001 steps" in refused.value.message


@pytest.mark.parametrize(
    "run", [".", "!", "…", "```\n ", "“", " ", "- ", "*", "\n ", "(", "so ", "answer ", "第", "\t"]
)
def test_long_runs_of_any_mark_are_read_in_one_pass(run: str) -> None:
    # Quadratic patterns would take minutes here and exceed the suite's timeout.
    text = run * (200_000 // len(run)) + "end"
    spans = split_steps(text, (0, len(text)))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert text[slice(*spans[-1])].endswith("end")
