"""A client home: the folder of an agent whose ledger is elsewhere. ``deed join`` makes it.

client.toml  the ledger's id, its root's fingerprint, the URLs of its servers, and the agent's name
keys/        the agent's keys, which were made here
join.begun   exists while `deed join` runs: keys beside it may be registered already, or not

The options of a command and the environment take precedence over ``client.toml``. The file is TOML with one value a
line. It is read without the standard library's parser, because importing that takes a fifth of a bare start.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE, convert
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.system.files import read_regular, write_whole

CLIENT_FILE: Final = "client.toml"
BEGUN_FILE: Final = "join.begun"
_NOTE: Final = "# Written by `deed join`: the defaults of every command in this folder."


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``client.toml``: the ledger's id and root fingerprint, its servers' URLs, and the agent."""

    ledger: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
    root: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    servers: list[str]
    agent: str

    @property
    def server(self) -> str | None:
        """The servers as one value of ``--server``; None if there are none."""
        return ",".join(self.servers) or None


def read_membership(home: Path) -> Membership | None:
    """Return the membership of a client home; None if ``home`` is not one.

    Raises Refused: ``INVALID_FORMAT`` if ``deed join`` did not write the file. Unavailable: ``STORE_UNAVAILABLE``.
    """
    content = read_regular(home / CLIENT_FILE, size_max_bytes=config_size_max_bytes)
    if content is None:
        return None
    try:
        lines = [line for line in content.decode().splitlines() if line and not line.startswith("#")]
        fields = {name: msgspec.json.decode(value) for name, _, value in (line.partition(" = ") for line in lines)}
        return convert(fields, Membership)
    except UNREADABLE as error:
        message = f"{home / CLIENT_FILE} is not as `deed join` writes it ({error}): correct it, one value a line"
        raise Refused("INVALID_FORMAT", message, path=str(home / CLIENT_FILE)) from error


def unfinished_join(home: Path) -> str:
    """Return what a folder with ``join.begun`` lacks, and the command that continues."""
    option = "" if home.name == FOLDER else f" --home {quote(str(home))}"
    command = f"deed join CODE{option}"
    return f"a join is unfinished in {home}: repeat `{command}` with the same code, or {remove_unfinished(home)}"


def remove_unfinished(home: Path) -> str:
    """Return how to remove the folder of an unfinished join."""
    return f"remove what it left (`rm -r {quote(str(home))}`)"


def write_membership(home: Path, membership: Membership) -> None:
    """Write ``client.toml``: whole, or not at all. Raises Unavailable: ``STORE_UNAVAILABLE``."""
    fields = msgspec.to_builtins(membership)
    lines = [_NOTE, *(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items())]
    write_whole(home / CLIENT_FILE, "\n".join([*lines, ""]).encode())
