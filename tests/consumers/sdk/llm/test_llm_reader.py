"""A model writes text around, beside or instead of the requested object, and the reader finds the object."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest

from deedbook.consumers.sdk.llm.reader import read_answer, read_number
from deedbook.ledger.errors import Refused

Share = Annotated[float, msgspec.Meta(ge=0, le=1, description="A share.")]


class Score(msgspec.Struct):
    score: Annotated[float, msgspec.Meta(ge=0, le=10)]
    confidence: Share = 0.5
    reasoning: Annotated[str, msgspec.Meta(max_length=20)] = ""
    steps: Annotated[list[str], msgspec.Meta(max_length=3)] = []
    free: dict[str, Any] = {}


EIGHT = Score(8)


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 8}',
        '  \n{"score": 8.0}\n',
        '```json\n{"score": 8}\n```',
        'Sure! Here is my answer:\n```\n{"score": 8}\n```\nI hope {it} helps.',
        'Sure! {"score": 8} is what I think of {x}.',
        '<think>{"score": 1}? No.</think>{"score": 8}',
        'It was in the prompt {"score": 1}</think>{"score": 8}',
        '{"score": 8, "rationale": "not asked for", "confidence": null}',
        '{"question": "which?"} {"score": 8}',
        '{"score": 8} {"score": 8}',
        '{"score": 8, "free": {},\n}',
        'So: {"steps": [], "score": 8,}',
        '{"score": "8"}',
        '{"score": "8.0"}',
        '{"score": "8/10"}',
        '{"score": " 4 / 5 "}',
        '{"score": "8 out of 10"}',
        '{"score": "80%"}',
        '{"score": "80 %"}',
    ],
)
def test_what_a_reader_sees_at_once_is_read(text: str) -> None:
    assert read_answer(text, Score) == EIGHT


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"confidence": "80%"}, {"confidence": 0.8}),
        ({"confidence": "8/10"}, {"confidence": 0.8}),
        ({"confidence": 1}, {"confidence": 1.0}),
        ({"reasoning": 24}, {"reasoning": "24"}),
        ({"reasoning": {"a": "é"}}, {"reasoning": '{"a": "é"}'}),
        ({"reasoning": "80%"}, {"reasoning": "80%"}),
        ({"reasoning": "x" * 30}, {"reasoning": "x" * 20}),
        ({"reasoning": "uses <think> and </think>"[:20]}, {"reasoning": "uses <think> and </t"}),
        ({"steps": "one"}, {"steps": ["one"]}),
        ({"steps": ["1", 2, "3", "4", None]}, {"steps": ["1", "2", "3"]}),
        ({"steps": None}, {}),
        ({"free": {"a": [1, None]}}, {"free": {"a": [1, None]}}),
    ],
)
def test_field_is_read_as_it_is_meant(fields: dict[str, Any], kept: dict[str, Any]) -> None:
    assert read_answer(json.dumps({"score": 8} | fields), Score) == Score(8, **kept)


def test_comma_before_a_bracket_inside_a_string_stays() -> None:
    assert read_answer('{"score": 8, "reasoning": "a,] \\" ,}",}', Score).reasoning == 'a,] " ,}'


def test_word_for_a_number_is_none_where_the_number_may_be_left_out() -> None:
    text = '{"score": 8, "confidence": "high"}'
    assert read_answer(text, Score, {Score: {"confidence": 0.4}}) == Score(8, confidence=0.4)
    with pytest.raises(Refused, match="confidence"):
        read_answer(text, Score)


def test_line_break_inside_a_string_is_one() -> None:
    assert read_answer('{"score": 8, "reasoning": "a\nb"}', Score).reasoning == "a\nb"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it has no JSON object"),
        ("I cannot help with that.", "it has no JSON object"),
        ("[8]", "it has no JSON object"),
        ('<think>{"score": 8}', "it has no JSON object"),
        ('{"score": 8', "character 11 of its object"),
        ('{"score": 8 "confidence": 1}', "character 12 of its object"),
        ('{"outer": [{"score": 8}, {"score": 9}', "of its object"),
        ('{"scores": {"score": 8}}', "missing required field `score`"),
        ('{"score": 8} {"score": 9}', "two objects"),
        ('{"score": 11}', "<= 10.0 at $.score"),
        ('{"score": "12/10"}', "<= 10.0 at $.score"),
        ('{"score": "high"}', "$.score"),
        ('{"score": true}', "$.score"),
        ('{"score": null}', "missing required field `score`"),
        ('{"score": 8, "confidence": 80}', "$.confidence"),
        ('{"score": 8, "score": 9}', "twice"),
        ('{"score": NaN}', "NaN"),
        ('{"score": 8, "free": {"a": 9007199254740993}}', "±(2^53−1)"),
        ('{"score": 8, "free": {"a": 1e999}}', "too large"),
        ('{"score": 8, "reasoning": "\\ud800"}', "Unicode"),
        ('{"score": 8, "free": {"a": ' + "[" * 40 + "]" * 40 + "}}", "nested deeper"),
        ('{"a":' * 200_000, "nested too deep"),
        ("{" * 1_000_000, "not JSON"),
        ("{x}" * 300_000, "not JSON"),
    ],
    ids=range(24),
)
def test_what_is_wrong_in_itself_is_named(text: str, fault: str) -> None:
    with pytest.raises(Refused) as refused:
        read_answer(text, Score)
    assert fault in refused.value.message


def test_megabyte_around_an_object_is_passed_over() -> None:
    assert read_answer("x" * 1_000_000 + '{"score": 8}' + "y" * 1_000_000, Score) == EIGHT


@pytest.mark.parametrize(
    ("text", "number"),
    [("8,5", "8,5"), ("1/0", "1/0"), ("٣", "٣"), ("9" * 400, "9" * 400), ("-1", -1), (" 3 ", 3), (3.0, 3), (2.5, 2.5)],
)
def test_number_is_a_number_or_what_it_was(text: Any, number: Any) -> None:
    assert read_number(text, 10) == number


class Named(msgspec.Struct):
    name: str
    details: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ('{"name": "a", "size": 3}', {"size": 3}),
        ('{"name": "a", "size": 3, "details": {"colour": "red"}}', {"size": 3, "colour": "red"}),
        ('{"name": "a", "size": 3, "details": {"size": 4}}', {"size": 4}),
        ('{"name": "a", "size": 3, "details": null}', {"size": 3}),
        ('{"name": "a"}', {}),
    ],
)
def test_field_beside_the_object_that_it_belongs_into_is_put_there(text: str, details: dict[str, Any]) -> None:
    assert read_answer(text, Named, moved={Named: {"size": "details"}}) == Named("a", details)
