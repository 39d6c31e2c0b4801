"""`deed session`: the records of an agent's work, the choice of the session, and refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from calling import start_session

from deedbook.consumers.interfaces.cli.commands.sessions import print_session, trajectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

AS_A = ("--as", "a")


def start(deed: Deed, name: str, *more: object) -> str:
    """Start a session of a; return its id."""
    deed("session", "start", name, *AS_A, *more)
    return name


@pytest.mark.parametrize(
    ("given", "vector"),
    [
        (["--vector", "know=nan"], "know"),
        (["--vector", "KNOW=1.1"], "know"),
        (["--vector", "do=-0.1"], "do"),
        (["--vector", "do=inf"], "do"),
        (["--vector", "clarity=much"], "clarity"),
        (["--vector", "clarity"], "clarity"),
        (["--vector", "hope=0.5"], "hope"),
        (["--vector", "know=0.1", "--vector", "know=0.2"], "know"),
        (["--vector", "know=0.1", "--vector", "KNOW=0.2"], "know"),
        (["--vector", "know=0.1", "--vectors", '{"know": 0.2}'], "know"),
        (["--vectors", '{"signal": "0.5"}'], "signal"),
        (["--vectors", '{"signal": true}'], "signal"),
        (["--vectors", '{"signal": 7}'], "signal"),
        (["--vectors", '{"signal": [0.5]}'], "signal"),
    ],
)
def test_vector_that_is_none_is_refused_by_its_name(deed: Deed, fresh: Fresh, given: list[str], vector: str) -> None:
    name = start(deed, fresh("vectors"))
    error = deed.refuses("INVALID_FIELD", "session", "assess", name, "PREFLIGHT", *AS_A, *given)
    assert vector in error["message"].lower()
    assert error["details"]["field"].lower() == vector
    assert deed.data("session", "show", name)["assessments"] == []


@pytest.mark.parametrize(
    ("code", "document"),
    [
        ("INVALID_FORMAT", '{"know": NaN}'),
        ("INVALID_FORMAT", "{know: 0.5}"),
        ("DUPLICATE_KEY", '{"know": 0.5, "know": 0.6}'),
        ("INVALID_FIELD", "[0.5]"),
        ("NOT_FOUND", "@no-such-file"),
    ],
)
def test_vectors_that_are_no_json_object_are_refused(deed: Deed, fresh: Fresh, code: str, document: str) -> None:
    name = start(deed, fresh("json"))
    deed.refuses(code, "session", "assess", name, "PREFLIGHT", *AS_A, "--vectors", document)


def test_vectors_and_reasoning_come_from_files(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    name = start(deed, fresh("file"))
    vectors, why = tmp_path / "vectors.json", tmp_path / "why.txt"
    vectors.write_text(json.dumps({"Know": 0.25, "impact": None}))
    why.write_text("因为\nbecause")
    deed("session", "assess", name, "THINK", *AS_A, "--vectors", f"@{vectors}", "--reasoning", f"@{why}")
    (assessed,) = deed.data("session", "show", name)["assessments"]
    assert (assessed["vectors"], assessed["reasoning"]) == ({"know": 0.25}, "因为\nbecause")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["PREFLIGHT"], "there are no vectors"),
        (["PREFLIGT", "--vector", "know=1"], "is not a phase"),
        (["CHECK", "--vector", "know=1", "--no-report"], "--no-report needs POSTFLIGHT"),
        (["CHECK", "--vector", "know=1", "--finding", "f"], "--finding needs POSTFLIGHT"),
        (["CHECK", "--vector", "know=1", "--task-summary", "t"], "--task-summary needs POSTFLIGHT"),
    ],
)
def test_assessment_of_nothing_or_for_no_report_is_refused(
    deed: Deed, fresh: Fresh, given: list[str], said: str
) -> None:
    name = start(deed, fresh("usage"))
    assert said in deed.refuses("USAGE", "session", "assess", name, *given, *AS_A)["message"]
    assert deed.data("session", "show", name)["assessments"] == []


def test_overall_confidence_is_between_0_and_1(deed: Deed, fresh: Fresh) -> None:
    name = start(deed, fresh("overall"))
    for value, code in (("1.5", "USAGE"), ("nan", "INVALID_FORMAT")):
        deed.refuses(code, "session", "assess", name, "PLAN", *AS_A, "--overall-confidence", value)
    deed("session", "assess", name, "PLAN", *AS_A, "--overall-confidence", 0.4)
    assert deed.data("session", "show", name)["assessments"][0]["overall_confidence"] == 0.4


def test_session_starts_once(deed: Deed, fresh: Fresh) -> None:
    name = start(deed, fresh("twice"))
    error = deed.refuses("TRANSITION_NOT_ALLOWED", "session", "start", name, *AS_A)
    assert "take another id" in error["message"]
    deed.refuses("INVALID_FIELD", "session", "start", "line\nbreak", *AS_A)


@pytest.mark.served
def test_finding_of_ten_kilobytes_in_chinese_is_kept_whole(deed: Deed, fresh: Fresh) -> None:
    name, text = start(deed, fresh("long")), "缓存从不清除。" * 500
    deed("session", "finding", name, text, *AS_A)
    assert deed.data("session", "show", name)["findings"][0]["finding"] == text
    deed.refuses("INVALID_FIELD", "session", "finding", name, "x" * 40_001, *AS_A)
    deed.refuses("INVALID_FIELD", "session", "finding", name, "", *AS_A)


def test_text_of_a_long_session_shows_the_newest(capsys: pytest.CaptureFixture[str], deed: Deed, fresh: Fresh) -> None:
    found = deed.data("session", "show", start(deed, fresh("many")))
    found["tools"] = [{"tool": f"tool-{number}", "purpose": ""} for number in range(52)]
    capsys.readouterr()
    print_session(found)
    said = capsys.readouterr().out
    assert "(2 older ones are not shown: --json has all)\n  - tool-2\n" in said
    assert said.endswith("  - tool-51\n")


def test_trajectory_of_many_phases_keeps_the_first_and_the_last() -> None:
    def assessed(number: int, **vectors: float) -> dict[str, Any]:
        return {"phase": "CHECK", "round": number, "vectors": vectors, "overall_confidence": None}

    header, rows, left_out = trajectory([assessed(number, know=number / 10) for number in range(1, 9)])
    assert header == ["vector", *(f"CHECK {number}" for number in (1, 4, 5, 6, 7, 8)), "change"]
    assert rows == [["know", "0.10", "0.40", "0.50", "0.60", "0.70", "0.80", "+0.70"]]
    assert left_out == 2


def test_a_text_of_two_words_without_quotes_is_no_id_and_text(alone: Deed) -> None:
    alone("agent", "add", "a")
    start_session(alone, "4566b947-b266-41e9-b511-0da2cb158143")
    size = alone.size()
    for words in (("dead", "end"), ("4", "people"), ("4566b94", "people")):
        message = alone.refuses("USAGE", "session", "finding", *words, "--as", "a")["message"]
        assert f'put the text in quotes: deed session finding "{" ".join(words)}"' in message
    assert alone.size() == size, "nothing was signed"
    for name in ("4566b947", "session/4566b947", "4566b947-b266-41e9-b511-0da2cb158143"):
        alone("session", "finding", name, "people", "--as", "a")
    alone("session", "finding", "4", "people or more", "--as", "a")


def test_list_and_page_of_a_session_count_the_same(alone: Deed) -> None:
    alone("agent", "add", "a")
    alone("session", "start", "counted", "--task", "t", "--as", "a")
    refs = [
        alone.data("session", *words, "--as", "a")["accepted"]["index"]
        for words in (("finding", "x"), ("finding", "y"), ("unknown", "u"), ("dead-end", "d", "--why", "w"))
    ]
    alone("session", "retract", refs[0], "--reason", "wrong", "--as", "a")
    alone("session", "retract", refs[3], "--reason", "wrong", "--as", "a")
    alone("session", "resolve", refs[2], "--with", "so", "--as", "a")
    (row,) = alone.data("session", "list")["items"]
    shown = alone.data("session", "show", "counted")
    assert shown["counts"] == {"assessments": 0, "findings": 1, "unknowns": 0, "dead_ends": 0, "tools": 0}
    assert shown["counts"] == {name: row[name] for name in shown["counts"]}
    assert [len(shown[name]) for name in ("findings", "unknowns", "dead_ends")] == [2, 1, 1]


@pytest.mark.parametrize("words", [("finding", "x"), ("unknown", "x"), ("dead-end", "x", "--why", "w")])
def test_repeated_statement_is_recorded_only_if_asked_for(alone: Deed, words: tuple[str, ...]) -> None:
    alone("agent", "add", "a")
    alone("session", "start", "twice", "--task", "t", "--as", "a")
    call = ("session", words[0], "twice", *words[1:], "--as", "a")
    first = alone.data(*call)["accepted"]
    assert alone.data(*call)["accepted"] == first | {"is_repeat": True}
    said = alone(*call)
    assert f" was there already (entry {first['index']}, 2" in said
    assert "): nothing recorded; --idem KEY records it again\n" in said
    other = alone.data(*call, "--topic", "pools")["accepted"]
    again = alone.data(*call, "--idem", "again")["accepted"]
    assert [first["index"] + 1, first["index"] + 2] == [other["index"], again["index"]]
    assert alone.data(*call, "--idem", "again")["accepted"] == again | {"is_repeat": True}
    assert "was there already (entry" in alone(*call, "--idem", "again")


def test_retracted_finding_can_be_recorded_again(alone: Deed) -> None:
    alone("agent", "add", "a")
    alone("session", "start", "taken-back", "--task", "t", "--as", "a")
    call = ("session", "finding", "taken-back", "x", "--as", "a")
    first = alone.data(*call)["accepted"]["index"]
    alone("session", "retract", first, "--reason", "wrong", "--as", "a")
    assert alone.data(*call)["accepted"]["is_repeat"] is False
    alone("session", "end", "taken-back", "--as", "a")
    alone.refuses("TRANSITION_NOT_ALLOWED", *call)
