"""Watching a folder and the log at once: whatever changes on either side is brought into step within a second.

Two threads only say which handoffs to look at, the one from the file system, the other from the log; one thread
looks, one handoff at a time. A file is looked at when it has been left alone for ``settle_s``, so that one which is
half written is not read. What the file system fails to tell of is found by a look at the whole folder now and then.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from consumers.handoff_files.atomic import TEMPORARY
from consumers.handoff_files.folder import CONFLICT
from consumers.handoff_files.meta import is_handoff_id
from consumers.handoff_files.telling import Told
from ledger.client import follow
from ledger.errors import BatonError, Unavailable
from projections.handoffs.fold import HANDLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from consumers.handoff_files.folder import Folder
    from consumers.handoff_files.sync_store import SyncStore
    from consumers.handoff_files.telling import Answers
    from ledger.client import Client

settle_s: Final = 0.25
rescan_interval_s: Final = 30.0
retry_wait_s: Final = 1.0
retry_wait_max_s: Final = 30.0
follow_wait_s: Final = 0.5
page_rows: Final = 500
_notify_step_ms: Final = 20
_notify_debounce_ms: Final = 80


class Watcher:
    """Keeps one folder in step; ``tell`` hears of everything that happens and of what is left undone."""

    def __init__(
        self,
        folder: Folder,
        client: Client,
        answer: Answers,
        store: SyncStore,
        tell: Callable[[Told], None],
        *,
        is_everything: bool = False,
    ) -> None:
        """Watch for ``folder``; with ``is_everything`` finished handoffs get a file, too."""
        self._folder = folder
        self._client = client
        self._answer = answer
        self._store = store
        self._tell = tell
        self._is_everything = is_everything
        self._asked: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        self._stamps: dict[str, tuple[int, int]] = {}
        self._position = 0

    def reconcile(self, step: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        """Bring everything into step once: all files of the folder and all handoffs that should have one.

        Raises:
            Unavailable: the folder, the ledger or the store cannot be used.
        """
        head = self._client.head().size
        ids = list(dict.fromkeys([*self._wanted_ids(), *self._scan(), *self._store.ids()]))
        for done, id_ in enumerate(ids, 1):
            self._folder.reconcile(id_)
            step(done, len(ids))
        self._store.move(head)

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set; an outage of the ledger or the folder is waited out, and told."""
        self._position = self._store.position() or 0
        threads = [
            threading.Thread(target=self._until_stopped, args=(work, stop), name=f"baton-{work.__name__}")
            for work in (self._follow_log, self._follow_files)
        ]
        for thread in threads:
            thread.start()
        try:
            self._work(stop)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _work(self, stop: threading.Event) -> None:
        """Look at what was asked for, in the order in which files have settled."""
        due: dict[str, float] = {}
        rescan_at = time.monotonic() + rescan_interval_s
        while not stop.is_set():
            self._take(due)
            now = time.monotonic()
            for id_ in [id_ for id_, at in due.items() if at <= now]:
                del due[id_]
                if not self._looked_at(id_):
                    due[id_] = now + retry_wait_s
            if now >= rescan_at:
                rescan_at = now + rescan_interval_s
                due |= {id_: now for id_ in self._changed_unseen() if id_ not in due}

    def _take(self, due: dict[str, float]) -> None:
        """Wait a moment for something to look at; what the log asks for is looked at at once."""
        try:
            id_, position = self._asked.get(timeout=settle_s / 5)
        except queue.Empty:
            return
        if position is not None:
            if not due:
                self._store.move(position)  # else a later one says so, when nothing waits any more
            return
        from_log = id_.startswith("\0")
        due[id_.removeprefix("\0")] = time.monotonic() + (0.0 if from_log else settle_s)

    def _looked_at(self, id_: str) -> bool:
        try:
            self._folder.reconcile(id_)
        except Unavailable as error:
            self._tell(Told("waiting", id_, f"{error.code}: {error.message}", {"code": error.code}))
            return False
        except BatonError as error:
            self._tell(Told("refused", id_, f"{error.code}: {error.message}", {"code": error.code}))
        return True

    def _follow_log(self, stop: threading.Event) -> None:
        for item in follow(self._client, self._position, kinds=sorted(HANDLED), stop=stop, wait_s=follow_wait_s):
            if isinstance(item, int):
                self._asked.put(("", item))
            elif item.stream.startswith("handoff/"):
                self._asked.put(("\0" + item.name, None))
            self._position = item if isinstance(item, int) else item.index + 1

    def _follow_files(self, stop: threading.Event) -> None:
        from watchfiles import watch  # noqa: PLC0415 - only watching needs it

        for changes in watch(
            self._folder.path,
            stop_event=stop,
            step=_notify_step_ms,
            debounce=_notify_debounce_ms,
            recursive=False,
            rust_timeout=200,
            yield_on_timeout=False,
            raise_interrupt=False,
        ):
            for _, name in changes:
                id_ = handoff_of(self._folder.path / name)
                if id_ is not None:
                    self._asked.put((id_, None))

    def _until_stopped(self, work: Callable[[threading.Event], None], stop: threading.Event) -> None:
        wait_s = retry_wait_s
        while not stop.is_set():
            try:
                work(stop)
            except (BatonError, OSError) as error:
                self._tell(Told("waiting", "", str(error)))
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, retry_wait_max_s)

    def _wanted_ids(self) -> Iterable[str]:
        """Yield the handoffs that should have a file."""
        after: int | None = None
        while True:
            arguments: dict[str, Any] = {"limit": page_rows, "after": after, "finished": self._is_everything}
            page = self._answer(
                "handoffs.files", {name: value for name, value in arguments.items() if value is not None}
            )
            yield from page["ids"]
            after = page["next"]
            if after is None:
                return

    def _scan(self) -> list[str]:
        """Return the handoffs that files are named after, remembering what each file looks like from outside."""
        found: dict[str, tuple[int, int]] = {}
        try:
            for path in self._folder.path.iterdir():
                id_ = handoff_of(path)
                if id_ is not None:
                    stat = path.lstat()
                    found[id_] = max(found.get(id_, (0, 0)), (stat.st_mtime_ns, stat.st_size))
        except OSError as error:
            raise Unavailable(
                "STORE_UNAVAILABLE",
                f"{self._folder.path} cannot be read: {error.strerror}",
                path=str(self._folder.path),
            ) from error
        self._stamps = found
        return sorted(found)

    def _changed_unseen(self) -> list[str]:
        before = self._stamps
        self._scan()
        return [id_ for id_, stamp in self._stamps.items() if before.get(id_) != stamp]


def handoff_of(path: Path) -> str | None:
    """Return the handoff that a file is the file of, or stands beside; None for any other file."""
    if path.name.startswith((".", TEMPORARY)) or not path.name.endswith(".md"):
        return None
    id_ = path.name.removesuffix(CONFLICT).removesuffix(".md")
    return id_ if is_handoff_id(id_) else None
