"""`/audit`: what the log's checkpoint and its witnesses say now, what an audit found, and one more to start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.dashboard.page import Go, Page, Seen
from deedbook.consumers.interfaces.node.witnessed import witnessed_of
from deedbook.ledger.client.reads import HeadView
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.lifecycle.authority import CHECKPOINT
from deedbook.ledger.proof.checkpoint import open_note, parse_checkpoint, verifiers_of

VERIFY: Final = "/audit/verify"


def audit(seen: Seen) -> Page:
    """Return ``{"head", "checkpoint", "witnesses", "suspects", "skipped", "audit", "csrf", "has_views"}``."""
    head = seen.client.head()
    keys = seen.ask("agents.keys")["keys"]
    data = {
        "head": msgspec.to_builtins(head),
        "checkpoint": checkpoint(seen),
        "witnesses": _witnesses(seen, head),
        "suspects": [key for key in keys if key["suspect_since"] is not None],
        "skipped": seen.ask("catalog.skipped")["entries"],
        "audit": msgspec.to_builtins(seen.audit.state),
        "csrf": seen.session.token(VERIFY),
        "has_views": seen.settings.server is None,
    }
    return Page("audit.html", "Audit", data)


def verify(seen: Seen, form: Mapping[str, str]) -> Go:
    """Start an audit, unless one is running, and show how far it is."""
    seen.session.demand(form, VERIFY)
    seen.audit.start(views="views" in form and seen.settings.server is None, now_ms=seen.now_ms)
    return Go("/audit")


def checkpoint(seen: Seen) -> dict[str, Any]:
    """Return the signed checkpoint of the log now, compared with the key that the log names, and its newest time."""
    at_ms = None
    try:
        at_ms = read_event(seen.head, seen.client.entry(seen.head)).accepted_ms
        note = seen.client.checkpoint()
        origin, keys = parse_checkpoint(note).origin, seen.ledger.ask("agents.keys")["keys"]
        signing = [key["key"] for key in keys if (key["sort"], key["state"]) == (CHECKPOINT, "valid")]
        _, signer = open_note(note, *verifiers_of(origin, signing))
    except DeedbookError as error:
        return {"why_not": error.message, "at_ms": at_ms}
    return {"why_not": "", "at_ms": at_ms, "note": note, "origin": origin, "key": signer.public_key.hex()}


def _witnesses(seen: Seen, head: HeadView) -> dict[str, Any]:
    """Return who cosigned the log, and when; ``is_asked`` is false where nobody is asked to."""
    try:
        witnessed = witnessed_of(seen.client, seen.settings, head.size, head.root)
    except DeedbookError as error:
        return {"is_asked": True, "problem": error.message}
    return {"is_asked": witnessed is not None, "problem": "", **(msgspec.to_builtins(witnessed) or {})}
