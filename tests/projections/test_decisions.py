"""The rows of decisions: decisions about a path, their replacements, and the agents that were told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from folding import facts, rows_of

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.decision import DecisionMade, DecisionWithdrawn
from deedbook.projections.decisions.fold import VIEW

if TYPE_CHECKING:
    from view_ledger import ViewLedger

    from deedbook.projections.answers.reader import Reader

MADE = DecisionMade(text="One pool", why="Two leak", paths=["./src/pool.py:3", "deploy/**", "src/pool.py"])


def ids(reader: Reader, **arguments: Any) -> list[str]:
    """Return the ids of a list of decisions."""
    return [row["id"] for row in reader.answer("decisions.list", arguments)["items"]]


def decide(ledger: ViewLedger, name: str, *paths: str, by: str = "alice", **fields: Any) -> None:
    """Append a decision."""
    ledger.emit(by, f"decision/{name}", DecisionMade(text=f"text of {name}", paths=list(paths), **fields))


def test_decision_stands_until_it_is_replaced_or_withdrawn() -> None:
    rows = rows_of(VIEW, "d", facts("decision/d", ("alice", MADE)))
    (row,) = rows["decisions"]
    assert (row["status"], row["author"], row["superseded_by"], row["ended_by"]) == ("standing", "alice", None, None)
    assert [each["path"] for each in rows["decision_paths"]] == ["src/pool.py", "deploy"]
    for by, status in (("", "withdrawn"), ("other", "superseded")):
        ended = ("rita", DecisionWithdrawn(reason="no", by=by))
        (row,) = rows_of(VIEW, "d", facts("decision/d", ("alice", MADE), ended))["decisions"]
        assert (row["status"], row["superseded_by"], row["ended_by"]) == (status, by or None, "rita")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/api.py", ["file", "folder", "pattern"]),
        ("./src/api.py:12", ["file", "folder", "pattern"]),
        ("src", ["file", "folder", "pattern"]),
        ("src/**", ["file", "folder", "pattern"]),
        ("src/other.py", ["folder", "pattern"]),
        ("src/api.pyx", ["folder", "pattern"]),
        ("source/api.py", []),
        ("docs/api/index.md", ["docs"]),
        (".", ["docs", "file", "folder", "pattern"]),
        ("", ["docs", "file", "folder", "pattern"]),
    ],
)
def test_decision_about_a_folder_is_about_its_files(
    ledger: ViewLedger, reader: Reader, path: str, expected: list[str]
) -> None:
    for name, of in (("file", "src/api.py"), ("folder", "src/"), ("pattern", "src/**"), ("docs", "docs/*.md")):
        decide(ledger, name, of)
    decide(ledger, "of no file")
    assert sorted(ids(reader, paths=[path])) == expected
    assert len(ids(reader)) == 5


def test_decision_about_the_project_is_about_every_file(ledger: ViewLedger, reader: Reader) -> None:
    decide(ledger, "all", ".")
    assert ids(reader, paths=["a/b.py", "c"]) == ["all"]


def test_list_filters_and_pages_newest_first(ledger: ViewLedger, reader: Reader) -> None:
    decide(ledger, "one", "a.py")
    decide(ledger, "two", "a.py", by="bob", contract=True)
    ledger.emit("rita", "decision/one", DecisionWithdrawn(by="two", reason="better"))
    assert (ids(reader), ids(reader, status="standing"), ids(reader, contract=False)) == (
        ["two", "one"],
        ["two"],
        ["one"],
    )
    assert ids(reader, author="alice") == ["one"]
    first = reader.answer("decisions.list", {"limit": 1})
    assert (first["items"][0]["supersedes"], first["total"]) == (["one"], 2)
    assert ids(reader, after=first["next"]) == ["one"]
    shown = reader.answer("decisions.show", {"id": "one"})
    assert (shown["status"], shown["superseded_by"], shown["reason"]) == ("superseded", "two", "better")
    assert reader.answer("decisions.show", {"id": "decision/two"})["supersedes"] == ["one"]
    with pytest.raises(Refused) as refused:
        reader.answer("decisions.show", {"id": "onne"})
    assert (refused.value.code, refused.value.details["near"]) == ("NOT_FOUND", ["one"])


def test_everybody_reads_once_what_others_decided(ledger: ViewLedger, reader: Reader) -> None:
    decide(ledger, "one", "a.py")
    decide(ledger, "two", by="bob")
    ledger.emit("alice", "decision/one", DecisionWithdrawn(by="two"))
    ledger.emit("rita", "decision/two", DecisionWithdrawn(reason="no"))

    def unread(agent: str) -> list[tuple[str, str]]:
        items = reader.answer("handoffs.unread", {"agent": agent, "after": ledger.start - 1})["items"]
        return [(item["author"], item["text"]) for item in items]

    assert unread("alice") == [("bob", "decided: text of two"), ("rita", "withdrew: text of two")]
    assert unread("scribe") == [
        ("alice", "decided: text of one"),
        ("bob", "decided: text of two"),
        ("alice", "replaced it by two: text of one"),
        ("rita", "withdrew: text of two"),
    ]
