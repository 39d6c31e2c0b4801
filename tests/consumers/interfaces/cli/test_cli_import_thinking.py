"""`deed import thinking`: the thinking in a transcript can be found, briefed and traced, and lets nobody act."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
from calling import environment, wait_until
from faults import times
from forked_deed import DeedProcess

from deedbook.ledger.events.reasoning import Counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    ImportedBy = Callable[[str], dict[str, Any]]

THINKING: Final = "The pool is closed early. So the login fails because no connection is left."
ANSWER: Final = "Close the pool at the end."


def said(session: str, number: int, *content: dict[str, Any], kind: str = "assistant") -> str:
    """Return one line of a session."""
    message = {"id": f"msg_{number}", "role": kind, "model": "model-x", "content": list(content)}
    named = {"type": kind, "uuid": f"{session}-{kind}-{number}", "sessionId": session}
    return json.dumps(named | {"message": message, "timestamp": "2026-01-02T03:04:05Z"}) + "\n"


def asked(session: str, number: int) -> str:
    """Return the line of a prompt."""
    return said(session, number, {"type": "text", "text": f"Why does login {number} fail?"}, kind="user")


def transcript(file: Path, session: str, count: int = 2) -> Path:
    """Write a session of some responses, then one that is encrypted and a broken line."""
    lines = []
    for number in range(count):
        think = {"type": "thinking", "thinking": f"Case {number} of {session}. {THINKING}", "signature": "c2ln"}
        lines += [asked(session, number), said(session, number, think)]
        lines += [said(session, number, {"type": "text", "text": ANSWER})]
    lines += [said(session, 10**6, {"type": "redacted_thinking", "data": session}), f"{{broken {session}\n"]
    file.write_text("".join(lines))
    return file


def imported(deed: Deed, session: str) -> list[dict[str, Any]]:
    """Return the reasonings that were imported of a session, oldest first."""
    found = deed.data("reasoning", "list", "--limit", 500)["items"]
    return [one for one in reversed(found) if one["session"] == session]


@pytest.fixture
def imported_by(deed: Deed, fresh: Callable[[str], str], tmp_path: Path) -> ImportedBy:
    """Return the first reasoning of a session that an agent imports."""

    def of(agent: str) -> dict[str, Any]:
        session = fresh("session")
        deed("import", "thinking", transcript(tmp_path / "s.jsonl", session), "--as", agent)
        return imported(deed, session)[0]

    return of


@pytest.mark.served
def test_import_counts_everything_and_a_second_run_adds_nothing(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    session = fresh("session")
    file = transcript(tmp_path / "s.jsonl", session)
    dry = deed.data("import", "thinking", file, "--dry-run")
    size = deed.size()
    first = deed.data("import", "thinking", file, "--as", "a")
    assert {name: first[name] for name in ("read", "mapped", "unmapped", "lost", "added")} == {
        "read": 4,
        "mapped": 2,
        "unmapped": 2,
        "lost": 0,
        "added": 8,
    }
    assert (first["lines"], first["files"], first["skipped"]) == (8, 1, 2)
    assert [one["source"] for one in first["unmapped_records"]] == ["s.jsonl:8", "s.jsonl:7"]
    assert dry | {"dry_run": False} == first
    assert deed.size() == size + 8
    for who in ("a", "b"):
        again = deed.data("import", "thinking", tmp_path, "--as", who)
        assert (again["added"], again["mapped"], again["unmapped"]) == (0, 2, 2)
    assert deed.size() == size + 8


def test_people_see_what_was_kept_aside_and_why(deed: Deed, fresh: Callable[[str], str], tmp_path: Path) -> None:
    file = transcript(tmp_path / "s.jsonl", fresh("session"))
    told = deed.run("import", "transcript", file, "--as", "a")
    assert told.out.startswith(
        "4 read: 2 mapped, 2 stored unmapped, none lost; 8 new in the ledger (8 lines in 1 files, 2 without"
    )
    assert "unmapped: s.jsonl:8: INVALID_FORMAT: this is not JSON" in told.err
    assert "unmapped: s.jsonl:7: INVALID_FORMAT: no reasoning can be read" in told.err


def test_people_see_how_many_hold_together_and_how_links_were_found(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    session = fresh("session")
    told = deed("import", "thinking", transcript(tmp_path / "s.jsonl", session), "--as", "a")
    assert "\n2 of 2 hold together\n" in told
    (one, _) = imported(deed, session)
    shown = deed.run("reasoning", "show", one["id"])
    assert "inferred dependencies by connective: 2←1" in (shown.out + shown.err).replace("_", " ")
    assert "← 1" in shown.out
    answer = deed.data("reasoning", "validate", one["id"], "--no-publish")
    assert (answer["passed"], answer["counts"]["evidence"]) == (True, 0)
    unsound = tmp_path / "r.json"
    unsound.write_text(json.dumps({"thinking": f"I see {session}.\n\nHm.", "content": "Stop."}))
    said = deed("import", "thinking", unsound, "--as", "a", "--task", f"What of {session}?")
    assert "0 of 1 hold together; the others: UNLINKED 1" in said
    tasks = [one["task"] for one in deed.data("reasoning", "list", "--limit", 500)["items"]]
    assert f"What of {session}?" in tasks


def test_imported_reasoning_is_marked_wherever_it_is_shown(deed: Deed, imported_by: ImportedBy) -> None:
    one = imported_by("a")
    assert one["imported"]["importer"] == "a"
    mark = "IMPORTED by a from s.jsonl:2, claimed author model-x, claimed time 2026-01-02T03:04:05.000Z"
    shown = deed("reasoning", "show", one["id"])
    assert mark in shown
    assert "inferred type: 1-" in shown
    assert mark in deed("reasoning", "show", one["id"], "--tree")
    assert "a (imported)" in deed("reasoning", "list", "--limit", 500)
    provenance = deed.data("reasoning", "show", one["id"], "--provenance")
    assert (provenance["event"]["kind"], provenance["author"]) == ("record.imported", "a")
    assert provenance["imported"] == one["imported"]


def test_brief_of_imported_reasoning_works_and_says_what_it_is(deed: Deed, imported_by: ImportedBy) -> None:
    one = imported_by("a")
    for level in ("minimal", "standard", "full"):
        brief = deed.data("reasoning", "brief", one["id"], "--level", level)
        assert brief["prompt"].startswith("CONTEXT: Imported: nobody here vouches for it.")
        assert brief["certificate"]["holds"]
        assert (brief["imported"]["importer"], brief["fetch_full"]) == ("a", True)
        assert brief["rule_fired"]["name"] == "imported"
    told = deed.run("reasoning", "brief", one["id"])
    assert "IMPORTED by a from s.jsonl:2" in told.err
    assert deed.data("reasoning", "fetch", one["id"])["ref"] == one["ref"]


def test_nobody_acts_on_imported_reasoning_that_only_its_importer_validated(
    deed: Deed, imported_by: ImportedBy, tmp_path: Path
) -> None:
    one = imported_by("rita")
    decision = deed.data("snapshot", "receive", one["id"])
    assert (decision["action"], decision["may_act"], decision["imported"]) == ("human_review_required", False, True)
    assert decision["rule_fired"]["name"] == "imported"
    report = tmp_path / "report.json"
    report.write_text(json.dumps(passing(one["ref"])))
    stream = f"reasoning/{one['id']}"
    deed.refuses(
        "SELF_APPROVAL", "emit", "reasoning.validated", "--stream", stream, "--as", "rita", "--data", f"@{report}"
    )
    assert deed.data("snapshot", "receive", one["id"])["action"] == "human_review_required"


def test_validation_by_another_than_the_importer_counts(deed: Deed, imported_by: ImportedBy) -> None:
    one = imported_by("a")
    data = json.dumps(passing(one["ref"]))
    deed("emit", "reasoning.validated", "--stream", f"reasoning/{one['id']}", "--as", "rita", "--data", data)
    decision = deed.data("snapshot", "receive", one["id"])
    assert (decision["action"], decision["validation"]["author"]) == ("act_on_full", "rita")
    assert decision["rule_fired"]["name"] == "imported"


def test_validation_that_saw_no_evidence_lets_nobody_act(deed: Deed, imported_by: ImportedBy) -> None:
    one = imported_by("a")
    assert "no evidence" in deed("reasoning", "validate", one["id"], "--as", "rita")
    decision = deed.data("snapshot", "receive", one["id"])
    assert (decision["action"], decision["may_act"]) == ("human_review_required", False)


def passing(ref: str) -> dict[str, Any]:
    """Return a validation that passed."""
    counts = dict.fromkeys(Counts.__struct_fields__, 0) | {"evidence": 1, "evidence_ok": 1}
    return {
        "reasoning_ref": ref,
        "passed": True,
        "issues": [],
        "evidence": [],
        "assumptions": [],
        "inferences": [],
        "tree": {"type": "none"},
        "counts": counts,
        "validator_name": "deedbook-validator",
        "validator_version": "1",
    }


def test_what_is_missing_or_without_thinking_is_told(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--unprotected")
    alone.refuses("NOT_FOUND", "import", "thinking", tmp_path / "none.jsonl", "--as", "a")
    alone.refuses("USAGE", "import", "thinking", tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    told = alone.run("import", "thinking", tmp_path / "notes.txt", "--as", "a")
    assert told.out.startswith("0 read: 0 mapped, 0 stored unmapped, none lost; 0 new in the ledger")
    assert "no thinking was found" in told.err


def test_nowhere_to_import_to_is_told(nowhere: Deed, tmp_path: Path) -> None:
    nowhere.refuses("NO_LEDGER", "import", "thinking", transcript(tmp_path / "s.jsonl", "s"), "--as", "a")


def test_import_that_is_killed_is_finished_by_the_next_and_verifies(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--unprotected")
    count = times(200, 24)
    file = transcript(tmp_path / "s.jsonl", "long", count=count)
    arguments = ("--home", alone.home, "import", "thinking", file, "--as", "a")
    child = DeedProcess(*arguments, env=environment(), stdout=subprocess.DEVNULL)
    before = alone.size()
    wait_until(lambda: alone.size() > before or child.poll() is not None, "something was imported")
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    cut = alone.size() - before
    rest = alone.data("import", "thinking", file, "--as", "a")
    assert 0 < cut < 3 * count + 2
    assert (rest["read"], rest["mapped"], rest["lost"]) == (count + 2, count, 0)
    assert rest["added"] == 3 * count + 2 - cut
    assert alone.data("reasoning", "list", "--status", "concluded")["total"] == count
    assert alone.data("verify", "--views")["ok"] is True
    assert alone.data("import", "thinking", file, "--as", "a")["added"] == 0
