"""`/audit`: the current checkpoint and its witnesses, the result of the last audit, and a form to start one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext, Redirect
from deedbook.consumers.interfaces.node.witnessed import witnessed_of
from deedbook.ledger.client.reads import HeadView
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.trust import root_in
from deedbook.ledger.lifecycle.authority import CHECKPOINT
from deedbook.ledger.proof.checkpoint import open_note, parse_checkpoint, verifiers_of

VERIFY: Final = "/audit/verify"
suspects_max: Final = 20


def audit(context: PageContext) -> Page:
    """Return ``{"head", "checkpoint", "witnesses", "compromised_keys", "suspects", "skipped", "audit", …}``.

    ``suspects`` are the first of the entries that the last audit found signed with a stolen key.
    """
    head = context.client.head()
    keys = context.ask("agents.keys")["items"]
    report = context.audit.state.report or {}
    suspects = report.get("compromised_signatures", [])[:suspects_max]
    data = {
        "head": msgspec.to_builtins(head),
        "checkpoint": checkpoint(context),
        "witnesses": _witnesses(context, head),
        "compromised_keys": [key for key in keys if key["compromised_since"] is not None],
        # The audit read the whole log, so these entries may be later than the time that the page shows.
        "suspects": [context.ledger.ask("catalog.show", id=str(index)) for index in suspects],
        "skipped": context.ask("catalog.skipped")["items"],
        "audit": msgspec.to_builtins(context.audit.state),
        "csrf": context.session.token(VERIFY),
        "has_views": context.settings.server is None,
        "fingerprint": root_in(context.client.entry(0)),
    }
    return Page("audit.html", "Audit", data)


def verify(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """Start an audit unless one is running, and lead to its progress."""
    context.session.demand(form, VERIFY)
    context.audit.start(views="views" in form and context.settings.server is None, now_ms=context.now_ms)
    return Redirect("/audit")


def checkpoint(context: PageContext) -> dict[str, Any]:
    """Return the current signed checkpoint, verified by the key that the log names, and the last entry's time."""
    at_ms = None
    try:
        at_ms = read_event(context.head, context.client.entry(context.head)).accepted_ms
        note = context.client.checkpoint()
        origin, keys = parse_checkpoint(note).origin, context.ledger.ask("agents.keys")["items"]
        signing = [key["key"] for key in keys if (key["type"], key["state"]) == (CHECKPOINT, "valid")]
        _, signer = open_note(note, *verifiers_of(origin, signing))
    except DeedbookError as error:
        return {"why_not": error.message, "at_ms": at_ms}
    return {"why_not": "", "at_ms": at_ms, "note": note, "origin": origin, "key": signer.public_key.hex()}


def _witnesses(context: PageContext, head: HeadView) -> dict[str, Any]:
    """Return the witnesses that cosigned the log, and when; ``is_asked`` is false if no witness is configured."""
    try:
        witnessed = witnessed_of(context.client, context.settings, head.size, head.root)
    except DeedbookError as error:
        return {"is_asked": True, "problem": error.message}
    return {"is_asked": witnessed is not None, "problem": "", **(msgspec.to_builtins(witnessed) or {})}
