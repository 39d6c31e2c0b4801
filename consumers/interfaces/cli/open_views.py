"""The views for verbs that only list rows. They are loaded at the first query, so a wrong call does not load SQLite."""

from __future__ import annotations

from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.ledger.client.local_reader import Views
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.view_reader import ViewReader


def open_views(client: LogReads, settings: Settings) -> Views:
    """Return a reader of the folder's views that prints its notices on standard error."""
    return ViewReader(client, settings, notice=lambda notice: echo(notice, err=True))
