"""The reasonings that handoffs cite, for verbs of the command line.

Verbs load this module only if a handoff cites a reasoning. Most handoffs cite none, and the modules for briefs are a
fifth of everything that a verb imports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deedbook.consumers.interfaces.cli.reader_app import ReadingApp
from deedbook.consumers.reasoning.citations import Citations


def of_handoff(app: ReadingApp, handoff: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of ``handoffs.show`` with ``result_reasoning`` and ``reasoning``, which have briefs."""
    return Citations(app.query_with, asker=app.settings().agent).shown(handoff)


def of_queue(app: ReadingApp, answer: dict[str, Any], agent: str | None) -> dict[str, Any]:
    """Return an answer of ``handoffs.next`` with the ``reasoning`` of each item, without briefs."""
    return Citations(app.query_with, 0, agent).waiting(answer)


def of_refs(app: ReadingApp, refs: Iterable[str]) -> list[dict[str, Any]]:
    """Return the citations of these refs, without briefs."""
    return Citations(app.query_with, 0).of(refs)
