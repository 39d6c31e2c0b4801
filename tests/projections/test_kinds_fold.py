"""Declared kinds in views: their sentences and marks, and the effects of a redaction and of a stolen key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from event_examples import published

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.declared import KindDeclared
from deedbook.projections.kinds.words import line_max_chars, line_of
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from view_ledger import ViewLedger

    from deedbook.projections.answers.reader import Reader

KIND = "x.deploy.finished"
FIELDS: dict[str, Any] = {"service": "api", "version": 7, "hosts": ["a", "b"]}
SEALED = f"sealed:customer-4711:blake3:{'1' * 64}/0"


def publish(ledger: ViewLedger, author: str = "bob", stream: str = "x.deploy/9", **data: Any) -> int:
    """Publish an event of the declared kind; return its index."""
    draft = Draft(kind=KIND, stream=stream, data=FIELDS | data)
    return ledger.submit(ledger.sign(author, draft))[0].index


def did(reader: Reader, index: int) -> str:
    """Return the sentence that describes an event."""
    words: str = reader.answer("catalog.show", {"id": str(index)})["did"]
    return words


def test_events_are_shown_by_the_titles_of_their_schema(ledger: ViewLedger, reader: Reader) -> None:
    ledger.publish_own()
    index = publish(ledger, outcome="healthy")
    words = "deploy finished: hosts: a; b, outcome: healthy, Service: api, Version: 7"
    assert did(reader, index) == words
    (row,) = reader.answer("catalog.find", {"stream": "x.deploy/9"})["items"]
    assert (row["did"], row["type"], row["kind"]) == (words, KIND, KIND)
    (lane,) = reader.answer("catalog.lanes", {"type": KIND})["items"]
    assert lane["did"] == words
    assert [item["type"] for item in reader.answer("catalog.lanes")["items"]] == [KIND]
    assert {facet["value"] for facet in reader.answer("catalog.facets")["types"]} >= {KIND}
    assert [
        hit["event_index"] for hit in reader.answer("search.find", {"text": "healthy", "family": ["x"]})["items"]
    ] == [index]
    shown = reader.answer("kinds.show", {"id": KIND})
    assert (shown["events"], shown["last_index"], shown["phrase"]) == (1, index, "deploy finished")
    assert shown["schema"] == published("kind.declared")["schema"]
    assert reader.answer("kinds.list", {"role": "service"})["total"] == 1
    assert reader.answer("kinds.list", {"role": "human"})["total"] == 0
    with pytest.raises(Refused, match=r"did you mean x\.deploy\.finished"):
        reader.answer("kinds.show", {"id": "x.deploy.finishd"})


def test_redacted_event_keeps_its_phrase_and_a_mark(ledger: ViewLedger, reader: Reader) -> None:
    ledger.publish_own()
    index = publish(ledger, notes="it holds a zebra")
    assert "zebra" in did(reader, index)
    ledger.redact(index)
    assert did(reader, index) == "deploy finished"
    assert reader.answer("catalog.show", {"id": str(index)})["redacted"]["by"] == "root"
    assert reader.answer("search.find", {"text": "zebra"})["holds"] != "all"
    assert verify_views(ledger.reads, reader.store, VIEWS) == []


def test_kind_that_a_stolen_key_declared_is_marked(ledger: ViewLedger, reader: Reader) -> None:
    ledger.register("ada", "admin")
    declared = KindDeclared(name=KIND, stream="x.deploy", roles=["agent"], schema=published("kind.declared")["schema"])
    index = ledger.emit("ada", f"kind/{KIND}", declared).index
    publish(ledger)
    assert "compromised" not in reader.answer("kinds.show", {"id": KIND})
    key = ledger.keys["ada"].public.hex()
    report = ledger.emit("root", "agent/ada", KeyCompromised(key=key, since=index)).index
    assert reader.answer("kinds.show", {"id": KIND})["compromised"] == report
    assert reader.answer("kinds.list")["items"][0]["compromised"] == report


def test_line_is_short_and_a_sealed_reference_in_it_is_whole() -> None:
    line = line_of({"a": "x" * 1_000, "b": SEALED, "c": {"d": [1, True]}, "e": "y" * 1_000, "f": "z" * 1_000})
    assert SEALED in line
    assert "c, d: 1; yes" in line
    assert len(line) <= line_max_chars + 150
