"""`deed tot`: six processes solve a problem; their messages are shown, logged, proved and resumed."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import inside
import msgspec
import pytest
import tot_story
from calling import Deed, Place, Running, Serving, call, wait_until

from deedbook.consumers.thoughts.interfaces import command as commands
from deedbook.consumers.thoughts.interfaces.text import print_end, tree_text
from deedbook.consumers.thoughts.logs import log_files
from deedbook.consumers.thoughts.processes import author_of
from deedbook.consumers.thoughts.run import prepare, read_task
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.home.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.home.config import Settings

PROBLEM = "4 9 10 13"
ROLES = ["decomposer", "evaluator", "explorer", "generator", "orchestrator", "synthesizer"]


class Solved(NamedTuple):
    """A ledger with one solved task."""

    place: Place
    data: dict[str, Any]
    logs: Path


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    """A ledger on which `deed tot run` solved the Game of 24 once."""
    folder = tmp_path_factory.mktemp("solved")
    home = folder / ".deedbook"
    assert inside.deed("--home", home, "init", "--unprotected").code == 0
    words = ["tot", "run", "--problem", PROBLEM, "--task-type", "math_reasoning", "--json"]
    said = call("--home", home, *words)
    assert said.code == 0, said.out
    return Solved(Place(home), json.loads(said.out)["data"], home / "logs")


@pytest.fixture
def task(solved: Solved) -> str:
    """The id of the solved task."""
    return str(solved.data["task_id"])


@pytest.fixture
def shell(solved: Solved, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on the ledger with the solved task."""
    return Deed(capsys, solved.place)


def story() -> dict[str, Any]:
    """Return the story's tree as the view answers it."""
    tree: dict[str, Any] = json.loads(msgspec.json.encode(tot_story.tree()))
    for node in tree["nodes"].values():
        defaults: dict[str, Any] = {
            "parent_id": None,
            "children_ids": [],
            "evaluation": None,
            "status": "pending",
            "metadata": {},
        }
        node |= {name: node.get(name, value) for name, value in defaults.items()}
    return tree


def stopped_task(shell: Deed, keys: dict[str, str], task_id: str = "tot-20260101-000000-lonely") -> str:
    """Start a task without agents, and return its id."""
    roles = [{"role": role, "agent": f"tot-{role}", "key": key} for role, key in keys.items()]
    opened = {
        "task_id": task_id,
        "problem": PROBLEM,
        "task_type": "math_reasoning",
        "thinker": "game24",
        "roles": roles,
    }
    asked = {
        "from": "orchestrator",
        "to": "decomposer",
        "type": "decompose_task",
        "task_id": task_id,
        "payload": {"problem": PROBLEM, "task_type": "math_reasoning"},
    }
    words = ["--stream", f"tot/{task_id}", "--as", "tot-orchestrator", "--data"]
    cause = shell.data("emit", "tot.started", *words, json.dumps(opened))
    shell("emit", "tot.decompose_task", *words, json.dumps(asked), "--cause", cause["id"])
    return task_id


def test_run_answers_with_the_fields_of_a_solution(solved: Solved) -> None:
    data = solved.data
    fields = {"answer", "reasoning_trace", "confidence", "verification", "alternative_solutions", "stats"}
    assert fields | {"task_id", "pids", "keys"} <= set(data)
    assert data["answer"].endswith("= 24")
    assert sorted(map(int, re.findall(r"\d+", data["answer"].partition("=")[0]))) == [4, 9, 10, 13]
    assert len(data["reasoning_trace"]) == 3
    assert data["verification"] == {"is_valid": True, "by": "program", "validation_errors": []}
    assert {"total_nodes", "total_backtracks", "llm_calls", "nodes_pruned", "max_depth_reached"} <= set(data["stats"])


def test_six_agents_are_six_processes_with_six_keys(solved: Solved) -> None:
    assert sorted(solved.data["pids"]) == sorted(solved.data["keys"]) == ROLES
    assert len(set(solved.data["pids"].values())) == len(set(solved.data["keys"].values())) == 6


def test_run_writes_the_log_folder_by_itself_beside_the_ledger(solved: Solved, task: str) -> None:
    assert solved.data["logs"] == str(solved.place.home / "logs" / task)
    with open_client(read_settings(home=solved.place.home)) as client:
        files = log_files(read_task(client, task))
    assert {path.name: path.read_bytes() for path in (solved.logs / task).iterdir()} == files
    assert {"00-task-info.json", "04-generator-round1.log", "99-merged-timeline.log"} <= set(files)


def test_logs_of_an_export_and_over_a_server_are_the_same_bytes(
    shell: Deed, solved: Solved, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {path.name: path.read_bytes() for path in (solved.logs / task).iterdir()}
    answer = shell.data("tot", "logs", task, "--logs", tmp_path / "again")
    assert answer == {"folder": str(tmp_path / "again" / task), "files": sorted(written)}
    with Serving(solved.place.home) as serving:
        Deed(capsys, serving.place)("tot", "logs", task, "--logs", tmp_path / "served")
    for folder in ("again", "served"):
        assert {path.name: path.read_bytes() for path in (tmp_path / folder / task).iterdir()} == written


def test_show_draws_every_node_of_the_tree(shell: Deed, solved: Solved, task: str) -> None:
    tree = shell.data("tot", "show", task)
    assert len(tree["nodes"]) == solved.data["stats"]["total_nodes"]
    text = shell("tot", "show", task[:22])
    assert all(re.search(rf"\b{id_} ", text) for id_ in tree["nodes"])


def test_tree_as_of_an_earlier_entry_is_smaller(shell: Deed, task: str) -> None:
    added = shell.data("log", "--stream", f"tot/{task}", "--kind", "tot.nodes_added", "--reverse")["items"]
    sizes = [len(shell.data("tot", "show", task, "--as-of", one["index"])["nodes"]) for one in added[:2]]
    assert sizes == [1, 6]
    shell.refuses("NOT_FOUND", "tot", "show", task, "--as-of", 99999)
    shell.refuses("USAGE", "tot", "show", task, "--as-of", 1, "--follow")


def test_following_a_finished_task_tells_it_and_ends(shell: Deed, task: str) -> None:
    text = shell("tot", "show", task, "--follow")
    assert text.index("[Generator] 5 candidate(s)") < text.index("Search complete") < text.index("[terminal]")


def test_proof_names_the_request_signer_key_and_index_of_each_answer(shell: Deed, solved: Solved, task: str) -> None:
    proof = shell.data("tot", "prove", task)
    assert proof["ok"]
    for one in proof["answers"]:
        assert one["key"] == solved.data["keys"][one["role"]] != one["asked_key"]
        assert one["request_index"] < one["answer_index"]
    assert "ok: " in shell("tot", "prove", task)


def test_agent_that_never_ran_is_said_and_resume_lets_it_run(shell: Deed, solved: Solved, tmp_path: Path) -> None:
    lonely = stopped_task(shell, solved.data["keys"])
    report = shell.refuses_verification("tot", "prove", lonely, verdict="FAILED: never ran")
    assert report["missing"] == ["decomposer"]
    resumed = shell.data("tot", "resume", lonely[:20], "--logs", tmp_path)
    assert (resumed["task_id"], resumed["answer"]) == (lonely, solved.data["answer"])
    assert (tmp_path / lonely / "99-merged-timeline.log").exists()
    assert shell.data("tot", "prove", lonely)["ok"]
    shutil.rmtree(tmp_path / lonely)
    assert shell.data("tot", "resume", lonely, "--no-logs")["logs"] is None


def test_exhausted_search_is_an_error_with_its_stats_and_is_logged(shell: Deed, tmp_path: Path) -> None:
    said = shell.run("tot", "run", "--problem", "1 1 1 1", "--logs", tmp_path, "--json")
    error = json.loads(said.out)["error"]
    assert (said.code, error["code"], error["recoverable"]) == (3, "SEARCH_EXHAUSTED", False)
    assert error["details"]["stats"]["total_nodes"] > 0
    folder = tmp_path / error["details"]["task_id"]
    assert "SEARCH_EXHAUSTED" in (folder / "99-merged-timeline.log").read_text("utf-8")


def test_search_that_is_stopped_by_its_ledger_was_given_every_option_and_names_the_task_to_resume(
    shell: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Overrides]()

    def stops(settings: Settings, problem: str, options: TaskOptions, *, task_id: str, **_: Any) -> dict[str, Any]:
        asked.append(options.overrides)
        with open_client(settings) as client:
            opening = prepare(settings, client, problem, options, task_id).opening
            author = author_of("orchestrator", settings, client)
            author.emit(Draft(stream=f"tot/{task_id}", data=opening))
        raise Unavailable("STORE_FULL", "the disk is full")

    monkeypatch.setattr(commands, "run_task", stops)
    words = ["--strategy", "DFS", "--depth", 3, "--branching", 4, "--threshold", 2, "--beam", 2, "--nodes", 400]
    words += ["--evaluation", "comparative_voting", "--generation", "independent_sampling", "--calls", 900]
    words += ["--deadline", "2099-01-01T00:00:00Z", "--logs", tmp_path]
    said = shell.run("tot", "run", "--problem", PROBLEM, *words, "--json")
    error = json.loads(said.out)["error"]
    assert (said.code, error["code"]) == (7, "STORE_FULL")
    assert (tmp_path / error["details"]["task_id"] / "00-task-info.json").exists()
    assert error["details"]["logs"] == str(tmp_path / error["details"]["task_id"])
    (overrides,) = asked
    assert overrides == Overrides(
        strategy="DFS",
        depth=3,
        branching=4,
        threshold=2,
        beam_width=2,
        nodes_max=400,
        evaluation="comparative_voting",
        generation="independent_sampling",
        calls_max=900,
        deadline="2099-01-01T00:00:00Z",
    )


def test_tree_is_followed_while_it_is_searched(shell: Deed, solved: Solved) -> None:
    known = {one["id"] for one in shell.data("tot", "list")["items"]}
    words = ["--home", solved.place.home, "tot", "run", "--problem", "1 2 3 4", "--no-logs", "--json"]
    with Running(*words) as running_task:
        new = wait_until(lambda: {one["id"] for one in shell.data("tot", "list")["items"]} - known, "a task started")
        # In this process: the search might end before another process has started.
        followed = inside.deed("--home", solved.place.home, "tot", "show", *new, "--follow", "--json")
        sizes = [len(json.loads(line)["data"]["nodes"]) for line in followed.out.splitlines()]
        assert json.loads(running_task.line())["data"]["stats"]["total_nodes"] == sizes[-1]
    assert sizes == sorted(sizes)
    assert len(sizes) > 1


def test_what_cannot_be_searched_is_refused_before_anything_starts(shell: Deed) -> None:
    before = shell.size()
    shell.refuses("INVALID_FIELD", "tot", "run", "--problem", PROBLEM, "--strategy", "sideways")
    shell.refuses("INVALID_FIELD", "tot", "run", "--problem", PROBLEM, "--threshold", 11)
    shell.refuses("INVALID_FIELD", "tot", "run", "--problem", " ")
    shell.refuses("USAGE", "tot", "run", "--problem", PROBLEM, "--thinker", "nobody")
    assert shell.size() == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "USAGE"),
        ([PROBLEM, "--problem", PROBLEM], "USAGE"),
        (["@nowhere.txt"], "NOT_FOUND"),
        (["Write a poem", "--task-type", "creative_writing"], "USAGE"),
        ([PROBLEM, "--deadline", "2001-01-01T00:00:00Z"], "INVALID_FIELD"),
        ([PROBLEM, "--deadline", "soon"], "INVALID_FIELD"),
        ([PROBLEM, "--evaluator", "nobody"], "AGENT_UNKNOWN"),
        ([PROBLEM, "--scorer", "value", "--thinker", "llm"], "USAGE"),
        (["4 9 10 13 " + "x" * 100_000, "--thinker", "game24"], "TOO_LARGE"),
    ],
)
def test_what_cannot_be_begun_says_what_to_do(shell: Deed, words: list[str], code: str) -> None:
    before = shell.size()
    shell.refuses(code, "tot", "run", *words)
    assert shell.size() == before


def test_problem_of_a_file_is_thought_about_by_the_exhaustive_scorer_in_chinese(shell: Deed, tmp_path: Path) -> None:
    (tmp_path / "problem.txt").write_text(f"{PROBLEM}\n", "utf-8")
    words = ["--scorer", "exhaustive", "--language", "zh", "--deadline", "1d", "--logs", tmp_path]
    said = shell("tot", "run", f"@{tmp_path}/problem.txt", *words)
    assert "步骤1: 用" in said
    assert "置信度 1.00, 由程序验证" in said
    (folder,) = tmp_path.glob("tot-*")
    timeline = (folder / "99-merged-timeline.log").read_text("utf-8")
    assert "# ToT 执行时间线" in timeline
    assert "game24-exhaustive" in timeline
    assert "the evaluator suggests" not in timeline


def test_stopped_task_is_over_and_keeps_the_reason(shell: Deed, solved: Solved) -> None:
    lonely = stopped_task(shell, solved.data["keys"], "tot-20260101-000000-stoppd")
    assert shell.data("tot", "stop", lonely, "--reason", "too dear")["status"] == "failed"
    said = shell.run("tot", "resume", lonely, "--no-logs")
    assert "SEARCH_STOPPED: too dear" in said.err


def test_deadline_is_a_time_or_so_long_from_now() -> None:
    now = datetime(2026, 2, 12, 10, 0, 0, tzinfo=UTC)
    assert commands.parse_deadline("10m", now) == "2026-02-12T10:10:00Z"
    assert commands.parse_deadline("2026-02-12T12:00:00+01:00", now) == "2026-02-12T11:00:00Z"


def test_unknown_task_is_not_found(shell: Deed, tmp_path: Path) -> None:
    for verb in (("show",), ("prove",), ("resume", "--no-logs"), ("logs", "--logs", str(tmp_path))):
        shell.refuses("NOT_FOUND", "tot", verb[0], "tot-19990101", *verb[1:])


def test_list_names_tasks_newest_first(shell: Deed, task: str) -> None:
    tasks = shell.data("tot", "list", "--status", "solved")["items"]
    assert task in [one["id"] for one in tasks]
    assert [one["started_index"] for one in tasks] == sorted((one["started_index"] for one in tasks), reverse=True)
    assert task in shell("tot", "list", "--task-type", "math_reasoning")


def test_tree_text_shows_scores_statuses_and_the_best_path() -> None:
    assert list(tree_text(story())) == [
        "4 9 10 13  [math_reasoning, DFS, depth 3, branching 2, threshold 5]",
        "* root     -  [expanded]  4 9 10 13",
        "├─ * node_1_1   7.5  [expanded]  13 - 9 = 4 (left: 4 4 10)",
        "│  ├─   node_2_1   8.5  [expanded]  4 + 4 = 8 (left: 8 10)",
        "│  │  └─   node_3_1   0.5  [pruned]  8 + 10 = 18 (left: 18)",
        "│  └─ * node_2_2   6.5  [expanded]  10 - 4 = 6 (left: 4 6)",
        "│     └─ * node_3_2   9.5  [terminal]  4 × 6 = 24 (left: 24)",
        "└─   node_1_2   4.5  [pruned]  10 + 4 = 14 (left: 9 13 14)",
        "at depth 3, 7 nodes, 0 in the frontier",
    ]


def test_end_of_a_task_is_its_answer_line_by_line_or_why_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    checked = {"is_valid": False, "by": "nobody", "validation_errors": []}
    solution = {"answer": "Do:\n1. \x1b[2Jthis", "reasoning_trace": [], "confidence": 0.5, "verification": checked}
    ended = {"id": "t", "status": "unverified", "language": "en"}
    print_end(ended | {"solution": solution | {"alternative_solutions": []}})
    failure = {"code": "LLM_UNAVAILABLE", "message": "it is busy", "retry_after_s": 7}
    tree = {"search_state": {"best_path": ["root", "node_1_1"]}, "thinker": "llm:m"}
    print_end({"id": "t", "status": "paused", "solution": None, "failure": failure} | tree)
    print_end({"id": "t", "status": "searching", "solution": None, "failure": None})
    answer, paused = capsys.readouterr().out.split("LLM_UNAVAILABLE: ")
    assert answer == "│ Do:\n│ 1. \\x1b[2Jthis\nconfidence 0.50, checked by nobody\n"
    steps = {"answer": "24", "reasoning_trace": ["use 13 - 9 = 4"], "alternative_solutions": ["4 × 6"]}
    invalid = {"is_valid": False, "by": "program", "validation_errors": []}
    print_end(ended | {"language": "zh", "solution": solution | steps | {"verification": invalid}})
    assert capsys.readouterr().out == "24\n  1. use 13 - 9 = 4\n置信度 0.50, 无效, 由程序验证\n或者: 4 × 6\n"
    assert paused.startswith("it is busy (paused: continue after 7 s with `deed tot resume t`")
    assert "`deed doctor --llm`" in paused
    assert "`deed tot resume t --best-path` takes the best path as the answer" in paused


def test_shown_task_ends_with_its_answer(shell: Deed, task: str) -> None:
    assert "checked by the program" in shell("tot", "show", task)
    assert "checked by the program" in shell("tot", "show", task, "--follow")


def test_thoughts_cannot_leave_their_place_in_a_drawing() -> None:
    tree = story()
    tree["nodes"]["node_1_2"]["content"] = 'x"] --> y\nclick a href "javascript:alert(1)" <b>\x1b[2J'
    assert "\x1b" not in "\n".join(tree_text(tree))
    assert len(list(tree_text(tree))) == 9
