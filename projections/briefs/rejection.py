"""Why a published brief may not be relied on."""

from __future__ import annotations

import msgspec


class CertificateProblem(msgspec.Struct, frozen=True):
    """Where a brief says something else than its graph; the compressor's ``check_certificate`` finds it."""

    field: str
    step: int | None
    message: str


class RejectedBrief(msgspec.Struct, frozen=True):
    """A signed brief or snapshot that says something else than its graph, and so was not handed on."""

    event_id: str
    author: str
    problems: list[CertificateProblem]
