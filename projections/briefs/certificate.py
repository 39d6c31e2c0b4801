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
