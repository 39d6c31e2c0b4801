"""A client home: the folder of an agent whose ledger is elsewhere, as ``deed join`` makes it.

client.toml    which ledger, its root's fingerprint, where its servers are, and whose home this is
keys/          the agent's keys, made there
join.begun     there while it is made: keys beside it may be registered by now, or not

What is given to a command, and the environment, win over ``client.toml``, which is TOML of one form, one value a line,
read back without the standard library's parser, whose import costs a fifth of a bare start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.system.files import read_regular, write_whole

CLIENT_FILE: Final = "client.toml"
BEGUN_FILE: Final = "join.begun"
_NOTE: Final = "# Written by `deed join`: what every command in this folder means unless it is told otherwise."


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``client.toml`` says: the ledger's id and root fingerprint, its servers' URLs, and the agent."""

    ledger: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
    root: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    servers: list[str]
    agent: str

    @property
    def server(self) -> str | None:
        """The servers as ``--server`` takes them; None when none is known."""
        return ",".join(self.servers) or None


def read_membership(home: Path) -> Membership | None:
    """Return what a client home says; None where ``home`` is none.

    Raises Refused: ``INVALID_FORMAT`` for what ``deed join`` did not write. Unavailable: ``STORE_UNAVAILABLE``.
    """
    content = read_regular(home / CLIENT_FILE, size_max_bytes=config_size_max_bytes)
    if content is None:
        return None
    try:
        lines = [line for line in content.decode().splitlines() if line and not line.startswith("#")]
        fields = {name: msgspec.json.decode(value) for name, _, value in (line.partition(" = ") for line in lines)}
        return msgspec.convert(fields, Membership)
    except UNREADABLE as error:
        message = f"{home / CLIENT_FILE} is not what `deed join` wrote ({error}): put it right, one value a line"
        raise Refused("INVALID_FORMAT", message, path=str(home / CLIENT_FILE)) from error


def write_membership(home: Path, membership: Membership) -> None:
    """Write ``client.toml``: whole, or not at all. Raises Unavailable: ``STORE_UNAVAILABLE``."""
    fields = msgspec.to_builtins(membership)
    lines = [_NOTE, *(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items())]
    write_whole(home / CLIENT_FILE, "\n".join([*lines, ""]).encode())
