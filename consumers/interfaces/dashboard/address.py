"""The paths of pages, and the file that says where a ledger's dashboard runs.

The file is in the ledger's folder and only its owner can read it. Other commands print page addresses from it
(``--web``), and `deed dashboard` makes a fresh launch link for the running dashboard. A lock next to it ends with the
process, however the process ends, so a stale address is never taken for a running dashboard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.families import Family, find
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.system.files import lock_file, read_regular, write_whole

# The path of the page that shows a thing, by its kind; the id follows.
PATHS: Final = {
    "handoff": "/h/",
    "reasoning": "/r/",
    "session": "/s/",
    "event": "/e/",
    "proof": "/proof/",
    "receipt": "/receipts/",
    "agent": "/a/",
    "review": "/reviews/",
    "question": "/questions/",
}
OF_STREAMS: Final = frozenset({"handoff", "reasoning", "session", "agent", "review"})
"""The types of streams whose pages have the path of their kind."""
FILE: Final = "dashboard.json"
OPENING_FILE: Final = "dashboard.html"
"""The file that redirects a browser to its link; only its owner can read it."""
_size_max_bytes: Final = 4096


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of a running dashboard, the secret of its launch links, and its name at a server."""

    url: str
    secret: str
    pid: int
    connected_as: str | None


def has_page(stream_type: str) -> bool:
    """Return whether streams ``stream_type/ID`` have pages, of the core or of a family."""
    family = find(stream_type)
    pages = family.pages if isinstance(family, Family) else ()
    return stream_type in OF_STREAMS or any("{id" in page.path for page in pages)


def path_to(kind: str, id_: object) -> str:
    """Return the path of the page that shows a thing, by its kind and its id or index.

    >>> path_to("handoff", "a b.json"), path_to("session", "..")
    ('/h/a%20b%2Ejson', '/s/session%2F..')
    """
    text = str(id_)
    # A browser would resolve "." and ".." as folders, and ".json" would ask for the JSON of another page.
    quoted = quote(f"{kind}/{text}" if text in (".", "..") else text, safe=":@")
    return (PATHS.get(kind) or f"/{kind}/") + (
        quoted.removesuffix(".json") + "%2Ejson" if quoted.endswith(".json") else quoted
    )


def own_path(text: str) -> str:
    """Return a path that a browser sent, if it is a path of this dashboard; else ``/``.

    >>> own_path("/h/x?done=3"), own_path("//evil.example"), own_path("https://evil.example")
    ('/h/x?done=3', '/', '/')
    """
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def running(home: Path) -> Address | None:
    """Return the address of the dashboard that runs for a ledger's folder, or None. Raises: as ``read_regular``."""
    content = read_regular(home / FILE, size_max_bytes=_size_max_bytes, is_own=True)
    if content is None:
        return None
    try:
        with lock_file(home / f"{FILE}.lock", _taken()):
            return None
    except Unavailable as error:
        return read_json(content, Address) if error.code == "STORE_IN_USE" else None


@contextlib.contextmanager
def announced(home: Path, address: Address) -> Iterator[None]:
    """Publish the dashboard's address while the block runs; on read-only media nothing is published.

    Raises Unavailable: ``STORE_IN_USE`` if another dashboard runs for this folder.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_file(home / f"{FILE}.lock", _taken()))
            write_whole(home / FILE, msgspec.json.encode(address))
            for name in (FILE, OPENING_FILE):
                stack.callback((home / name).unlink, missing_ok=True)
        except Unavailable as error:
            if error.code == "STORE_IN_USE":
                raise
        yield


def _taken() -> Unavailable:
    return Unavailable("STORE_IN_USE", "a dashboard is already running for this ledger's folder: stop it first")
