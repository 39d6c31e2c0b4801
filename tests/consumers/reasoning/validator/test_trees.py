"""Hostile trees and references: a repository that names another folder, a search of history, a flood of searches."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees_for_tests import commit, git

from deedbook.consumers.reasoning.validator import reads as reads_module
from deedbook.consumers.reasoning.validator.evidence import check_evidence
from deedbook.consumers.reasoning.validator.reads import Reads, digest_of
from deedbook.consumers.reasoning.validator.trees import open_tree, work_tree


def test_work_tree_that_a_repository_names_elsewhere_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "stranger"
    commit(folder / "sub", {"a.py": "x = 1\n"})
    assert work_tree(folder / "sub") == folder / "sub"
    for elsewhere in (tmp_path, Path("/")):
        git(folder / "sub", "config", "core.worktree", str(elsewhere))
        assert work_tree(folder / "sub") is None


@pytest.mark.parametrize("revision", ["HEAD@{0}", "HEAD^{/next}", "--output=x", "-", "HEAD^{tree}"])
def test_what_names_no_commit_to_others_is_no_revision(tmp_path: Path, revision: str) -> None:
    commit(tmp_path, {"a.py": "x = 1\n"})
    assert check_evidence(f"{revision}:a.py:1", Reads(open_tree(tmp_path))).status == "gone"


def test_digest_of_another_line_vouches_for_no_quote(tmp_path: Path) -> None:
    commit(tmp_path, {"a.py": "import os, and more\nx = 1\n"})
    check = check_evidence("a.py:2:hashed", Reads(open_tree(tmp_path)), cited=digest_of("import os, and more"))
    assert check.status == "line_changed"


def test_searches_for_moved_text_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, {"a.py": "x = 1\nsome text to find\n"})
    monkeypatch.setattr(reads_module, "searches_max", 2)
    reads = Reads(open_tree(tmp_path))
    checks = [check_evidence("a.py:1:some text to find", reads) for _ in range(3)]
    assert [one.status for one in checks] == ["moved", "moved", "line_changed"]
    assert "moved text was not searched for" in checks[2].note


def test_commits_are_read_within_the_limit_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(tmp_path, {"a.py": "x = 1\n"})
    monkeypatch.setattr(reads_module, "read_total_max_bytes", 10)
    reads = Reads(open_tree(tmp_path))
    checks = [check_evidence(f"{revision}a.py:1", reads) for revision in ("", f"{first}:")]
    assert [one.status for one in checks] == ["ok", "too_large"]
