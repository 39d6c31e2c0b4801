"""A session as ``sessions.show`` answers it: with example vectors, two findings, and one record of each other type."""

from __future__ import annotations

from typing import Any

VECTORS = {
    "PREFLIGHT": {"know": 0.70, "do": 0.90, "context": 0.80, "uncertainty": 0.65},
    "CHECK": {"know": 0.80, "uncertainty": 0.45},
    "POSTFLIGHT": {"know": 0.95, "do": 0.95, "context": 0.90, "uncertainty": 0.20},
}
WORDS = {"PREFLIGHT": "Read the code", "CHECK": "Enough to begin", "POSTFLIGHT": "Found the leak"}


def given_session(name: str, phases: tuple[str, ...] = ("PREFLIGHT", "CHECK", "POSTFLIGHT")) -> dict[str, Any]:
    """Return a session of alice with assessments at ``phases``."""

    def logged(index: int, **fields: Any) -> dict[str, Any]:
        return {
            "event_index": index,
            "correction": None,
            "at": "2026-02-12T10:00:00.000Z",
            "accepted_ms": 1000 * index,
            "happened_ms": 1000 * index,
        } | fields

    return {
        "id": name,
        "author": "alice",
        "ai_id": "claude-code",
        "task": "Find the leak",
        "summary": "",
        "status": "open",
        "started_index": 10,
        "started_ms": 10_000,
        "happened_ms": 10_000,
        "imported": None,
        "ended_ms": None,
        "updated_index": 99,
        "assessments": [
            logged(
                11 + at, phase=phase, round=0, reasoning=WORDS[phase], overall_confidence=None, vectors=VECTORS[phase]
            )
            for at, phase in enumerate(phases)
        ],
        "findings": [
            logged(20, finding="The limit is 512", impact=0.2),
            logged(21, finding="Learned that the pool is never closed", impact=0.9),
        ],
        "unknowns": [logged(22, unknown="Who opens it", impact=None)],
        "dead_ends": [logged(23, approach="Restarting", why_failed="it comes back", impact=None)],
        "tools": [logged(24 + at, tool=tool, purpose="") for at, tool in enumerate(("strace", "grep", "grep"))],
    }
