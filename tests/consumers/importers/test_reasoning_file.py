"""Reading graphs from a file: every shape, nothing dropped in silence, and every error with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from graphs import AUDIT_FILE, CHINESE, audit_graph, graph

from deedbook.consumers.importers.reasoning import (
    Hints,
    file_size_max_bytes,
    problems_shown_max,
    read_reasoning_file,
)
from deedbook.ledger.errors import Refused
from deedbook.projections.reasoning.memory import compute_reasoning_ref

CHAIN: dict[str, Any] = {
    "id": "gsm8k-test-124",
    "source": "gsm8k/test",
    "task": "How many letters are left?",
    "steps": [
        {"step": 1, "type": "inference", "content": "She stamped 60/3=20 letters.", "premises": ["60/3=20"]},
        {"step": 2, "type": "conclusion", "content": "Then there were 10.", "note": "by hand"},
    ],
    "dependencies": {"2": [1]},
    "conclusion": "Then there were 10.",
    "answer": "10",
    "critical_steps": [1, 2],
    "distractor_steps": None,
}


def lines(*values: Any) -> bytes:
    return b"\n".join(json.dumps(value, ensure_ascii=False).encode() for value in values)


def refusal_of(content: bytes) -> Refused:
    with pytest.raises(Refused) as refused:
        read_reasoning_file(content)
    return refused.value


# Shapes


def test_object_is_read_as_it_is_printed() -> None:
    [read] = read_reasoning_file(AUDIT_FILE.read_bytes())
    assert read.memory == audit_graph()
    assert read.hints.line == 1


def test_chains_one_a_line_are_read_with_what_they_have_besides() -> None:
    found = read_reasoning_file(lines(CHAIN, CHINESE, CHAIN) + b"\n\n")
    assert [read.hints.line for read in found] == [1, 2, 3]
    assert [read.hints.position for read in found] == [0, 1, 2]
    first = found[0]
    assert (first.memory.dependencies, first.memory.conclusion) == ({2: [1]}, "Then there were 10.")
    assert first.unmapped == {
        "source": "gsm8k/test",
        "answer": "10",
        "critical_steps": [1, 2],
        "steps[1].note": "by hand",
    }
    assert first.hints == Hints(id="gsm8k-test-124", line=1)
    assert found[1].memory == graph(CHINESE)


@pytest.mark.parametrize("indent", [None, 2])
def test_array_is_read_by_position(indent: int | None) -> None:
    found = read_reasoning_file(json.dumps([CHAIN, CHINESE], indent=indent).encode())
    assert [(read.hints.line, read.hints.position) for read in found] == [(None, 0), (None, 1)]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + lines(CHAIN), b"\n\n" + lines(CHAIN), lines(CHAIN) + b"\r\n"])
def test_mark_blank_lines_and_line_ends_make_no_other_graph(content: bytes) -> None:
    [read] = read_reasoning_file(content)
    assert compute_reasoning_ref(read.memory) == compute_reasoning_ref(graph(CHAIN))
    assert read.hints.line == 1 + content.count(b"\n", 0, content.index(b"{"))


def test_lines_with_carriage_returns_are_lines() -> None:
    assert len(read_reasoning_file(lines(CHAIN, CHAIN).replace(b"\n", b"\r\n"))) == 2


def test_fields_of_the_recording_are_hints_and_not_unmapped() -> None:
    given = CHAIN | {"id": 7, "reasoning_id": "audit-1", "domain": "security", "session_id": "s-9"}
    [read] = read_reasoning_file(lines(given))
    assert read.hints == Hints(id="audit-1", domain="security", session="s-9", line=1)
    [named] = read_reasoning_file(lines(given | {"id": None, "reasoning_id": "sha256:abc123"}))
    assert named.hints.id == ""
    assert read.unmapped.keys() & {"id", "domain", "session_id"} == {"id"}  # a number is no id
    assert compute_reasoning_ref(read.memory) == compute_reasoning_ref(graph(CHAIN))


# Errors have places


def test_faulty_lines_are_all_named_and_nothing_is_read() -> None:
    no_task = {name: value for name, value in CHAIN.items() if name != "task"}
    circle = CHAIN | {"dependencies": {"1": [2], "2": [1]}}
    refusal = refusal_of(lines(CHAIN, no_task, CHAIN, circle))
    assert refusal.code == "INVALID_FIELD"
    assert refusal.message == "line 2: task is missing. (and 1 more of 4)"
    assert (refusal.details["line"], refusal.details["field"]) == (2, "task")
    assert [(one["line"], one["code"]) for one in refusal.details["problems"]] == [
        (2, "INVALID_FIELD"),
        (4, "STEP_CONFLICT"),
    ]


def test_problems_shown_are_limited() -> None:
    refusal = refusal_of(b"\n".join([b"{}"] * 50))
    assert len(refusal.details["problems"]) == problems_shown_max
    assert "49 more of 50" in refusal.message


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (lines(CHAIN) + b'\n{"task": ', "INVALID_FORMAT", 2),
        (b'{"task": NaN}\n' + lines(CHAIN), "INVALID_FORMAT", 1),
        (lines(CHAIN, CHAIN) + b'\n{"a": 1, "a": 2}', "DUPLICATE_KEY", 3),
        (lines(CHAIN) + b"\n{}\xff", "INVALID_FORMAT", 2),
        (lines(CHAIN) + b"\n" + b"[" * 100, "NESTING_TOO_DEEP", 2),
        (lines(CHAIN) + b"\n7", "INVALID_FORMAT", 2),
        (b'{\n  "task": "t",\n  oops\n}', "INVALID_FORMAT", 3),
        (b'{\n  "task": "t",\n  "conclusion": "\xff"\n}', "INVALID_FORMAT", 3),
        (b'\n{"task": NaN}', "INVALID_FORMAT", 2),
        (lines(CHAIN).replace(b"20 letters", b"\\ud800"), "INVALID_FIELD", 1),
        (b"plain text", "INVALID_FORMAT", 1),
        (b"7", "INVALID_FORMAT", 1),
    ],
)
def test_fault_is_named_with_its_line(content: bytes, code: str, line: int) -> None:
    refusal = refusal_of(content)
    assert (refusal.code, refusal.details["line"]) == (code, line)
    assert refusal.message.startswith(f"line {line}: ")


def test_fault_inside_an_array_is_named_with_its_position() -> None:
    refusal = refusal_of(json.dumps([CHAIN, CHAIN | {"steps": 7}]).encode())
    assert refusal.message.startswith("graph 2 of the array: steps ")
    assert refusal.details["line"] is None


@pytest.mark.parametrize("content", [b"", b" \n ", b"\xef\xbb\xbf", b"[]"])
def test_file_without_a_graph_is_refused(content: bytes) -> None:
    assert refusal_of(content).code == "INVALID_FORMAT"


def test_file_that_is_too_large_is_not_parsed() -> None:
    assert refusal_of(b" " * (file_size_max_bytes + 1)).code == "TOO_LARGE"


def test_more_graphs_than_are_read_at_once_are_refused() -> None:
    assert refusal_of(b"[" + b",".join([b"{}"] * 10_001) + b"]").code == "TOO_LARGE"
