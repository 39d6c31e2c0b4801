"""The reasons why a published brief is not reliable."""

from __future__ import annotations

import msgspec


class CertificateProblem(msgspec.Struct, frozen=True):
    """A contradiction between a brief and its graph, found by the compressor's ``check_certificate``."""

    field: str
    step: int | None
    message: str


class RejectedBrief(msgspec.Struct, frozen=True):
    """A signed brief or snapshot that contradicts its graph, and so was not sent on."""

    event_id: str
    author: str
    problems: list[CertificateProblem]
