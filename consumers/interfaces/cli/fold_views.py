"""The views for verbs that need the present state: brought up to date first, with the progress on standard error."""

from __future__ import annotations

from functools import partial

from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.ledger.client.local_reader import Views
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.reader import Reader


def fold_views(client: LogReads, settings: Settings, *, is_shown: bool) -> Views:
    """Return a reader of the folder's views that prints its notices, and with ``is_shown`` its progress."""
    shown = partial(progress, "bringing the views up to date", is_shown=is_shown)
    return Reader(client, settings, notice=lambda notice: echo(notice, err=True), progress=shown)
