"""Pure state machines: what may follow from what.

Each is one function ``transition(state, event) -> state`` that raises ``Refused``. The gate calls it and the views do,
so they never disagree. It sees one stream only; what spans streams (roles, dependencies) is ``admission.rules``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event


def require_imported(event: Event, before: tuple[str, bool] | None) -> None:
    """Let a record be added to what its author imported, or to nothing yet; ``before``: whose it is, and if imported.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, or ``NOT_AUTHORIZED`` where somebody else imported it.
    """
    if before is None:
        return
    owner, is_imported = before
    if not is_imported:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.stream} is {owner}'s own: import it under another id")
    if owner != event.author:
        raise Refused(
            "NOT_AUTHORIZED", f"{event.stream} was imported by {owner}, who alone imports it again", owner=owner
        )
