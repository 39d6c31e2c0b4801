"""The kinds: their fields, their rules (rules.json), and their texts for lists and the search."""

from deedbook.ledger.events.fields import EventData, Label, Line
from deedbook.ledger.lifecycle.machine import owned_machine


class RolloutStarted(EventData, frozen=True):
    """A service is being rolled out."""

    service: Label


class RolloutFinished(EventData, frozen=True):
    """It ended, well or not."""

    ok: bool
    note: Line


MACHINE = owned_machine("rollout")
TEXTS = {RolloutStarted: lambda data: (data.service,), RolloutFinished: lambda data: (data.note,)}
