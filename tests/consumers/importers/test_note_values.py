"""Dirty values of another tool's JSON: left out, listed with place and reason, and never coerced in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deedbook.consumers.importers.empirica.values import Reading, dirty_max, items_max, read_json, said_max, shown
from deedbook.consumers.importers.records import claimed_time
from deedbook.ledger.errors import Refused

DIRTY: list[tuple[str, str]] = [
    ("1.2", "out of range"),
    ("-0.1", "out of range"),
    ('"0.7"', "a number written as text"),
    ('"70%"', "a number written as text"),
    ('"high"', "a text"),
    ("null", "null"),
    ("true", "a boolean"),
    ("[0.5]", "a list"),
    ("{}", "an object"),
    ('{"rationale": "sure"}', "an object"),
    ('{"score": "0.7"}', "an object"),
    ("NaN", "expected a finite number"),
    ("Infinity", "expected a finite number"),
    ("1e400", "expected a finite number"),
    ("123456789012345678901234567890", "out of range"),
]


@pytest.mark.parametrize(("text", "why"), DIRTY)
def test_a_value_that_is_no_number_in_range_is_left_out_and_listed(text: str, why: str) -> None:
    fields, odd = read_json(f'{{"vectors": {{"know": {text}, "do": 0.5}}}}'.encode())
    vectors = Reading(fields, dirty=odd).below("vectors")
    assert (vectors.number("know"), vectors.number("do")) == (None, 0.5)
    [one] = vectors.dirty
    assert one.path == "vectors.know"
    assert why in one.why
    assert one.value.strip("\u2026") in json.dumps(json.loads(text))


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.123456789])
def test_a_number_in_range_is_taken_as_it_is(value: float) -> None:
    reading = Reading({"know": value})
    assert reading.number("know") == value
    assert reading.dirty == []
    assert reading.said() == {}


def test_the_score_of_a_nested_value_is_taken_and_told() -> None:
    reading = Reading({"know": {"score": 0.7, "rationale": "read it all"}})
    assert reading.number("know") == 0.7
    [one] = reading.dirty
    assert (one.path, "its score was used" in one.why, "read it all" in one.value) == ("know", True, True)


def test_a_vector_that_is_absent_is_not_dirty() -> None:
    reading = Reading({})
    assert reading.number("know") is None
    assert reading.dirty == []


def test_texts_that_are_none_are_listed_with_their_place() -> None:
    reading = Reading({"findings": ["a", 7, None, {"finding": "b"}, "c"], "tools": "grep", "next": ["x"]})
    assert reading.texts("findings") == ["a", "c"]
    assert reading.texts("tools") == ["grep"]
    assert reading.text("next") == ""
    assert [one.path for one in reading.dirty] == ["findings[1]", "findings[2]", "findings[3]", "tools", "next"]


def test_a_long_list_keeps_its_first_items_and_says_so() -> None:
    reading = Reading({"findings": [str(number) for number in range(items_max + 1)]})
    assert len(reading.texts("findings")) == items_max
    assert reading.dirty[0].value == str(items_max + 1)


def test_a_text_too_long_is_shortened_at_a_word_and_listed() -> None:
    reading = Reading({"task": "word " * 100})
    text = reading.text("task", chars_max=50)
    assert len(text) <= 50
    assert text.endswith("word…")
    assert "500 characters" in reading.dirty[0].why


def test_half_a_character_is_replaced_and_listed() -> None:
    fields, odd = read_json(b'{"task": "a\\ud800b"}')
    reading = Reading(fields, dirty=odd)
    assert reading.text("task") == "a\ufffdb"
    assert "surrogate" in reading.dirty[0].why


def test_what_was_not_taken_is_said_by_its_own_name() -> None:
    reading = Reading({"meta": {"prompt": "go", "none": None, "empty": {}}, "x": [1, {"y": 2}], "\ud800": 1, "": 2})
    meta = reading.below("meta")
    assert meta.said() == {"meta.prompt": "go"}
    assert reading.said() == {"x": '[1, {"y": 2}]', "\ufffd": "1", '""': "2", "meta.prompt": "go"}


def test_no_number_of_fields_or_dirty_values_makes_an_event_too_large() -> None:
    reading = Reading({f"f{number}": "x" * 10_000 for number in range(said_max + 5)})
    said = reading.said()
    assert len(said) == said_max + 1
    assert said["…"].startswith("5 more: f")
    for number in range(dirty_max + 5):
        reading.complain(f"v{number}", "x" * 10_000, "bad")
    assert len(reading.dirty) == dirty_max + 1
    assert sum(len(one.value) for one in reading.dirty) < 20_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not JSON"),
        (b"not json", "it is not JSON"),
        (b'{"a": 1', "it is not JSON"),
        (b"\xfe{}", "it is not UTF-8"),
        (b"\xff\xfe{}x", "it begins like UTF-16, and is not"),
        (b"[1]", "a list"),
        (b"7", "a number"),
        (b"null", "null"),
        (b'"just words"', "a text, not a JSON object"),
        (json.dumps(json.dumps(json.dumps(json.dumps(json.dumps("{}"))))).encode(), "a text"),
        (b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper"),
        (b"9" * 5000, "it is not JSON"),
    ],
)
def test_what_is_no_json_object_is_refused_with_the_reason(content: bytes, said: str) -> None:
    with pytest.raises(Refused) as refused:
        read_json(content)
    assert said in refused.value.message


@pytest.mark.parametrize(("times", "said"), [(1, "unwrapped once"), (2, "unwrapped 2 times"), (4, "unwrapped 4 times")])
def test_json_within_a_json_text_is_unwrapped_and_told(times: int, said: str) -> None:
    text = json.dumps({"task": "x"})
    for _ in range(times):
        text = json.dumps(text)
    fields, odd = read_json(text.encode())
    assert fields == {"task": "x"}
    assert said in odd[0].why


def test_a_note_in_utf_16_is_read_and_told() -> None:
    fields, odd = read_json(json.dumps({"task": "为什么"}, ensure_ascii=False).encode("utf-16"))
    assert fields == {"task": "为什么"}
    assert "UTF-16" in odd[0].why


def test_a_name_that_stands_twice_is_told() -> None:
    fields, odd = read_json(b'{"a": 1, "a": 2}')
    assert fields == {"a": 2}
    assert (odd[0].path, odd[0].value) == ("a", "1")


@pytest.mark.parametrize("value", ["", " \n ", [], "x" * 5000, "文" * 5000, {"a": float("nan")}])
def test_what_is_shown_of_a_value_is_one_short_line(value: Any) -> None:
    line = shown(value)
    assert 0 < len(line) <= 120
    assert "\n" not in line


@pytest.mark.parametrize(
    ("value", "text", "ms"),
    [
        ("2025-06-01T10:00:00+00:00", "2025-06-01T10:00:00Z", 1_748_772_000_000),
        ("2025-06-01T12:00:00.250+02:00", "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        ("2025-06-01T10:00:00Z", "2025-06-01T10:00:00Z", 1_748_772_000_000),
        ("2025-06-01T10:00:00", "2025-06-01T10:00:00Z", 1_748_772_000_000),
        (1_748_772_000, "2025-06-01T10:00:00Z", 1_748_772_000_000),
        (1_748_772_000_250, "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        (1_748_772_000_250_000, "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        (1_748_772_000_250_000_000, "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        ("1748772000", "2025-06-01T10:00:00Z", 1_748_772_000_000),
        ("1748772000.25", "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        ("1748772000250", "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        (1_748_772_000.25, "2025-06-01T10:00:00.250000Z", 1_748_772_000_250),
        ("yesterday", "yesterday", None),
        ("2025-02-30T00:00:00Z", "2025-02-30T00:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00+23:59", None),
    ],
)
def test_a_claimed_time_is_normalised_where_it_can_be_read(value: Any, text: str, ms: int | None) -> None:
    found = claimed_time(value)
    assert found is not None
    assert (found.text, None if found.at_us is None else found.at_us // 1000) == (text, ms)
    is_plain = str(value).endswith(("Z", ":00")) and value != "2025-06-01T10:00:00"
    assert bool(found.assumed) != (is_plain or value in (1_748_772_000, 1_748_772_000.25) or ms is None)


@pytest.mark.parametrize("value", [None, "", True, [], {}, float("nan"), -1, 10**14, 10**400, float("inf")])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert claimed_time(value) is None
