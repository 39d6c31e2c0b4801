"""The catalog: given these events, expect these rows."""

from __future__ import annotations

from folding import facts, logged, rows_of

from deedbook.ledger.events.body import Event
from deedbook.ledger.events.handoff import (
    HandoffAmended,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffLogged,
    HandoffSuperseded,
)
from deedbook.ledger.events.session import FindingLogged, SessionStarted, Vectors
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.projections.catalog.fold import VIEW as CATALOG
from deedbook.projections.catalog.fold import RefRow, StreamState, added

REF = "sha256:" + "ab" * 32
BLOB = "blake3:" + "cd" * 32


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
            "name": "s/with/slashes",
            "version": 2,
            "last_index": 1,
        }
    ]


def refs_of(stream, *given):
    """Return the causes of the last of these events, as (ref, via)."""
    state, rows = StreamState(stream), ()
    for event in facts(stream, *given):
        state = CATALOG.fold(state, event)
        rows = added(state, logged(event))
    return [(row.ref, row.via) for row in rows[1:]]


def test_causes_come_before_what_the_data_names_and_nothing_twice():
    (event,) = facts("handoff/h", ("bob", HandoffCompleted(reasoning_refs=[REF])))
    causes = {"causes": [f"blake3:{1:064x}", REF]}
    caused = Event(**{name: getattr(event, name) for name in event.__struct_fields__} | causes)
    rows = added(StreamState("handoff/h", 1, 0), logged(caused))
    assert rows[1:] == (RefRow(0, 0, f"blake3:{1:064x}", "causes"), RefRow(0, 1, REF, "causes"))


def test_data_names_reasoning_handoffs_and_blobs():
    content = HandoffCreated(title="t", to="bob", reasoning_refs=[REF], answers="a", depends_on=["b"], template=BLOB)
    assert refs_of("handoff/h", ("alice", content)) == [
        (REF, "reasoning_ref"),
        ("handoff/a", "answers"),
        (BLOB, "blob"),
        ("handoff/b", "depends_on"),
    ]
    snapshot = SnapshotTaken(vectors=Vectors(), context_source="none", reasoning_ref=REF)
    assert refs_of("snapshot/n", ("bob", snapshot)) == [(REF, "reasoning_ref")]
    assert refs_of("handoff/h", ("alice", HandoffSuperseded(by="new"))) == [("handoff/new", "superseded_by")]


def test_a_claim_rests_on_the_step_before_and_on_the_handoffs_its_content_depends_on():
    created = HandoffCreated(title="t", to="bob", depends_on=["a", "b"])
    amended = HandoffAmended(title="t", to="bob", depends_on=["b"])
    given = [("alice", created), ("alice", amended), ("bob", HandoffLogged(text="x")), ("bob", HandoffClaimed())]
    step = facts("handoff/h", *given)[1].id
    assert refs_of("handoff/h", *given) == [("handoff/b", "depends_on"), (step, "stream")]
