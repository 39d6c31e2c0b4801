"""What keeping a folder in step takes: who does it, what he signs and remembers, and what is told of it.

What is remembered stands in one SQLite file for each folder and acting agent. Losing it loses no work: a file that
differs from the ledger is then shown beside it, and nothing is signed until somebody has looked.

If we crash while signing, nothing of a submission is in the log, or all of it: the next plan asks only for the rest.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.handoffs.content import amended
from deedbook.consumers.handoffs.files.mapping import content_of_file
from deedbook.consumers.handoffs.files.plan import Held, Plan, base_after
from deedbook.consumers.handoffs.files.syntax.comparison import with_progress_of
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.stored_content import content_from
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Author, Draft, kind_of
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.format.envelope import event_id, pae

events_in_submission_max: Final = 128
reason_for_amending: Final = "edited in its file"


class Notice(NamedTuple):
    """Something that happened to a file, or was left undone: what, of which handoff, and the words for it."""

    what: str
    id: str
    text: str
    details: dict[str, Any] = {}


def refusal_notice(id_: str, refusal: Refused) -> Notice:
    """Return what is told of a file that the ledger, or its own form, refused."""
    line = refusal.details.get("line")
    where = f"line {line}: " if line else ""
    return Notice("refused", id_, f"{where}{refusal.code}: {refusal.message}", {"code": refusal.code, "line": line})


def held_notice(id_: str, held: Held) -> Notice:
    """Return what is told of an edit that is somebody else's to make."""
    return Notice("held", id_, f"{held.what}: {held.who or 'somebody'} runs {held.command}", held._asdict())


def sender_notice(id_: str, what: str, file: Path, sender: str | None, client: Client) -> Notice:
    """Return what is told of a handoff From somebody else; where he is no agent here, anybody may import it."""
    is_agent = any(one.name == sender for one in client.agents())
    command = shlex.join(("deed", "handoff", "import", str(file), "--as", sender if sender and is_agent else "NAME"))
    return held_notice(id_, Held(what, sender or "", command))


FILES: Final = "files"
"""The subscription whose position is the index of the log up to which a folder is in step."""


class Agreed(NamedTuple):
    """What is remembered of a file.

    ``base`` are the bytes on which file and ledger last agreed (none yet: empty), ``position`` the index of the
    handoff's last event then. ``seen`` is the digest of what was looked at and left alone, ``said`` of what was told.
    ``asking`` are the bytes for which the events up to ``event_id`` are signed, and the base once these are in the log.
    """

    base: bytes = b""
    position: int = -1
    seen: str = ""
    said: str = ""
    asking: bytes = b""
    event_id: str = ""


class SyncStore(Subscriptions):
    """The memory of one watcher; every change is one transaction, and durable when its method returns."""

    schema = """
    CREATE TABLE IF NOT EXISTS files (
        id TEXT PRIMARY KEY, base BLOB NOT NULL, position INTEGER NOT NULL, seen TEXT NOT NULL, said TEXT NOT NULL,
        asking BLOB NOT NULL, event_id TEXT NOT NULL
    ) WITHOUT ROWID;
    """

    def agreed(self, id_: str) -> Agreed | None:
        """Return what is remembered of a handoff's file, or None."""
        rows = self.run(f"SELECT {', '.join(Agreed._fields)} FROM files WHERE id = ?", id_)  # noqa: S608 - fixed names
        return Agreed(*rows[0]) if rows else None

    def agree(self, id_: str, agreed: Agreed) -> None:
        """Remember what file and ledger agree on."""
        self.run("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", id_, *agreed)

    def ids(self) -> list[str]:
        """Return the handoffs whose files are remembered."""
        return [id_ for (id_,) in self.run("SELECT id FROM files ORDER BY id")]


class SyncContext(NamedTuple):
    """The folder, the agent who signs, the views he asks, what he remembers, and who is told of it."""

    path: Path
    author: Author
    answer: Ask
    store: SyncStore
    tell: Callable[[Notice], None]
    reviewer: str | None = None  # of new files that name nobody


def sign_plan(
    context: SyncContext,
    handoff: dict[str, Any],
    plan: Plan,
    *,
    base: HandoffFile,
    edited: HandoffFile,
    ledger: HandoffFile,
) -> Notice:
    """Sign a plan on the handoff as it was shown.

    Raises Refused: ``STREAM_CONFLICT`` when it went on meanwhile, or whatever the ledger refuses. Unavailable: the
    ledger cannot be used.
    """
    steps = list(plan.steps)
    if plan.amends:
        template = context.author.put_blob(with_progress_of(edited, ledger))
        content = content_of_file(edited, template=template, reviewer=context.reviewer)
        kept = {name: handoff[name] for name in ("unlock_at", "answers")}
        changes = msgspec.structs.asdict(content) | kept | {"created": content.created or handoff["created"]}
        steps.insert(0, amended(content_from(handoff), changes, reason_for_amending))
    # Each event of a handoff is one line of its log: so many, and the stream is at that version.
    version = len(handoff["log"])
    stream = f"handoff/{handoff['id']}"
    drafts = [Draft(stream=stream, data=data, expect=version + n) for n, data in enumerate(steps)]
    # What is held stays in the file, which then asks for more than is signed: agreed is what was, with what is ticked.
    asking = base_after(plan, base=base, ledger=ledger) if plan.held else edited.content
    return _signed(context, handoff["id"], drafts, asking)


def sign_new(context: SyncContext, id_: str, file: HandoffFile) -> Notice:
    """Hand over what a new file describes."""
    template = context.author.put_blob(file.content)
    fields = msgspec.structs.asdict(content_of_file(file, template=template, reviewer=context.reviewer))
    if fields["to"] is None:
        raise Refused("INVALID_FIELD", "the file names nobody in `To:`, or nobody that an agent can be called")
    return _signed(context, id_, [Draft(stream=f"handoff/{id_}", data=HandoffCreated(**fields), expect=0)])


def _signed(context: SyncContext, id_: str, drafts: Sequence[Draft], asking: bytes = b"") -> Notice:
    starts = range(0, len(drafts), events_in_submission_max)
    submissions = [context.author.sign(*drafts[start : start + events_in_submission_max]) for start in starts]
    if asking:
        last = event_id(pae(submissions[-1].bodies[-1]))
        context.store.agree(id_, (context.store.agreed(id_) or Agreed())._replace(asking=asking, event_id=last))
    indexes = [one.index for submission in submissions for one in context.author.client.submit(submission)]
    kinds = [kind_of(draft) for draft in drafts]
    return Notice("signed", id_, ", ".join(kinds), {"kinds": kinds, "indexes": indexes})
