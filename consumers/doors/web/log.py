"""The log on the web: checkpoint, tiles and entries under the paths of C2SP tlog-tiles, as in an exported folder.

A tile never changes once it has a path, so it may be kept for ever; the checkpoint is asked for anew each time.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from consumers.doors.web.api import BYTES, TEXT, answered
from ledger.bundle.layout import tile_name
from ledger.errors import Refused
from ledger.log.tiles import TILE_WIDTH

if TYPE_CHECKING:
    from ledger.local import LocalClient

path_max: Final = 64
_TILE: Final = re.compile(r"tile/(entries|\d|[1-5]\d|6[0-3])/((?:x\d{3}/)*\d{3})(?:\.p/([1-9]\d{0,2}))?", re.ASCII)
_FOR_EVER: Final = "public, max-age=31536000, immutable"


def routes_of(client: LocalClient) -> list[Route]:
    """Return the routes under which a ledger's log is published; GET and HEAD are answered."""

    def checkpoint(request: Request) -> Response:
        return _answer(request, client.published_checkpoint().encode(), "no-cache", TEXT)

    def tile(request: Request) -> Response:
        return _answer(request, _tile(client, request.scope["path"][1:]), _FOR_EVER, BYTES)

    return [Route("/checkpoint", checkpoint), Route("/tile/{path:path}", tile)]


def _tile(client: LocalClient, path: str) -> bytes:
    match = _TILE.fullmatch(path[:path_max])
    if match is not None:
        level, number = match[1], int(match[2].replace("x", "").replace("/", ""))
        width = int(match[3] or TILE_WIDTH)
        if tile_name(level, number, width) == path:  # one path for one tile: no superfluous x000, no .p/256
            with client.log.snapshot() as snapshot:
                if level == "entries":
                    return snapshot.entry_bundle(number, width)
                return snapshot.tile(int(level), number, width)
    raise Refused("NOT_FOUND", "there is no such tile")


def _answer(request: Request, content: bytes, cache: str, media: str) -> Response:
    return answered(request, content, f'"{sha256(content).hexdigest()[:32]}"', cache, media)
