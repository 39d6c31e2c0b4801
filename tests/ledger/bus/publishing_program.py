"""A publisher in a process of its own, which a test kills. It prints the size of its log after each commit."""

from __future__ import annotations

import asyncio
import random
import sys

import nats
from numbered_log import NumberedLog, opened

from deedbook.ledger.bus.subjects import INBOX_OF_NODES


async def main(url: str, seed: str, size: int, size_max: int) -> None:
    """Commit and publish until the log has ``size_max`` events."""
    log = NumberedLog(size)
    client = await nats.connect(url, nkeys_seed_str=seed, inbox_prefix=INBOX_OF_NODES)
    publisher = await opened(client, log)
    while publisher.published < size_max:
        log.grow(random.choice([1, 1, 5, 40, 300]), size_max)
        sys.stdout.write(f"{log.size}\n")
        sys.stdout.flush()
        while await publisher.publish_next():
            pass
    await client.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
