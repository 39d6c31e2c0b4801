"""Finds the problems of a handoff file before a merge: statements that no signed entry supports, and unfinished work.

Pure. The caller has verified the signed file and computed ``handoffs.show`` from its entries.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from deedbook.consumers.handoffs.files.syntax.comparison import differences, matched
from deedbook.consumers.handoffs.files.syntax.document import Checkbox, HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import quoted
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.ledger.bundle.signed_file import SignedEntries
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.handoff_status import stage_of

Required: TypeAlias = Literal["approved", "completed", "verified"]
What: TypeAlias = Literal[
    "open", "unapproved", "unverified", "edited", "missing", "removed", "invalid", "shortened", "root", "gate"
]
_UNFINISHED: Final = frozenset({"open", "unapproved", "unverified"})
_LABELS: Final = {
    "sender": "From",
    "depends_on": "Depends-on",
    "reasoning_refs": "Reasoning",
    "criteria": "Acceptance Criteria",
    "notes": "Receiver Notes",
}
edits_listed_max: Final = 20


class FileProblem(NamedTuple):
    """A reason not to merge a file: its line, and the command that solves it, here or on the machine of the ledger."""

    what: What
    file: str
    line: int
    text: str
    next: str
    is_at_ledger: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether somebody still has to act. If not, the files differ from the signed entries."""
        return self.what in _UNFINISHED


def edit_problems(file: str, content: bytes, now: bytes, following: str) -> list[FileProblem]:
    """Return how a handoff file differs from ``now``, the file of its signed entries.

    ``following`` names the command that writes it.
    """
    if content == now:
        return []
    try:
        edits = list(_edits(parse(content), parse(now)))
    except Refused as refusal:
        edits = [(refusal.details.get("line") or 1, refusal.message)]
    if not edits:
        pairs = zip(content.splitlines(), now.splitlines(), strict=False)
        same = sum(1 for _ in _while_equal(pairs))
        edits = [(same + 1, "this line is not as the signed entries give it")]
    shown = sorted(set(edits))[:edits_listed_max]
    return [FileProblem("edited", file, line, text, following) for line, text in shown]


def _while_equal(pairs: Any) -> Iterator[None]:
    for left, right in pairs:
        if left != right:
            return
        yield


def _edits(edited: HandoffFile, now: HandoffFile) -> Iterator[tuple[int, str]]:
    edits = differences(now, edited)
    if edits.status is not None and edited.status is not None:
        signed = now.status.word if now.status else "none"
        yield edited.status.line, f"the status is {quoted(edits.status)}, and the signed entries say {signed}"
    lists = (
        ("task", edits.tasks, now.tasks, edited.tasks),
        ("criterion", edits.criteria, now.criteria, edited.criteria),
    )
    for label, ticks, before, after in lists:
        for position, is_checked in ticks.items():
            what = (
                "is ticked, and nobody signed that" if is_checked else "is not ticked, and the signed entries say it is"
            )
            yield _line_of(position, before, after), f"{label} {position + 1} {what}"
    for position, evidence in edits.evidence.items():
        what = "has evidence that nobody signed" if evidence else "lacks its signed evidence"
        line = _line_of(position, now.criteria, edited.criteria) + (1 if evidence else 0)
        yield line, f"criterion {position + 1} {what}"
    for added in edits.log:
        yield added.line, "no signed entry has this line of the log"
    section = edited.section("Log")
    for gone in edits.gone:
        text = quoted(f"{gone.day or ''} [{gone.author or ''}] {gone.text}".strip())
        yield (section.start + 1 if section else len(edited.lines)), f"the log lacks a signed line: {text}"
    for name in edits.fields:
        label = _LABELS.get(name, name.capitalize())
        entry, section = edited.entry(label), edited.section(label)
        line = edited.title_line if entry is None else entry.line
        yield (line if section is None else section.start + 1), f"{label} is not as it was signed"


def _line_of(position: int, before: tuple[Checkbox, ...], after: tuple[Checkbox, ...]) -> int:
    places = {old: new for new, old in matched(before, after).items()}
    return after[places[position]].line if position in places else 1


def history_problems(file: str, before: SignedEntries, after: SignedEntries, following: str) -> list[FileProblem]:
    """Return the problem if the later signed file lacks entries of the earlier one, or has different ones."""
    changed = [index for index, data in before.entries.items() if after.entries.get(index) != data]
    if not changed and after.size >= before.size:
        return []
    which = f"{len(changed)} of {len(before.entries)} entries, first entry {changed[0]}" if changed else "a later head"
    text = f"the base has {which}, and this file does not"
    return [FileProblem("shortened", file, 1, text, following, is_at_ledger=True)]


def state_problems(
    file: str, line: int, handoff: dict[str, Any], required: Required, accepted: Collection[str] = ()
) -> list[FileProblem]:
    """Return what a handoff (an answer of ``handoffs.show``) lacks to be in the required status.

    A handoff that ended in another status, such as ``cancelled``, can never reach it. It counts as a problem unless
    that status is in ``accepted``: else its sender could avoid a review by cancelling it.
    """
    id_, status = handoff["id"], handoff["status"]
    reviewer, receiver = handoff["reviewer"] or handoff["from"], handoff["to"]
    if status == "pending":
        what = (
            "nobody here has confirmed the imported file" if handoff["claimed_status"] is not None else "not approved"
        )
        text = f"it is pending: {what} (version {handoff['version'][:19]})"
        command = _command("approve", id_, "--version", handoff["version"], "--as", reviewer)
        return [FileProblem("unapproved", file, line, text, command, is_at_ledger=True)]
    if status in ("verified", required, *accepted):
        return []
    if stage_of(status) == "over":
        text = f"it is {status}, and {required} is required (or --accept {status})"
        return [FileProblem("open", file, line, text, _command("show", id_), is_at_ledger=True)]
    if required == "approved":
        return []
    if status == "completed":
        text = f"nobody verified its result {handoff['result'][:19]}"
        command = _command("verify", id_, "--result", handoff["result"], "--as", reviewer)
        return [FileProblem("unverified", file, line, text, command, is_at_ledger=True)]
    verb = {"approved": "claim", "blocked": "unblock"}.get(status, "complete")
    text = f"it is {status}, and {required} is required"
    return [FileProblem("open", file, line, text, _command(verb, id_, "--as", receiver), is_at_ledger=True)]


def _command(*words: str | None) -> str:
    return shlex.join(("deed", "handoff", *(word or "NAME" for word in words)))
