"""Somebody edits the views by hand: a list repeats the lie, and what one acts on does not."""

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
