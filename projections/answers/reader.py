"""The reader: brings the views up to date, then answers, all from one snapshot of the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import cached_property
from typing import Any, TypeVar

from deedbook.ledger.client.client import When
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.instants import Instant, index_or_time, instant_of
from deedbook.projections.answers.past import Pasts, StalePast
from deedbook.projections.answers.query import QueryContext
from deedbook.projections.answers.view_reader import ViewReader
from deedbook.projections.views.projection import Projection
from deedbook.projections.views.registry import VIEWS, views_for
from deedbook.projections.views.runner import Progress, Runner

T = TypeVar("T")


def _without_progress() -> AbstractContextManager[Callable[[int, int], None]]:
    return nullcontext(lambda _done, _total: None)


class Reader(ViewReader):
    """Answers about one ledger; threads may share it, and any number of processes may have one on the same folder."""

    def __init__(
        self,
        client: LogReads,
        settings: Settings,
        *,
        store: str | None = None,
        notice: Callable[[str], None] = lambda _: None,
        progress: Callable[[], AbstractContextManager[Callable[[int, int], None]]] = _without_progress,
    ) -> None:
        """Open the views of the ledger's folder, as ``ViewReader`` does.

        A question that must fold entries first enters ``progress()``, and calls its result with the number of folded
        entries and the number of entries in the log.
        """
        self._progress = progress
        self._runners: dict[str, Runner] = {}
        self._lock = threading.Lock()
        self._folding_all = threading.Lock()
        super().__init__(client, settings, store=store, notice=notice)

    @cached_property
    def runner(self) -> Runner:
        """The runner of all views. Raises Unavailable: ``STORE_UNAVAILABLE``, also if a newer Deedbook made them."""
        return self._runner_of(VIEWS)

    def _runner_for(self, group: str) -> Runner:
        """Return the runner of the views that queries of a group need.

        Raises Unavailable: ``STORE_UNAVAILABLE``, also if a newer Deedbook made them.
        """
        if group not in self._runners:
            self._runners[group] = self._runner_of(views_for(group))
        return self._runners[group]

    def _runner_of(self, views: Sequence[Projection[Any]]) -> Runner:
        return Runner(self.client, self.store, views)

    def fold(self, *, group: str) -> None:
        """Fold up to the end of the log."""
        # Only one thread at a time may use a runner. The runner of a group folds the whole log the first time, and
        # other queries are answered between its batches.
        with self._folding_all if group else self._lock, ExitStack() as shown:
            steps: list[Callable[[int, int], None]] = []

            def report(reached: Progress) -> None:
                if not steps:
                    steps.append(shown.enter_context(self._progress()))
                steps[0](*reached)

            self._runner_for(group).catch_up(progress=report)

    def reset(self) -> None:
        """Make new runners for another store."""
        vars(self).pop("runner", None)
        self._runners.clear()

    def catch_up(self, *, progress: Callable[[Progress], None] | None = None) -> int:
        """Fold up to the end of the log; return the position reached."""
        with self._folding_all:
            return self.with_rebuilding(lambda: self.runner.catch_up(progress=progress))

    def rebuild(self, names: list[str], *, progress: Callable[[Progress], None] | None = None) -> int:
        """Rebuild views; return the position reached. Raises Refused: ``NOT_FOUND``: there is no such view."""
        with self._folding_all:
            return self.with_rebuilding(lambda: self.runner.rebuild(names, progress=progress))

    @cached_property
    def _pasts(self) -> Pasts:
        return Pasts(self.client)

    def ask_past(self, question: Callable[[QueryContext], T], as_of: When, *, group: str) -> T:
        """Return the result of ``question`` on the views as they were at ``as_of``."""

        def ask(at: Instant | int) -> T:
            return self.with_rebuilding(lambda: self._pasts.ask(self.store, at, question, group=group))

        if isinstance(index := index_or_time(as_of), int):
            with suppress(StalePast):
                return ask(index)
        while True:
            at = self.ask(lambda context: instant_of(context.reading, as_of), group=group)
            with suppress(StalePast):  # another process is rebuilding the views
                return ask(at)

    def close(self) -> None:
        """Close the views; the client stays open."""
        if not self.is_closed and "_pasts" in vars(self):
            self._pasts.close()
        super().close()
