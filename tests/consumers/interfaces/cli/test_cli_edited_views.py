"""Somebody edits the views by hand: a list repeats the lie, but an answer on which an agent acts does not."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calling import Deed


def test_edited_views_are_found_by_verify_and_not_believed_by_show(alone: Deed) -> None:
    for name in ("a", "b"):
        alone("agent", "add", name)
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    create = ["--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t", "--criterion", "c"]
    alone("handoff", "create", "h", *create)
    assert alone("verify", "--views").startswith("VALID: ")
    with sqlite3.connect(alone.home / "views.db") as views:
        assert views.execute("UPDATE handoffs SET status = 'verified'").rowcount == 1
    views.close()

    (listed,) = alone.data("handoff", "list")["items"]
    assert listed["status"] == "verified"  # as `--help` says, a list is not checked
    assert "not checked" in alone("handoff", "list", "--help")
    assert alone.data("handoff", "show", "h")["status"] == "pending"
    report = alone.refuses_programs("VERIFICATION_FAILED", "verify", "--views")["details"]["report"]
    assert report["outcome"] == "INVALID"
    assert "table handoffs" in report["problems"][0]["message"]
    alone("project", "--rebuild")
    assert alone("verify", "--views").startswith("VALID: ")


def test_list_of_decisions_says_what_is_signed_and_leaves_out_what_is_not(alone: Deed) -> None:
    alone("agent", "add", "a")
    for text, path in (("Use tabs", "src/**"), ("Use spaces", "docs"), ("Keep the port", "src/api.py")):
        alone("decide", text, "--path", path, "--as", "a")
    alone("decide", "Use three spaces", "--path", "src/b.py", "--supersedes", "use-tabs", "--as", "a")
    alone("decisions")
    with sqlite3.connect(alone.home / "views.db") as views:
        views.execute("UPDATE decisions SET text = 'Use vi', author = 'root' WHERE id = 'keep-the-port'")
        views.execute("UPDATE decisions SET status = 'standing', superseded_by = NULL WHERE id = 'use-tabs'")
        views.execute("UPDATE decision_paths SET path = 'src' WHERE decision_id = 'use-spaces'")
        columns = ", ".join(row[1] for row in views.execute("PRAGMA table_info(decisions)") if row[1] != "id")
        views.execute(f"INSERT INTO decisions (id, {columns}) SELECT 'forged', {columns} FROM decisions LIMIT 1")
        views.execute("INSERT INTO decision_paths (decision_id, path) VALUES ('forged', 'src')")
    views.close()
    page = alone.data("decisions", "--path", "src")
    assert [(row["id"], row["text"], row["author"], row["supersedes"]) for row in page["items"]] == [
        ("use-three-spaces", "Use three spaces", "a", ["use-tabs"]),
        ("keep-the-port", "Keep the port", "a", []),
    ]
    assert page["total"] == 2
    (past,) = alone.data("decisions", "--path", "src", "--as-of", 2)["items"]
    assert (past["id"], past["status"]) == ("use-tabs", "standing")


def test_decision_that_an_edited_view_moves_in_time_is_not_in_that_period(alone: Deed) -> None:
    alone("agent", "add", "a")
    alone("decide", "Use tabs", "--path", "src", "--as", "a")
    (now,) = alone.data("decisions")["items"]
    with sqlite3.connect(alone.home / "views.db") as views:
        assert views.execute("UPDATE decisions SET made_ms = 1").rowcount == 1
    views.close()
    assert alone.data("decisions", "--until", "1980-01-01")["items"] == []
    assert [row["made_ms"] for row in alone.data("decisions")["items"]] == [now["made_ms"]]
