"""Watches a folder and the log: a change on either side is synchronised within a second.

Two threads follow the file system and the log and only name the handoffs to check; one thread checks one handoff at a
time. A file is read once it is unchanged for ``settle_s``, so a half-written file is not read. A scan of the whole
folder finds the changes that the file system failed to report.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from watchfiles import watch

from deedbook.consumers.handoffs.files.folder import CONFLICT, Folder
from deedbook.consumers.handoffs.files.mapping import file_name
from deedbook.consumers.handoffs.files.sync import FILES, Notice, SyncContext
from deedbook.consumers.handoffs.files.syntax.sections import is_handoff_id
from deedbook.consumers.sdk.files import settled_for_s
from deedbook.ledger.client.client import every_row
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.system.files import as_unavailable
from deedbook.projections.handoffs.fold import HANDLED

settle_s: Final = 0.25
rescan_interval_s: Final = 30.0
retry_wait_s: Final = 1.0
retry_wait_max_s: Final = 5.0
follow_wait_s: Final = 0.5
_notify_step_ms: Final = 20
_notify_debounce_ms: Final = 80
_notify_timeout_ms: Final = 200
_RESCAN: Final = "\0rescan"
_REDACTION: Final = "\0redaction"

_MARKING: Final = frozenset({"reasoning.assumption_settled", "subject.erased"})
"""The kinds after which files must say that a reasoning was refuted or a sealed text was erased."""
_REDACTED: Final = "entry.redacted"


class Watcher:
    """Synchronises one folder, and reports its actions and the work that is left."""

    def __init__(
        self,
        folder: Folder,
        context: SyncContext,
        *,
        is_everything: bool = False,
        erase: Callable[[], bool] = lambda: True,
    ) -> None:
        """Watch ``folder`` in its context. Finished handoffs get a file only with ``is_everything``.

        ``erase`` removes newly redacted texts from the copies on this machine, and returns whether it succeeded.
        """
        self._folder = folder
        self._client, self._answer = context.author.client, context.answer
        self._store, self._tell = context.store, context.tell
        self._is_everything = is_everything
        self._erase = erase
        self._erase_at: float | None = None
        self._queue: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        self._stamps: dict[str, tuple[int, int]] = {}
        self._position = 0
        self._waiting: dict[str, str] = {}

    def reconcile(self, step: Callable[[int, int], None] = lambda _done, _total: None) -> list[Unavailable]:
        """Synchronise all files and handoffs once; return the failures, which ``run`` tries again.

        Afterwards, ``Folder.left_undone`` names the handoffs whose files contain changes that nobody has signed.
        """
        self._folder.begin_pass()
        head = self._client.head().size
        # Erase redacted texts before reading the files: otherwise a file would be compared with a text that is then
        # erased. Read the head before erasing: `run` continues at this head, so it sees every later redaction.
        self._erase_at = None if self._erase() else 0.0
        wanted = every_row(self._answer, "handoffs.files", {"all": self._is_everything})
        ids = list(dict.fromkeys([*self._scan(), *wanted, *self._store.ids()]))
        failures: list[Unavailable] = []
        ids.sort(key=lambda id_: self._unsettled_s(id_) or 0.0)  # files that are being written come last
        for done, id_ in enumerate(ids, 1):
            time.sleep(self._unsettled_s(id_) or 0.0)
            failure = self._look_at(id_)
            if failure is not None:
                failures.append(failure)
                self._queue.put((id_, None))
            step(done, len(ids))
        if not failures:
            self._move(head)
        return failures

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set; an outage of the ledger or the folder is reported and waited out."""
        self._position = self._store.position(FILES) or 0
        threads = [
            threading.Thread(target=self._until_stopped, args=(name, work, stop), name=f"deedbook-{name}")
            for name, work in (("log", self._follow_log), ("files", self._follow_files))
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
        """Check the named handoffs, in the order in which their files have settled."""
        due: dict[str, float] = {}
        rescan_at = time.monotonic() + rescan_interval_s
        while not stop.is_set():
            self._take(due)
            now = time.monotonic()
            if self._erase_at is not None and self._erase_at <= now:
                self._erase_at = None if self._erase() else now + retry_wait_s
            for id_ in [id_ for id_, at in due.items() if at <= now]:
                del due[id_]
                wait_s = self._unsettled_s(id_)
                if wait_s is None and self._look_at(id_) is not None:
                    wait_s = retry_wait_s
                    due[id_] = now + wait_s
                    break  # let the other handoffs wait, too: otherwise an outage would be met for each of them
                if wait_s is not None:
                    due[id_] = now + wait_s
            if now >= rescan_at:
                rescan_at = now + rescan_interval_s
                for id_ in self._changed_unseen():
                    due.setdefault(id_, now)

    def _take(self, due: dict[str, float]) -> None:
        """Wait briefly for a handoff to check; a handoff that the log names is checked at once."""
        try:
            id_, position = self._queue.get(timeout=settle_s / 5)
        except queue.Empty:
            return
        now = time.monotonic()
        if id_ == _RESCAN:
            for changed in self._changed_unseen():
                due.setdefault(changed, now)
        elif id_ == _REDACTION:
            self._erase_at = now
        elif position is None:
            due[id_] = now + settle_s
        elif id_:
            due.setdefault(id_, now)
            for refused in self._folder.refused:
                due.setdefault(refused, now)  # a later event may allow a refused edit
        elif not due:
            try:
                self._move(position)
            except Unavailable as error:  # harmless: without a stored position, the handoff is only checked again
                self._report_outage("", error)

    def _move(self, position: int) -> None:
        with self._store.transaction():
            self._store.move(FILES, position)

    def _unsettled_s(self, id_: str) -> float | None:
        """Return how long to wait until a file is unchanged for ``settle_s``; None if it is."""
        age_s = settled_for_s(self._folder.path / file_name(id_))
        return settle_s - age_s if age_s is not None and age_s < settle_s else None

    def _look_at(self, id_: str) -> Unavailable | None:
        try:
            self._folder.reconcile(id_)
        except Unavailable as error:
            self._report_outage(id_, error)
            return error
        self._waiting.pop(id_, None)
        return None

    def _report_outage(self, id_: str, error: DeedbookError | OSError) -> None:
        """Report an outage once; report it again only if its error changes."""
        text = str(error)
        is_known = text in self._waiting.values()
        self._waiting[id_] = text
        if not is_known:
            self._tell(Notice("waiting", id_, text))

    def _follow_log(self, stop: threading.Event) -> None:
        kinds = sorted({*HANDLED, *_MARKING, _REDACTED})
        for item in follow(self._client, self._position, kinds=kinds, stop=stop, wait_s=follow_wait_s):
            self._waiting.pop("log", None)
            if isinstance(item, int):
                self._queue.put(("", item))
            elif item.stream.startswith("handoff/"):
                self._queue.put((item.name, item.index))
            elif item.kind == _REDACTED:
                self._queue.put((_REDACTION, None))
            elif item.kind in _MARKING:
                for id_ in self._store.ids():
                    self._queue.put((id_, item.index))
            self._position = item if isinstance(item, int) else item.index + 1

    def _follow_files(self, stop: threading.Event) -> None:
        watched = self._folder_identity()
        is_reported = False
        changed = watch(
            self._folder.path,
            stop_event=stop,
            step=_notify_step_ms,
            debounce=_notify_debounce_ms,
            recursive=False,
            rust_timeout=_notify_timeout_ms,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        while (changes := self._next(changed)) is not None:
            if not is_reported:
                self._waiting.pop("files", None)
                self._queue.put((_RESCAN, None))  # finds changes before the first report of the file system
                is_reported = True
            for _, name in changes:
                id_ = handoff_of(self._folder.path / name)
                if id_ is not None:
                    self._queue.put((id_, None))
            if self._folder_identity() != watched:
                return  # another folder has this path now, and the file system reports on the old one

    def _next(self, changed: Iterator[Any]) -> Any:
        try:
            return next(changed, None)
        except RuntimeError as error:  # raised by watchfiles, for example when too many files are watched
            raise Unavailable("STORE_UNAVAILABLE", f"{self._folder.path} cannot be watched: {error}") from error

    def _folder_identity(self) -> tuple[int, int]:
        folder = self._folder.path.stat()
        return folder.st_dev, folder.st_ino

    def _until_stopped(self, name: str, work: Callable[[threading.Event], None], stop: threading.Event) -> None:
        wait_s = retry_wait_s
        while not stop.is_set():
            started = time.monotonic()
            try:
                work(stop)
            except (DeedbookError, OSError) as error:
                self._report_outage(name, error)
                wait_s = retry_wait_s if time.monotonic() - started > retry_wait_max_s else wait_s
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, retry_wait_max_s)

    def _scan(self) -> list[str]:
        """Return the handoffs that files are named after, and remember the time and size of each file."""
        stamps: dict[str, tuple[int, int]] = {}
        with as_unavailable(self._folder.path, "cannot be read"):
            for path in self._folder.path.iterdir():
                id_ = handoff_of(path)
                if id_ is not None:
                    stat = path.lstat()
                    stamps[id_] = max(stamps.get(id_, (0, 0)), (stat.st_ctime_ns, stat.st_size))
        self._stamps = stamps
        return sorted(stamps)

    def _changed_unseen(self) -> list[str]:
        before = self._stamps
        try:
            self._scan()
        except Unavailable as error:
            self._report_outage("files", error)
            return []
        return [id_ for id_ in before.keys() | self._stamps.keys() if before.get(id_) != self._stamps.get(id_)]


def handoff_of(path: Path) -> str | None:
    """Return the handoff of a file, or of the conflict copy beside one; None for any other file."""
    if path.name.startswith(".") or not path.name.endswith(".md"):
        return None  # a hidden file is one that we are writing, or no handoff
    id_ = path.name.removesuffix(CONFLICT).removesuffix(".md")
    is_text = not any("\ud800" <= character <= "\udfff" for character in id_)  # else the name is not UTF-8
    return id_ if is_text and is_handoff_id(id_) else None
