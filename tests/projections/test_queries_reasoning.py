"""Queries about reasoning, briefs, agents and sessions, on a real ledger."""

from __future__ import annotations

import hashlib

import pytest
from view_ledger import ViewLedger

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.format.identity import Key
from deedbook.projections.reasoning.queries import read_graph


def test_every_version_is_read_whole_by_its_ref(ledger: ViewLedger, reader):
    ledger.reason("r", steps=4)
    shown = reader.answer("reasoning.show", {"id": "r"})
    assert [one["steps"] for one in shown["versions"]] == [0, 1, 2, 3, 4, 4, 4]
    for version in shown["versions"]:
        for asked in (version["ref"], version["ref"][7:19]):
            full = reader.answer("reasoning.full", {"id": asked})
            assert "sha256:" + hashlib.sha256(full["canonical"].encode()).hexdigest() == version["ref"]
            assert (full["version"], len(full["memory"]["steps"])) == (version["version"], version["steps"])
    assert shown["memory"]["dependencies"] == {"2": [1], "3": [2], "4": [3]}
    assert shown["memory"]["steps"][1]["settled"][0]["how"] == "Validated: encrypted"


def test_full_reasoning_is_the_structure_and_its_bytes(ledger, reader):
    ledger.reason("r")
    full = read_graph(reader, "r")
    assert full.ref == "sha256:" + hashlib.sha256(full.canonical).hexdigest()
    assert (full.memory.reasoning_id, full.memory.conclusion, full.version) == ("r", "It is.", 6)


def test_equal_graphs_of_two_streams_have_one_ref_that_is_not_ambiguous(ledger, reader):
    ledger.reason("r")
    ref = reader.answer("reasoning.show", {"id": "r"})["versions"][0]["ref"]
    ledger.reason("twin")
    assert reader.answer("reasoning.show", {"id": "twin"})["versions"][0]["ref"] == ref
    assert reader.answer("reasoning.full", {"id": ref})["reasoning_id"] == "r"


def test_a_damaged_delta_never_passes_for_the_graph(ledger, reader):
    ledger.reason("r")
    ref = reader.answer("reasoning.show", {"id": "r"})["ref"]
    with reader.store.writing() as writing:
        sql = "UPDATE reasoning_versions SET delta = replace(delta, 'Step 1', 'Step 9') RETURNING version"
        assert len(writing.rows(sql)) == 6
    with pytest.raises(Corrupted):
        read_graph(reader, ref)


def test_reasonings_are_listed_newest_first(ledger, reader):
    for name in ("r1", "r2", "r3"):
        ledger.reason(name)
    page = reader.answer("reasoning.list", {"author": "bob", "limit": 2})
    assert ([one["id"] for one in page["items"]], page["total"]) == (["r3", "r2"], 3)
    rest = reader.answer("reasoning.list", {"limit": 2, "after": page["next"]})
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (["r1"], None)
    assert reader.answer("reasoning.list", {"status": "open"})["total"] == 0


def test_the_best_brief_has_the_highest_fidelity_that_fits(ledger, reader):
    ledger.reason("r")
    ref = reader.answer("reasoning.show", {"id": "r"})["ref"]
    ledger.brief("r", ref, tokens=190, fidelity=0.95)
    ledger.brief("r", ref, tokens=120, fidelity=0.91)
    ledger.brief("r", ref, tokens=110, fidelity=0.91)
    ledger.brief("r", ref, level="standard", tokens=400, fidelity=1.0)
    asked = {"id": ref[7:19], "level": "minimal"}
    assert reader.answer("briefs.best", asked)["tokens"] == 190
    fitting = reader.answer("briefs.best", asked | {"budget": 150})
    assert (fitting["tokens"], fitting["data"]["brief"]["fidelity"]["value"], fitting["exact"]) == (110, 0.91, True)
    with pytest.raises(Refused) as refused:
        reader.answer("briefs.best", asked | {"budget": 10})
    assert refused.value.code == "NOT_FOUND"


def test_agents_are_listed_with_their_keys(ledger, reader):
    fresh, late = Key.generate(), Key.generate()
    ledger.delegate("bob", fresh, seconds=3600 * 24 * 365 * 90)
    ledger.delegate("bob", late, seconds=60)  # expired for the reader: the ledger's clock is hours behind the reader's
    ledger.emit("bob", "agent/bob", KeyRevoked(key=fresh.public.hex()))
    assert [one["name"] for one in reader.answer("agents.list")["agents"]] == [
        "alice",
        "bob",
        "node",
        "rita",
        "root",
        "scribe",
    ]
    shown = reader.answer("agents.show", {"id": "bob"})
    assert shown["roles"] == ["agent"]
    assert [(key["type"], key["state"]) for key in shown["keys"]] == [
        ("identity", "valid"),
        ("session", "revoked"),
        ("session", "expired"),
    ]
    assert reader.answer("agents.keys")["total"] == 9  # including the checkpoint key


def test_session_keys_fall_with_the_identity_key_that_delegated_them(ledger, reader):
    ledger.delegate("bob", Key.generate(), seconds=3600 * 24 * 365 * 90)
    ledger.emit("root", "agent/bob", KeyRevoked(key=ledger.keys["bob"].public.hex()))
    assert [key["state"] for key in reader.answer("agents.show", {"id": "bob"})["keys"]] == ["revoked", "revoked"]
    assert reader.answer("agents.keys", {"agent": "alice"})["items"][0]["state"] == "valid"


def test_the_view_of_agents_is_what_the_log_remembers(ledger, reader):
    listed = {one["name"]: (one["key"], set(one["roles"])) for one in reader.answer("agents.list")["agents"]}
    assert listed == {one.name: (one.key, set(one.roles)) for one in ledger.reads.agents()}


def test_a_session_is_shown_with_all_that_was_recorded(ledger, reader):
    ledger.record_session("s1")
    shown = reader.answer("sessions.show", {"id": "session/s1"})
    assert shown["counts"] == {"assessments": 1, "findings": 1, "unknowns": 1, "dead_ends": 1, "tools": 1}
    assert shown["assessments"][0]["vectors"] == {"know": 0.0, "do": 0.5, "uncertainty": 0.6}
    assert shown["findings"][0]["evidence"] == ["a.py:3"]
    assert (shown["status"], shown["summary"]) == ("ended", "Found it")
    ledger.record_session("s2")
    assert [one["id"] for one in reader.answer("sessions.list", {"author": "bob"})["items"]] == ["s2", "s1"]
    assert reader.answer("sessions.list", {"status": "open"})["total"] == 0
