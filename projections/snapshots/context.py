"""A context summary drawn from a session's events, for a snapshot whose author wrote none (SEEDS, 001).

At most ``CONTEXT_TOKENS_MAX`` tokens, in this order of worth: the task, how it ended, findings (the weightiest first,
then the newest), open questions, dead ends. An item is whole or, if it alone would take more than its share, cut at a
word and marked; what did not fit is counted, so the reader knows that there is more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projections.briefs.prompt import cut_to_tokens
from projections.briefs.text import one_line
from projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTEXT_TOKENS_MAX: Final = 500

_item_tokens_max: Final = 120
_items_max: Final = 200
_rest_tokens: Final = 12
_ENDS: Final = (".", "!", "?", "。", "！", "？", "…")


def derive_context(session: Mapping[str, Any] | None, *, task: str = "") -> str:
    """Return what a session (the answer of ``sessions.show``) or at least the ``task`` is about; empty for neither."""
    items = list(_items(session, task))
    kept: list[str] = []
    left_out = 0
    for item in items[:_items_max]:
        sentence = _sentence(cut_to_tokens(one_line(item), _item_tokens_max))
        if count_tokens(" ".join([*kept, sentence])) <= CONTEXT_TOKENS_MAX - _rest_tokens:
            kept.append(sentence)
        else:
            left_out += 1
    left_out += max(0, len(items) - _items_max)
    if left_out:
        kept.append(f"And {left_out} more.")
    return " ".join(kept)


def _items(session: Mapping[str, Any] | None, task: str) -> Iterator[str]:
    told = task.strip() or ("" if session is None else session["task"].strip())
    if told:
        yield f"Task: {told}"
    if session is None:
        return
    if session["summary"].strip():
        yield f"Result: {session['summary']}"
    for found in sorted(session["findings"], key=_weight):
        evidence = f" [{found['evidence'][0]}]" if found["evidence"] else ""
        yield f"Found: {found['finding']}{evidence}"
    for unknown in sorted(session["unknowns"], key=_weight):
        yield f"Open: {unknown['unknown']}"
    for dead_end in sorted(session["dead_ends"], key=_weight):
        yield f"Dead end: {dead_end['approach']} ({dead_end['why_failed']})"


def _weight(logged: Mapping[str, Any]) -> tuple[float, int]:
    """Return the sort key: highest impact first, then newest; an impact nobody gave weighs least."""
    impact = logged["impact"]
    return (1.0 if impact is None else -impact, -logged["event_index"])


def _sentence(text: str) -> str:
    return text if text.endswith(_ENDS) else f"{text}."
