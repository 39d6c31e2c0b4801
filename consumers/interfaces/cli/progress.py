"""The progress bar of long work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress


@contextlib.contextmanager
def progress(what: str, *, is_shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function ``step(done, total)`` that long work calls now and then."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
