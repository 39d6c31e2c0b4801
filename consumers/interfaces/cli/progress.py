"""The progress of long work, on standard error: a bar on a terminal, elsewhere one line for each stage.

Work that ends within two seconds shows nothing, so a quick verb neither loads the bar nor flickers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import load

Step: TypeAlias = Callable[[int, int], None]

shown_after_s = 2.0


@contextmanager
def progress(stage: str, *, is_shown: bool = True) -> Iterator[Step]:
    """Yield a function ``step(done, total)`` that long work calls now and then; ``stage`` names the work."""
    if not is_shown:
        yield lambda _done, _total: None
        return

    shown = _Stage(stage)
    timer = threading.Timer(shown_after_s, shown.show)
    timer.daemon = True
    timer.start()
    try:
        yield shown.step
    finally:
        timer.cancel()
        shown.close()


class _Stage:
    """One stage of long work. The thread of the timer shows it; the working thread reports steps and closes it."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._done: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._shown = ExitStack()
        self._is_closed = False
        self._update: Step = lambda _done, _total: None

    def step(self, done: int, total: int) -> None:
        """Report the number of finished steps, and of all steps."""
        with self._lock:
            self._done = done, total
            self._update(done, total)

    def show(self) -> None:
        """Show the bar, or print the line."""
        with self._lock:
            if self._is_closed:
                return
            if sys.stderr.isatty():
                self._update = self._shown.enter_context(load("progress_bar:bar")(self._stage))
                if self._done is not None:
                    self._update(*self._done)
            else:
                counts = "" if self._done is None else " ({:,} of {:,})".format(*self._done)
                echo(f"{self._stage}{counts} …", err=True)

    def close(self) -> None:
        """Remove the bar."""
        with self._lock:
            self._is_closed = True
            self._shown.close()
