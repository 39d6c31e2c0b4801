"""Filters by time, agent, type and tag, and the number of events of each value.

An imported record has the time, agent and type that it claims.
"""

from __future__ import annotations

from typing import Any

import pytest

from deedbook.ledger.events.handoff import HandoffTaskChecked
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, SessionStarted

DAY = 1_700_000_000_000
CLAIMED = "2023-11-14T22:13:20Z"  # the time DAY as a text


def imported(ledger: Any, text: str, **fields: Any) -> int:
    """Import a finding of gemini, signed by alice; return its index."""
    data = RecordImported(
        original=ledger.put_blob("alice", text.encode()),
        source=f"notes/{text}",
        format="empirica/finding",
        mapped_kind="finding.logged",
        mapped={"finding": text, "topic": "auth"},
        **({"claimed_author": "gemini", "claimed_at": CLAIMED} | fields),
    )
    return int(ledger.emit("alice", "session/old", data).index)


@pytest.fixture
def filled(ledger: Any) -> Any:
    """Two findings of bob, one of them about auth, and two imported findings about auth, one without a date."""
    ledger.emit_all(
        "bob",
        "session/s",
        SessionStarted(task="look"),
        FindingLogged(finding="here", topic="auth"),
        FindingLogged(finding="there"),
    )
    imported(ledger, "leak then")
    imported(ledger, "some day", claimed_at=None)
    return ledger


def texts(reader: Any, **filters: Any) -> list[str]:
    return [event["text"] for event in reader.answer("catalog.find", {"type": "finding.logged"} | filters)["items"]]


def test_an_imported_record_counts_with_its_claims(filled: Any, reader: Any) -> None:
    assert texts(reader) == ["here", "there", "leak then", "some day"]
    assert texts(reader, agent="gemini") == ["leak then", "some day"]
    assert texts(reader, agent="alice") == []
    assert texts(reader, since=DAY, until=DAY + 1) == ["leak then"]
    assert texts(reader, until=DAY) == []  # a filter by time excludes records without a date
    assert texts(reader, since=DAY + 1) == ["here", "there"]
    (event,) = reader.answer("catalog.find", {"agent": "gemini", "until": DAY + 1})["items"]
    assert (event["kind"], event["author"], event["type"]) == ("record.imported", "alice", "finding.logged")
    assert (event["agent"], event["happened_ms"]) == ("gemini", DAY)
    # A filter by kind excludes imports: their signed kind is record.imported.
    assert reader.answer("catalog.find", {"kind": "finding.logged"})["total"] == 2


def test_a_tag_is_a_topic_or_a_tag_of_the_reasoning_that_an_event_belongs_to_or_cites(filled: Any, reader: Any) -> None:
    assert texts(reader, tag="auth") == ["here", "leak then", "some day"]
    ref = filled.reason("r1")
    tag = reader.answer("reasoning.show", {"id": "r1"})["tags"][0]
    filled.hand_over("h", reasoning_refs=[ref])
    streams = [event["stream"] for event in reader.answer("catalog.find", {"tag": tag})["items"]]
    assert {*streams} == {"reasoning/r1", "handoff/h"}
    counts = {value["value"]: value["number"] for value in reader.answer("catalog.facets")["tags"]}
    assert (counts["auth"], counts[tag]) == (3, len(streams))


def test_a_facet_counts_what_a_list_would_have_with_another_value(filled: Any, reader: Any) -> None:
    def counts(**filters: Any) -> dict[str, dict[str, int]]:
        answer = reader.answer("catalog.facets", filters)
        assert answer["is_complete"]
        return {
            name: {value["value"]: value["number"] for value in answer[name]} for name in ("agents", "types", "tags")
        }

    filtered = counts(agent="gemini", type="finding.logged")
    assert filtered == {
        "agents": {"bob": 2, "gemini": 2},
        "types": {"finding.logged": 2},
        "tags": {"auth": 2},
    }
    for agent, number in filtered["agents"].items():
        assert len(texts(reader, agent=agent)) == number
    assert counts(types=["session.started"])["types"] == {"session.started": 1}
    assert counts(stream="session/old")["agents"] == {"gemini": 2}


def test_an_event_is_said_in_words_with_the_title_of_its_thing(filled: Any, reader: Any) -> None:
    data = filled.hand_over("h", title="Retry jitter", tasks=["SQLite"])
    filled.approve("h", data)
    filled.claim("h")
    filled.emit("bob", "handoff/h", HandoffTaskChecked(position=0))
    events = {event["kind"]: event for event in reader.answer("catalog.find")["items"]}
    assert (events["handoff.task_checked"]["did"], events["handoff.task_checked"]["title"]) == (
        "task done: SQLite",
        "Retry jitter",
    )
    assert events["session.started"]["did"] == "began a session: look"
    assert (events["record.imported"]["did"], events["record.imported"]["title"]) == ("found: some day", None)


def test_a_search_takes_the_same_filters_and_counts_its_hits(filled: Any, reader: Any) -> None:
    filled.emit("bob", "session/s", FindingLogged(finding="leak again", topic="auth"))

    def hits(**filters: Any) -> list[tuple[str, str]]:
        found = reader.answer("search.find", {"text": "leak"} | filters)["items"]
        return sorted((hit["agent"], hit["type"]) for hit in found)

    assert hits() == [("bob", "finding.logged"), ("gemini", "finding.logged")]
    assert hits(agent="gemini", tag="auth", until=DAY + 1) == [("gemini", "finding.logged")]
    assert hits(since=DAY + 1, type="finding.logged") == [("bob", "finding.logged")]
    counts = reader.answer("search.facets", {"text": "leak", "until": DAY + 1})
    assert counts["agents"] == [{"value": "gemini", "number": 1}]
    assert counts["tags"] == [{"value": "auth", "number": 1}]


def test_the_excerpt_of_an_imported_record_is_of_its_text_and_not_of_its_path(filled: Any, reader: Any) -> None:
    (hit,) = reader.answer("search.find", {"text": "notes day"})["items"]
    assert (hit["excerpt"], hit["matches"]) == ("some day · auth · gemini", [[5, 8]])
