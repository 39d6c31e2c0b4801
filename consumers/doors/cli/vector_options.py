"""Vectors on the command line: ``--vector know=0.7``, or several at once as JSON."""

from __future__ import annotations

from typing import Any

from consumers.doors.cli.app import parse_json
from ledger.errors import Refused


def parse_vectors(given: tuple[str, ...]) -> dict[str, float]:
    """Return the vectors of ``NAME=VALUE`` options, names as they were given.

    Raises:
        Refused: ``INVALID_FIELD`` for what is not of that form.
    """
    found: dict[str, float] = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            number = float(value)
        except ValueError as error:
            raise Refused("INVALID_FIELD", f"--vector is NAME=VALUE with a number, not {one!r}", field=name) from error
        if name in found:
            raise Refused("INVALID_FIELD", f"the vector {name} is given twice", field=name)
        found[name] = number
    return found


def join_vectors(given: tuple[str, ...], document: str | None) -> dict[str, Any]:
    """Return the vectors of ``--vector`` and of the JSON object given with ``--vectors``; neither is checked yet.

    Raises:
        Refused: ``INVALID_FIELD`` for one that both give, and the codes of ``parse_json``.
    """
    found: dict[str, Any] = {} if document is None else parse_json(document, "--vectors")
    for name, value in parse_vectors(given).items():
        if name in found:
            raise Refused("INVALID_FIELD", f"the vector {name} is given twice", field=name)
        found[name] = value
    return found
