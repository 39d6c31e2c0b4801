"""Who keeps a folder of handoff files in step with a ledger: one agent, with a memory of his own (DESIGN §10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from consumers.handoffs.files.sync_store import SyncStore
from consumers.handoffs.files.telling import Told
from ledger.author import Author
from ledger.client import Ask


class Keeper(NamedTuple):
    """The folder, the agent who signs, the views he asks, what he remembers, and who is told of it.

    ``reviewer`` reviews new files and rows that name nobody.
    """

    path: Path
    author: Author
    answer: Ask
    store: SyncStore
    tell: Callable[[Told], None]
    reviewer: str | None = None
