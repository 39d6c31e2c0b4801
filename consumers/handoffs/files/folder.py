"""One folder of handoff files kept in step with the ledger, one handoff at a time.

For each handoff three versions are compared: the one on which file and ledger last agreed, the file as it is, and the
file as the ledger would write it now. What only the ledger changed is written; what only the file changed is signed
as the acting agent, where it is his to sign; what is not stays in the file and is told, once, with the command to run.
A file that both changed in its text is never overwritten: the ledger's version is put beside it. An older version that
came back (from version control, say) is nobody's edit, and is brought up to date.

What happens if we crash here: remember what asks → sign → write → remember, in this order, so nothing is lost, nothing
is signed twice, and what is taken back before anybody looks again is taken back.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.handoffs.files import sync
from consumers.handoffs.files.imports import existing_handoffs
from consumers.handoffs.files.mapping import content_of_row, file_name, file_now, last_rendered, name_of, statuses
from consumers.handoffs.files.plan import EditedHandoff, plan_edits, plan_status, reason_in
from consumers.handoffs.files.syntax import active_table, comparison
from consumers.handoffs.files.syntax.parser import parse
from consumers.handoffs.files.syntax.sections import status_word
from consumers.sdk.files import read_file, remove_file, write_file
from ledger.author import Draft
from ledger.client import read_event
from ledger.errors import Refused, Unavailable
from ledger.events.fields import EventData
from ledger.events.handoff import HandoffCreated
from projections.handoffs.queries import TABLE_FORMAT

CONFLICT: Final = ".ledger.md"
_CONFLICT_SHOWN: Final = b"conflict"
_CONFLICT_SETTLED: Final = b"settled"
tries_max: Final = 5
_TABLE: Final = "active.md"
_ROW: Final = "active-"


class Folder:
    """A folder in step with a ledger, by the hand of one agent."""

    def __init__(self, context: sync.SyncContext) -> None:
        self._context = context
        self.path, self._author, self._answer, self._store, self._tell, _ = context
        self.refused: set[str] = set()  # handoffs whose edits may be allowed after other events
        self._tables = TableFolder(context)

    def reconcile(self, id_: str) -> None:
        """Bring one handoff's file and the ledger into step, as far as both sides may be changed here."""
        self.refused.discard(id_)
        for _ in range(tries_max):
            try:
                self._reconcile(id_)
            except Refused as refusal:
                if refusal.code == "STREAM_CONFLICT":
                    continue  # the handoff went on meanwhile: look at it again
                self.refused.add(id_)
                self._say(id_, sync.refusal_notice(id_, refusal))
            return

    def _reconcile(self, id_: str) -> None:
        if f"{id_}.md".endswith(CONFLICT):
            raise Refused("INVALID_FIELD", f"the name {file_name(id_)} is kept for versions beside a file")
        content = read_file(self.path / file_name(id_))
        if content is None and not self.path.is_dir():
            raise Unavailable("STORE_UNAVAILABLE", f"the folder {self.path} is gone", path=str(self.path))
        if content is not None and active_table.is_active_table(content):
            self._tables.reconcile(file_name(id_), content)
            return
        handoff = self._answered(id_)
        if content is None and self._tables.reconcile_row(id_):
            return
        if handoff is None:
            if content is not None:
                self._adopt(id_, content)
        elif content is not None or handoff["format"] != TABLE_FORMAT:
            self._compare(handoff, file_now(handoff, self._skeleton(handoff)), content)

    def _compare(self, handoff: dict[str, Any], now: bytes, content: bytes | None) -> None:
        id_ = handoff["id"]
        agreed = self._agreed(handoff)
        if content is None:
            if agreed.base:
                command = shlex.join(("baton", "handoff", "render", id_, "--out", str(self.path / file_name(id_))))
                self._say(id_, sync.Notice("deleted", id_, f"restore it: {command}"))
            else:
                self._write(handoff, now, None)
        elif content == now:
            self._agree(handoff, now)
        elif content == agreed.base:
            self._write(handoff, now, content)
        elif agreed.seen != _digest(content, now):
            self._changed(handoff, agreed, content, now)

    def _agreed(self, handoff: dict[str, Any]) -> sync.Agreed:
        """Return what is remembered of a file, or would be had a kill, or another save, not come after the signing."""
        agreed = self._store.agreed(handoff["id"]) or sync.Agreed()
        for index in [one["event_index"] for one in handoff["log"]] if agreed.event_id else ():
            if index > agreed.position and read_event(index, self._author.client.entry(index)).id == agreed.event_id:
                agreed = sync.Agreed(agreed.asking, index, said=agreed.said)
                self._store.agree(handoff["id"], agreed)
        return agreed

    def _changed(self, handoff: dict[str, Any], agreed: sync.Agreed, content: bytes, now: bytes) -> None:
        """Look at a file that is neither what it was nor what it should be."""
        id_ = handoff["id"]
        if agreed.seen == _digest(_CONFLICT_SHOWN, now) and read_file(self._beside(id_)) is None:
            # Who deletes it has compared: from here on, the file counts as edited from the version that was shown.
            agreed = sync.Agreed(now, handoff["updated_index"], _digest(_CONFLICT_SETTLED, now))
            self._store.agree(id_, agreed)
        is_settled = agreed.seen == _digest(_CONFLICT_SETTLED, now)
        version = last_rendered(handoff, content, self._author.client.entry, self._author.client.get_blob)
        base = agreed.base or self._first_base(handoff, content)
        if version is not None and not is_settled:
            is_later = version > agreed.position
            if not agreed.base or is_later or not comparison.is_one_tick(parse(agreed.base), parse(content)):
                self._write(handoff, now, content)
                return
        if not base:
            self._conflict(handoff, content, now)
            return
        if base.startswith(content):
            self._say(id_, sync.Notice("unfinished", id_, "the file ends too early: is it still being written?"))
            return
        before, edited, ledger = parse(base), parse(content), parse(now)
        is_unclear = not is_settled and comparison.looks_outdated(base=before, edited=edited)
        if is_unclear or comparison.are_in_conflict(base=before, edited=edited, ledger=ledger):
            self._conflict(handoff, content, now)
        else:
            self._edited(handoff, base, content, now)

    def _edited(self, handoff: dict[str, Any], base: bytes, content: bytes, now: bytes) -> None:
        """Sign what the file asks for, and write what the ledger has to add."""
        id_ = handoff["id"]
        before, edited, ledger = parse(base), parse(content), parse(now)
        agreed = self._store.agreed(id_)
        standing = EditedHandoff.of(handoff, agreed.position if agreed else None)
        plan = plan_edits(standing, base=before, edited=edited, ledger=ledger, acting=self._author.name)
        is_signed = bool(plan.steps or plan.amends)
        if is_signed:
            self._tell(sync.sign_plan(self._context, handoff, plan, edited=edited, ledger=ledger))
            handoff = self._answered(id_) or handoff
            now = file_now(handoff, self._skeleton(handoff))
        if plan.amends:
            before = parse(comparison.with_progress_of(edited, before))
        target = comparison.merge(base=before, edited=edited, ledger=parse(now)) if plan.held else now
        if target != content and not write_file(self.path / file_name(id_), target, expected=content):
            return  # somebody saved it again meanwhile: that is the edit to look at, on the base that was signed
        if read_file(self._beside(id_)) == ledger.content:
            remove_file(self._beside(id_))
        said = agreed.said if agreed else ""
        self._store.agree(
            id_, sync.Agreed(now, handoff["updated_index"], _digest(target, now) if plan.held else "", said)
        )
        if target != content and not is_signed:
            self._tell(sync.Notice("written", id_, file_name(id_)))
        self._say(id_, *(sync.held_notice(id_, one) for one in plan.held))

    def _adopt(self, id_: str, content: bytes) -> None:
        """Create the handoff of a new file, if it is from the acting agent."""
        file = parse(content)
        if not file.meta and file.status is None:
            return  # some other markdown file
        sender = name_of(file.sender)
        if sender != self._author.name:
            path = self.path / file_name(id_)
            self._say(id_, sync.sender_notice(id_, "hand this over", path, sender, self._author.client))
            return
        self._tell(sync.sign_new(self._context, id_, file))
        self._reconcile(id_)

    def _first_base(self, handoff: dict[str, Any], content: bytes) -> bytes:
        """Return what a file that was never in step stands on: what its handoff was made of, or nothing known."""
        # A status or tick in a new file is an edit like any other; in an imported one it is a claim of the ledger's.
        skeleton = self._skeleton(handoff)
        is_new = handoff["importer"] is None and handoff["skeleton_index"] == handoff["created_index"]
        if not is_new or skeleton is None or content != skeleton:
            return b""
        fresh = [{**one, "done": False} for one in handoff["tasks"]]
        unmet = [{**one, "mark": "open"} for one in handoff["criteria"]]
        status = "pending" if handoff["reviewer"] else "approved"
        return file_now(handoff | {"status": status, "tasks": fresh, "criteria": unmet, "log": []}, skeleton)

    def _conflict(self, handoff: dict[str, Any], content: bytes, now: bytes) -> None:
        """Put the ledger's version beside the file; once it is gone, the file counts as edited from that version."""
        id_ = handoff["id"]
        beside = self._beside(id_)
        if read_file(beside) != now:
            write_file(beside, now)
        agreed = self._store.agreed(id_) or sync.Agreed()
        self._store.agree(id_, agreed._replace(seen=_digest(_CONFLICT_SHOWN, now)))
        text = f"file and ledger both changed: compare {beside.name}, then delete it"
        self._say(id_, sync.Notice("conflict", id_, text, {"beside": beside.name}), about=now)

    def _write(self, handoff: dict[str, Any], now: bytes, expected: bytes | None) -> None:
        id_ = handoff["id"]
        if write_file(self.path / file_name(id_), now, expected=expected):
            self._store.agree(id_, sync.Agreed(now, handoff["updated_index"]))
            self._tell(sync.Notice("written", id_, file_name(id_)))

    def _agree(self, handoff: dict[str, Any], now: bytes) -> None:
        agreed = sync.Agreed(now, handoff["updated_index"])
        if self._store.agreed(handoff["id"]) != agreed:
            self._store.agree(handoff["id"], agreed)
        beside = self._beside(handoff["id"])
        if read_file(beside) == now:
            remove_file(beside)

    def _say(self, id_: str, *notices: sync.Notice, about: bytes = b"") -> None:
        """Tell what is left undone, once for as long as it is the same."""
        said = hashlib.sha256(repr(notices).encode() + about).hexdigest() if notices else ""
        agreed = self._store.agreed(id_) or sync.Agreed()
        if agreed.said != said:
            self._store.agree(id_, agreed._replace(said=said))
            for one in notices:
                self._tell(one)

    def _beside(self, id_: str) -> Path:
        return self.path / f"{id_}{CONFLICT}"

    def _answered(self, id_: str) -> dict[str, Any] | None:
        try:
            found = self._answer("handoffs.show", {"id": id_})
        except Refused as refusal:
            if refusal.code in ("NOT_FOUND", "REF_AMBIGUOUS"):
                return None
            raise
        return found if found["id"] == id_ else None

    def _skeleton(self, handoff: dict[str, Any]) -> bytes | None:
        ref = handoff["skeleton"]
        return None if ref is None else self._author.client.get_blob(ref)


class TableFolder:
    """The `active.md` tables of a folder, in step with the handoffs of their rows.

    A row is a small handoff: its status and Done cells are progress, everything else of it is what makes it this one.
    """

    def __init__(self, context: sync.SyncContext) -> None:
        self._path, self._author, self._answer, self._store, self._tell, self._reviewer = context

    def reconcile(self, name: str, content: bytes) -> None:
        """Bring the table in the file ``name`` and the ledger into step."""
        rows = active_table.parse_table(content).rows
        ids = [active_table.row_id(row) for row in rows]
        agreed = self._store.agreed(name) or sync.Agreed()
        position = self._author.client.head().size - 1
        base = _statuses(agreed.base) if agreed.base else {}
        known = existing_handoffs(self._answer, ids)
        left = [
            self._adopt(name, id_, row) if id_ not in known and id_ not in ids[:number] else []
            for number, (id_, row) in enumerate(zip(ids, rows, strict=True))
        ]
        known = existing_handoffs(self._answer, ids)
        for id_, row, notices in zip(ids, rows, left, strict=True):
            if id_ in known:
                notices.extend(self._sign(row, base.get(id_), agreed.position, known[id_]))
        known = existing_handoffs(self._answer, ids)
        changes, kept = {}, {}
        for number, (id_, row, notices) in enumerate(zip(ids, rows, left, strict=True)):
            if id_ in known and notices:
                # A status that was left to somebody else is not agreed on: the one before it is.
                kept[number] = active_table.RowChange(status=base.get(id_) or known[id_]["status"])
            elif id_ in known and (change := _row_change(row, known[id_])) is not None:
                changes[number] = change
        now = active_table.render_table(active_table.parse_table(content), changes)
        if now != content and not write_file(self._path / name, now, expected=content):
            return
        basis = active_table.render_table(active_table.parse_table(now), kept)
        held = [one for notices in left for one in notices]
        said = hashlib.sha256(repr(held).encode()).hexdigest() if held else ""
        if (agreed.base, agreed.said) != (basis, said):
            self._store.agree(name, sync.Agreed(basis, position, said=said))
        if now != content:
            self._tell(sync.Notice("written", name, f"{name}: {len(changes)} row{'' if len(changes) == 1 else 's'}"))
        for one in held if agreed.said != said else ():
            self._tell(one)

    def reconcile_row(self, id_: str) -> bool:
        """Bring the table into step that has the row of a handoff; False when no table of this folder has it."""
        names = (_TABLE, *(one for one in self._store.ids() if one.endswith(".md"))) if id_.startswith(_ROW) else ()
        for name in dict.fromkeys(names):
            content = read_file(self._path / name)
            if content is not None and active_table.is_active_table(content) and id_ in _statuses(content):
                self.reconcile(name, content)
                return True
        return False

    def _sign(
        self, row: active_table.TableRow, before: str | None, position: int, found: dict[str, Any]
    ) -> list[sync.Notice]:
        """Sign what a row asks for; return what is left to somebody else."""
        # ``before`` is the row's status when it and the ledger last agreed, at ``position``; None when they never did.
        id_, status = found["id"], _protocol_status(row)
        if row.status in ("", before) or found["claimed_status"] is not None or status == found["status"]:
            return []
        handoff = self._answer("handoffs.show", {"id": id_})
        if before is None and row.status == self._imported_status(handoff):
            return []
        had = [index for index, one in statuses(handoff, self._author.client.entry) if one == status]
        if had and (before is None or had[-1] > position):
            return []  # an older table, or one that another watcher wrote
        plan = plan_status(EditedHandoff.of(found), status, reason_in(row.status_rest), acting=self._author.name)
        if plan.steps and had:
            # It may be an older table that came back: unlike a file, a row has no log that would tell.
            plan = plan_status(EditedHandoff.of(found), status, "", acting="")
        elif plan.steps:
            return self._emit(id_, f"{status}, in line {row.line}", *plan.steps)
        return [sync.held_notice(id_, one) for one in plan.held]

    def _imported_status(self, handoff: dict[str, Any]) -> str | None:
        """Return the status that the row had in the table it was imported from."""
        original = b"" if handoff["original"] is None else self._author.client.get_blob(handoff["original"])
        return _statuses(original).get(handoff["id"]) if active_table.is_active_table(original) else None

    def _adopt(self, name: str, id_: str, row: active_table.TableRow) -> list[sync.Notice]:
        """Hand over a new row, if it is from the acting agent."""
        content, sender = content_of_row(row, reviewer=self._reviewer), name_of(row.sender)
        if sender != self._author.name or content.to is None:
            return [
                sync.sender_notice(id_, f"hand over line {row.line}", self._path / name, sender, self._author.client)
            ]
        return self._emit(id_, "handoff.created", HandoffCreated(**msgspec.structs.asdict(content)), expect=0)

    def _emit(self, id_: str, what: str, *steps: EventData, expect: int | None = None) -> list[sync.Notice]:
        """Sign events of a handoff; return why that was refused."""
        try:
            accepted = self._author.emit(*(Draft(stream=f"handoff/{id_}", data=data, expect=expect) for data in steps))
        except Refused as refusal:
            return [sync.refusal_notice(id_, refusal)]
        self._tell(sync.Notice("signed", id_, what, {"indexes": [one.index for one in accepted]}))
        return []


def _digest(content: bytes, now: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(content).digest() + now).hexdigest()


def _statuses(content: bytes) -> dict[str, str]:
    return {active_table.row_id(row): row.status for row in active_table.parse_table(content).rows}


def _protocol_status(row: active_table.TableRow) -> str:
    """Return the status of a row in the protocol's words; tables say `done`."""
    word = status_word(row.status)
    return "completed" if word == "done" else word


def _row_change(row: active_table.TableRow, found: dict[str, Any]) -> active_table.RowChange | None:
    """Return what the ledger has to write into a row; None where it says so already, or is a claim."""
    if found["claimed_status"] is not None:
        return None
    status = None if _protocol_status(row) == found["status"] else found["status"]
    done = None
    if found["status"] in ("completed", "verified") and row.done is None and "Done" in row.places:
        day = datetime.fromtimestamp(found["updated_ms"] / 1000, UTC)
        done = day.strftime("%m-%d" if re.fullmatch(r"[0-9]{2}-[0-9]{2}", row.created or "") else "%Y-%m-%d")
    return None if status is None and done is None else active_table.RowChange(status, done)
