"""What is told of a brief that does not hold, and who signed it; ``consumers.reasoning.compressor`` finds it out."""

from __future__ import annotations

import msgspec


class CertificateProblem(msgspec.Struct, frozen=True):
    """Where a brief says something else than its graph."""

    field: str
    step: int | None
    message: str


class Rejected(msgspec.Struct, frozen=True):
    """A signed brief or snapshot that says something else than its graph, and so was not handed on."""

    event_id: str
    author: str
    problems: list[CertificateProblem]

    @property
    def sentence(self) -> str:
        """Who signed what, and the first thing that is wrong with it."""
        first, more = self.problems[0], len(self.problems) - 1
        where = first.field if first.step is None else f"{first.field} of step {first.step}"
        others = f" (and {more} more)" if more else ""
        return f"{self.author} signed another in event {self.event_id}, which does not hold: {where}{others}"
