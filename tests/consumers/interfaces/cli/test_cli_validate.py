"""`deed reasoning validate`: references that hold or are stale, and the exit code for scripts."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from graphs import audit_json

from deedbook.consumers.reasoning.validator.evidence import NO_LINE
from deedbook.ledger.events.reasoning import Counts

if TYPE_CHECKING:
    from calling import Deed

SAMPLE = Path(__file__).parents[4] / "consumers" / "interfaces" / "demo" / "sample_project"


def test_graph_from_elsewhere_may_name_files_without_lines_but_nobody_vouches_for_it(
    alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "nginx").mkdir(parents=True)
    (project / "nginx" / "x.conf").write_text("listen 80;\n", "utf-8")
    monkeypatch.chdir(project)
    subprocess.run(["git", "init", "-q"], check=True)
    alone("agent", "add", "a", "--role", "agent")
    alone("agent", "add", "b", "--role", "reviewer", "--unprotected")
    steps = [
        {"step": 1, "type": "observation", "content": "It listens on 80", "evidence": ["nginx/x.conf"]},
        {"step": 2, "type": "conclusion", "content": "Listen on 443"},
    ]
    memory = {"task": "t", "steps": steps, "dependencies": {"2": [1]}, "conclusion": "Listen on 443"}
    (tmp_path / "graph.json").write_text(json.dumps(memory), "utf-8")
    recorded = alone.data("reasoning", "record", "r", tmp_path / "graph.json", "--as", "a")
    assert recorded["warnings"] == [f"evidence 'nginx/x.conf' of step 1: {NO_LINE}"]
    said = alone.run("reasoning", "validate", "r", "--as", "b")
    assert (said.code, f"note, step 1: nginx/x.conf: {NO_LINE}" in said.err) == (0, True)
    verdict = alone.data("reasoning", "show", "r")["verdict"]
    assert (verdict["outcome"], verdict["text"].partition(" by")[0]) == ("unchecked", "0 of 1 stand, tried")
    step = ("reasoning", "step", "r", "--as", "a", "--type", "observation", "So")
    refused = alone.refuses("INVALID_FIELD", *step, "--evidence", "nginx/x.conf")
    assert "cannot be checked: It names no line. A reference is path:line, " in refused["message"]


def test_validate_passes_then_names_the_stale_evidence(
    alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone("agent", "add", "a", "--role", "agent")
    alone("agent", "add", "b", "--role", "reviewer", "--unprotected")
    alone("reasoning", "start", "r", "--task", "t", "--as", "a")
    (evidence,) = audit_json()["steps"][9]["evidence"]
    alone("reasoning", "step", "r", "--as", "a", "--type", "observation", "scrypt", "--evidence", evidence)
    alone("reasoning", "step", "r", "--as", "a", "--type", "conclusion", "Fine", "--rests-on", "1")
    alone("reasoning", "conclude", "r", "--as", "a", "Fine")
    project = shutil.copytree(SAMPLE, tmp_path / "project")

    data = alone.data("reasoning", "validate", "r", "--tree", project)
    assert (data["passed"], data["published"], data["tree"]["type"]) == (True, None, "folder")
    size = alone.size()
    assert (
        "nobody vouches for their own reasoning: a reviewer publishes it with `deed reasoning validate r --as NAME`"
        in alone.data("reasoning", "validate", "r", "--tree", project, "--as", "a")["not_published"]
    )
    alone.refuses("SELF_APPROVAL", "reasoning", "validate", "r", "--tree", project, "--as", "a", "--publish")
    assert alone.size() == size
    assert alone.data("reasoning", "validate", "r", "--tree", project, "--as", "b")["published"] == size
    assert "1 of 1 references stand" in alone("reasoning", "validate", "r", "--tree", project)

    path = project / "api/passwords.py"
    path.write_text(path.read_text("utf-8").replace("16384", "1024"), "utf-8")
    said = alone.run("reasoning", "validate", "r", "--tree", project)
    assert said.code == 6
    assert f"step 1: EVIDENCE_LINE_CHANGED: Evidence line changed: {evidence}" in said.err
    monkeypatch.chdir(tmp_path)  # in no work tree
    assert "r passes: nothing was looked up of 1 reference," in alone("reasoning", "validate", "r")
    alone.refuses("NOT_FOUND", "reasoning", "validate", "r", "--tree", project / "none")
    alone.refuses("USAGE", "reasoning", "validate", "r", "--commit", "HEAD")


def passing_report(alone: Deed, settled: int = 0, unlinked: int = 0) -> tuple[str, str]:
    """Return the ref of the reasoning of-a, and the data of a report that it passes.

    The report counts ``settled`` assumptions and ``unlinked`` inferences.
    """
    ref = alone.data("reasoning", "show", "of-a")["ref"]
    counts = dict.fromkeys((one.name for one in msgspec.structs.fields(Counts)), 1) | {"assumptions": 2 + settled}
    counts |= {"assumptions_settled": settled, "inferences_unlinked": unlinked}
    report = {"reasoning_ref": ref, "passed": True, "tree": {"type": "none"}, "validator_name": "v"}
    report |= {name: [] for name in ("issues", "evidence", "assumptions", "inferences")} | {"validator_version": "1"}
    return ref, json.dumps(report | {"counts": counts})


def test_only_somebody_else_whose_key_is_his_own_vouches(alone: Deed) -> None:
    for name, role in (("a", "agent"), ("b", "reviewer"), ("c", "reviewer")):
        alone("agent", "add", name, "--role", role, "--unprotected")
    for author in ("a", "b"):
        alone("reasoning", "start", f"of-{author}", "--task", "t", "--as", author)
        alone("reasoning", "step", f"of-{author}", "Seen", "--as", author)
        alone("reasoning", "conclude", f"of-{author}", "--as", author, "Fine")
    ref, data = passing_report(alone)
    emit = ("emit", "reasoning.validated", "--stream", "reasoning/of-a", "--data", data, "--as")
    alone(*emit, "b")
    assert [alone.data("reasoning", "show", name)["verdict"]["latest"] for name in ("of-a", "of-b", ref)] == [None] * 3
    alone(*emit, "c")
    verdict = alone.data("reasoning", "show", "of-a")["verdict"]
    assert (verdict["outcome"], verdict["latest"]["counted"]) == ("passed", "1 of 1 stand")
    assert "and 1 more\n" in alone("reasoning", "validations", "of-a", "--author", "c")
    alone(*emit[:5], passing_report(alone, settled=1)[1], "--as", "c")
    verdict = alone.data("reasoning", "show", "of-a")["verdict"]
    counted = "1 of 1 stand, 1 assumption unchecked (1 settled, but not by this validator)"
    assert (verdict["outcome"], verdict["latest"]["counted"]) == ("unchecked", counted)
    alone(*emit[:5], passing_report(alone, unlinked=1)[1], "--as", "c")
    verdict = alone.data("reasoning", "show", "of-a")["verdict"]
    assert (verdict["outcome"], verdict["latest"]["counted"]) == ("unchecked", "1 of 1 stand, 1 inference unlinked")
    alone(*emit, "c")
    assert alone.data("reasoning", "show", "of-a")["verdict"]["outcome"] == "passed"
    alone("key", "compromised", "c", "--since", alone.size() - 1)
    verdict = alone.data("reasoning", "show", "of-a")["verdict"]
    assert (verdict["outcome"], "as compromised" in verdict["text"]) == ("unchecked", True)


def test_validator_whose_role_a_thief_granted_does_not_vouch(alone: Deed) -> None:
    for name, role in (("a", "agent"), ("c", "agent"), ("ada", "admin")):
        alone("agent", "add", name, "--role", role, "--unprotected")
    alone("reasoning", "start", "of-a", "--task", "t", "--as", "a")
    alone("reasoning", "step", "of-a", "Seen", "--as", "a")
    alone("reasoning", "conclude", "of-a", "--as", "a", "Fine")
    stolen = alone.size()
    alone("emit", "role.granted", "--as", "ada", "--stream", "agent/c", "--data", '{"agent": "c", "role": "reviewer"}')
    _, data = passing_report(alone)
    alone("emit", "reasoning.validated", "--stream", "reasoning/of-a", "--as", "c", "--data", data)
    assert alone.data("reasoning", "show", "of-a")["verdict"]["outcome"] == "passed"
    answer = alone.data("key", "compromised", "ada", "--since", str(stolen))
    assert [row["what"] for row in answer["decisions"]] == ["the role reviewer of c", "the validation of of-a"]
    assert alone.data("reasoning", "show", "of-a")["verdict"]["outcome"] == "unchecked"
