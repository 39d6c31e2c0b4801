"""One folder of handoff files kept in step with the ledger, one handoff at a time.

For each handoff three versions are compared: the one on which file and ledger last agreed, the file as it is, and the
file as the ledger would write it now. What only the ledger changed is written; what only the file changed is signed
as the acting agent, where it is his to sign; what is not stays in the file and is told, once, with the command to run.
A file that both changed in its text is never overwritten: the ledger's version is put beside it. An older version that
came back (from version control, say) is nobody's edit, and is brought up to date.

What happens if we crash here: sign → write → remember, in this order. A plan made again asks only for what the ledger
lacks, so after a kill at any point nothing is lost and nothing is signed twice.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.handoffs.content import amended, content_from
from consumers.handoffs.files.mapping import content_of_file, file_name, file_now, last_rendered, name_of
from consumers.handoffs.files.plan import Plan, Standing, plan_edits
from consumers.handoffs.files.sync import Agreed, Keeper, Told, held_told, left_to_sender, refusal_told
from consumers.handoffs.files.syntax.active_table import is_active_table
from consumers.handoffs.files.syntax.comparison import (
    are_in_conflict,
    is_one_tick,
    looks_outdated,
    merge,
    with_progress_of,
)
from consumers.handoffs.files.syntax.document import HandoffFile
from consumers.handoffs.files.syntax.parser import parse
from consumers.handoffs.files.table_folder import TableFolder
from consumers.sdk.files import read_file, remove_file, write_file
from ledger.author import Author, Draft, kind_of
from ledger.errors import Refused, Unavailable
from ledger.events.handoff import HandoffCreated
from projections.handoffs.files import TABLE_FORMAT

CONFLICT: Final = ".ledger.md"
_CONFLICT_SHOWN: Final = b"conflict"
_CONFLICT_SETTLED: Final = b"settled"
tries_max: Final = 5


class Folder:
    """A folder in step with a ledger, by the hand of one agent.

    ``refused`` are the handoffs whose edits the ledger refused: what it refuses may be allowed after other events.
    """

    def __init__(self, keeper: Keeper) -> None:
        """Keep the folder of ``keeper`` in step, as his author."""
        self.path, self._author, self._answer, self._store, self._tell, self._reviewer = keeper
        self.refused: set[str] = set()
        self._tables = TableFolder(keeper)

    def reconcile(self, id_: str) -> None:
        """Bring one handoff's file and the ledger into step, as far as both sides may be changed here.

        Raises:
            Unavailable: the ledger, the store or the folder cannot be used; call again.
        """
        self.refused.discard(id_)
        for _ in range(tries_max):
            try:
                self._reconcile(id_)
            except Refused as refusal:
                if refusal.code == "STREAM_CONFLICT":
                    continue  # the handoff went on meanwhile: look at it again
                self.refused.add(id_)
                self._say(id_, refusal_told(id_, refusal))
            return

    def _reconcile(self, id_: str) -> None:
        if f"{id_}.md".endswith(CONFLICT):
            raise Refused("INVALID_FIELD", f"the name {file_name(id_)} is kept for versions beside a file")
        content = read_file(self.path / file_name(id_))
        if content is None and not self.path.is_dir():
            raise Unavailable("STORE_UNAVAILABLE", f"the folder {self.path} is gone", path=str(self.path))
        if content is not None and is_active_table(content):
            self._tables.reconcile(file_name(id_), content)
            return
        shown = self._shown(id_)
        if content is None and self._tables.reconcile_row(id_):
            return
        if shown is None:
            if content is not None:
                self._adopt(id_, content)
        elif content is not None or shown["format"] != TABLE_FORMAT:
            self._compare(shown, file_now(shown, self._skeleton(shown)), content)

    def _compare(self, shown: dict[str, Any], now: bytes, content: bytes | None) -> None:
        id_ = shown["id"]
        agreed = self._store.agreed(id_) or Agreed()
        if content is None:
            if agreed.base:
                command = shlex.join(("baton", "handoff", "render", id_, "--out", str(self.path / file_name(id_))))
                self._say(id_, Told("deleted", id_, f"restore it: {command}"))
            else:
                self._write(shown, now, None)
        elif content == now:
            self._agree(shown, now)
        elif content == agreed.base:
            self._write(shown, now, content)
        elif agreed.seen != _digest(content, now):
            self._changed(shown, agreed, content, now)

    def _changed(self, shown: dict[str, Any], agreed: Agreed, content: bytes, now: bytes) -> None:
        """Look at a file that is neither what it was nor what it should be."""
        id_ = shown["id"]
        if agreed.seen == _digest(_CONFLICT_SHOWN, now) and read_file(self._beside(id_)) is None:
            # Who deletes it has compared: from here on, the file counts as edited from the version that was shown.
            agreed = Agreed(now, shown["updated_index"], _digest(_CONFLICT_SETTLED, now))
            self._store.agree(id_, agreed)
        is_settled = agreed.seen == _digest(_CONFLICT_SETTLED, now)
        version = last_rendered(shown, content, self._author.client.entry, self._author.client.get_blob)
        base = agreed.base or self._first_base(shown, content)
        if version is not None and not is_settled:
            is_later = version > agreed.position
            if not agreed.base or is_later or not is_one_tick(parse(agreed.base), parse(content)):
                self._write(shown, now, content)
                return
        if not base:
            self._conflict(shown, content, now)
            return
        if base.startswith(content):
            self._say(id_, Told("unfinished", id_, "the file ends too early: is it still being written?"))
            return
        before, edited, ledger = parse(base), parse(content), parse(now)
        is_unclear = not is_settled and looks_outdated(base=before, edited=edited)
        if is_unclear or are_in_conflict(base=before, edited=edited, ledger=ledger):
            self._conflict(shown, content, now)
        else:
            self._edited(shown, base, content, now)

    def _edited(self, shown: dict[str, Any], base: bytes, content: bytes, now: bytes) -> None:
        """Sign what the file asks for, and write what the ledger has to add."""
        id_ = shown["id"]
        before, edited, ledger = parse(base), parse(content), parse(now)
        agreed = self._store.agreed(id_)
        standing = Standing.of(shown, agreed.position if agreed else None)
        plan = plan_edits(standing, base=before, edited=edited, ledger=ledger, acting=self._author.name)
        is_signed = bool(plan.steps or plan.amends)
        if is_signed:
            told = sign_plan(self._author, shown, plan, edited=edited, ledger=ledger, reviewer=self._reviewer)
            self._tell(told)
            shown = self._shown(id_) or shown
            now = file_now(shown, self._skeleton(shown))
        if plan.amends:
            before = parse(with_progress_of(edited, before))
        target = merge(base=before, edited=edited, ledger=parse(now)) if plan.held else now
        if target != content and not write_file(self.path / file_name(id_), target, expected=content):
            return  # somebody saved it again meanwhile: that is the edit to look at, on the same base
        if read_file(self._beside(id_)) == ledger.content:
            remove_file(self._beside(id_))
        said = agreed.said if agreed else ""
        self._store.agree(id_, Agreed(now, shown["updated_index"], _digest(target, now) if plan.held else "", said))
        if target != content and not is_signed:
            self._tell(Told("written", id_, file_name(id_)))
        self._say(id_, *(held_told(id_, one) for one in plan.held))

    def _adopt(self, id_: str, content: bytes) -> None:
        """Create the handoff of a new file, if it is from the acting agent."""
        file = parse(content)
        if not file.meta and file.status is None:
            return  # some other markdown file
        sender = name_of(file.sender)
        if sender != self._author.name:
            path = self.path / file_name(id_)
            self._say(id_, left_to_sender(id_, "hand this over", path, sender, self._author.client))
            return
        self._tell(sign_new(self._author, id_, file, reviewer=self._reviewer))
        self._reconcile(id_)

    def _first_base(self, shown: dict[str, Any], content: bytes) -> bytes:
        """Return what a file that was never in step stands on: what its handoff was made of, or nothing known.

        A status or tick in a new file is an edit like any other; in an imported one it is a claim that the ledger has.
        """
        skeleton = self._skeleton(shown)
        is_new = shown["importer"] is None and shown["skeleton_index"] == shown["created_index"]
        if not is_new or skeleton is None or content != skeleton:
            return b""
        fresh = [{**one, "done": False} for one in shown["tasks"]]
        unmet = [{**one, "mark": "open"} for one in shown["criteria"]]
        status = "pending" if shown["reviewer"] else "approved"
        return file_now(shown | {"status": status, "tasks": fresh, "criteria": unmet, "log": []}, skeleton)

    def _conflict(self, shown: dict[str, Any], content: bytes, now: bytes) -> None:
        """Put the ledger's version beside the file; once it is gone, the file counts as edited from that version."""
        id_ = shown["id"]
        beside = self._beside(id_)
        if read_file(beside) != now:
            write_file(beside, now)
        agreed = self._store.agreed(id_) or Agreed()
        self._store.agree(id_, agreed._replace(seen=_digest(_CONFLICT_SHOWN, now)))
        text = f"file and ledger both changed: compare {beside.name}, then delete it"
        self._say(id_, Told("conflict", id_, text, {"beside": beside.name}), about=now)

    def _write(self, shown: dict[str, Any], now: bytes, expected: bytes | None) -> None:
        id_ = shown["id"]
        if write_file(self.path / file_name(id_), now, expected=expected):
            self._store.agree(id_, Agreed(now, shown["updated_index"]))
            self._tell(Told("written", id_, file_name(id_)))

    def _agree(self, shown: dict[str, Any], now: bytes) -> None:
        agreed = Agreed(now, shown["updated_index"])
        if self._store.agreed(shown["id"]) != agreed:
            self._store.agree(shown["id"], agreed)
        beside = self._beside(shown["id"])
        if read_file(beside) == now:
            remove_file(beside)

    def _say(self, id_: str, *told: Told, about: bytes = b"") -> None:
        """Tell what is left undone, once for as long as it is the same."""
        said = hashlib.sha256(repr(told).encode() + about).hexdigest() if told else ""
        agreed = self._store.agreed(id_) or Agreed()
        if agreed.said != said:
            self._store.agree(id_, agreed._replace(said=said))
            for one in told:
                self._tell(one)

    def _beside(self, id_: str) -> Path:
        return self.path / f"{id_}{CONFLICT}"

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


def _digest(content: bytes, now: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(content).digest() + now).hexdigest()


events_in_submission_max: Final = 128
reason_for_amending: Final = "edited in its file"


def sign_plan(
    author: Author,
    shown: dict[str, Any],
    plan: Plan,
    *,
    edited: HandoffFile,
    ledger: HandoffFile,
    reviewer: str | None,
) -> Told:
    """Sign a plan on the handoff as it was shown; ``reviewer`` reviews what names nobody.

    Raises:
        Refused: ``STREAM_CONFLICT`` when it went on meanwhile, or whatever the ledger refuses.
        Unavailable: the ledger cannot be used.
    """
    steps = list(plan.steps)
    if plan.amends:
        skeleton = author.client.put_blob(with_progress_of(edited, ledger))
        content = content_of_file(edited, skeleton=skeleton, reviewer=reviewer)
        kept = {name: shown[name] for name in ("unlock_at", "answers", "reasoning_ref")}
        changes = msgspec.structs.asdict(content) | kept | {"created": content.created or shown["created"]}
        steps.insert(0, amended(content_from(shown), changes, reason_for_amending))
    # Each event of a handoff is one line of its log: so many, and the stream is at that version.
    version = len(shown["log"])
    stream = f"handoff/{shown['id']}"
    drafts = [Draft(stream=stream, data=data, expect=version + n) for n, data in enumerate(steps)]
    return _signed(author, shown["id"], drafts)


def sign_new(author: Author, id_: str, file: HandoffFile, *, reviewer: str | None) -> Told:
    """Hand over what a new file describes.

    Raises:
        Refused: the file names no receiver, or the ledger refuses it. Unavailable: the ledger cannot be used.
    """
    skeleton = author.client.put_blob(file.content)
    fields = msgspec.structs.asdict(content_of_file(file, skeleton=skeleton, reviewer=reviewer))
    if fields["to"] is None:
        raise Refused("INVALID_FIELD", "the file names nobody in `To:`, or nobody that an agent can be called")
    return _signed(author, id_, [Draft(stream=f"handoff/{id_}", data=HandoffCreated(**fields), expect=0)])


def _signed(author: Author, id_: str, drafts: Sequence[Draft]) -> Told:
    indexes: list[int] = []
    for start in range(0, len(drafts), events_in_submission_max):
        accepted = author.emit(*drafts[start : start + events_in_submission_max])
        indexes += [one.index for one in accepted]
    kinds = [kind_of(draft) for draft in drafts]
    return Told("signed", id_, ", ".join(kinds), {"kinds": kinds, "indexes": indexes})
