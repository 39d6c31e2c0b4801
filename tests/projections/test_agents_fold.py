"""Agents: given these events, expect these rows."""

from __future__ import annotations

from folding import facts, rows_of

from deedbook.ledger.events import authority as kinds
from deedbook.projections.agents.fold import VIEW as AGENT_VIEW

KEY, SESSION_KEY = "11" * 32, "22" * 32
REGISTERED = kinds.AgentRegistered(name="bob", key=KEY, proof="00" * 64, roles=["reviewer", "agent"], ai_id="b-1")
DELEGATED = kinds.KeyDelegated(
    key=SESSION_KEY, proof="00" * 64, expires_at="2026-02-13T00:00:00Z", kinds=["finding.logged"], max_events=9
)


def agent(*authored):
    """Return the rows of bob after his registration and further events."""
    return rows_of(AGENT_VIEW, "bob", facts("agent/bob", ("root", REGISTERED), *authored))


def test_a_registered_agent_has_an_identity_key():
    rows = agent()
    assert (rows["agents"][0]["roles"], rows["agents"][0]["ai_id"]) == ('["agent","reviewer"]', "b-1")
    assert [(row["key"], row["type"], row["since_index"]) for row in rows["agent_keys"]] == [(KEY, "identity", 0)]


def test_roles_are_granted_and_revoked():
    rows = agent(
        ("root", kinds.RoleGranted(agent="bob", role="admin")),
        ("root", kinds.RoleRevoked(agent="bob", role="reviewer")),
    )
    assert rows["agents"][0]["roles"] == '["admin","agent"]'


def test_a_session_key_keeps_its_scope_and_the_index_of_its_end():
    rows = agent(("bob", DELEGATED), ("bob", kinds.KeyRevoked(key=SESSION_KEY, reason="lost")))
    identity, session = rows["agent_keys"]
    assert (session["type"], session["since_index"], session["kinds"], session["max_events"]) == (
        "session",
        1,
        '["finding.logged"]',
        9,
    )
    end = (session["ended_index"], session["ended_as"], session["ended_by"], session["ended_because"])
    assert end == (2, "revoked", "bob", "lost")
    assert identity["ended_index"] is None


def test_the_creation_of_the_ledger_registers_root_and_node():
    created = facts(
        "ledger",
        ("root", kinds.LedgerCreated(origin="o", root=KEY, checkpoint_key="33" * 32, node_key=SESSION_KEY)),
    )
    assert rows_of(AGENT_VIEW, "root", created)["agents"][0]["key"] == KEY
    assert rows_of(AGENT_VIEW, "node", created)["agents"][0]["key"] == SESSION_KEY
