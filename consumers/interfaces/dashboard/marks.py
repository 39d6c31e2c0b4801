"""The mark of a state: the class of its colour and a glyph, because colour alone is not accessible.

This is the only table of marks. A template passes a state, or a text and the state whose mark it gets. Colour marks
what needs attention (``wait``, or ``stop`` if somebody cannot continue) and what was achieved (``ok``).
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from deedbook.ledger.lifecycle.rules import NONE, rules_of
from deedbook.projections.handoffs.answers import Action
from deedbook.projections.validations.answers import Outcome


class Mark(NamedTuple):
    """The class of a colour (``ok``, ``wait``, ``stop``, ``work``, ``over`` or ``plain``), and a glyph."""

    colour: str
    glyph: str


_COLOURS: Final = {
    "ok": Mark("ok", "✓"),
    "wait": Mark("wait", "○"),
    "stop": Mark("stop", "✕"),
    "work": Mark("work", "◐"),
    "over": Mark("over", "·"),
}
_STAGES: Final = {"waiting": "wait", "working": "work", "completed": "ok"}
_OWN: Final = {
    "approved": Mark("plain", "✓"),
    "blocked": Mark("stop", "■"),
    "rejected": Mark("stop", "✕"),
    "verified": Mark("ok", "✔"),
    "cancelled": Mark("over", "✕"),
    "superseded": Mark("over", "→"),
    "claim": Mark("plain", "○"),
    "continue": Mark("work", "◐"),
    "amend": Mark("stop", "■"),
    "unblock": Mark("stop", "■"),
    "changes": Mark("wait", "↺"),
    "compromised": Mark("stop", "!"),
    "compromised signature": Mark("stop", "!"),
    "compromised signatures": Mark("stop", "!"),
    "missing": Mark("stop", "✕"),
    "open": Mark("plain", "○"),
    "unsettled": Mark("wait", "○"),
    "active": Mark("work", "◐"),
    "concluded": Mark("ok", "✓"),
    "valid": Mark("ok", "✔"),
    "expired": Mark("wait", "◌"),
    "revoked": Mark("stop", "✕"),
    "searching": Mark("work", "◐"),
    "solved": Mark("ok", "✔"),
    "failed": Mark("stop", "✕"),
    "unverified": Mark("wait", "?"),
    "checked": Mark("ok", "✓"),
    "done": Mark("ok", "✓"),
    "waived": Mark("over", "✓"),
    "asked": Mark("wait", "?"),
    "claimed": Mark("wait", "?"),
    "answered": Mark("wait", "?"),
    "settled": Mark("ok", "✓"),
    "kept": Mark("plain", "✓"),
    "dropped": Mark("over", "·"),
    "lossless": Mark("plain", "·"),
    "not validated": Mark("wait", "○"),
    "partly checked": Mark("wait", "○"),
    "validated": Mark("ok", "✓"),
    "found wrong": Mark("stop", "✕"),
    "high": Mark("plain", "·"),
    "medium": Mark("wait", "○"),
    "low": Mark("stop", "✕"),
    "well_calibrated": Mark("ok", "✓"),
    "not_assessable": Mark("over", "·"),  # an imported report may claim this state beside more precise values
    "overconfident": Mark("wait", "▲"),
    "underconfident": Mark("wait", "▼"),
    "best": Mark("ok", "✓"),
    "frontier": Mark("plain", "○"),
    "pruned": Mark("over", "✕"),
    "not_taken": Mark("over", "⊘"),  # a dash before a score would read as its sign
    "terminal": Mark("over", "◆"),
}
OUTCOME_WORDS: Final[dict[Outcome, str]] = {
    "none": "not validated",
    "unchecked": "partly checked",
    "passed": "validated",
    "failed": "found wrong",
}
"""The outcome of validations of a reasoning in words, each of which has a mark."""

# A status of a handoff without a mark of its own gets the mark of its stage; an action gets that of waiting things.
_DERIVED: Final = {
    name: _COLOURS[_STAGES.get(state.stage or "", "over")]
    for name, state in rules_of("handoff").states.items()
    if name != NONE
} | dict.fromkeys([*get_args(Action), "review"], _COLOURS["wait"])
MARKS: Final = _COLOURS | _DERIVED | _OWN
