"""Writing a task's log folder: each file replaced whole, so that whoever reads sees the old one or the new one.

If we crash here, some files are of the older export; exporting again makes them what they should be. Files of an older
export that have other numbers now are removed; nothing else in the folder is touched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from consumers.sdk.files import read_file, remove_file, write_file
from consumers.thoughts.logs import log_files
from ledger.client import read_event
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ledger.client import Client
    from ledger.events.body import Event

_OURS: Final = re.compile(
    r"[0-9]{2,}-(task-info\.json|merged-timeline\.log|(orchestrator|decomposer|explorer|synthesizer)\.log"
    r"|(generator|evaluator)-round[0-9]+\.log)"
)


def read_task(client: Client, task_id: str) -> list[Event]:
    """Return the events of a task, in order.

    Raises:
        Refused: ``NOT_FOUND``.
    """
    events: list[Event] = []
    position, size = 0, client.head().size
    while position < size:
        page = client.entries(position, stream=f"tot/{task_id}")
        events += [read_event(index, data) for index, data in page.entries]
        position = page.next_index
    if not events:
        raise Refused("NOT_FOUND", f"there is no task {task_id}", task_id=task_id)
    return events


def write_logs(events: Iterable[Event], out: Path) -> Path:
    """Write the log folder of a task under ``out`` and return it (seed 003: ``logs/tot-YYYYMMDD-HHMMSS-xxxxxx``).

    Raises:
        Refused: ``NOT_FOUND`` for what is no task. Unavailable: ``STORE_FULL`` or ``STORE_UNAVAILABLE``.
    """
    told = list(events)
    files = log_files(told)
    folder: Path = out / told[0].data.task_id
    try:
        folder.mkdir(parents=True, exist_ok=True)
        older = [path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name not in files]
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{folder} cannot be written: {error.strerror}") from error
    for path in older:
        remove_file(path)
    for name, content in files.items():
        path = folder / name
        if not _is(path, content):
            write_file(path, content)
    return folder


def _is(path: Path, content: bytes) -> bool:
    try:
        return read_file(path) == content
    except Refused:
        return False  # a link, or too large: it is replaced
