"""A node without a lease: it leads as soon as it hears no leader, even if another node leads."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from deedbook.consumers.interfaces.node.node import Node
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.replication.lease import Timing


async def main(home: str, port: str) -> None:
    """Serve until asked to end."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    timing = Timing(has_lease=False, missed_ms=600)
    async with Node(read_settings(home=Path(home)), port=int(port), timing=timing) as node:
        sys.stdout.write(f'{{"data": {{"url": "{node.url}"}}}}\n')
        sys.stdout.flush()
        await node.run(stop)


asyncio.run(main(*sys.argv[1:]))
