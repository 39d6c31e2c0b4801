from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from graphs import graph

from deedbook.consumers.reasoning.places import ONLY_PLACE, Places, page_search_max_chars, places_in
from deedbook.consumers.reasoning.validator.reads import digest_of
from deedbook.consumers.reasoning.validator.trees import tree_of
from deedbook.ledger.errors import Refused
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def view(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Answer as a ledger that knows one session."""
    assert query == "resolve"
    if arguments["id"] != "session/s1":
        raise Refused("NOT_FOUND", "there is no such thing")
    return {"event_index": 1}


def look(memory: ReasoningMemory, root: Path | None, validations: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    with tree_of(root) as tree:
        return Places(view, tree).of_graph(memory, validations)


def places(root: Path, *evidence: str, digests: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the source locations that a step cites, in the order of its references."""
    step = ReasoningStep(1, "observation", "seen", evidence=list(evidence), evidence_digests=digests)
    looked = look(ReasoningMemory("r", "alice", "t", "", steps=[step]), root)["evidence"]
    return sorted(looked, key=lambda row: evidence.index(row["reference"]))


@pytest.fixture
def cited() -> ReasoningMemory:
    evidence = ["a.py:1:one", "a.py:2:two", "gone.py:1", "https://example.org/x", "session/s1", "session/other"]
    steps = [
        {"step": 1, "type": "observation", "content": "seen", "evidence": evidence},
        {"step": 2, "type": "assumption", "content": "It holds", "needs_validation": True},
    ]
    return graph({"task": "t", "conclusion": "", "steps": steps, "dependencies": {}})


def test_evidence_is_as_signed_changed_gone_or_not_checkable(cited: ReasoningMemory, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nthree\n")
    looked = look(cited, tmp_path)
    assert looked["counts"] == {"as_signed": 2, "changed": 1, "gone": 2, "not_checkable": 1}
    states = {check["reference"]: check["freshness"] for check in looked["evidence"]}
    assert states["a.py:2:two"] == "changed"
    assert states["session/s1"] == "as_signed"
    assert [check["freshness"] for check in looked["evidence"]][-2:] == [
        "as_signed",
        "as_signed",
    ]  # the important parts come first
    assert [one["status"] for one in looked["assumptions"]] == ["not_checked"]


def test_without_a_tree_nothing_of_a_file_is_called_as_signed(cited: ReasoningMemory) -> None:
    looked = look(cited, None)
    assert looked["tree"] is None
    assert looked["counts"] == {"as_signed": 1, "gone": 1, "not_checkable": 4}


def test_without_a_tree_the_last_validation_that_had_one_tells(cited: ReasoningMemory) -> None:
    none, report = (
        {"tree": tree, "author": tree, "accepted_ms": 5, "data": {"evidence": [{"reference": "a", "status": status}]}}
        for tree, status in (("none", "not_checked"), ("folder", "line_changed"))
    )
    looked = look(cited, None, [none, report])
    assert (looked["by"], looked["at_ms"], looked["counts"]) == ("folder", 5, {"changed": 1})


def test_the_signed_text_stands_beside_the_text_of_now(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nlimit = 90\n")
    quoted, remembered, moved = places(
        tmp_path, "a.py:2:limit = 30", "a.py:2", "a.py:1-2", digests=["", digest_of("limit = 90"), digest_of("x")]
    )
    assert (quoted["freshness"], quoted["signed"], quoted["now"]) == ("changed", "limit = 30", "limit = 90")
    assert (remembered["freshness"], remembered["signed"], remembered["now"]) == ("as_signed", *["limit = 90"] * 2)
    assert (moved["freshness"], moved["signed"], moved["now"]) == ("changed", None, "one\nlimit = 90")


def test_text_that_moved_is_shown_where_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("new\none\nlimit = 90\n")
    (row,) = places(tmp_path, "a.py:2", digests=[digest_of("limit = 90")])
    assert (row["freshness"], row["line"], row["now_line"], row["now"]) == ("as_signed", 2, 3, "limit = 90")


def test_text_that_only_a_digest_names_is_found_in_an_earlier_commit(tmp_path: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    folder = tmp_path / "部分"  # the folder is a part of the repository
    folder.mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for days in (30, 60):
        (folder / "ein B.py").write_text(f"one\nlimit = {days}\n")
        for arguments in (["add", "."], [*identity, "commit", "-qm", "next"]):
            subprocess.run(["git", "-C", folder, *arguments], check=True)
    (folder / "ein B.py").write_text("one\nlimit = 90\n")
    references = "ein B.py:2", "ein B.py:2-2", "ein B.py:1"
    digests = [digest_of("limit = 30"), digest_of("limit = 60"), digest_of("never")]
    first, second, never = places(folder, *references, digests=digests)
    assert [(row["signed"], row["now"]) for row in (first, second)] == [
        ("limit = 30", "limit = 90"),
        ("limit = 60", "limit = 90"),
    ]
    assert (never["signed"], never["now"]) == (None, "one")


def test_a_place_whose_text_nobody_signed_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    only_place, missing = places(tmp_path, "a.py:1", "b.py:1", digests=["", "missing"])
    assert (only_place["freshness"], only_place["note"], only_place["now"]) == ("not_checkable", ONLY_PLACE, "one")
    assert (missing["freshness"], missing["now"]) == ("gone", None)


def test_nothing_outside_of_the_tree_is_shown_nor_credentials_nor_much(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("secret\n")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "folder").symlink_to(tmp_path)
    (root / ".env").write_text("secret\n")
    (root / "long.txt").write_text("x" * 10_000)
    references = ["../outside.txt:1", f"{tmp_path}/outside.txt:1", "link.txt:1", "folder/outside.txt:1", ".env:1"]
    *rows, long = places(root, *references, "long.txt:1")
    assert [row["now"] for row in rows] == [None] * 5
    assert {row["freshness"] for row in rows} == {"not_checkable"}
    assert len(long["now"]) == 2_000


def test_a_page_searches_large_files_only_a_little(tmp_path: Path) -> None:
    """One search of seven megabytes takes 0.12 s, and a graph has room for thousands of references."""
    (tmp_path / "large.txt").write_text("\n".join(["word " * 700] * 2_000))
    rows = places(tmp_path, *(f"large.txt:1:word word word {number}" for number in range(20)))
    assert sum("not searched" in row["note"] for row in rows) == 20 - page_search_max_chars // 7_000_000


def test_a_secret_in_a_cited_line_is_not_shown(tmp_path: Path) -> None:
    """Any agent that may append can cite any file of the project, and people elsewhere read the page."""
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    (tmp_path / "config.yaml").write_text(f"days: 90\ntoken: {token}\n" + "x" * 1_990 + f" token: {token}\n")
    rows = places(tmp_path, "config.yaml:1", "config.yaml:2", "config.yaml:3", f"config.yaml:2:token: {token}")
    assert [token[:12] in f"{row['signed']}{row['now']}" for row in rows] == [False] * 4
    assert "token: [redacted: " in rows[1]["now"]
    assert rows[0]["now"] == "days: 90"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("hostile", ["+" * 40_000, "+/" * 20_000, "a.b/" * 10_000, "a/b:" * 10_000])
def test_evidence_that_looks_like_places_is_read_in_linear_time(hostile: str) -> None:
    assert places_in(hostile) == []


def test_all_files_of_a_page_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.reasoning.places.page_read_max_bytes", 10)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1234567\n")
    first, second = places(tmp_path, "a.txt:1:1234567", "b.txt:1:1234567")
    assert (first["freshness"], second["freshness"], second["status"]) == ("as_signed", "not_checkable", "too_large")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("src/a.py:12", [("src/a.py:12", "not_checkable", "limit = 30")]),
        ("src/a.py:12:limit = 30", [("src/a.py:12:limit = 30", "as_signed", "limit = 30")]),
        ("src/a.py:12:limit = 31", [("src/a.py:12:limit = 31", "changed", "limit = 30")]),
        ("src/a.py:12: the limit", [("src/a.py:12", "not_checkable", "limit = 30")]),  # a remark is no quote
        (
            "see (src/a.py:12), not src/b.py:3.",
            [("src/a.py:12", "not_checkable", "limit = 30"), ("src/b.py:3", "gone", None)],
        ),
        ("42 tests, 0 failed at 10:30 on localhost:8080, http://a.b/c:1, /etc/passwd:1", []),
        ("src/a.py", []),
    ],
)
def test_evidence_in_words_is_looked_up_where_it_names_a_file(
    tmp_path: Path, text: str, expected: list[tuple[str, str, str | None]]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("\n" * 11 + "limit = 30\n")
    with tree_of(tmp_path) as tree:
        rows = Places(view, tree).of_text(text)
    assert [(row["reference"], row["freshness"], row["now"]) for row in rows] == expected
