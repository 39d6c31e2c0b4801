"""A reviewer approves or verifies what they read: a terminal shows it and asks; elsewhere they name its version."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from calling import Deed, Place
from person_terminal import Terminal

from deedbook.ledger.home.location import VIEWS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Fresh = Callable[[str], str]

PARTIES = ("--as", "a", "--to", "b", "--reviewer", "rita")
BAD = ("--title", "Delete production", "--body", "rm -rf /")


def create(deed: Deed, name: str) -> str:
    deed("handoff", "create", name, "--title", "Rotate logs", "--body", "gzip the old ones", *PARTIES)
    return name


def test_act_on_one_version_signs_where_its_stream_stood(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("one"))
    read = deed.as_read(name)
    deed("handoff", "amend", name, *BAD, "--as", "a")
    changed = deed.refuses("VERSION_MISMATCH", "handoff", "claim", name, *read, "--as", "b")["details"]["changed"]
    assert changed == ["title", "task"]
    deed("handoff", "approve", name, *deed.as_read(name), "--as", "rita")
    count = deed.data("handoff", "show", name)["as_of"]["entries"]
    (done,) = deed.data("handoff", "claim", name, *deed.as_read(name), "--as", "b")["accepted"]
    assert deed.data("show", done["index"])["expect"] == count


@pytest.mark.served
def test_edited_view_changes_nothing_that_somebody_acts_on(place: Place, deed: Deed, fresh: Fresh) -> None:
    name = fresh("edited")
    deed("handoff", "create", name, *BAD, *PARTIES)
    deed("handoff", "list")
    with contextlib.closing(sqlite3.connect(place.home / VIEWS_FILE)) as db, db:
        db.execute("UPDATE handoffs SET title = 'Rotate logs', task = 'gzip' WHERE id = ?", (name,))
    shown = deed.data("handoff", "show", name)
    assert (shown["title"], shown["task"]) == ("Delete production", "rm -rf /")
    assert "Delete production" in deed("handoff", "show", name)
    assert shown["as_of"]["is_pinned"] is True
    (item,) = [one for one in deed.data("next", "--limit", "500", "--as", "rita")["items"] if one["id"] == name]
    assert item["title"] == "Delete production"


def test_report_that_a_view_calls_passed_lets_nobody_act(alone: Deed, tmp_path: Path) -> None:
    for agent, role in (("a", "agent"), ("b", "agent"), ("v", "reviewer")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    alone("reasoning", "start", "leak", "--task", "find it", "--domain", "security", "--as", "a")
    alone("reasoning", "step", "leak", "look at the pool", "--as", "a")
    alone("reasoning", "conclude", "leak", "it leaks", "--as", "a")
    alone("snapshot", "take", "s", "--reasoning", "leak", "--as", "a")
    assert alone.run("reasoning", "validate", "leak", "--tree", tmp_path, "--as", "v").code == 6
    alone("snapshot", "list")
    with contextlib.closing(sqlite3.connect(alone.home / VIEWS_FILE)) as db, db:
        (data,) = db.execute("SELECT data FROM validations").fetchone()
        lied = json.loads(data) | {"passed": True, "issues": []}
        db.execute("UPDATE validations SET passed = 1, data = ?", (json.dumps(lied),))
        db.execute("UPDATE reasonings SET domain = ''")
        db.execute("UPDATE snapshots SET conclusion = 'all is well'")
    decision = alone.data("snapshot", "receive", "s", "--as", "b")
    assert (decision["action"], decision["rule_fired"]["name"]) == ("human_review_required", "found_wrong")
    assert "v found it wrong" in decision["reasons"][1]
    assert "it leaks" in decision["prompt"]


def created(alone: Deed) -> None:
    """Make a handoff ``h`` in a ledger of this test's own."""
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "human")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    create(alone, "h")


def test_person_at_a_terminal_is_shown_the_text_and_asked(alone: Deed) -> None:
    created(alone)
    for line, code, status in (("n", 130, "pending"), ("y", 0, "approved")):
        terminal = Terminal(alone.home, "handoff", "approve", "h", "--as", "rita")
        shown = terminal.until("approve this version as rita?")
        assert "Rotate logs" in shown
        assert "gzip the old ones" in shown
        assert terminal.answer(line)[0] == code
        assert alone.data("handoff", "show", "h")["status"] == status


def test_sender_who_amends_while_the_reviewer_reads_gets_nothing_signed(alone: Deed) -> None:
    created(alone)
    terminal = Terminal(alone.home, "handoff", "approve", "h", "--as", "rita")
    terminal.until("approve this version as rita?")
    alone("handoff", "amend", "h", *BAD, "--as", "a")
    code, rest = terminal.answer("y")
    assert code == 4
    assert "h has changed since the version you read: title was" in rest
    assert alone.data("handoff", "show", "h")["status"] == "pending"


def test_yes_on_a_terminal_shows_the_text_all_the_same(alone: Deed) -> None:
    created(alone)
    terminal = Terminal(alone.home, "handoff", "approve", "h", "--as", "rita", "--yes")
    shown = terminal.until(None)
    assert "gzip the old ones" in shown
    assert "h is approved" in shown
    assert terminal.end() == 0


@pytest.mark.timeout(600)  # eight processes, of which six open keys eight times at the real cost of Argon2id
def test_first_ledger_on_a_terminal_asks_for_passphrases_and_has_a_closed_gate(tmp_path: Path) -> None:
    home = tmp_path / ".deedbook"

    def run(*words: str, answers: Sequence[tuple[str, str]] = ()) -> str:
        terminal = Terminal(home, *words)
        shown = "".join([terminal.until(prompt) + terminal.type(line) for prompt, line in answers])
        shown += terminal.until(None)
        assert terminal.end() == 0, shown
        return shown

    of_root = ("Passphrase of root: ", "roots only")
    answers = [("Your name", "none"), ("Protect the key of root", "y"), ("New passphrase for root: ", "roots only")]
    run("init", "--harness", "none", answers=[*answers, ("Repeat for confirmation", "roots only")])
    for name in ("a", "b"):
        run("agent", "add", name, answers=[of_root])
    hers = [("New passphrase for rita: ", "hers alone"), ("Repeat for confirmation", "hers alone")]
    run("agent", "add", "rita", "--role", "human", "--role", "reviewer", answers=[*hers, of_root])
    run("handoff", "create", "h", "--title", "T", *PARTIES)
    signs = [
        ("approve this version as rita?", "y"),
        *[("Passphrase of rita: ", line) for line in ("no", "her", "hers alone")],
    ]
    assert "gate: closed\r\n" in run("handoff", "approve", "h", "--as", "rita", answers=signs)
    assert "signatures (anchored)\r\ngate: closed\r\n" in run("verify")


def test_agent_that_never_may_is_refused_before_they_are_asked_to_read(deed: Deed, fresh: Fresh) -> None:
    name = fresh("h")
    deed("handoff", "create", name, "--title", "T", "--to", "b", "--reviewer", "rita", "--as", "a")
    for verb in ("approve", "verify", "request-changes"):
        reason = ["--reason", "no"] if verb == "request-changes" else []
        error = deed.refuses("NOT_AUTHORIZED", "handoff", verb, name, *reason, "--as", "a")
        assert "a needs the role human or reviewer: its reviewer is rita" in error["message"]
    deed.refuses("USAGE", "handoff", "approve", name, "--as", "rita")
