"""A progress bar for long work, on stderr and only on a terminal, so that pipes and scripts see nothing of it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = Callable[[int, int], None]


@contextlib.contextmanager
def progress(what: str, *, shown: bool = True) -> Iterator[Step]:
    """Yield a function ``step(done, total)`` that long work calls now and then."""
    if not shown or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs several bare Python starts
    from rich.progress import Progress  # noqa: PLC0415 - see above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
