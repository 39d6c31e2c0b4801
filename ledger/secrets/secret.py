"""A secret that the scanner found, and its refusal. The rules import this module, so that they load no patterns."""

from __future__ import annotations

from typing import NamedTuple

from deedbook.ledger.errors import Refused


class Secret(NamedTuple):
    """The path of a value that looks like a secret (like ``$.data.finding``), and its kind."""

    path: str
    kind: str


def refusal(secret: Secret) -> Refused:
    """Return the refusal that names the path of a secret and what to write instead."""
    return Refused(
        "SECRET_DETECTED",
        f"{secret.path} contains something that looks like a secret ({secret.kind}). Every reader and copy would have "
        "it, and a redaction erases it only here: name its location (a variable, a path in a vault) or mask it with x. "
        "If it is no secret, a human may record it (allow_secret)",
        path=secret.path,
        secret=secret.kind,
    )
