"""Ids as components of refs and paths."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repositories import a_report, repository
from stored_reports import load_handoff

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.settings import Project, name_of, name_size_max_bytes, text_of

HOSTILE = [
    "a b",
    "..",
    ".",
    "../../etc/passwd",
    "/abs",
    "a/b",
    "x.lock",
    ".hidden",
    "end.",
    "a..b",
    "@{u}",
    "@",
    "-rf",
    "~^:?*[",
    "back\\slash",
    "tab\there",
    "nul\0",
    "%",
    "%2E",
    "%-",
    "",
    "x.md",
    "长期任务",
    "é",
    "e\u0301",
    "\u202egpj",
    "\ud800",
    "x" * 5000,
    "长" * 3000,
    "a" * 190 + " " * 50,
    "refs/heads/main",
    "a\nb",
    "\x85",
    "\u2028",
    "a.lock.lock",
    "{",
    "🧠",
    "HEAD",
]


@pytest.mark.parametrize("session_id", HOSTILE)
def test_every_id_makes_a_legal_ref_and_one_short_file_name(session_id: str) -> None:
    name = name_of(session_id)
    assert subprocess.run(["git", "check-ref-format", f"refs/notes/{name}"], check=False).returncode == 0
    assert len(name.encode()) <= name_size_max_bytes
    assert Path(name).name == name
    assert name not in {".", ".."}


@given(st.text())
def test_names_are_read_back(text: str) -> None:
    assert name_of(text) == name_of(text)
    if len(text) < 20:
        assert text_of(name_of(text)) == text


@given(st.text(alphabet="%2Ea. /\\@{-", max_size=6), st.text(alphabet="%2Ea. /\\@{-", max_size=6))
def test_no_two_ids_have_one_name(one: str, other: str) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


def test_long_ids_that_begin_alike_have_different_names() -> None:
    names = {name_of("x" * 1000 + end) for end in ("a", "b", " ", "")}
    assert len(names) == 4
    assert {text_of(name) for name in names} == {None}


@pytest.mark.parametrize("legal", ["45a42346-364e-467c-9b2f-d15a8de0c52c", "test-123", "长期", "a.b", "x@y", "A_b+c=d"])
def test_a_legal_id_stands_as_it_is(legal: str) -> None:
    assert name_of(legal) == legal


@pytest.mark.parametrize("name", ["a b", "%2e", "%41", "a/b", "%zz", "%FF", ".x"])
def test_names_that_are_not_ours_are_not_read(name: str) -> None:
    assert text_of(name) is None


def test_hostile_ids_are_stored_and_loaded_from_both_stores(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    for session in ("../../up", "a b", "a", "a/b", "x.lock", "长" * 300):
        report = a_report(session, ai_id="../../../up", compressed_json=f'{{"of": {len(session)}}}')
        for project in (Project(git=folder), Project(files=folder / "files")):
            stored = [one for one in store_report(report, project) if one.status != "skipped"]
            assert [one.status for one in stored] == ["written", "written"]
            assert load_handoff(session, "json", project) == {"of": len(session)}
    assert {one.name for one in tmp_path.iterdir()} == {"r", "home"}
    assert [one.name for one in (folder / "files").iterdir()] == [name_of("../../../up")]
