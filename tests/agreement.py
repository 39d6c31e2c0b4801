"""Checks that lists of handoffs agree with answers that are computed from verified entries.

A list filters rows of a view. The fold rewrites the rows of a handoff after an event of the handoff, of a handoff that
it depends on, or of its agents. An answer that somebody acts on is computed from verified entries, without the view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbook.ledger.client.client import every_row
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client


def assert_agreement(client: Client, as_of: int | None = None) -> list[str]:
    """Assert that the view and verified entries agree on every handoff as of an entry (None: now); return the ids."""

    def view(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return client.view(query, arguments, as_of)

    listed = {row["id"]: row for row in every_row(view, "handoffs.list", {"history": "shown"})}
    ready = {row["id"] for row in every_row(view, "handoffs.list", {"ready": True})}
    agents = {row["name"] for row in view("agents.list", {"all": True})["agents"]}
    rows = every_row(view, "handoffs.waits", {})
    waits = {(row["id"], row["agent"]) for row in rows if row["kind"] == "handoff"}
    items = list(every_row(view, "handoffs.next", {}))
    checked = list(every_row(lambda query, args: ask(client, query, args, as_of), "handoffs.next", {}))
    assert checked == items
    assert waits == {(item["id"], item["agent"]) for item in items if item["kind"] == "handoff"}
    for name, row in listed.items():
        why = ask(client, "handoffs.why", {"id": name}, as_of)
        assert {agent for waiting, agent in waits if waiting == name} == {
            wait["agent"] for wait in why["waits"] if wait["id"] == name and wait["agent"] in agents
        }, (name, as_of)
        assert row["is_ready"] == why["is_ready"] == (name in ready), (name, as_of)
        assert row["status"] == why["status"]
    return list(listed)
