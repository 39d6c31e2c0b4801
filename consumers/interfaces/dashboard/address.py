"""Where pages are: their paths, and where a ledger's dashboard runs.

That stands in a file of the ledger's folder, its owner's alone: other verbs print addresses from it (``--web``), and
`deed dashboard` makes a fresh launch link of the one that runs. A lock beside it ends with the process, however that
ends, so nobody takes an address for alive that is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.system.files import held, read_regular, write_whole

# Which page shows a thing of what sort, by its id.
PATHS: Final = {
    "handoff": "/h/",
    "reasoning": "/r/",
    "session": "/s/",
    "event": "/e/",
    "agent": "/a/",
    "tot": "/t/",
    "review": "/reviews/",
}
FILE: Final = "dashboard.json"
_size_max_bytes: Final = 4096


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
    quoted = quote(f"{sort}/{text}" if text in (".", "..") else text, safe=":@")
    return PATHS[sort] + (quoted.removesuffix(".json") + "%2Ejson" if quoted.endswith(".json") else quoted)


def own_path(text: str) -> str:
    """Return a path of this dashboard that was sent to lead to it; of another origin it is the first page's.

    >>> own_path("/h/x?done=3"), own_path("//evil.example"), own_path("https://evil.example")
    ('/h/x?done=3', '/', '/')
    """
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def running(home: Path) -> Address | None:
    """Return the address of the dashboard that runs on a ledger's folder, if one does. Raises: as ``read_regular``."""
    content = read_regular(home / FILE, size_max_bytes=_size_max_bytes, is_own=True)
    if content is None:
        return None
    try:
        with held(home / f"{FILE}.lock", _taken()):
            return None
    except Unavailable as error:
        return msgspec.json.decode(content, type=Address) if error.code == "STORE_IN_USE" else None


@contextlib.contextmanager
def announced(home: Path, address: Address) -> Iterator[None]:
    """Say within the block that the dashboard runs there; on read-only media nobody hears of it.

    Raises Unavailable: ``STORE_IN_USE`` when another does.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(home / f"{FILE}.lock", _taken()))
            write_whole(home / FILE, msgspec.json.encode(address))
            stack.callback((home / FILE).unlink, missing_ok=True)
        except Unavailable as error:
            if error.code == "STORE_IN_USE":
                raise
        yield


def _taken() -> Unavailable:
    return Unavailable("STORE_IN_USE", "a dashboard runs on this ledger's folder already: end that one first")
