"""A notifier in a process of its own, to be killed: it reads and sends once, then ends."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from building import MAP_SIZE

from deedbook.consumers.handoffs.notifier.settings import configured_channels
from deedbook.consumers.handoffs.notifier.worker import NotifierWorker, unix_ms
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.home.config import Actions, Config, Settings
from deedbook.projections.answers.reader import Reader


def main(home: str, store: str, until: int, tables: str, later_s: float) -> None:
    """Run a notifier with these ``[[notify]]`` tables, whose clock is ``later_s`` ahead.

    It ends when it has read all entries before the index ``until`` and tried every delivery that is due.
    """
    actions = Actions(notify=json.loads(tables))
    settings = Settings(home=Path(home), config=Config(map_size_bytes=MAP_SIZE), actions=actions)
    with LocalClient(settings) as client, Reader(client, settings) as reader:
        channels = configured_channels(settings)
        clock_ms = lambda: unix_ms() + int(1000 * later_s)  # noqa: E731 - of this one place
        worker = NotifierWorker(client, reader.answer, Path(store), channels, clock_ms=clock_ms)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        worker.run(threading.Event(), until=until)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
