"""An `active.md` table kept in step with the handoffs of its rows (DESIGN §10).

A row is a small handoff: its status and Done cells are progress, everything else of it is what makes it this handoff.
What the ledger changed is written into the row; a status that somebody wrote is signed where it is the acting agent's
to sign, else it stays and is told. A new row from the acting agent is handed over.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from consumers.handoff_files.active_table import RowChange, parse_table, render_table, row_id
from consumers.handoff_files.atomic import write_file
from consumers.handoff_files.mapping import day_of, name_of, shortened, title_max_chars
from consumers.handoff_files.meta import status_word
from consumers.handoff_files.planning import Held, Standing, plan_status, reason_in
from consumers.handoff_files.sync_store import Agreed
from consumers.handoff_files.telling import Told, held_told, refusal_told
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.handoff import HandoffCreated
from projections.query import page_rows_max

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from consumers.handoff_files.active_table import ActiveTable, TableRow
    from consumers.handoff_files.sync_store import SyncStore
    from consumers.handoff_files.telling import Answers
    from ledger.author import Author

_SHORT_DAY: Final = re.compile(r"[0-9]{2}-[0-9]{2}")
_ENDED: Final = frozenset({"completed", "verified"})


class TableFolder:
    """The tables of a folder, in step with a ledger by the hand of one agent."""

    def __init__(
        self,
        path: Path,
        author: Author,
        answer: Answers,
        store: SyncStore,
        tell: Callable[[Told], None],
        *,
        reviewer: str | None = None,
    ) -> None:
        """Keep the tables of ``path`` in step as ``author``; ``reviewer`` reviews new rows."""
        self._path = path
        self._author = author
        self._answer = answer
        self._store = store
        self._tell = tell
        self._reviewer = reviewer

    def reconcile(self, name: str, content: bytes) -> None:
        """Bring the table in the file ``name`` and the ledger into step.

        Raises:
            Refused: ``INVALID_FORMAT``. Unavailable: the ledger, the store or the folder cannot be used.
        """
        table = parse_table(content)
        agreed = self._store.agreed(name)
        base = _statuses(parse_table(agreed.base)) if agreed and agreed.base else {}
        ids = [row_id(row) for row in table.rows]
        standings = self._standings(ids)
        left = {n: self._sign(id_, table.rows[n], base, standings) for n, id_ in enumerate(ids)}
        held = [one for told in left.values() for one in told]
        standings = self._standings(ids)
        changes = {
            number: change
            for number, (id_, row) in enumerate(zip(ids, table.rows, strict=True))
            if id_ in standings and (change := _change(row, base.get(id_), standings[id_])) is not None
        }
        now = render_table(table, changes) if changes else content
        if now != content and not write_file(self._path / name, now, expected=content):
            return
        # A status that was left to somebody else is not agreed on: the one before it is.
        kept = {n: RowChange(status=base[ids[n]]) for n, told in left.items() if told and ids[n] in base}
        basis = render_table(parse_table(now), kept) if kept else now
        told = hashlib.sha256(now + repr(held).encode()).hexdigest()
        if agreed != Agreed(basis, told):
            self._store.agree(name, Agreed(basis, told))
            if now != content:
                self._tell(Told("written", name, f"{name}: {len(changes)} rows"))
            for one in held if agreed is None or agreed.told != told else ():
                self._tell(one)

    def _sign(
        self, id_: str, row: TableRow, base: dict[str, str], standings: dict[str, dict[str, Any]]
    ) -> Sequence[Told]:
        """Sign what a row asks for; return what is left to somebody else."""
        found = standings.get(id_)
        if found is None:
            return self._adopt(id_, row)
        status = status_word(row.status)
        is_edit = id_ in base and base[id_] != row.status and found["claimed_status"] is None
        if not is_edit or status == found["status"]:
            return ()
        reason = reason_in(row.status_rest)
        plan = plan_status(Standing.of(found), status=status, reason=reason, acting=self._author.name)
        if plan.steps:
            try:
                accepted = self._author.emit(*(Draft(stream=f"handoff/{id_}", data=data) for data in plan.steps))
            except Refused as refusal:
                return [refusal_told(id_, refusal)]
            indexes = [one.index for one in accepted]
            self._tell(Told("signed", id_, f"{status}, in line {row.line}", {"indexes": indexes}))
        return [held_told(id_, one) for one in plan.held]

    def _adopt(self, id_: str, row: TableRow) -> Sequence[Told]:
        sender, to = name_of(row.sender), name_of(row.to)
        if sender != self._author.name or to is None:
            return [
                held_told(id_, Held(f"hand over line {row.line}", sender or "", "baton handoff import … --as NAME"))
            ]
        data = HandoffCreated(
            title=shortened(row.task, title_max_chars) or "—",
            to=to,
            reviewer=None if self._reviewer in (sender, to) else self._reviewer,
            created=day_of(row.created),
            task=row.task if len(row.task) > title_max_chars else "",
        )
        try:
            (accepted,) = self._author.emit(Draft(stream=f"handoff/{id_}", data=data, expect=0))
        except Refused as refusal:
            return [refusal_told(id_, refusal)]
        self._tell(Told("signed", id_, "handoff.created", {"indexes": [accepted.index]}))
        return ()

    def _standings(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(ids), page_rows_max):
            page = self._answer("handoffs.standings", {"ids": list(ids[start : start + page_rows_max])})
            found |= page["handoffs"]
        return found


def _statuses(table: ActiveTable) -> dict[str, str]:
    return {row_id(row): row.status for row in table.rows}


def _change(row: TableRow, before: str | None, found: dict[str, Any]) -> RowChange | None:
    """Return what the ledger has to write into a row; None where it says so already, or somebody is editing it."""
    if found["claimed_status"] is not None or status_word(row.status) == found["status"]:
        return None
    if before is not None and before != row.status:
        return None  # an edit that was not signed stays
    done = None
    if found["status"] in _ENDED and row.done is None:
        day = datetime.fromtimestamp(found["updated_ms"] / 1000, UTC)
        is_short = row.created is not None and _SHORT_DAY.fullmatch(row.created) is not None
        done = day.strftime("%m-%d" if is_short else "%Y-%m-%d")
    return RowChange(status=found["status"], done=done)
