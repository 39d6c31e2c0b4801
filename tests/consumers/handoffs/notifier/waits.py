"""Waits as the views would answer them, made by a test, so that a test of the notifier does not depend on the views."""

from __future__ import annotations

from typing import Any

from building import START_MS


class Waits:
    """Answers ``handoffs.next`` from a list that a test changes."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.asked = 0

    def __call__(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert query == "handoffs.next"
        self.asked += 1
        start = int(arguments.get("after", "0"))
        page = self.items[start : start + arguments["limit"]]
        end = start + len(page)
        return {"items": page, "total": len(self.items), "next": str(end) if end < len(self.items) else None}


def wait_for(agent: str, action: str, name: str = "h1", **more: Any) -> dict[str, Any]:
    kind = "review" if action == "review" else "handoff"
    return {
        "kind": kind,
        "id": name,
        "title": f"Title of {name}",
        "agent": agent,
        "action": action,
        "status": "pending",
        "from": "alice",
        "author": "alice",
        "to": "bob",
        "since_index": 0,
        "since_ms": START_MS,
        "reasoning_refs": [],
    } | more
