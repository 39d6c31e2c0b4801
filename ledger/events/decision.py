"""The kinds of a decision: what agents have settled about a part of the project, until one replaces or withdraws it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from deedbook.ledger.events.fields import EventData, Line, OptionalId, OptionalText

paths_max = 100


class DecisionMade(EventData, frozen=True):
    """Tells every agent of the ledger what was decided, and ``why``.

    ``paths`` are the files and folders that it is about. A ``contract`` is a decision on which other parts of the
    project rely, such as an interface: agents ask before they change one of its files.
    """

    text: Line
    why: OptionalText = ""
    paths: Annotated[list[Line], msgspec.Meta(max_length=paths_max)] = []
    contract: bool = False


class DecisionWithdrawn(EventData, frozen=True):
    """The decision is no longer in force. ``by`` is the decision that replaces it, if there is one."""

    reason: OptionalText = ""
    by: OptionalId = ""
