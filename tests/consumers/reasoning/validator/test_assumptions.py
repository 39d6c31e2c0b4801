"""Assumptions: only named checks are run, a search proves absence only if it was complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from trees_for_tests import citing, commit, write

from deedbook.consumers.reasoning.validator import trees as trees_module
from deedbook.consumers.reasoning.validator.assumptions import check_assumption, parse_check
from deedbook.consumers.reasoning.validator.reads import Reads
from deedbook.consumers.reasoning.validator.trees import open_tree
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.projections.reasoning.memory import Settlement

FILES: dict[str, str | bytes] = {
    "config/logging.yaml": "encrypt: false\nbucket: shared\n",
    "config/deep/er/retention.yaml": "app_logs_days: 30\n",
    "config/limits.json": '{"a/b": [{"n": 1}, true], "text": "日志"}',
    "config/broken.json": '{"a": 1, "a": 2}',
    "binary/x.bin": b"\xff\xfe",
    "logs/a.log": "nothing\n",
    ".env": "SECRET=1\n",
}


def result(folder: Path, method: str, revision: str | None = None) -> str:
    assert parse_check(method) is not None
    return check_assumption("It holds", method, Reads(open_tree(folder, revision))).status


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("file_exists config/logging.yaml", "held"),
        ("file_exists config/none.yaml", "refuted"),
        ("file_exists config", "not_checked"),
        ("file_absent config/none.yaml", "held"),
        ("file_absent config/logging.yaml", "refuted"),
        ("file_contains config/logging.yaml 'encrypt: false'", "held"),
        ("file_contains config/logging.yaml 'encrypt: true'", "refuted"),
        ("file_contains config/none.yaml x", "refuted"),
        ("file_contains binary/x.bin x", "not_checked"),
        ("no_match config/logging.yaml encryption", "held"),
        ("no_match config/logging.yaml encrypt", "refuted"),
        ("no_match logs/ encryption", "held"),
        ("no_match config/** 'app_logs_days: 30'", "refuted"),
        ("no_match config/**/*.yaml encryption", "held"),
        ("no_match config/*.yaml app_logs_days", "held"),
        ("no_match 'config/[l]*.yaml' bucket", "refuted"),
        ("no_match nowhere/** encryption", "not_checked"),
        ("no_match nowhere encryption", "not_checked"),
        ("no_match . encryption", "not_checked"),
        ("no_match binary encryption", "not_checked"),
        ("no_match **/**/** encryption", "not_checked"),
        ("no_match **/**/logging.yaml encryption", "held"),
        ("any_match config/** 'bucket: shared'", "held"),
        ("any_match config/** 'bucket: own'", "refuted"),
        ("any_match binary/** x", "not_checked"),
        ("file_exists ../outside", "not_checked"),
        ("file_absent /etc/passwd", "not_checked"),
        ("file_contains .env SECRET", "not_checked"),
        ("no_match ../** SECRET", "not_checked"),
    ],
)
def test_named_check_comes_to_its_verdict_in_a_folder_and_in_a_commit(
    tmp_path: Path, method: str, expected: str
) -> None:
    commit(tmp_path, FILES)
    assert result(tmp_path, method) == expected
    assert result(tmp_path, method, "HEAD") == expected


@pytest.mark.parametrize(
    "method",
    [
        "",
        "grep logs/ for 'encryption' or check log config",
        "file_exists",
        "file_exists a b",
        "file_exists 'a",
        "sh -c 'touch ran'",
        "file_contains a b; touch ran",
        "FILE_EXISTS a",
        "file_exists " + "x" * 3000,
    ],
)
def test_anything_else_is_not_run_and_shown(tmp_path: Path, method: str) -> None:
    assert parse_check(method) is None
    found = check_assumption("It holds", method, Reads(open_tree(tmp_path)), step=3)
    assert (found.status, found.method[:20], found.step) == ("not_checked", method[:20], 3)
    assert list(tmp_path.iterdir()) == []


def test_glob_with_three_globstars_is_not_searched(tmp_path: Path) -> None:
    write(tmp_path, {"a/b/c/d.txt": "x\n"})
    assert result(tmp_path, "any_match **/**/d.txt x") == "held"
    assert result(tmp_path, "any_match **/**/**/d.txt x") == "not_checked"


def test_search_with_a_link_or_too_many_files_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"outside.txt": "encryption\n", "tree/a.txt": "a\n", "tree/b.txt": "b\n"})
    assert result(tmp_path / "tree", "no_match ** encryption") == "held"
    (tmp_path / "tree" / "c.txt").symlink_to("../outside.txt")
    assert result(tmp_path / "tree", "no_match ** encryption") == "not_checked"
    assert result(tmp_path / "tree", "no_match ** b") == "refuted"
    (tmp_path / "tree" / "c.txt").unlink()
    monkeypatch.setattr(trees_module, "files_listed_max", 1)
    assert result(tmp_path / "tree", "no_match ** encryption") == "not_checked"


def test_unchecked_assumption_is_listed_and_only_a_refuted_one_fails(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "days: 30\n"})

    def assuming(method: str, *, needs_validation: bool = True) -> tuple[bool, str]:
        assumed = {"step": 3, "type": "assumption", "content": "Kept for 30 days", "validation_method": method}
        steps = [
            {"step": 1, "type": "observation", "content": "It is so", "evidence": ["a.txt:1"]},
            assumed | {"needs_validation": needs_validation},
            {"step": 4, "type": "conclusion", "content": "Act on it", "confidence": 0.9},
        ]
        memory = citing(steps=steps, dependencies={"4": [1, 3]})
        report = ReasoningValidator(open_tree(tmp_path)).validate(memory)
        assert [issue.code for issue in report.issues] == ([] if report.passed else ["ASSUMPTION_REFUTED"])
        return report.passed, report.assumptions[0].status

    assert assuming("ask somebody") == (True, "not_checked")
    assert assuming("file_contains a.txt 'days: 30'") == (True, "held")
    assert assuming("file_contains a.txt 'days: 90'") == (False, "refuted")
    assert assuming("ask somebody", needs_validation=False) == (True, "settled")
    # An assumption that its author calls settled is still checked if it can be.
    assert assuming("file_contains a.txt 'days: 90'", needs_validation=False) == (False, "refuted")


def test_a_refuted_assumption_fails_and_only_the_validators_own_word_counts_as_a_check() -> None:
    steps = [
        {"step": 1, "type": "observation", "content": "It is so", "evidence": ["a.txt:1"]},
        {"step": 2, "type": "assumption", "content": "Kept for 30 days"},
        {"step": 3, "type": "conclusion", "content": "Act on it"},
    ]

    def settled(*said: tuple[str, bool], rests_on: tuple[int, ...] = (1, 2)) -> tuple[bool, str]:
        memory = citing(steps=steps, dependencies={"3": list(rests_on)})
        settlements = [Settlement(by, holds=holds, how="seen") for by, holds in said]
        graph = replace(
            memory,
            steps=[replace(step, settled=settlements) if step.step_number == 2 else step for step in memory.steps],
        )
        report = ReasoningValidator().validate(graph, validator="rita")
        assert [issue.code for issue in report.issues] == ([] if report.passed else ["ASSUMPTION_REFUTED"])
        return report.passed, report.assumptions[0].status

    assert settled(("bob", True)) == (True, "settled")
    assert settled(("bob", True), ("rita", True)) == (True, "held")
    assert settled(("rita", True), ("bob", False)) == (False, "refuted")
    assert settled(("bob", False), ("bob", True)) == (True, "settled")
    assert settled(("bob", False), rests_on=(1,)) == (True, "settled")
    assert settled(("rita", False), rests_on=(1,)) == (True, "refuted")


def test_assumptions_stated_by_any_step_are_listed() -> None:
    steps = [
        {"step": 1, "type": "conclusion", "content": "Act on it", "evidence": ["a:1"], "assumptions": ["It rains"]}
    ]
    report = ReasoningValidator().validate(citing(steps=steps, dependencies={}))
    assert [(check.step, check.text, check.status) for check in report.assumptions] == [(1, "It rains", "not_checked")]
