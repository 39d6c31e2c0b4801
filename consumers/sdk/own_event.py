"""A program's own types for the data of declared kinds."""

from __future__ import annotations

from typing import ClassVar, NewType

from deedbook.ledger.events.fields import EventData

OwnKind = NewType("OwnKind", str)
"""The name of a declared kind, for type checkers: they know the names of all other kinds."""


class OwnEvent(EventData, frozen=True):
    """The base of a program's type for the data of a declared kind; ``kind`` is the kind's name.

    The ledger checks events by the declared schema, not by this type.

        class DeployFinished(OwnEvent, frozen=True):
            kind = OwnKind("x.deploy.finished")
            service: str
            version: int
    """

    kind: ClassVar[OwnKind]
