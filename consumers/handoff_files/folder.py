"""One folder of handoff files kept in step with the ledger, one handoff at a time (DESIGN §10).

For each handoff three versions are compared: the one on which file and ledger last agreed, the file as it is, and the
file as the ledger would write it now. What only the ledger changed is written; what only the file changed is signed
as the acting agent, where it is his to sign; what is not stays in the file and is told, once, with the command to run.
A file that both changed in its text is never overwritten: the ledger's version is put beside it.

What happens if we crash here: sign → write → remember, in this order. A plan made again asks only for what the ledger
lacks, so after a kill at any point nothing is lost and nothing is signed twice.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.handoff_files.active_table import is_active_table
from consumers.handoff_files.atomic import read_file, write_file
from consumers.handoff_files.comparing import with_progress_of
from consumers.handoff_files.content import amended, content_from
from consumers.handoff_files.current import file_name, file_now
from consumers.handoff_files.mapping import content_of_file, name_of
from consumers.handoff_files.merging import are_in_conflict, merge
from consumers.handoff_files.parsing import parse
from consumers.handoff_files.planning import Held, Plan, Standing, plan_edits
from consumers.handoff_files.sync_store import Agreed
from consumers.handoff_files.table_folder import TableFolder
from consumers.handoff_files.telling import Told, held_told, refusal_told
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.handoff import HandoffCreated
from projections.handoffs.files import TABLE_FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from consumers.handoff_files.document import HandoffFile
    from consumers.handoff_files.sync_store import SyncStore
    from consumers.handoff_files.telling import Answers
    from ledger.author import Author

CONFLICT: Final = ".ledger.md"
IN_CONFLICT: Final = b"conflict\0"
reason_for_amending: Final = "edited in its file"


class Folder:
    """A folder in step with a ledger, by the hand of one agent."""

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
        """Keep ``path`` in step as ``author``; ``reviewer`` reviews new files that name nobody."""
        self.path = path
        self._author = author
        self._answer = answer
        self._store = store
        self._tell = tell
        self._reviewer = reviewer
        self._tables = TableFolder(path, author, answer, store, tell, reviewer=reviewer)

    def reconcile(self, id_: str) -> None:
        """Bring one handoff's file and the ledger into step, as far as both sides may be changed here.

        Raises:
            Unavailable: the ledger, the store or the folder cannot be used; call again.
        """
        content = read_file(self.path / file_name(id_))
        if content is not None and is_active_table(content):
            self._tables.reconcile(file_name(id_), content)
            return
        shown = self._shown(id_)
        if content is None and shown is not None and shown["format"] == TABLE_FORMAT:
            self._reconcile_table_of(shown["source"])
            return
        if shown is None:
            if content is not None:
                self._adopt(id_, content)
            return
        agreed = self._store.agreed(id_)
        try:
            now = file_now(shown, self._skeleton(shown))
            self._compare(shown, now, content, agreed)
        except Refused as refusal:
            self._left(id_, content or b"", refusal.code.encode(), refusal_told(id_, refusal))

    def _reconcile_table_of(self, source: str) -> None:
        """Bring the table into step that a row was imported from, if it lies in this folder."""
        name = source.rpartition(":")[0]
        table = read_file(self.path / name) if "/" not in name and name else None
        if table is not None and is_active_table(table):
            self._tables.reconcile(name, table)

    def _compare(self, shown: dict[str, Any], now: bytes, content: bytes | None, agreed: Agreed | None) -> None:
        id_ = shown["id"]
        if content is None:
            if agreed is None or not agreed.base:
                self._write(id_, now, None)
            else:
                self._left(id_, b"", now, Told("deleted", id_, f"restore it: baton handoff render {id_}"))
            return
        base = agreed.base if agreed and agreed.base else self._first_base(shown, content)
        if content == now:
            self._agree(id_, now)
        elif base is None or self._was_told(id_, content, IN_CONFLICT + now):
            self._conflict(id_, content, now)
        elif content == base:
            self._write(id_, now, content)
        elif base.startswith(content):
            self._left(
                id_, content, now, Told("unfinished", id_, "the file ends too early: is it still being written?")
            )
        else:
            self._edited(shown, base, content, now)

    def _edited(self, shown: dict[str, Any], base: bytes, content: bytes, now: bytes) -> None:
        """Sign what the file asks for, and write what the ledger has to add."""
        id_ = shown["id"]
        if self._was_told(id_, content, now):
            return
        before, edited, ledger = parse(base), parse(content), parse(now)
        if are_in_conflict(base=before, edited=edited, ledger=ledger):
            self._conflict(id_, content, now)
            return
        plan = plan_edits(Standing.of(shown), base=before, edited=edited, ledger=ledger, acting=self._author.name)
        held = plan.held
        if plan.steps or plan.amends:
            try:
                self._sign(shown, plan, edited, ledger)
            except Refused as refusal:
                self._left(id_, content, now, refusal_told(id_, refusal))
                return
            shown = self._shown(id_) or shown
            now = file_now(shown, self._skeleton(shown))
            ledger = parse(now)
        target = merge(base=before, edited=edited, ledger=ledger) if held else now
        if target != content and not write_file(self.path / file_name(id_), target, expected=content):
            return  # somebody saved it again meanwhile: that is the edit to look at, on the same base
        self._store.agree(id_, Agreed(now, self._digest(target, now) if held else ""))
        for one in held:
            self._tell(held_told(id_, one))

    def _sign(self, shown: dict[str, Any], plan: Plan, edited: HandoffFile, ledger: HandoffFile) -> None:
        stream = f"handoff/{shown['id']}"
        steps = list(plan.steps)
        if plan.amends:
            skeleton = self._author.client.put_blob(with_progress_of(edited, ledger))
            content = content_of_file(edited, skeleton=skeleton, reviewer=self._reviewer)
            kept = {name: shown[name] for name in ("unlock_at", "answers", "reasoning_ref")}
            changes = msgspec.structs.asdict(content) | kept | {"created": content.created or shown["created"]}
            steps.insert(0, amended(content_from(shown), changes, reason_for_amending))
        # Each event of a handoff is one line of its log: so many, and the stream is at that version.
        version = len(shown["log"])
        drafts = [Draft(stream=stream, data=data, expect=version + n) for n, data in enumerate(steps)]
        accepted = self._author.emit(*drafts)
        kinds = [line["kind"] for line in (self._shown(shown["id"]) or shown)["log"][version:]]
        indexes = [one.index for one in accepted]
        self._tell(Told("signed", shown["id"], ", ".join(kinds), {"kinds": kinds, "indexes": indexes}))

    def _adopt(self, id_: str, content: bytes) -> None:
        """Create the handoff of a new file, if it is from the acting agent."""
        if self._was_told(id_, content, b""):
            return
        try:
            file = parse(content)
            if not file.meta and file.status is None:
                self._store.agree(id_, Agreed(b"", self._digest(content, b"")))  # some other markdown file
                return
            sender = name_of(file.sender)
            if sender != self._author.name:
                held = Held("hand this over", sender or "", f"baton handoff import {file_name(id_)} --as NAME")
                self._left(id_, content, b"", held_told(id_, held))
                return
            skeleton = self._author.client.put_blob(content)
            data = content_of_file(file, skeleton=skeleton, reviewer=self._reviewer)
            created = _created(data)
            (accepted,) = self._author.emit(Draft(stream=f"handoff/{id_}", data=created, expect=0))
        except Refused as refusal:
            self._left(id_, content, b"", refusal_told(id_, refusal))
            return
        self._tell(Told("signed", id_, "handoff.created", {"kinds": ["handoff.created"], "indexes": [accepted.index]}))
        self._store.forget(id_)
        self.reconcile(id_)

    def _first_base(self, shown: dict[str, Any], content: bytes) -> bytes | None:
        """Return what a file that was never in step stands on: its skeleton, or nothing known."""
        return content if content == self._skeleton(shown) else None

    def _conflict(self, id_: str, content: bytes, now: bytes) -> None:
        """Put the ledger's version beside the file; once it is gone, the file counts as edited from that version."""
        beside = self.path / f"{id_}{CONFLICT}"
        if self._was_told(id_, content, IN_CONFLICT + now) and read_file(beside) is None:
            self._store.agree(id_, Agreed(now))
            self.reconcile(id_)
            return
        if read_file(beside) != now:
            write_file(beside, now)
        text = f"file and ledger both changed: compare {beside.name}, then delete it"
        self._left(id_, content, IN_CONFLICT + now, Told("conflict", id_, text, {"beside": beside.name}))

    def _write(self, id_: str, now: bytes, expected: bytes | None) -> None:
        if write_file(self.path / file_name(id_), now, expected=expected):
            self._store.agree(id_, Agreed(now))
            self._tell(Told("written", id_, file_name(id_)))

    def _agree(self, id_: str, now: bytes) -> None:
        if self._store.agreed(id_) != Agreed(now):
            self._store.agree(id_, Agreed(now))
        (self.path / f"{id_}{CONFLICT}").unlink(missing_ok=True)

    def _left(self, id_: str, content: bytes, now: bytes, told: Told) -> None:
        """Leave a file as it is, and say so once for each pair of versions."""
        if self._was_told(id_, content, now):
            return
        agreed = self._store.agreed(id_)
        self._store.agree(id_, Agreed(agreed.base if agreed else b"", self._digest(content, now)))
        self._tell(told)

    def _was_told(self, id_: str, content: bytes, now: bytes) -> bool:
        agreed = self._store.agreed(id_)
        return agreed is not None and agreed.told == self._digest(content, now)

    def _digest(self, content: bytes, now: bytes) -> str:
        return hashlib.sha256(content + b"\0" + now).hexdigest()

    def _shown(self, id_: str) -> dict[str, Any] | None:
        try:
            found = self._answer("handoffs.show", {"id": id_})
        except Refused as refusal:
            if refusal.code in ("NOT_FOUND", "REF_AMBIGUOUS"):
                return None
            raise
        return found if found["id"] == id_ else None

    def _skeleton(self, shown: dict[str, Any]) -> bytes | None:
        ref = shown["skeleton"]
        return None if ref is None else self._author.client.get_blob(ref)


def _created(content: Any) -> HandoffCreated:
    fields = msgspec.structs.asdict(content)
    if fields["to"] is None:
        raise Refused("INVALID_FIELD", "the file names nobody in `To:`, or nobody that an agent can be called")
    return HandoffCreated(**fields)
