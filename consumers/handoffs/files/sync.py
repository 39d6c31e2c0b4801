"""The parts of synchronising a folder: the context, the stored state, the signing and the notices.

The state is in one SQLite file for each folder and acting agent. Losing it loses no work: if a file differs from the
ledger, the ledger's version is written beside it, and nothing is signed until somebody has compared the two. If we
crash while signing, each submission is in the log completely or not at all. The next plan has only the rest.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.handoffs.agent_names import AgentNames, read_agents
from deedbook.consumers.handoffs.composition import amended
from deedbook.consumers.handoffs.files.mapping import content_from, content_of_file, name_problems, reviewer_of
from deedbook.consumers.handoffs.files.plan import HeldEdit, Plan, base_after
from deedbook.consumers.handoffs.files.syntax.comparison import with_progress_of
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Author, Draft, kind_of
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.format.envelope import commitment_to, event_id
from deedbook.ledger.lifecycle.rules import needs_identity_key

events_in_submission_max: Final = 128
reason_for_amending: Final = "edited in its file"


class Notice(NamedTuple):
    """A message about a file: what happened or was left undone, the handoff's id, and the text."""

    what: str
    id: str
    text: str
    details: dict[str, Any] = {}


def refusal_notice(id_: str, refusal: Refused) -> Notice:
    """Return the notice about a file that the ledger refused or that has an invalid form."""
    line = refusal.details.get("line")
    where = f"line {line}: " if line else ""
    return Notice("refused", id_, f"{where}{refusal.code}: {refusal.message}", {"code": refusal.code, "line": line})


def held_notice(id_: str, edit: HeldEdit) -> Notice:
    """Return the notice of an edit that another agent must make."""
    return Notice("held", id_, edit.text, {"what": edit.what, "who": edit.who, "command": edit.command})


def sender_notice(id_: str, what: str, file: Path, sender: str | None, client: Client) -> Notice:
    """Return the notice of a file that another sender wrote.

    If that sender is no agent here, any agent may import the file.
    """
    is_agent = any(agent.name == sender for agent in client.agents())
    command = shlex.join(("deed", "handoff", "import", str(file), "--as", sender if sender and is_agent else "NAME"))
    return held_notice(id_, HeldEdit(what, sender or "", command))


FILES: Final = "files"
"""The subscription whose position is the log index up to which a folder is synchronised."""


class FileState(NamedTuple):
    """The stored state of a file.

    ``base`` are the bytes on which file and ledger last agreed (empty: never), ``position`` the index of the handoff's
    last event then. ``examined`` is the digest of a file left as it is, ``reported`` the last notices. ``asking`` are
    the bytes whose events, up to ``event_id``, are signed. They become the base once these events are in the log.
    """

    base: bytes = b""
    position: int = -1
    examined: str = ""
    reported: str = ""
    asking: bytes = b""
    event_id: str = ""


def is_open(notice: Notice) -> bool:
    """Return whether a notice is about undone work; every pass over the folder reports it again."""
    return notice.what in {"held", "conflict", "refused", "unfinished", "deleted"}


class SyncStore(Subscriptions):
    """The stored state of one watcher; every change is one transaction, durable when its method returns."""

    schema = """
    CREATE TABLE IF NOT EXISTS files (
        id TEXT PRIMARY KEY, base BLOB NOT NULL, position INTEGER NOT NULL,
        examined TEXT NOT NULL, reported TEXT NOT NULL, asking BLOB NOT NULL, event_id TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS folder (path TEXT NOT NULL);
    """

    def folder(self) -> Path | None:
        """Return the folder that the watcher synchronises; None if it has not begun yet."""
        rows = self.run("SELECT path FROM folder")
        return Path(rows[0][0]) if rows else None

    def begin(self, folder: Path) -> None:
        """Store the folder that the watcher synchronises."""
        if self.folder() is None:
            self.run("INSERT INTO folder VALUES (?)", str(folder))

    def agreed(self, id_: str) -> FileState | None:
        """Return the stored state of a handoff's file, or None."""
        rows = self.run(f"SELECT {', '.join(FileState._fields)} FROM files WHERE id = ?", id_)  # noqa: S608 - fixed names
        return FileState(*rows[0]) if rows else None

    def agree(self, id_: str, agreed: FileState) -> None:
        """Store the state of a handoff's file."""
        self.run("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", id_, *agreed)

    def ids(self) -> list[str]:
        """Return the handoffs whose files have a stored state."""
        return [id_ for (id_,) in self.run("SELECT id FROM files ORDER BY id")]


class SyncContext(NamedTuple):
    """The folder, the signing agent, their views and stored state, and the receiver of notices.

    Anybody who can write into the folder can change its files. So an edit that approves a handoff is signed only after
    a person has seen it and confirmed it: see ``approves``.
    """

    path: Path
    author: Author
    answer: Ask
    store: SyncStore
    tell: Callable[[Notice], None]
    reviewer: str | None = None  # the configured reviewer, for files that name none
    # Shows a person the handoff with this id and the content of its file, and asks whether to sign it.
    confirm: Callable[[str, bytes], bool] = lambda _id, _content: False
    is_signed: bool = False  # each file gets a signed file beside it

    def agents(self) -> AgentNames:
        """Return the present agents, as files may name them."""
        return read_agents(self.answer, self.reviewer)


def approves(context: SyncContext, kind: str, file: HandoffFile) -> bool:
    """Return whether the signature under a file's content would approve the handoff: it names no reviewer."""
    return needs_identity_key("handoff", kind, {"reviewer": reviewer_of(file, context.agents())})


def named_agents(context: SyncContext, file: HandoffFile) -> AgentNames:
    """Return the agents. Raises Refused: ``INVALID_FIELD``, with ``line``, if a name in the file means no agent."""
    agents = context.agents()
    if problem := next(name_problems(file, agents), None):
        raise Refused("INVALID_FIELD", problem.text, line=problem.line)
    return agents


def sign_command(context: SyncContext, id_: str) -> str:
    """Return the command with which a person reads a file and signs the edit that approves its handoff."""
    words = ("deed", "handoff", "watch", str(context.path), "--sign", id_, "--as", context.author.name)
    return shlex.join(words)


def sign_plan(
    context: SyncContext,
    handoff: dict[str, Any],
    plan: Plan,
    *,
    base: HandoffFile,
    edited: HandoffFile,
    ledger: HandoffFile,
) -> Notice:
    """Sign a plan for a handoff in the version that was read.

    Raises Refused: ``STREAM_CONFLICT`` if it changed meanwhile, or another refusal of the ledger. Unavailable: the
    ledger cannot be used.
    """
    steps = list(plan.steps)
    if plan.amends:
        template = context.author.put_blob(with_progress_of(edited, ledger))
        content = content_of_file(edited, template=template, agents=named_agents(context, edited))
        present = {name: handoff[name] for name in ("unlock_at", "answers")}
        changes = msgspec.structs.asdict(content) | present | {"created": content.created or handoff["created"]}
        steps.insert(0, amended(content_from(handoff), changes, reason_for_amending))
    # Each event of a handoff is one line of its log, so their number is the stream's length.
    version = len(handoff["log"])
    stream = f"handoff/{handoff['id']}"
    drafts = [Draft(stream=stream, data=data, expect=version + n) for n, data in enumerate(steps)]
    # Held edits stay in the file, which then differs from what is signed: the new base has only the signed changes.
    asking = base_after(plan, base=base, ledger=ledger) if plan.held else edited.content
    return _signed(context, handoff["id"], drafts, asking)


def sign_new(context: SyncContext, id_: str, file: HandoffFile) -> Notice:
    """Create the handoff that a new file describes."""
    template = context.author.put_blob(file.content)
    fields = msgspec.structs.asdict(content_of_file(file, template=template, agents=named_agents(context, file)))
    if fields["to"] is None:
        raise Refused("INVALID_FIELD", "`To:` in the file is missing: it names the agent that receives the work")
    return _signed(context, id_, [Draft(stream=f"handoff/{id_}", data=HandoffCreated(**fields), expect=0)])


def _signed(context: SyncContext, id_: str, drafts: Sequence[Draft], asking: bytes = b"") -> Notice:
    starts = range(0, len(drafts), events_in_submission_max)
    submissions = [context.author.sign(*drafts[start : start + events_in_submission_max]) for start in starts]
    if asking:
        last = event_id(commitment_to(submissions[-1].bodies[-1]))
        context.store.agree(id_, (context.store.agreed(id_) or FileState())._replace(asking=asking, event_id=last))
    indexes = [accepted.index for submission in submissions for accepted in context.author.client.submit(submission)]
    kinds = [kind_of(draft) for draft in drafts]
    return Notice("signed", id_, ", ".join(kinds), {"kinds": kinds, "indexes": indexes})
