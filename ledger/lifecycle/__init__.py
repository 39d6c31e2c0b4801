"""Pure state machines: which event may follow in which state.

Each is one function ``transition(state, event) -> state`` that raises ``Refused``. The gate and the views both call it,
so they never disagree. It sees one stream only. Rules across streams (roles, dependencies) are in ``admission.rules``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event


def require_imported(event: Event, before: tuple[str, bool] | None) -> None:
    """Accept an imported record on a new stream, or on one that its author imported.

    ``before`` is the stream's owner and whether it was imported; None for a new stream. Raises Refused:
    ``TRANSITION_NOT_ALLOWED``, or ``NOT_AUTHORIZED`` where somebody else imported it.
    """
    if before is None:
        return
    owner, is_imported = before
    if not is_imported:
        message = f"{event.stream} was created here by {owner}: import the record under another id"
        raise Refused("TRANSITION_NOT_ALLOWED", message)
    if owner != event.author:
        raise Refused(
            "NOT_AUTHORIZED", f"{owner} imported {event.stream}, and only {owner} may import it again", owner=owner
        )
