"""A published report beside the log: the project's git notes and files get it at once (``consumers.sessions.stores``).

The event is the report, the stores are copies. So a store that cannot be written is a warning, and what happens if we
crash before the copies are written: the report stands, and ``baton notes sync`` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from consumers.sessions.reports.workflow import with_report
from consumers.sessions.stores.project import project_of
from consumers.sessions.stores.storing import store_report
from ledger.errors import BatonError

if TYPE_CHECKING:
    from consumers.sessions.reports.inputs import ReportInputs
    from ledger.author import Author
    from ledger.client import Ask
    from ledger.config import Settings

_THERE: Final = ("written", "unchanged")
_LATER: Final = "`baton notes sync` tries again"


def mirrored(answer: Ask, settings: Settings, made: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``publish_report`` with ``stored``, the seed's ``storage_location`` and further warnings."""
    try:
        shown = answer("reports.show", {"id": made["session_id"]})
        known = {version["report_id"] for version in shown["versions"]}
        stored = [one.answer() for one in store_report(shown["report"], project_of(settings), known)]
    except BatonError as error:
        said = f"the report is in the ledger, but in no other store: {error.message}"
        return made | {"stored": [], "warnings": [*made["warnings"], said]}
    there = [one["location"] for one in stored if one["status"] in _THERE]
    failed = [one for one in stored if one["status"] == "failed"]
    said_of = [f"not stored in {one['location'] or one['store']}: {one['reason']} ({_LATER})" for one in failed]
    return made | {
        "storage_location": there[0] if there else made["storage_location"],
        "stored": stored,
        "warnings": [*made["warnings"], *said_of],
    }


def reported(
    author: Author, answer: Ask, settings: Settings, done: dict[str, Any], given: ReportInputs
) -> dict[str, Any]:
    """Return the answer of a POSTFLIGHT that stands, with its report published and mirrored, or with a warning."""
    made = with_report(author, answer, done, given)
    if made["handoff_report"] is None:
        return made
    report = mirrored(answer, settings, made["handoff_report"])
    return made | {"handoff_report": report, "warnings": [*done["warnings"], *report["warnings"]]}
