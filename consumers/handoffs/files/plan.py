"""The plan for an edited file: the events that the acting agent signs, and the edits that another agent must make.

Pure. An edit that means approve, reject, verify or request changes is never signed here: it is held, like every edit
that the acting agent may not make. A change of the content of a handoff without a reviewer is held, too, because its
sender's signature would approve it. A plan that is made again after a crash repeats nothing.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deedbook.consumers.handoffs.files.syntax.comparison import (
    Edits,
    differences,
    is_text_changed,
    moved,
    with_progress_of,
)
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile, LogLine
from deedbook.consumers.handoffs.files.syntax.lines import apply_edits, join_lines
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import Progress, render, replace_at
from deedbook.consumers.handoffs.operations import OPERATIONS, REVIEWS, Verb, hint, path_between, verb_setting
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.lifecycle.handoff_status import Status

_BULLET: Final = re.compile(r"[-*+][ \t]+")
_EVIDENCE: Final = re.compile(r"\S+ \[([^\]]*)\] (met|waived): (.+)")
_SET_STATUS: Final = "set the status to "
_BRACKETS: Final = " ()（）[]—-:：,，"


_OF_REVIEWS: Final = frozenset(status for verb in REVIEWS if (status := OPERATIONS[verb].leads)) - {"in_progress"}
# The operation that brings a handoff closer to the status in which its receiver may tick.
_BEFORE_TICKS: Final[dict[str, Verb]] = {
    "pending": "approve",
    "approved": "claim",
    "blocked": "unblock",
    "completed": "request_changes",
}
APPROVES: Final = "it names no reviewer, so this would approve it (or name one after `Reviewer:`)"


class HeldEdit(NamedTuple):
    """An edit that is not signed: ``what`` it is, ``who`` may make it, and the ``command`` for it.

    ``status`` is set if the edit is a review by its status. No watcher signs such an edit, so it does not stay in the
    file.
    """

    what: str
    who: str
    command: str
    status: str = ""

    @property
    def text(self) -> str:
        """The edit, and who must run which command."""
        return f"{self.what}: {self.who or 'somebody'} must run {self.command}"


class Plan(NamedTuple):
    """The events to sign, in order; whether the file becomes a new template (``amends``); and the held edits."""

    steps: tuple[EventData, ...]
    amends: bool
    held: tuple[HeldEdit, ...]


class EditedHandoff(NamedTuple):
    """The edited handoff: its id, its parties, and its status in the ledger.

    ``sign_command`` is the command with which the sender signs a change that approves the handoff; empty if no change
    approves it. ``news`` lists its events since file and ledger last agreed, as kinds with authors. ``claimed`` are the
    criteria that only an imported file ticked. ``importer`` is set until a reviewer here confirms the handoff.
    ``file`` is the path of its file.
    """

    id: str
    senders: tuple[str, ...]
    receiver: str
    reviewer: str
    status: Status
    news: tuple[tuple[str, str], ...] = ()
    claimed: tuple[int, ...] = ()
    importer: str | None = None
    sign_command: str = ""
    file: str = ""

    @classmethod
    def of(cls, handoff: dict[str, Any], position: int | None = None) -> EditedHandoff:
        """Return the handoff of a view's row, with its news after the index ``position``."""
        senders = tuple(name for name in (handoff["from"], handoff["importer"]) if name)
        log = () if position is None else handoff["log"]
        return cls(
            handoff["id"],
            senders,
            handoff["to"],
            handoff["reviewer"] or (senders[0] if senders else ""),
            handoff["status"],
            news=tuple((line["kind"], line["author"]) for line in log if line["event_index"] > (position or 0)),
            claimed=tuple(row["position"] for row in handoff.get("criteria", ()) if row["mark"] == "claimed"),
            importer=handoff["importer"] if handoff["claimed_status"] is not None else None,
        )


def plan_edits(
    handoff: EditedHandoff, *, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile, acting: str
) -> Plan:
    """Return the plan for the edits from ``base`` to ``edited`` that the ledger's version (``ledger``) lacks."""
    reason = _reason(edited, ledger)
    planner = _Planner(handoff, acting, reason)
    edits = differences(base, edited)
    if handoff.importer is not None:
        planner.hold_import(edits)
        return planner.plan()
    plain = _without_reason(edited, base) if reason and edits.status else edited
    if is_text_changed(base, plain) and is_text_changed(ledger, plain):
        planner.amend(differences(base, plain))
    verbs = planner.verbs_for(edits.status)
    planner.take(verbs, begins=True)
    if planner.amends:
        after = parse(with_progress_of(plain, ledger))
        planner.tick(differences(after, plain), after, after, verbs)
    else:
        planner.tick(edits, base, ledger, verbs)
    planner.take(verbs, begins=False)
    # A line that the ledger wrote in another form is not logged again: the person who edited the file may not have seen
    # the new form.
    known = (
        Counter(map(_entry_of, ledger.log)) - Counter(map(_entry_of, base.log)) + Counter(map(_entry_of, edits.gone))
    )
    planner.log(edits.log, known)
    return planner.plan()


def review_in(handoff: EditedHandoff, remark: str) -> HeldEdit | None:
    """Return the edit that a remark in a file is about; None if the remark names no review.

    Anybody who can write the file can write a remark, and people run the command in it. So only the status is read from
    it, and the rest is computed again.
    """
    named = re.match(rf"{_SET_STATUS}([a-z_]+)", remark)
    planner = _Planner(handoff, acting="", reason="")
    if named is not None and handoff.importer is None:
        planner.verbs_for(named[1])
    return next((edit for edit in planner.plan().held if edit.status), None)


def base_after(plan: Plan, *, base: HandoffFile, ledger: HandoffFile) -> bytes:
    """Return ``base`` with the status and ticks of a plan: the file's base once these are signed."""
    status: str | None = None
    tasks: dict[int, bool] = {}
    criteria: dict[int, bool] = {}
    for step in () if plan.amends else plan.steps:
        match step:
            case kinds.HandoffTaskChecked():
                tasks |= moved({step.position: step.checked}, ledger.tasks, base.tasks)
            case kinds.HandoffCriterionChecked():
                criteria |= moved({step.position: step.checked}, ledger.criteria, base.criteria)
            case _:  # the operations that set a status, and lines of the log
                status = next(
                    (row.leads for row in OPERATIONS.values() if type(step) in row.signs and row.leads), status
                )
    return render(base, Progress(status=status, tasks=tasks, criteria=criteria))


def reason_in(text: str) -> str:
    """Return the text beside a status, without its brackets or dashes."""
    return text.strip(_BRACKETS)


class _Planner:
    def __init__(self, handoff: EditedHandoff, acting: str, reason: str) -> None:
        self._handoff = handoff
        self._acting = acting
        self._reason = reason
        self._done = Counter(kind for kind, author in handoff.news if author == acting)
        self._steps: list[EventData] = []
        self._held: list[HeldEdit] = []
        self.amends = False

    def plan(self) -> Plan:
        """Return the plan."""
        return Plan(tuple(self._steps), self.amends, tuple(self._held))

    def hold_import(self, edits: Edits) -> None:
        """Hold the edits of an imported file that nobody here confirmed: its importer must import the file again."""
        if edits != Edits(None, {}, {}, (), (), is_content_changed=False, fields=()):
            name = self._handoff.importer or ""
            command = shlex.join(
                ("deed", "handoff", "import", self._handoff.file or f"{self._handoff.id}.md", "--as", name)
            )
            self._held.append(HeldEdit("import the file again", name, command))

    def _step(self, data: EventData) -> bool:
        """Plan the step, unless the acting agent already signed it: before a crash, or by a command."""
        kind = KIND_OF[type(data)]
        if self._done[kind]:
            self._done[kind] -= 1
            return False
        self._steps.append(data)
        return True

    def amend(self, edits: Edits) -> None:
        """Plan the sender's change of the content, before work begins; hold a change by anybody else."""
        text = "change " + (", ".join(edits.fields) if edits.fields else "the text")
        if "sender" in edits.fields:
            text += " (From names the signer and cannot change)"
        elif self._handoff.status not in ("pending", "approved"):
            text += f" (it is {self._handoff.status}: content can only change before work begins)"
            self._hold(text, (self._handoff.receiver,), "release" if self._handoff.status == "in_progress" else "why")
            return
        elif self._acting in self._handoff.senders:
            if self._handoff.sign_command:
                self._held.append(HeldEdit(f"{text}: {APPROVES}", self._acting, self._handoff.sign_command))
            else:
                self.amends = True
            return
        elif self._handoff.file and self._handoff.senders:  # the sender's watcher signs exactly this edit
            folder, sender = self._handoff.file.rpartition("/")[0] or ".", self._handoff.senders[0]
            command = shlex.join(("deed", "handoff", "watch", folder, "--once", "--as", sender))
            self._held.append(HeldEdit(text, sender, command))
            return
        self._hold(text, self._handoff.senders[:1], hint("amend"))

    def verbs_for(self, status: str | None) -> tuple[Verb, ...]:
        """Return the receiver's operations that lead to the edited status; hold every other change of status."""
        now = self._handoff.status
        if status is None or status == now:
            return ()
        text = f"{_SET_STATUS}{status}"
        if steps := path_between(now, status):
            needs_reason = any(argument.is_needed for verb in steps for argument in OPERATIONS[verb].arguments)
            if self._acting == self._handoff.receiver and (self._reason or not needs_reason):
                return steps
            self._hold(text, (self._handoff.receiver,), hint(steps[-1]))
            return ()
        verb = verb_setting(now, status)
        of_review = status if status in _OF_REVIEWS else ""
        if verb is None:
            self._hold(f"{text}, which cannot follow {now}", (), "why", of_review)
        elif verb in REVIEWS:
            self._hold(text, (self._handoff.reviewer,), hint(verb), of_review)
        elif verb == "cancel" and self._acting in self._handoff.senders and self._reason:
            self._step(kinds.HandoffCancelled(reason=self._reason))
        else:
            self._hold(text, self._handoff.senders[:1], hint(verb))
        return ()

    def take(self, verbs: tuple[Verb, ...], *, begins: bool) -> None:
        """Plan the start of the work, before the ticks (``begins``), or its release, block or completion after them."""
        for verb in verbs:
            if (OPERATIONS[verb].leads == "in_progress") == begins:
                # With two steps, the text beside the status is about the last one.
                self._take(verb, self._reason if verb == verbs[-1] else "")

    def tick(self, edits: Edits, base: HandoffFile, ledger: HandoffFile, verbs: tuple[Verb, ...]) -> None:
        """Plan the changed ticks; the positions in ``edits`` are those of ``base``."""
        works = "in_progress" in (self._handoff.status, *(OPERATIONS[verb].leads for verb in verbs))
        may = self._acting == self._handoff.receiver and works
        tasks = moved(edits.tasks, base.tasks, ledger.tasks)
        criteria = moved(edits.criteria, base.criteria, ledger.criteria)
        evidence = moved(edits.evidence, base.criteria, ledger.criteria)
        for label, data, ticks, boxes in (
            ("task", kinds.HandoffTaskChecked, tasks, ledger.tasks),
            ("criterion", kinds.HandoffCriterionChecked, criteria, ledger.criteria),
        ):
            for position, checked in ticks.items():
                if position >= len(boxes) or boxes[position].is_checked == checked:
                    continue
                if not may:
                    self._hold_tick(label, position, checked=checked)
                    continue
                own = self._own_evidence(evidence.get(position, "")) if label == "criterion" and checked else ""
                if own or not checked:
                    evidence.pop(position, None)
                self._steps.append(data(position=position, checked=checked, evidence=own))
        self._give_evidence({at: text for at, text in evidence.items() if at < len(ledger.criteria)}, ledger, may=may)
        if may and "complete" in verbs:
            # An imported tick is only a claim; a receiver who completes the work with it in the file confirms it.
            for position in self._handoff.claimed:
                if criteria.get(position, True):
                    self._steps.append(kinds.HandoffCriterionChecked(position=position))

    def _give_evidence(self, evidence: Mapping[int, str], ledger: HandoffFile, *, may: bool) -> None:
        """Plan the receiver's evidence for ticked criteria, and hold every other change of a line of evidence."""
        for position, text in evidence.items():
            box, typed = ledger.criteria[position], _EVIDENCE.fullmatch(text)
            known = _EVIDENCE.fullmatch(box.evidence)
            if box.evidence == text or (typed and known and typed.groups() == known.groups()):
                continue  # only the date differs, which the ledger wrote
            own = self._own_evidence(text)
            if may and own and box.is_checked:
                self._steps.append(kinds.HandoffCriterionChecked(position=position, evidence=own))
            elif typed and typed[2] == "waived":
                command = f"waive --criterion {position + 1} --reason {shlex.quote(typed[3])}"
                self._hold(f"waive criterion {position + 1}", (self._handoff.reviewer,), command)
            else:
                command = f"check --criterion {position + 1} --evidence {shlex.quote(typed[3] if typed else 'TEXT')}"
                self._hold(f"change the evidence of criterion {position + 1}", (self._handoff.receiver,), command)

    def _own_evidence(self, text: str) -> str:
        """Return the evidence from a line which says that the acting agent met a criterion; else an empty text."""
        line = _EVIDENCE.fullmatch(text)
        return line[3] if line and line[1] == self._acting and line[2] == "met" else ""

    def _take(self, verb: Verb, reason: str) -> None:
        """Plan a step with the text beside the status as its reason; if the step takes no text, log that text."""
        (data,) = OPERATIONS[verb].signs
        names = [argument.name for argument in OPERATIONS[verb].arguments if argument.form == "text"]
        text = next((name for name in names if name in data.__struct_fields__), None)
        is_new = self._step(data() if text is None else data(**{text: reason}))
        if is_new and text is None and reason:
            self._steps.append(kinds.HandoffLogged(text=reason))

    def log(self, added: tuple[LogLine, ...], known: Counter[tuple[str | None, str]]) -> None:
        """Plan the added log lines that the ledger lacks; a line without a name is the receiver's."""
        parties = (*self._handoff.senders, self._handoff.receiver, self._handoff.reviewer)
        for line in added:
            author, text = line.author or self._handoff.receiver, _plain_text(line.text)
            if known[author, text]:
                known[author, text] -= 1
            elif not text:
                continue
            elif author == self._acting and self._acting in parties:
                self._steps.append(kinds.HandoffLogged(text=text))
            else:
                hint = "" if line.author else f" (or write [{self._acting}] before it)"
                # Somebody may have written any text as the name, and the command is for a shell.
                who = author if re.match(NAME_PATTERN, author) else "NAME"
                self._hold(f"log {text!r}{hint}", (who,), f"log {shlex.quote(text)}")

    def _hold_tick(self, label: str, position: int, *, checked: bool) -> None:
        text = f"{'tick' if checked else 'untick'} {label} {position + 1}"
        verb = _BEFORE_TICKS.get(self._handoff.status)
        if self._handoff.status == "in_progress":
            undo = "" if checked else " --undo"
            self._hold(text, (self._handoff.receiver,), f"check --{label} {position + 1}{undo}")
        elif verb is None:
            self._hold(f"{text} (it is {self._handoff.status}, so its ticks stay as they are)", (), "why")
        else:
            who = self._handoff.reviewer if verb in REVIEWS else self._handoff.receiver
            self._hold(f"{text} (it is {self._handoff.status})", (who,), hint(verb))

    def _hold(self, what: str, who: tuple[str, ...], command: str, status: str = "") -> None:
        name = who[0] if who and who[0] else self._handoff.reviewer
        verb, _, options = command.partition(" ")
        line = f"deed handoff {verb} {shlex.quote(self._handoff.id)}" + (f" {options}" if options else "")
        self._held.append(HeldEdit(what, name, line if verb == "why" else f"{line} --as {name}", status))


def _reason(edited: HandoffFile, ledger: HandoffFile) -> str:
    if edited.status is None or (ledger.status is not None and edited.status.rest == ledger.status.rest):
        return ""  # the same text as before is no reason for this change
    return reason_in(edited.status.rest)


def _without_reason(edited: HandoffFile, base: HandoffFile) -> HandoffFile:
    """Return the edited file without the text beside its status, which goes into the event."""
    if edited.status is None or base.status is None:
        return edited
    column = edited.status.column + len(edited.status.written)
    line = edited.lines[edited.status.line - 1].rstrip("\r\n")
    edit = replace_at(edited, edited.status.line, column, line[column:], base.status.rest)
    return parse(join_lines(apply_edits(edited.lines, [edit]), has_mark=edited.has_mark))


def _plain_text(text: str) -> str:
    """Return a log line's text as the ledger writes it."""
    return " ".join(_BULLET.sub("", text, count=1).split() if _BULLET.match(text) else text.split())


def _entry_of(line: LogLine) -> tuple[str | None, str]:
    return line.author, _plain_text(line.text)
