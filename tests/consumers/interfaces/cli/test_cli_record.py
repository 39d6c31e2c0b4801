"""`deed reasoning record` and `explain`: graphs from files, and the parts that a brief keeps."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

AUDIT = files("deedbook.consumers.interfaces.demo").joinpath("audit_reasoning.json").read_text("utf-8")


def lines(count: int) -> str:
    graphs = [
        {
            "id": f"chain-{number}",
            "source": "made up",
            "task": f"task {number}",
            "steps": [
                {"step": 1, "type": "observation", "content": f"fact {number}"},
                {"step": 2, "type": "conclusion", "content": "so it is", "premises": ["sent1"]},
            ],
            "dependencies": {"2": [1]},
            "conclusion": "so it is",
            "critical_steps": [1, 2],
        }
        for number in range(count)
    ]
    return "".join(json.dumps(graph, ensure_ascii=False) + "\n" for graph in graphs)


@pytest.mark.served
def test_recorded_file_is_the_graph_it_held_and_recording_again_adds_nothing(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    path, name = tmp_path / "audit.json", fresh("audit")
    path.write_text(AUDIT, "utf-8")
    call = ("--as", "a", "reasoning", "record", name, path, "--domain", "security")
    first = deed.data(*call)["recorded"][0]
    again = deed.data(*call)["recorded"][0]
    assert (again["first"], again["last"]) == (first["first"], first["last"])
    shown = deed.data("--as", "a", "reasoning", "show", name)
    assert (shown["ref"], shown["domain"], shown["steps"]) == (first["ref"], "security", 12)


def test_json_lines_are_recorded_each_and_what_has_no_place_is_reported(deed: Deed, tmp_path: Path) -> None:
    path = tmp_path / f"chains-{'server' if deed.is_remote else 'local'}.jsonl"
    path.write_text(lines(3), "utf-8")
    recorded = deed.data("--as", "a", "reasoning", "record", path)["recorded"]
    assert [one["id"] for one in recorded] == ["chain-0", "chain-1", "chain-2"]
    assert set(recorded[0]["unmapped"]) >= {"source", "critical_steps"}
    assert "id" not in recorded[0]["unmapped"]


def test_file_with_one_bad_line_records_nothing(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    path = tmp_path / "bad.jsonl"
    path.write_text(lines(2) + '{"task": "t", "conclusion": "c", "steps": [{"step": 1}]}\n', "utf-8")
    size = alone.size()
    error = alone.refuses("INVALID_FIELD", "--as", "a", "reasoning", "record", path)
    assert error["message"].startswith(f"{path}: ")
    assert "3" in error["message"]
    assert alone.size() == size


def test_explanation_shows_each_fact_beside_its_step_and_says_why_others_were_dropped(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    path, name = tmp_path / "audit.json", fresh("explained")
    path.write_text(AUDIT, "utf-8")
    deed("--as", "a", "reasoning", "record", name, path)
    data = deed.data("--as", "a", "reasoning", "explain", name, "--level", "minimal", "--budget", "120")
    assert data["certificate"]["holds"]
    assert data["measured_again"] == pytest.approx(data["fidelity"]["value"])
    kept = [one for one in data["steps"] if one["kept"]]
    dropped = [one for one in data["steps"] if not one["kept"]]
    assert kept
    assert {one["why"] for one in dropped} >= {"the budget had no room for it", "it is the conclusion"}


def test_brief_says_all_that_a_receiver_must_know(deed: Deed, fresh: Callable[[str], str], tmp_path: Path) -> None:
    path, name = tmp_path / "audit.json", fresh("briefed")
    path.write_text(AUDIT, "utf-8")
    deed("--as", "a", "reasoning", "record", name, path, "--domain", "security")
    data = deed.data("--as", "a", "reasoning", "brief", name, "--level", "minimal", "--budget", "180")
    assert data["tokens"] <= 180
    assert data["exact"]
    assert data["certificate"] == {"holds": True, "problems": []}
    assert data["rule_fired"]["name"] == "high_risk_domain"
    assert {"R", "A", "E", "cap", "vetoes", "weights"} <= data["parts"].keys()
    assert data["dropped"]["steps"]


@pytest.mark.served
def test_provenance_names_the_signature_of_the_version_and_its_event(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    path, name = tmp_path / "audit.json", fresh("proven")
    path.write_text(AUDIT, "utf-8")
    recorded = deed.data("--as", "a", "reasoning", "record", name, path)["recorded"][0]
    record = deed.data("--as", "a", "reasoning", "show", name, "--provenance")
    event = deed.data("--as", "a", "show", record["event"]["index"])
    assert record["reasoning_ref"] == recorded["ref"]
    assert (record["signature"], record["event"]["id"]) == (f"ed25519:{event['sig']}", event["id"])
    assert record["author"] == "a"


def test_tree_shows_each_step_under_what_it_supports(deed: Deed, fresh: Callable[[str], str], tmp_path: Path) -> None:
    path, name = tmp_path / "audit.json", fresh("tree")
    path.write_text(AUDIT, "utf-8")
    deed("--as", "a", "reasoning", "record", name, path)
    lines = deed("--as", "a", "reasoning", "show", name, "--tree").splitlines()
    assert lines[0] == "Rotate JWT secret immediately"
    steps = [line for line in lines[1:] if re.match(r" *[0-9]+\. (?!\(above\))", line)]
    depth = {line.split(".")[0].strip(): len(line) - len(line.lstrip()) for line in steps}
    assert depth["12"] < depth["7"] < depth["4"] < depth["2"] < depth["1"]


def test_record_refuses_one_id_for_several_graphs_and_a_missing_file(deed: Deed, tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(f"[{AUDIT}, {AUDIT}]", "utf-8")
    before = deed.written()
    refused = deed.refuses("USAGE", "reasoning", "record", "audit", path, "--as", "a")
    assert refused["message"] == "audit names one reasoning, and the file holds 2"
    refused = deed.refuses("USAGE", "reasoning", "record", "--as", "a")
    assert refused["message"] == "give FILE: an ID may come before it"
    assert deed.written() == before
