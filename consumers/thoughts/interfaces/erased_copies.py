"""Writes the log folders of searches again after a redaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deedbook.consumers.sdk.erasure import ErasedCopy
from deedbook.consumers.thoughts.logs import write_logs
from deedbook.consumers.thoughts.run import read_task
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import DeedbookError


def erase_logs(client: Client, home: Path, task: str) -> Iterator[ErasedCopy]:
    """Write the log folder of a task again, if there is one in the ledger's folder."""
    folder = home / "logs"
    if (folder / task).is_dir():
        try:
            yield ErasedCopy(str(write_logs(read_task(client, task), folder)), "rewritten")
        except DeedbookError as error:
            yield ErasedCopy(str(folder / task), "left", error.message)
