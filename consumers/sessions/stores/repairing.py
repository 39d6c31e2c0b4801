"""Bringing the stores into step with the log: what is missing or different is written again from the events.

The walk is over the latest report of every session, but for those that were imported: their tools have stores of their
own. It may be stopped and run again at any time: what is in step already is left alone. Reports that come while it runs
are stored by whoever makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from consumers.sessions.stores.storing import store_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from consumers.sessions.stores.project import Project
    from consumers.sessions.stores.stored import Store, Stored
    from ledger.client import Ask

    Step = Callable[[int, int], None]

page_size: Final = 50


class Repaired(NamedTuple):
    """How many reports the log has, how many places had or have them, and all that is not so."""

    reports: int
    written: int
    unchanged: int
    skipped: tuple[Stored, ...]
    failed: tuple[Stored, ...]
    told: tuple[Stored, ...]

    def answer(self) -> dict[str, Any]:
        """Return the form that is printed."""
        lists = {name: [one.answer() for one in getattr(self, name)] for name in ("skipped", "failed", "told")}
        return {"reports": self.reports, "written": self.written, "unchanged": self.unchanged, **lists}


def repair(answer: Ask, project: Project, step: Step = lambda _done, _total: None) -> Repaired:
    """Write every report that a store lacks or has otherwise; ``answer`` answers ``reports.list`` and ``reports.show``.

    A store that is skipped, or fails as a whole, is told once and not for every report.

    Raises:
        Refused, Unavailable: the views cannot be asked.
    """
    places: list[Stored] = []
    left_out: set[Store] = set()
    count = 0
    for listed, total in _latest(answer):
        shown = answer("reports.show", {"id": listed["session_id"]})
        known = {version["report_id"] for version in shown["versions"]}
        stored = store_report(shown["report"], project, known)
        places += [one for one in stored if one.location or one.store not in left_out]
        left_out |= {one.store for one in stored if not one.location}
        if "git_notes" in left_out:  # a git that hangs is not waited for in each report
            project = msgspec.structs.replace(project, git=None)
        count += 1
        step(count, total)
    return Repaired(
        count,
        sum(one.status == "written" for one in places),
        sum(one.status == "unchanged" for one in places),
        tuple(one for one in places if one.status == "skipped"),
        tuple(one for one in places if one.status == "failed"),
        tuple(one for one in places if one.status == "written" and one.reason),
    )


def _latest(answer: Ask) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the latest report of every session, with how many there are."""
    asked: dict[str, Any] = {"limit": page_size, "imported": False}
    while True:
        page = answer("reports.list", asked)
        for report in page["reports"]:
            yield report, page["total_found"]
        if page["next"] is None:
            return
        asked = {**asked, "cursor": page["next"]}
