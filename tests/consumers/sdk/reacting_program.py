"""A subscriber in a process of its own, to be killed: its effect is a row, written through the subscription's store."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from building import MAP_SIZE

from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions, open_subscriptions
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.home.config import Config, Settings

ATTEMPTS = 3


def main(home: str, store: str, until: int) -> None:
    """React to findings until everything before an index was handled."""
    subscriptions = open_subscriptions(store)
    order = "INTEGER PRIMARY KEY" if isinstance(subscriptions, Subscriptions) else "BIGINT GENERATED ALWAYS AS IDENTITY"
    subscriptions.run(f"CREATE TABLE IF NOT EXISTS done (number {order}, event_index INTEGER, finding TEXT)")
    with LocalClient(Settings(home=Path(home), config=Config(map_size_bytes=MAP_SIZE))) as client:
        mark = "?" if isinstance(subscriptions, Subscriptions) else "%s"
        reactor = Reactor(client, subscriptions, "rows", attempts=ATTEMPTS, retry_wait_s=0.001)

        @reactor.on("finding.logged")
        def write(event: Event, db: Any) -> None:
            row = (event.index, event.data.finding)
            db.execute(f"INSERT INTO done (event_index, finding) VALUES ({mark}, {mark})", row)
            if event.data.finding.startswith("deadly"):
                os.kill(os.getpid(), signal.SIGKILL)

        reactor.start_at(0)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        while True:
            try:
                reactor.run(threading.Event(), until=until)
                break
            except Unavailable as error:  # PostgreSQL has not noticed yet that the earlier program was killed
                if error.code != "STORE_IN_USE":
                    raise
                time.sleep(0.05)
    subscriptions.close()


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
