"""Questions about validations: all of a version, and the newest that passed.

A report is *independent* when it stands on a reasoning that has this very version, and its author owns no reasoning
that has it. The gate refuses an owner's report on his own stream; that equal content has equal refs, and that a report
may name a ref of another stream, spans streams and is seen here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ledger.errors import Refused
from projections.briefs.queries import whole_ref
from projections.query import Answer, Arguments, Moment

_INDEPENDENT: Final = (
    " AND reasoning_id IN (SELECT reasoning_id FROM reasoning_versions WHERE ref = ?)"
    " AND author NOT IN (SELECT reasonings.author FROM reasonings"
    " JOIN reasoning_versions ON reasoning_versions.reasoning_id = reasonings.id WHERE reasoning_versions.ref = ?)"
)


class ValidationWanted(Arguments, frozen=True):
    """The newest report that passed, of one version; by somebody else than ``not_by``."""

    ref: str
    not_by: str = ""


class ValidationsOf(Arguments, frozen=True):
    """The reports on one version; with ``independent``, only those by others than whose reasoning it is."""

    ref: str
    independent: bool = False


def best_validation(moment: Moment, asked: ValidationWanted) -> Answer:
    """Return the newest report that passed, with its ``data``.

    Raises:
        Refused: ``NOT_FOUND`` when there is none.
    """
    ref = whole_ref(moment, asked.ref)
    sql = (
        "SELECT * FROM validations WHERE reasoning_ref = ? AND passed = 1 AND author <> ? "
        "ORDER BY event_index DESC LIMIT 1"
    )
    for row in moment.rows(sql, (ref, asked.not_by)):
        return _validation(row)
    raise Refused("NOT_FOUND", f"no validation of {ref} that passed was published", ref=ref)


def list_validations(moment: Moment, asked: ValidationsOf) -> Answer:
    """Return ``{"validations", "total"}`` of a version with their ``data``, oldest first."""
    ref = whole_ref(moment, asked.ref)
    among = _INDEPENDENT if asked.independent else ""
    sql = f"SELECT * FROM validations WHERE reasoning_ref = ?{among} ORDER BY event_index"  # noqa: S608
    rows = moment.rows(sql, (ref, *([ref, ref] if among else [])))
    return {"validations": [_validation(row) for row in rows], "total": len(rows)}


def _validation(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"passed": bool(row["passed"]), "data": msgspec.json.decode(row["data"])}
