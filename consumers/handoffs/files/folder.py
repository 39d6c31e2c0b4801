"""Synchronises one folder of handoff files with the ledger, one handoff at a time.

Three versions are compared: the base on which file and ledger last agreed, the file as it is, and the file as the
ledger would write it now. A change of the ledger is written to the file. A change of the file is signed as the acting
agent if they may sign it; otherwise every pass over the folder reports it, with the command to run. A change that
approves the handoff is reported in the same way, because the file may contain text that the sender never read. If
somebody types the status of a review, such as approved, the ledger's status is restored at once. A remark beside it
(``syntax.remark``) says what was typed. If both changed the text, the ledger's version is written to a second file
beside it. An older version of the file, for example from version control, is not an edit: it is updated.

If we crash: store the request → sign → write → store the result, in this order, so nothing is lost or signed twice.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.handoffs.files import sync
from deedbook.consumers.handoffs.files.mapping import (
    file_name,
    file_now,
    last_rendered,
    marked,
    template_of,
)
from deedbook.consumers.handoffs.files.plan import APPROVES, EditedHandoff, HeldEdit, Plan, plan_edits, review_in
from deedbook.consumers.handoffs.files.signed import signed_name, write_signed
from deedbook.consumers.handoffs.files.syntax import active_table, comparison
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.marks import without_marks
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.remark import split_remark, with_remark, with_status_of
from deedbook.consumers.sdk.files import read_file, remove_file, write_file
from deedbook.consumers.sdk.text import json_text
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.lifecycle.handoff_status import stage_of
from deedbook.projections.handoffs.queries import TABLE_FORMAT

CONFLICT: Final = ".ledger.md"
_CONFLICT_SHOWN: Final = b"conflict"
_CONFLICT_SETTLED: Final = b"settled"
tries_max: Final = 5


class Folder:
    """A folder that one agent synchronises with a ledger."""

    def __init__(self, context: sync.SyncContext) -> None:
        self._context = context
        self.path, self._author, self._answer, self._store, self._tell, *_ = context
        self.refused: set[str] = set()  # handoffs with edits that a later event may allow
        self.left_undone: set[str] = set()  # handoffs whose files contain changes that nobody has signed
        self._told: dict[str, str] = {}  # the notices of this pass

    def begin_pass(self) -> None:
        """Begin a pass over the whole folder, in which everything left undone is reported again."""
        self._told.clear()

    def reconcile(self, id_: str) -> None:
        """Synchronise one handoff's file and the ledger, as far as the acting agent may change both."""
        self.refused.discard(id_)
        self.left_undone.discard(id_)
        for _ in range(tries_max):
            try:
                self._reconcile(id_)
                self._write_signed(id_)
            except Refused as refusal:
                if refusal.code == "STREAM_CONFLICT":
                    continue  # the handoff changed meanwhile: check it again
                self.refused.add(id_)
                self._say(id_, sync.refusal_notice(id_, refusal))
            break
        if id_ not in self.left_undone:
            self._told.pop(id_, None)

    def _reconcile(self, id_: str) -> None:
        if f"{id_}.md".endswith(CONFLICT):
            raise Refused(
                "INVALID_FIELD", f"the name {file_name(id_)} is reserved for the ledger's version beside a file"
            )
        content = read_file(self.path / file_name(id_))
        if content is None and not self.path.is_dir():
            raise Unavailable(
                "STORE_UNAVAILABLE", f"the folder {self.path} does not exist any more", path=str(self.path)
            )
        if content is not None and active_table.is_active_table(content):
            command = shlex.join(("deed", "handoff", "import", str(self.path / file_name(id_))))
            self._say(id_, sync.Notice("table", id_, f"import its rows with {command}, then change them by commands"))
            return
        handoff = self._answered(id_)
        if handoff is None:
            if content is not None:
                self._adopt(id_, without_marks(content))
        elif content is not None or handoff["format"] != TABLE_FORMAT:
            self._compare(handoff, file_now(handoff, self._template(handoff)), content)

    def _write_signed(self, id_: str) -> None:
        """Write the signed file beside a handoff's file, if this folder has signed files."""
        if not self._context.is_signed or read_file(self.path / file_name(id_)) is None:
            return
        handoff = self._answered(id_)
        if handoff is not None and write_signed(self.path, self._author.client, handoff):
            self._tell(sync.Notice("written", id_, signed_name(id_)))

    def _compare(self, handoff: dict[str, Any], now: bytes, content: bytes | None) -> None:
        id_ = handoff["id"]
        agreed = self._agreed(handoff)
        plain, remark = (None, "") if content is None else split_remark(content)
        if content is None or plain is None:
            if not agreed.base:
                self._write(handoff, now, None)
            elif stage_of(handoff["status"]) != "over":
                command = shlex.join(("deed", "handoff", "render", id_, "--out", str(self.path / file_name(id_))))
                self._say(id_, sync.Notice("deleted", id_, f"the file was deleted; restore it with {command}"))
        elif plain == now and not remark and content == self._marked(handoff, now):
            self._agree(handoff, now)
            self._say_claim(handoff, now)
        elif plain in (now, agreed.base):
            self._write(handoff, now, content)
        elif agreed.examined != _digest(content, now):
            self._changed(handoff, agreed, content, now)
        else:
            self._repeat(id_, agreed)

    def _say_claim(self, handoff: dict[str, Any], now: bytes) -> None:
        """Report an imported file that says "approved" although nobody here approved it. The file stays unchanged."""
        status = parse(now).status if handoff["claimed_status"] is not None else None
        if status is not None and status.word == "approved" != handoff["status"]:
            reviewer = handoff["reviewer"] or ""
            command = shlex.join(
                ("deed", "handoff", "approve", handoff["id"], *(("--as", reviewer) if reviewer else ()))
            )
            what = f"its imported file says approved, and it is {handoff['status']}"
            self._say(handoff["id"], sync.held_notice(handoff["id"], HeldEdit(what, reviewer, command)))

    def _agreed(self, handoff: dict[str, Any]) -> sync.FileState:
        """Return the stored state of a file; it is right even if a crash, or another save, came after the signing."""
        agreed = self._store.agreed(handoff["id"]) or sync.FileState()
        for index in [line["event_index"] for line in handoff["log"]] if agreed.event_id else ():
            if index > agreed.position and read_event(index, self._author.client.entry(index)).id == agreed.event_id:
                agreed = sync.FileState(agreed.asking, index, reported=agreed.reported)
                self._store.agree(handoff["id"], agreed)
        return agreed

    def _changed(self, handoff: dict[str, Any], agreed: sync.FileState, content: bytes, now: bytes) -> None:
        """Handle a file that equals neither the base nor the ledger's version."""
        id_ = handoff["id"]
        if agreed.examined == _digest(_CONFLICT_SHOWN, now) and read_file(self._beside(id_)) is None:
            # Somebody compared the two and deleted the ledger's version: treat the file as edited from that version.
            agreed = sync.FileState(now, handoff["updated_index"], _digest(_CONFLICT_SETTLED, now))
            self._store.agree(id_, agreed)
        is_settled = agreed.examined == _digest(_CONFLICT_SETTLED, now)
        plain, _ = split_remark(content)
        version = last_rendered(handoff, plain, self._author.client.entry, self._author.client.get_blob)
        base = agreed.base or self._first_base(handoff, plain) or self._present_base(handoff, plain, now)
        if version is not None and not is_settled:
            is_later = version > agreed.position
            if not agreed.base or is_later or not comparison.is_one_tick(parse(agreed.base), parse(plain)):
                self._write(handoff, now, content)
                return
        if not base:
            self._conflict(handoff, content, now)
            return
        if not agreed.base and _has_only_content(parse(plain)):
            self._write(handoff, now, content)  # a new file: its content is signed, and it has nothing else
            return
        if base.startswith(plain) and base != plain:
            self._say(id_, sync.Notice("unfinished", id_, "the file ends too early; it may still be being written"))
            return
        before, edited, ledger = parse(base), parse(plain), parse(now)
        is_unclear = not is_settled and comparison.looks_outdated(base=before, edited=edited)
        if is_unclear or comparison.are_in_conflict(base=before, edited=edited, ledger=ledger):
            self._conflict(handoff, content, now)
        else:
            self._edited(handoff, base, content, now)

    def _edited(self, handoff: dict[str, Any], base: bytes, content: bytes, now: bytes) -> None:
        """Sign the edits of the file, and write the ledger's changes into the file."""
        id_ = handoff["id"]
        plain, remark = split_remark(content)
        before, edited, ledger = parse(base), parse(plain), parse(now)
        agreed = self._store.agreed(id_)
        plan = self._plan(handoff, agreed, base=before, edited=edited, ledger=ledger)
        is_signed = bool(plan.steps or plan.amends)
        if is_signed:
            self._tell(sync.sign_plan(self._context, handoff, plan, base=before, edited=edited, ledger=ledger))
            handoff = self._answered(id_) or handoff
            now = file_now(handoff, self._template(handoff))
        if plan.amends:
            before = parse(comparison.with_progress_of(edited, before))
        target = comparison.merge(base=before, edited=edited, ledger=parse(now)) if plan.held else now
        typed = next((edit for edit in plan.held if edit.status), None)
        kept = None if typed else _kept(handoff, remark, before.content, target)
        if typed:
            target = with_status_of(target, now)
        target = self._remarked(handoff, target, typed or kept)
        if target != content and not write_file(self.path / file_name(id_), target, expected=content):
            return  # somebody saved it again meanwhile: the next check handles that edit
        if read_file(self._beside(id_)) == ledger.content:
            remove_file(self._beside(id_))
        reported = agreed.reported if agreed else ""
        self._store.agree(
            id_, sync.FileState(now, handoff["updated_index"], _digest(target, now) if target != now else "", reported)
        )
        if target != content and not is_signed:
            self._tell(sync.Notice("written", id_, file_name(id_)))
        held = (kept, *plan.held) if kept else plan.held
        self._say(id_, *(sync.held_notice(id_, edit) for edit in held))

    def _plan(
        self,
        handoff: dict[str, Any],
        agreed: sync.FileState | None,
        *,
        base: HandoffFile,
        edited: HandoffFile,
        ledger: HandoffFile,
    ) -> Plan:
        """Return the plan for an edited file. An edit that approves the handoff is held until a person confirms it."""
        standing = EditedHandoff.of(handoff, agreed.position if agreed else None)
        standing = standing._replace(file=str(self.path / file_name(handoff["id"])))
        files = {"base": base, "edited": edited, "ledger": ledger}
        if sync.approves(self._context, "handoff.amended", edited):
            command = sync.sign_command(self._context, handoff["id"])
            plan = plan_edits(standing._replace(sign_command=command), **files, acting=self._author.name)
            is_held = any(edit.command == command for edit in plan.held)
            if not is_held or not self._context.confirm(handoff["id"], edited.content):
                return plan
        return plan_edits(standing, **files, acting=self._author.name)

    def _adopt(self, id_: str, content: bytes) -> None:
        """Create the handoff of a new file whose sender is the acting agent."""
        file = parse(content)
        if not file.meta and file.status is None:
            return  # some other markdown file
        sender = self._context.agents().named(file.sender)
        if sender != self._author.name:
            path = self.path / file_name(id_)
            self._say(id_, sync.sender_notice(id_, "create this handoff", path, sender, self._author.client))
            return
        sync.named_agents(self._context, file)
        if sync.approves(self._context, "handoff.created", file) and not self._context.confirm(id_, content):
            edit = HeldEdit(f"create this handoff: {APPROVES}", sender, sync.sign_command(self._context, id_))
            self._say(id_, sync.held_notice(id_, edit))
            return
        self._tell(sync.sign_new(self._context, id_, file))
        self._reconcile(id_)

    def _first_base(self, handoff: dict[str, Any], content: bytes) -> bytes:
        """Return the base of a file that was never synchronised: the content that made its handoff, or nothing."""
        # A status or tick in a new file is an edit like any other; in an imported file it is a claim.
        template = self._template(handoff)
        is_new = handoff["importer"] is None and handoff["template_index"] == handoff["created_index"]
        if not is_new or template is None or content != template:
            return b""
        fresh = [{**task, "done": False} for task in handoff["tasks"]]
        unmet = [{**criterion, "mark": "open"} for criterion in handoff["criteria"]]
        status = "pending" if handoff["reviewer"] else "approved"
        return file_now(handoff | {"status": status, "tasks": fresh, "criteria": unmet, "log": []}, template)

    def _present_base(self, handoff: dict[str, Any], plain: bytes, now: bytes) -> bytes:
        """Return the base of a file that this agent never synchronised: the ledger's version, or nothing.

        With the ledger's version as the base, the differences are edits of other agents, which only those can sign.
        With nothing, a person must compare the two: if this agent could sign one of the edits, or if the file looks
        older than the ledger.
        """
        edited, ledger = parse(plain), parse(now)
        if comparison.looks_outdated(base=ledger, edited=edited):
            return b""
        standing = EditedHandoff.of(handoff)
        plan = plan_edits(standing, base=ledger, edited=edited, ledger=ledger, acting=self._author.name)
        return b"" if plan.steps or plan.amends else now

    def _conflict(self, handoff: dict[str, Any], content: bytes, now: bytes) -> None:
        """Put the ledger's version beside the file; once it is deleted, the file counts as edited from that version."""
        id_ = handoff["id"]
        beside = self._beside(id_)
        if read_file(beside) != now:
            write_file(beside, now)
        agreed = self._store.agreed(id_) or sync.FileState()
        self._store.agree(id_, agreed._replace(examined=_digest(_CONFLICT_SHOWN, now)))
        is_of_both = agreed.base not in (b"", now)
        what = "the file and the ledger both changed" if is_of_both else "the file differs from the ledger"
        text = f"{what}: compare with {beside.name}, merge, then delete it"
        self._say(id_, sync.Notice("conflict", id_, text, {"beside": beside.name}), about=now)

    def _write(self, handoff: dict[str, Any], now: bytes, expected: bytes | None) -> None:
        """Write the ledger's version, with the remark about a status that is not signed yet."""
        id_ = handoff["id"]
        plain, remark = (b"", "") if expected is None else split_remark(expected)
        kept = _kept(handoff, remark, plain, now)
        target = self._remarked(handoff, now, kept)
        if target != expected and not write_file(self.path / file_name(id_), target, expected=expected):
            return
        examined, reported = "", ""
        if kept:
            examined, reported = _digest(target, now), (self._store.agreed(id_) or sync.FileState()).reported
        self._store.agree(id_, sync.FileState(now, handoff["updated_index"], examined, reported))
        if target != expected:
            self._tell(sync.Notice("written", id_, file_name(id_)))
        if kept:
            self._say(id_, sync.held_notice(id_, kept))

    def _remarked(self, handoff: dict[str, Any], content: bytes, edit: HeldEdit | None) -> bytes:
        remarked = with_remark(content, edit.text if edit else "")
        return self._marked(handoff, remarked)

    def _marked(self, handoff: dict[str, Any], content: bytes) -> bytes:
        """Return a file with its marks; unchanged in a folder of signed files, which says only what is signed."""
        return content if self._context.is_signed else marked(self._answer, handoff, content)

    def _agree(self, handoff: dict[str, Any], now: bytes) -> None:
        agreed = sync.FileState(now, handoff["updated_index"])
        if self._store.agreed(handoff["id"]) != agreed:
            self._store.agree(handoff["id"], agreed)
        beside = self._beside(handoff["id"])
        if read_file(beside) == now:
            remove_file(beside)

    def _say(self, id_: str, *notices: sync.Notice, about: bytes = b"") -> None:
        """Report notices. Report those about undone work once a pass, and the others again only when they change."""
        said = json_text([hashlib.sha256(about).hexdigest(), [list(it) for it in notices]]) if notices else ""
        agreed = self._store.agreed(id_) or sync.FileState()
        if is_new := agreed.reported != said:
            self._store.agree(id_, agreed._replace(reported=said))
        self._tell_once(id_, said, notices, is_new=is_new)

    def _repeat(self, id_: str, agreed: sync.FileState) -> None:
        """Report again what was left undone with an unchanged file."""
        if agreed.reported:
            _, notices = read_json(agreed.reported, tuple[str, list[sync.Notice]])
            self._tell_once(id_, agreed.reported, notices, is_new=False)

    def _tell_once(self, id_: str, said: str, notices: Sequence[sync.Notice], *, is_new: bool) -> None:
        open_ = [notice for notice in notices if sync.is_open(notice) and not self._is_of_others(id_, notice)]
        left = list(notices) if is_new else open_
        if open_:
            self.left_undone.add(id_)
        if self._told.get(id_) != said:
            self._told[id_] = said
            for notice in left:
                self._tell(notice)

    def _is_of_others(self, id_: str, notice: sync.Notice) -> bool:
        """Return whether a file lacks the form of a handoff, and no handoff has its name.

        Such a file is reported once.
        """
        return notice.details.get("code") in {"INVALID_FORMAT", "TOO_LARGE"} and self._answered(id_) is None

    def _beside(self, id_: str) -> Path:
        return self.path / f"{id_}{CONFLICT}"

    def _answered(self, id_: str) -> dict[str, Any] | None:
        try:
            handoff = self._answer("handoffs.show", {"id": id_})
        except Refused as refusal:
            if refusal.code in ("NOT_FOUND", "REF_AMBIGUOUS"):
                return None
            raise
        return handoff if handoff["id"] == id_ else None

    def _template(self, handoff: dict[str, Any]) -> bytes | None:
        return template_of(handoff, self._author.client.get_blob)


def _kept(handoff: dict[str, Any], remark: str, before: bytes, after: bytes) -> HeldEdit | None:
    """Return the edit that the remark beside a status names, while the status is unchanged; else None."""
    if not remark:
        return None
    old, new = parse(before).status, parse(after).status
    return review_in(EditedHandoff.of(handoff), remark) if old and new and old.word == new.word else None


def _has_only_content(file: HandoffFile) -> bool:
    return file.status is None and not file.log and not any(box.is_checked for box in (*file.tasks, *file.criteria))


def _digest(content: bytes, now: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(content).digest() + now).hexdigest()
