"""An `active.md` table kept in step with the handoffs of its rows.

A row is a small handoff: its status and Done cells are progress, everything else of it is what makes it this handoff.
What the ledger changed is written into the row; a status that somebody wrote is signed where it is the acting agent's
to sign, else it stays and is told. A new row from the acting agent is handed over.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from consumers.handoffs.files.mapping import day_of, name_of, shortened, statuses, title_max_chars
from consumers.handoffs.files.plan import Standing, plan_status, reason_in
from consumers.handoffs.files.sync import Agreed, Told, held_told, left_to_sender, refusal_told
from consumers.handoffs.files.syntax.active_table import RowChange, is_active_table, parse_table, render_table, row_id
from consumers.handoffs.files.syntax.sections import status_word
from consumers.sdk.files import read_file, write_file
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.handoff import HandoffCreated
from projections.query import page_rows_max

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.handoffs.files.sync import Keeper
    from consumers.handoffs.files.syntax.active_table import TableRow

_SHORT_DAY: Final = re.compile(r"[0-9]{2}-[0-9]{2}")
_TABLE: Final = "active.md"
_ROW: Final = "active-"
_ENDED: Final = frozenset({"completed", "verified"})


class TableFolder:
    """The tables of a folder, in step with a ledger by the hand of one agent."""

    def __init__(self, keeper: Keeper) -> None:
        """Keep the tables in the folder of ``keeper`` in step, as his author."""
        self._path, self._author, self._answer, self._store, self._tell, self._reviewer = keeper

    def reconcile(self, name: str, content: bytes) -> None:
        """Bring the table in the file ``name`` and the ledger into step.

        Raises:
            Refused: ``INVALID_FORMAT``. Unavailable: the ledger, the store or the folder cannot be used.
        """
        table = parse_table(content)
        agreed = self._store.agreed(name) or Agreed()
        position = self._author.client.head().size - 1
        base = _statuses(agreed.base) if agreed.base else {}
        ids = [row_id(row) for row in table.rows]
        standings = self._standings(ids)
        left: dict[int, list[Told]] = {}
        for number, id_ in enumerate(ids):
            if id_ not in standings and ids.index(id_) == number:
                left[number] = self._adopt(name, id_, table.rows[number])
        standings = self._standings(ids) if left else standings
        for number, id_ in enumerate(ids):
            if id_ in standings:
                asked = self._sign(table.rows[number], base.get(id_), agreed.position, standings[id_])
                left[number] = left.get(number, []) + asked
        standings = self._standings(ids)
        changes = {
            number: change
            for number, (id_, row) in enumerate(zip(ids, table.rows, strict=True))
            if id_ in standings and not left[number] and (change := _change(row, standings[id_])) is not None
        }
        now = render_table(table, changes) if changes else content
        if now != content and not write_file(self._path / name, now, expected=content):
            return
        # A status that was left to somebody else is not agreed on: the one before it is.
        before = {
            n: base.get(ids[n]) or standings[ids[n]]["status"]
            for n, told in left.items()
            if told and ids[n] in standings
        }
        kept = {n: RowChange(status=status) for n, status in before.items()}
        basis = render_table(parse_table(now), kept) if kept else now
        held = [one for number in sorted(left) for one in left[number]]
        said = hashlib.sha256(repr(held).encode()).hexdigest() if held else ""
        if (agreed.base, agreed.said) != (basis, said):
            self._store.agree(name, Agreed(basis, position, said=said))
        if now != content:
            self._tell(Told("written", name, f"{name}: {len(changes)} row{'' if len(changes) == 1 else 's'}"))
        for one in held if agreed.said != said else ():
            self._tell(one)

    def reconcile_row(self, id_: str) -> bool:
        """Bring the table into step that has the row of a handoff; False when no table of this folder has it."""
        if not id_.startswith(_ROW):
            return False
        for name in dict.fromkeys((_TABLE, *(one for one in self._store.ids() if one.endswith(".md")))):
            content = read_file(self._path / name)
            if content is None or not is_active_table(content):
                continue
            if any(row_id(row) == id_ for row in parse_table(content).rows):
                self.reconcile(name, content)
                return True
        return False

    def _sign(self, row: TableRow, before: str | None, position: int, found: dict[str, Any]) -> list[Told]:
        """Sign what a row asks for; return what is left to somebody else.

        ``before`` is the row's status when it and the ledger last agreed, at ``position``; None when they never did.
        """
        id_, status = found["id"], _protocol_status(row)
        if row.status in ("", before) or found["claimed_status"] is not None or status == found["status"]:
            return []
        shown = self._answer("handoffs.show", {"id": id_})
        if before is None and row.status == self._imported_status(shown):
            return []
        had = [index for index, one in statuses(shown, self._author.client.entry) if one == status]
        if had and (before is None or had[-1] > position):
            return []  # an older table, or one that another watcher wrote
        standing = Standing.of(found)
        reason = reason_in(row.status_rest)
        plan = plan_status(standing, status=status, reason=reason, acting=self._author.name)
        if plan.steps and had:
            # It may be an older table that came back: unlike a file, a row has no log that would tell.
            plan = plan_status(standing, status=status, reason="", acting="")
            return [held_told(id_, one) for one in plan.held]
        if plan.steps:
            try:
                accepted = self._author.emit(*(Draft(stream=f"handoff/{id_}", data=data) for data in plan.steps))
            except Refused as refusal:
                return [refusal_told(id_, refusal)]
            indexes = [one.index for one in accepted]
            self._tell(Told("signed", id_, f"{status}, in line {row.line}", {"indexes": indexes}))
        return [held_told(id_, one) for one in plan.held]

    def _imported_status(self, shown: dict[str, Any]) -> str | None:
        """Return the status that the row had in the table it was imported from."""
        if shown["original"] is None:
            return None
        original = self._author.client.get_blob(shown["original"])
        return _statuses(original).get(shown["id"]) if is_active_table(original) else None

    def _adopt(self, name: str, id_: str, row: TableRow) -> list[Told]:
        sender, to = name_of(row.sender), name_of(row.to)
        if sender != self._author.name or to is None:
            what = f"hand over line {row.line}"
            return [left_to_sender(id_, what, self._path / name, sender, self._author.client)]
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
        return []

    def _standings(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(ids), page_rows_max):
            page = self._answer("handoffs.standings", {"ids": list(ids[start : start + page_rows_max])})
            found |= page["handoffs"]
        return found


def _statuses(content: bytes) -> dict[str, str]:
    return {row_id(row): row.status for row in parse_table(content).rows}


def _protocol_status(row: TableRow) -> str:
    """Return the status of a row in the protocol's words; tables say `done`."""
    word = status_word(row.status)
    return "completed" if word == "done" else word


def _change(row: TableRow, found: dict[str, Any]) -> RowChange | None:
    """Return what the ledger has to write into a row; None where it says so already, or is a claim."""
    if found["claimed_status"] is not None:
        return None
    is_same = _protocol_status(row) == found["status"]
    done = None
    if found["status"] in _ENDED and row.done is None and row.cell("Done") is not None:
        day = datetime.fromtimestamp(found["updated_ms"] / 1000, UTC)
        is_short = row.created is not None and _SHORT_DAY.fullmatch(row.created) is not None
        done = day.strftime("%m-%d" if is_short else "%Y-%m-%d")
    return None if is_same and done is None else RowChange(status=None if is_same else found["status"], done=done)
