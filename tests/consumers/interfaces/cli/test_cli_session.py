"""`deed session`: what an agent records on its way, which session is meant, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

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


@pytest.mark.served
def test_session_from_start_to_end_is_shown(deed: Deed, fresh: Fresh) -> None:
    name = start(deed, fresh("leak"), "--task", "Find the leak 找出泄漏")
    deed("session", "assess", name, "preflight", *AS_A, "--vector", "Know=0.5", "--vectors", '{"UNCERTAINTY": 0.6}')
    deed("session", "finding", name, "It never evicts", *AS_A, "--evidence", "src/cache.py:14", "--impact", 0.8)
    deed("session", "unknown", name, "How large it grows", *AS_A, "--subject", "cache")
    deed("session", "dead-end", name, "Raise the limit", "--why", "Only later", *AS_A)
    deed("session", "tool", name, "grep", "--purpose", "find callers", *AS_A)
    deed("session", "assess", name, "CHECK", *AS_A, "--vector", "know=0.7", "--round", 2, "--reasoning", "I looked")
    deed("session", "end", name, *AS_A, "--summary", "Found")
    found = deed.data("session", "show", name)
    assert (found["status"], found["task"], found["ai_id"]) == ("ended", "Find the leak 找出泄漏", "a")
    assert found["counts"] == {"assessments": 2, "findings": 1, "unknowns": 1, "dead_ends": 1, "tools": 1}
    preflight, check = found["assessments"]
    assert (preflight["phase"], preflight["vectors"]) == ("PREFLIGHT", {"know": 0.5, "uncertainty": 0.6})
    assert (check["round"], check["reasoning"]) == (2, "I looked")
    assert found["findings"][0]["evidence"] == ["src/cache.py:14"]
    said = deed("session", "show", name)
    assert "know         0.50       0.70     +0.20" in said
    assert "uncertainty  0.60       -        -" in said
    for text in ("It never evicts  (impact 0.80)", "  (cache)", "Raise the limit: Only later", "grep: find callers"):
        assert text in said
    assert name in deed("session", "list", "--agent", "a", "--status", "ended", "--limit", 500)


@pytest.mark.served
def test_id_is_made_when_none_is_given_and_resumed_sessions_are_named_whole(deed: Deed, fresh: Fresh) -> None:
    first = deed("session", "start", *AS_A).strip()
    assert (len(first), first.count("-")) == (36, 4)
    second = deed.data("session", "start", fresh("on"), *AS_A, "--resumes", first[:13], "--ai-id", "model-x")
    shown = deed.data("session", "show", second["id"])
    assert (shown["resumes"], shown["ai_id"]) == (first, "model-x")
    assert f"continues {first}" in deed("session", "show", second["id"])
    listed = deed.data("session", "list", "--ai-id", "model-x")["sessions"]
    assert second["id"] in [one["id"] for one in listed]
    deed.refuses("NOT_FOUND", "session", "start", fresh("none"), *AS_A, "--resumes", "no-such")


def test_beginning_of_an_id_is_enough_to_write_to_it(deed: Deed) -> None:
    whole = deed.data("session", "start", *AS_A)["id"]
    assert deed.data("session", "finding", whole[:18], "it is so", *AS_A)["id"] == whole
    assert deed.data("session", "show", whole)["counts"]["findings"] == 1


def test_left_out_session_is_the_newest_open_one_unless_an_older_goes_on(alone: Deed) -> None:
    alone("agent", "add", "a")
    error = alone.refuses("NOT_FOUND", "session", "finding", "it is so", *AS_A)
    assert "`deed session start --as a`" in error["message"]
    start(alone, "one", "--task", "The first task")
    assert alone.data("session", "finding", "it is so", *AS_A)["id"] == "one"
    assert alone.data("session", "show", *AS_A)["counts"]["findings"] == 1
    start(alone, "two")
    assert alone.data("session", "finding", "it is so", *AS_A)["id"] == "two"
    alone("session", "finding", "one", "it goes on", *AS_A)
    error = alone.refuses("REF_AMBIGUOUS", "session", "finding", "it is so", *AS_A)
    assert error["details"]["candidates"] == ["two", "one"]
    assert "DEEDBOOK_SESSION" in error["message"]
    assert "The first task" in error["message"]
    alone("session", "end", "one", *AS_A)
    assert alone.data("session", "unknown", "whether", *AS_A)["id"] == "two"
    assert "--as NAME" in alone.refuses("USAGE", "session", "show")["message"]


def test_session_of_the_environment_is_meant(deed: Deed, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = start(deed, fresh("env")), start(deed, fresh("env"))
    monkeypatch.setenv("DEEDBOOK_SESSION", one)
    assert deed.data("session", "tool", "grep", *AS_A)["id"] == one
    assert deed.data("session", "tool", two, "grep", *AS_A)["id"] == two
    assert deed.data("session", "show")["id"] == one
    assert "TEXT is missing" in deed.refuses("USAGE", "session", "finding", one, *AS_A)["message"]


def test_forgotten_text_is_not_recorded_in_another_session(alone: Deed) -> None:
    alone("agent", "add", "a")
    start(alone, "over")
    alone("session", "end", "over", *AS_A)
    start(alone, "open")
    assert "TEXT is missing" in alone.refuses("USAGE", "session", "finding", "over", *AS_A)["message"]
    alone.refuses("USAGE", "session", "finding", *AS_A)
    alone.refuses("USAGE", "session", "finding", "open", "two", "words", *AS_A)
    assert alone.data("session", "show", "open")["counts"]["findings"] == 0


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
    for value in ("1.5", "nan"):
        assess = ["session", "assess", name, "PLAN", *AS_A, "--overall-confidence", value]
        assert deed.refuses("INVALID_FIELD", *assess)["details"]["field"] == "overall_confidence"
    deed("session", "assess", name, "PLAN", *AS_A, "--overall-confidence", 0.4)
    assert deed.data("session", "show", name)["assessments"][0]["overall_confidence"] == 0.4


@pytest.mark.parametrize(
    "verb",
    [
        ["assess", "S", "PREFLIGHT", "--vector", "know=1"],
        ["finding", "S", "t"],
        ["unknown", "S", "t"],
        ["dead-end", "S", "t", "--why", "w"],
        ["tool", "S", "t"],
        ["end", "S"],
    ],
)
def test_session_that_is_unknown_over_or_anothers_takes_nothing(deed: Deed, fresh: Fresh, verb: list[str]) -> None:
    def refused(name: str, code: str, agent: str) -> str:
        words = [name if word == "S" else word for word in verb]
        return str(deed.refuses(code, "session", *words, "--as", agent)["message"])

    assert "deed session list" in refused(fresh("no-such-session"), "NOT_FOUND", "a")
    name = start(deed, fresh("over"))
    assert f"`deed session start --resumes {name} --as b`" in refused(name, "NOT_AUTHORIZED", "b")
    deed("session", "end", name, *AS_A)
    assert f"`deed session start --resumes {name} --as a`" in refused(name, "TRANSITION_NOT_ALLOWED", "a")


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


def test_list_goes_on_with_the_command_it_names(deed: Deed, fresh: Fresh) -> None:
    label = fresh("paged")
    names = [start(deed, fresh("page"), "--ai-id", label) for _ in range(3)]
    first = deed.document("session", "list", "--ai-id", label, "--limit", 2)
    assert (first["data"]["total"], [one["id"] for one in first["data"]["sessions"]]) == (3, names[:0:-1])
    following = first["next"].split()[1:]
    assert [one["id"] for one in deed.data(*following)["sessions"]] == names[:1]
    assert "3 in all; continue with: deed session list" in deed("session", "list", "--ai-id", label, "--limit", 2)


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
