"""A process that stores, uploads, drops or removes blobs of a ledger; tests let its system calls fail, and kill it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.home.quota import Quota
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log.blob_table import Intent
from deedbook.ledger.log.expiry import drop_unreferenced
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import Uploads

CONTENT: Final = bytes(range(256)) * (2 * blob_chunk_bytes // 256) + b"the end"
CHUNKS: Final = [CONTENT[start : start + blob_chunk_bytes] for start in range(0, len(CONTENT), blob_chunk_bytes)]
DIGEST: Final = blake3(CONTENT).digest()
INTENT: Final = Intent("alice", DIGEST, len(CONTENT), b"", b"", b"", 1_000)
unavailable: Final = 7


def run(verb: str, home: Path) -> None:
    """Do what ``verb`` says to the blob with ``CONTENT``."""
    with Log(home, map_size=2**24) as log:
        uploads = Uploads(log.blobs, Quota())
        match verb:
            case "put":
                uploads.put(CHUNKS, INTENT)
            case "upload":
                first = uploads.begin(INTENT).received // blob_chunk_bytes
                for number in range(first, len(CHUNKS)):
                    uploads.add("alice", DIGEST, number, CHUNKS[number])
            case "drop":
                drop_unreferenced(log, now_ms=2**41)
            case _:
                log.blobs.remove([INTENT.ref])


if __name__ == "__main__":
    try:
        run(sys.argv[1], Path(sys.argv[2]))
    except (Unavailable, OSError) as error:  # the folder cannot be opened, or a write failed
        with suppress(OSError):
            os.write(2, f"{error}\n".encode())
        sys.exit(unavailable)
