"""A folder of handoff files, a ledger, and agents who synchronise both: each with a store of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from checking import check_log

from deedbook.consumers.handoffs.composition import amended
from deedbook.consumers.handoffs.files.folder import Folder
from deedbook.consumers.handoffs.files.mapping import content_from, file_name, file_now
from deedbook.consumers.handoffs.files.sync import Notice, SyncContext, SyncStore
from deedbook.consumers.handoffs.files.watcher import Watcher
from deedbook.ledger.client.author import Author
from deedbook.ledger.events import handoff as kinds
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from building import Ledger

    from deedbook.ledger.events.fields import EventData

NEW: Final = """\
# Handoff: Fix the cache

## Meta
- Status: pending
- From: alice
- To: bob
- Reviewer: rita
- Created: 2026-02-12
- Depends-on: (none)

## Task
Make it warm.

## Tasks
- [ ] look
- [ ] fix 修好它

## Acceptance Criteria
- [ ] it is warm

## Odd section
kept, *as* it stands

## Log
- 2026-02-12 [alice] created
"""
BESIDE: Final = "h.ledger.md"


class Hand:
    """One agent's synchronisation of the folder; ``told`` has its notices."""

    def __init__(self, folder: SyncedFolder, name: str) -> None:
        self.name = name
        self.told: list[Notice] = []
        self._folder = folder
        self.client = folder.ledger.client()
        self.store = SyncStore(folder.memory / f"{name}.db")
        self.author = Author(self.client, name, lambda _: folder.ledger.keys[name])
        self.context = SyncContext(
            folder.path, self.author, folder.answer, self.store, self.told.append, folder.reviewer
        )
        self.kept = Folder(self.context)

    def reconcile(self, id_: str = "h") -> list[str]:
        """Synchronise one handoff; return the notices, as ``what: text``."""
        self.told.clear()
        self.kept.reconcile(id_)
        return [f"{one.what}: {one.text}" for one in self.told]

    def whats(self, id_: str = "h") -> list[str]:
        """Synchronise one handoff; return the types of the notices."""
        return [said.partition(":")[0] for said in self.reconcile(id_)]

    def watcher(self) -> Watcher:
        """Return a watcher of the whole folder."""
        return Watcher(self.kept, self.context)

    def everything(self) -> list[str]:
        """Synchronise the whole folder; return the notices, as ``what id``."""
        self.told.clear()
        assert self.watcher().reconcile() == []
        return [f"{one.what} {one.id}" for one in self.told]


class SyncedFolder:
    """The folder and its ledger."""

    def __init__(self, ledger: Ledger, base: Path) -> None:
        self.ledger = ledger
        self.path = base / "handoffs"
        self.path.mkdir(exist_ok=True)
        self.memory = base / "memory"
        self.reviewer: str | None = None
        self._reader = Reader(ledger.client(), ledger.settings())
        self.answer = self._reader.answer
        self._hands: list[Hand] = []

    def close(self) -> None:
        """Close the stores and the reader, and check the log against its invariants."""
        for hand in self._hands:
            hand.store.close()
        self._reader.close()
        check_log(self.ledger.log)

    def hand(self, name: str) -> Hand:
        """Return a new hand of an agent, with the memory that it had."""
        self._hands.append(Hand(self, name))
        return self._hands[-1]

    def forget(self) -> None:
        """Delete the stores of all hands."""
        for hand in self._hands:
            hand.store.close()
        self._hands.clear()
        for file in self.memory.iterdir():
            file.unlink()

    def file(self, id_: str = "h") -> Path:
        """Return the path of a handoff's file."""
        return self.path / file_name(id_)

    def text(self, id_: str = "h") -> str:
        """Return a file's text."""
        return self.file(id_).read_bytes().decode()

    def edit(self, *changes: tuple[str, str], id_: str = "h") -> str:
        """Replace text in a file, once each; return the text it then has."""
        text = self.text(id_)
        for old, new in changes:
            assert text.count(old) == 1, (old, text)
            text = text.replace(old, new)
        self.file(id_).write_bytes(text.encode())
        return text

    def shown(self, id_: str = "h") -> dict[str, Any]:
        """Return a handoff as views show it."""
        return self.answer("handoffs.show", {"id": id_})

    def status(self, id_: str = "h") -> str:
        """Return the status of a handoff."""
        found: str = self.shown(id_)["status"]
        return found

    def rendered(self, id_: str = "h") -> str:
        """Return a handoff's file as the ledger has it."""
        shown = self.shown(id_)
        template = None if shown["template"] is None else self.ledger.client().get_blob(shown["template"])
        return file_now(shown, template).decode()

    def kinds(self, id_: str = "h") -> list[str]:
        """Return the events of a handoff, as ``kind author``."""
        return [f"{one['kind'].removeprefix('handoff.')} {one['author']}" for one in self.shown(id_)["log"]]

    def size(self) -> int:
        """Return the number of entries of the log."""
        return self.ledger.head()[0]

    def emit(self, author: str, data: EventData, id_: str = "h") -> None:
        """Let something happen to a handoff without its file."""
        self.ledger.clock.advance(1)
        self.ledger.emit(author, f"handoff/{id_}", data)

    def create(self, id_: str = "h", text: str = NEW) -> Hand:
        """Let alice hand over the work in a new file, and return her hand."""
        alice = self.hand("alice")
        self.file(id_).write_bytes(text.encode())
        assert alice.whats(id_)[:1] == ["signed"]
        return alice

    def approve(self, id_: str = "h") -> None:
        """Let rita approve a handoff."""
        self.emit("rita", kinds.HandoffApproved(version=self.shown(id_)["version"]), id_)

    def claimed(self, id_: str = "h") -> Hand:
        """Let alice's new file be approved, and claimed by bob; return his hand, synchronised."""
        self.create(id_)
        self.approve(id_)
        self.emit("bob", kinds.HandoffClaimed(), id_)
        bob = self.hand("bob")
        assert bob.whats(id_) in (["written"], [])
        assert self.text(id_) == self.rendered(id_)
        return bob

    def assert_in_step(self, *hands: Hand, id_: str = "h") -> None:
        """Check that file and ledger agree, and that nobody has anything left to do: neither an event nor a write."""
        assert self.text(id_) == self.rendered(id_)
        before, inode = self.size(), self.file(id_).stat().st_ino
        for hand in hands:
            assert hand.reconcile(id_) == []
        assert (self.size(), self.file(id_).stat().st_ino) == (before, inode)


def amend_by_command(folder: SyncedFolder, **changes: Any) -> None:
    """Let alice amend the handoff by a command, without its file."""
    folder.emit("alice", amended(content_from(folder.shown()), changes, "it was wrong"))
