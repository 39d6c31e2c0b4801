"""The catalog: given these events, expect these rows."""

from __future__ import annotations

from folding import facts, rows_of

from ledger.events.body import Event
from ledger.events.handoff import HandoffCompleted
from ledger.events.session import FindingLogged, SessionStarted
from projections.catalog.fold import VIEW as CATALOG
from projections.catalog.fold import RefRow, StreamState, added
from projections.projection import Logged

REF = "sha256:" + "ab" * 32


def test_each_event_has_a_row_with_its_version_in_the_stream():
    given = facts("session/s", ("bob", SessionStarted()), ("bob", FindingLogged(finding="x")))
    rows = rows_of(CATALOG, "session/s", given)
    assert [(row["event_index"], row["kind"], row["stream_version"]) for row in rows["events"]] == [
        (0, "session.started", 1),
        (1, "finding.logged", 2),
    ]
    assert rows["events"][1]["body_ref"] == f"sha256:{1:064x}"
    assert rows["events"][1]["size"] == 100


def test_a_stream_knows_its_first_and_last_event():
    given = facts("session/s/with/slashes", ("bob", SessionStarted()), ("bob", FindingLogged(finding="x")))
    assert rows_of(CATALOG, "session/s/with/slashes", given)["streams"] == [
        {
            "stream": "session/s/with/slashes",
            "sort": "session",
            "name": "s/with/slashes",
            "version": 2,
            "first_index": 0,
            "last_index": 1,
        }
    ]


def test_causes_and_the_reasoning_of_a_result_are_references():
    (event,) = facts("handoff/h", ("bob", HandoffCompleted(reasoning_ref=REF)))
    caused = Event(
        **{name: getattr(event, name) for name in event.__struct_fields__} | {"causes": [f"blake3:{1:064x}"]}
    )
    rows = added(StreamState("handoff/h", 1, 0, 0), Logged(caused, REF, 100))
    assert rows[1:] == (RefRow(0, 0, f"blake3:{1:064x}", "causes"), RefRow(0, 1, REF, "reasoning_ref"))
