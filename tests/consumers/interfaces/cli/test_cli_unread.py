"""`deed unread` shows each line of another agent once, and only lines about handoffs that concern the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calling import Deed


def prepared(alone: Deed) -> None:
    """A ledger with two handoffs from a to b, reviewed by rita, of which one has an approval."""
    for name in ("a", "b", "c"):
        alone("agent", "add", name)
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    for name in ("one", "two"):
        alone("handoff", "create", name, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "T")
    alone("handoff", "approve", "one", "--as", "rita", *alone.as_read("one"))


def test_each_line_of_others_is_shown_once(alone: Deed) -> None:
    prepared(alone)
    (line,) = alone("unread", "--as", "a").splitlines()
    assert line.split("  ")[1].startswith("one: rita approved (version sha256:")
    assert alone("unread", "--as", "a").strip() == "nothing is new"
    alone("handoff", "claim", "one", "--as", "b")
    alone("handoff", "log", "one", "first line\nand a second", "--as", "a")
    assert alone.data("unread", "--as", "a", "--peek")["total"] == 1
    (item,) = alone.data("unread", "--as", "a")["items"]
    assert (item["id"], item["author"], item["text"]) == ("one", "b", "claimed")
    assert "first line" in alone("unread", "--as", "rita")


def test_only_handoffs_that_concern_the_agent_are_shown(alone: Deed) -> None:
    prepared(alone)
    assert alone("unread", "--as", "c").strip() == "nothing is new"
    alone("ask", "c", "Which port?", "--about", "two", "--as", "a")
    assert "a asks c: Which port?" in alone("unread", "--as", "c")
    alone("answer", "two:1", "8080", "--as", "c")
    alone("settle", "two:1", "--as", "a")
    assert "question 1 settled" in alone("unread", "--as", "c")  # c signed events on this handoff


def test_long_news_come_in_pages(alone: Deed) -> None:
    prepared(alone)
    first = alone.document("unread", "--as", "b", "--limit", "2")
    assert (len(first["data"]["items"]), first["data"]["left"], first["next"]) == (2, 1, "deed unread")
    assert "rita approved" in alone("unread", "--as", "b")
    assert alone("new", "--as", "b").strip() == "nothing is new"


def test_misspelled_agent_is_refused_and_gets_no_position(alone: Deed) -> None:
    prepared(alone)
    error = alone.refuses("NOT_FOUND", "unread", "--as", "rit")
    assert "rita" in error["message"]
    assert not list((alone.home / "subscribers").glob("unread-rit.db"))
