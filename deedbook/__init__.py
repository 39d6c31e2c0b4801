"""Deedbook for Python agents: one object that publishes events, answers queries, reacts and audits.

    from deedbook import Ledger

    with Ledger(agent="kuro") as ledger:
        ledger.handoff("event-bus").create(to="claude-code", reviewer="alex", title="Event bus")
        print(ledger.handoff("event-bus").why().sentence)
        for item in ledger.handoffs.next(agent="alex"):
            print(item.act, item.title)

``AsyncLedger`` has the same methods for programs with an event loop. A refused call raises ``Refused`` with a ``code``
of ``proto/errors.json``. ``deedbook.audit`` verifies a bundle that somebody sent. Each name is imported when it is
first used, so ``import deedbook`` opens and loads nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.python.async_ledger import AsyncLedger
    from deedbook.consumers.interfaces.python.ledger import Ledger
    from deedbook.consumers.sdk.own_event import OwnEvent, OwnKind
    from deedbook.consumers.sessions.api import (
        generate_handoff_report,
        query_handoff_reports,
        resume_previous_session,
    )
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.proof.receipt import Receipt
    from deedbook.projections.answers.answer import Page
    from deedbook.projections.briefs.sentences import expand
else:
    _MODULES: Final = {
        "Accepted": "ledger.admission.decide",
        "AsyncLedger": "consumers.interfaces.python.async_ledger",
        "Corrupted": "ledger.errors",
        "DeedbookError": "ledger.errors",
        "Event": "ledger.events.body",
        "Ledger": "consumers.interfaces.python.ledger",
        "OwnEvent": "consumers.sdk.own_event",
        "OwnKind": "consumers.sdk.own_event",
        "Page": "projections.answers.answer",
        "Receipt": "ledger.proof.receipt",
        "Refused": "ledger.errors",
        "Unavailable": "ledger.errors",
        "expand": "projections.briefs.sentences",
        "generate_handoff_report": "consumers.sessions.api",
        "query_handoff_reports": "consumers.sessions.api",
        "resume_previous_session": "consumers.sessions.api",
    }

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        """Return the public names, also those that are not imported yet."""
        return __all__


__all__ = [
    "Accepted",
    "AsyncLedger",
    "Corrupted",
    "DeedbookError",
    "Event",
    "Ledger",
    "OwnEvent",
    "OwnKind",
    "Page",
    "Receipt",
    "Refused",
    "Unavailable",
    "expand",
    "generate_handoff_report",
    "query_handoff_reports",
    "resume_previous_session",
]
