"""`deed import empirica` and `deed import list`, locally and through a server; imported records are marked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from note_repository import checkpoint, empty, handoff, logged, one_of_each, repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed


@pytest.fixture
def session(fresh: Callable[[str], str]) -> str:
    """The id of a session that no other test uses."""
    return fresh("5d1f0a52-imported")


@pytest.mark.served
def test_an_import_counts_every_note_and_a_second_one_adds_none(deed: Deed, tmp_path: Path, session: str) -> None:
    notes = [(f"{tail}-{session}", note) if "/1" in tail[-2:] else (tail, note) for tail, note in one_of_each(session)]
    folder = repository(tmp_path / "r", [*notes, (f"findings/{session}", b"no json")])
    dry = deed.data("import", "empirica", "--git", folder, "--dry-run")
    assert (dry["read"], dry["added"], dry["would_add"], dry["lost"]) == (13, 0, 13 - _standing(dry), 0)
    done = deed.data("import", "empirica", "--git", folder, "--as", "a")
    assert (done["read"], done["mapped"] + done["unmapped"], done["lost"]) == (13, 13, 0)
    assert done["added"] == dry["would_add"]
    again = deed.data("import", "empirica", "--git", folder, "--as", "b")
    assert (again["added"], again["lost"], again["by_kind"]) == (0, 0, done["by_kind"])


def _standing(dry: dict[str, int]) -> int:
    """Return how many notes an earlier test has imported already."""
    return dry["read"] - dry["would_add"]


def test_people_see_a_table_the_first_kept_aside_and_where_the_rest_is(
    deed: Deed, tmp_path: Path, session: str
) -> None:
    notes = [(f"messages/{session}/{number}", {"body": f"{session} {number}"}) for number in range(25)]
    vectors = {"know": 1.5, "do": None}
    notes.append((f"session/{session}/CHECK/1", checkpoint(session, "CHECK", vectors=vectors)))
    folder = repository(tmp_path / "r", notes)
    said = deed.run("import", "empirica", "--git", folder, "--as", "a")
    assert said.code == 0
    assert "26 read: 1 mapped, 25 stored unmapped, none lost; 26 new in the ledger" in said.out
    assert "2 values are dirty" in said.out
    assert said.err.count("unmapped: refs/notes/empirica/messages") == 20
    assert "5 more; `deed import list --unmapped` shows all" in said.err


def test_notes_with_long_names_are_asked_for_in_questions_that_a_server_takes(
    deed: Deed, tmp_path: Path, session: str
) -> None:
    tails = [f"findings/{session}/{'x' * 220}{number}" for number in range(300)]
    notes = [(tail, logged("finding", session, finding=tail[-9:])) for tail in tails]
    folder = repository(tmp_path / "r", notes)
    assert deed.data("import", "empirica", "--git", folder, "--as", "a")["added"] == 300
    assert deed.data("import", "empirica", "--git", folder, "--as", "a")["added"] == 0


def test_what_was_imported_is_listed_by_what_became_of_it(deed: Deed, tmp_path: Path, session: str) -> None:
    bad = logged("finding", session, finding="f", impact=7)
    folder = repository(tmp_path / "r", [(f"tasks/{session}", {"goal_id": session}), (f"findings/{session}", bad)])
    deed("import", "empirica", "--as", "a", "--git", folder)
    start = f"refs/notes/empirica/tasks/{session}"
    [aside] = deed.data("import", "list", "--unmapped", "--source", start)["items"]
    assert "a session here has no tasks" in aside["reason"]
    [dirty] = deed.data("import", "list", "--dirty", "--source", f"refs/notes/empirica/findings/{session}")["items"]
    assert (dirty["mapped_kind"], dirty["importer"], dirty["dirty"]) == ("finding.logged", "a", 1)
    document = deed.document("import", "list", "--limit", 1)
    assert "deed import list --limit 1 --after" in document["next"]
    assert "continue with: deed import list" in deed("import", "list", "--limit", 1)


def test_resume_query_list_and_show_mark_what_was_imported(deed: Deed, tmp_path: Path, session: str) -> None:
    label = f"claude-{session}"
    notes = [
        (f"handoff/{session}", handoff(session, ai=label)),
        (f"dead_ends/{session}", logged("dead_end", session, approach="Caching", why_failed="stale", ai_id=label)),
    ]
    deed("import", "empirica", "--as", "a", "--git", repository(tmp_path / "r", notes))
    for level, limit in (("summary", 400), ("detailed", 800), ("full", 1250)):
        asked = ("report", "resume", "--ai-id", label, "--detail-level", level)
        found = deed.data(*asked)
        assert found["sessions"][0]["imported"] == {"by": "a", "format": "empirica/handoff"}
        assert found["token_estimate"] <= limit
        assert "Imported by a from empirica/handoff" in deed(*asked)
    assert found["dead_ends"][0]["imported"] == "a"
    [report] = deed.data("report", "query", "--ai-id", label)["reports"]
    assert report["imported"]["importer"] == "a"
    assert report["timestamp"] == "2025-06-01T12:00:00.500Z"
    assert "[imported by a]" in deed("report", "query", "--ai-id", label)
    assert deed.data("report", "query", "--ai-id", label, "--since", "2025-06-02")["reports"] == []
    assert "**Imported:** by a" in deed("report", "show", session)
    assert deed.data("report", "show", session)["report"]["imported"]["format"] == "empirica/handoff"
    assert "imported" in deed("session", "list", "--ai-id", label)
    (row,) = deed.data("session", "list", "--ai-id", label)["items"]
    report = deed.data("report", "show", session)["report"]
    assert (row["task"], row["findings"]) == (report["task_summary"], len(report["key_findings"]))
    assert "imported by a from refs/notes/empirica/" in deed("session", "show", session)
    assert deed.data("session", "list", "--status", "imported", "--ai-id", label)["total"] == 1


def test_an_imported_session_is_resumed_by_the_label_and_never_as_the_importers(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--role", "agent", "--unprotected")
    alone("import", "empirica", "--as", "a", "--git", repository(tmp_path / "r", one_of_each()))
    assert alone.data("report", "resume", "--ai-id", "a")["sessions"] == []
    assert alone.data("report", "resume", "--ai-id", "claude-code")["total_sessions"] == 1
    alone.refuses("NOT_FOUND", "session", "finding", "it is so", "--as", "a")


def test_a_sweep_and_the_stores_leave_imported_sessions_alone(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--role", "agent", "--unprotected")
    notes = [one for one in one_of_each() if not one[0].startswith("handoff")]
    alone("import", "empirica", "--as", "a", "--git", repository(tmp_path / "r", notes))
    swept = alone.data("session", "sweep", "--as", "a", "--older-than", "0")
    assert (swept["ended"], swept["reported"], swept["unmade"], swept["looked_at"]) == ([], [], [], 0)


def test_an_import_that_meets_its_quota_midway_goes_on_where_it_was(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    settings = alone.home / "config.toml"
    settings.write_text("[quota]\nevents_per_minute = 10\n")
    folder = repository(tmp_path / "r", [(f"messages/s/{number}", {"body": number}) for number in range(300)])
    command = ("import", "empirica", "--git", folder, "--as", "a")
    error = json.loads(alone.run(*command, "--json").out)["error"]
    assert (error["code"], error["recoverable"]) == ("QUOTA_EXCEEDED", True)
    done, left = error["details"]["done"], error["details"]["left"]
    assert 0 < done < 300
    assert done + left == 300
    assert "try again in" in error["message"]
    assert "run the same import again later, and it continues there" in error["message"]
    error = alone.refuses("QUOTA_EXCEEDED", *command)
    assert (error["details"]["done"], error["details"]["left"]) == (0, left)
    settings.unlink()
    again = alone.data(*command)
    assert (again["read"], again["added"], again["lost"]) == (300, left, 0)
    assert alone.data("import", "list", "--limit", 1)["total"] == 300
    assert alone("verify").startswith("VALID: ")


def test_an_imported_ledger_verifies_with_its_views(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--role", "agent", "--unprotected")
    alone("import", "empirica", "--as", "a", "--git", repository(tmp_path / "r", one_of_each()))
    assert alone.data("verify", "--views")["ok"] is True


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("NOT_FOUND", ("--git", "nowhere")),
        ("NOT_FOUND", ("--git", ".")),
        ("INVALID_FIELD", ("--git", "r", "--refs", "notes/empirica")),
        ("INVALID_FIELD", ("--git", "r", "--refs", "--upload-pack=x")),
    ],
)
def test_what_is_no_repository_or_no_refs_is_refused(
    deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    empty(tmp_path / "r")
    deed.refuses(code, "import", "empirica", "--as", "a", *options)


def test_somebody_must_sign_an_import_and_nobody_a_dry_run(deed: Deed, tmp_path: Path) -> None:
    folder = empty(tmp_path / "r")
    deed.refuses("USAGE", "import", "empirica", "--git", folder)
    done = deed.data("import", "empirica", "--git", folder, "--dry-run")
    assert (done["read"], done["by_kind"], json.dumps(done["unmapped_records"])) == (0, {}, "[]")


def test_a_clone_without_its_notes_says_how_they_are_fetched(deed: Deed, tmp_path: Path) -> None:
    done = deed.run("import", "empirica", "--git", empty(tmp_path / "r"), "--dry-run")
    assert done.code == 0
    assert "git fetch origin 'refs/notes/*:refs/notes/*'" in done.err
