"""Where pages are: their paths, and where a ledger's dashboard runs.

That is a file in the ledger's folder, its owner's alone, locked as long as the dashboard runs.
Other verbs print the addresses of pages from it (``--web``), and `baton dashboard` makes a fresh launch link of the one
that runs. The lock ends with the process however that ends, so nobody takes an address for alive that is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from ledger.errors import Unavailable
from ledger.files import as_unavailable, open_regular

# Which page shows a thing of what sort, by its id.
PATHS: Final = {
    "handoff": "/h/", "reasoning": "/r/", "session": "/s/", "event": "/e/", "agent": "/a/", "tot": "/t/",
    "review": "/review/",
}  # fmt: skip
FILE: Final = "dashboard.json"
_size_max_bytes: Final = 4096
_tries_max: Final = 25
_try_wait_s: Final = 0.02


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where it runs, as whom one decides there, and the secret of its launch links."""

    url: str
    secret: str
    pid: int
    human: str | None = None


def path_to(sort: str, id_: object) -> str:
    """Return the path of the page that shows a thing, by its sort and id or index.

    >>> path_to("handoff", "a b.json"), path_to("session", "..")
    ('/h/a%20b%2Ejson', '/s/session%2F..')
    """
    text = str(id_)
    # What a browser would take for a step between folders, and what asks for the JSON of another page.
    text = f"{sort}/{text}" if text in (".", "..") else text
    quoted = quote(text, safe=":@")
    return PATHS[sort] + (quoted.removesuffix(".json") + "%2Ejson" if quoted.endswith(".json") else quoted)


def own_path(text: str) -> str:
    """Return a path of this dashboard that was sent to lead to it; of another origin it is the first page's.

    >>> own_path("/h/x?done=3"), own_path("//evil.example"), own_path("https://evil.example")
    ('/h/x?done=3', '/', '/')
    """
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def running(home: Path) -> Address | None:
    """Return the address of the dashboard that runs on a ledger's folder, if one does."""
    with contextlib.suppress(OSError, msgspec.DecodeError), open_regular(home / FILE) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid() or _lock(descriptor, fcntl.LOCK_SH):
            return None
        return msgspec.json.decode(os.read(descriptor, _size_max_bytes), type=Address)
    return None


@contextlib.contextmanager
def announced(home: Path, address: Address) -> Iterator[None]:
    """Say within the block that the dashboard runs there.

    Raises Unavailable: ``STORE_IN_USE`` when another does; ``STORE_UNAVAILABLE`` when the folder cannot be written.
    """
    path = home / FILE
    with as_unavailable(path), contextlib.ExitStack() as stack:
        for _ in range(_tries_max):
            with contextlib.ExitStack() as attempt:
                descriptor = attempt.enter_context(open_regular(path, flags=os.O_RDWR | os.O_CREAT))
                # Whoever looks whether one runs holds a lock, too, for a moment; and who ends takes the file away.
                if _lock(descriptor, fcntl.LOCK_EX) and os.fstat(descriptor).st_nlink:
                    stack.push(attempt.pop_all())
                    break
            time.sleep(_try_wait_s)
        else:
            raise Unavailable("STORE_IN_USE", "a dashboard runs on this ledger's folder already: end that one first")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, msgspec.json.encode(address))
        stack.callback(path.unlink, missing_ok=True)  # before the lock ends
        yield


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
