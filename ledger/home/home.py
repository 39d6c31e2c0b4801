"""A ledger's folder: which file lies where, how a new ledger is made, which key an agent signs with.

.deedbook/
  config.toml        settings (optional)
  chains.toml        chains of handoffs that the router runs (optional)
                     (what acts of these two, and every private key here, is used when the folder is trusted: ``trust``)
  log/               the LMDB environment of the log
  blobs/             the LMDB environment of blobs (once there is one)
  keys/NAME.key      identity keys (0600); root, checkpoint and node among them
  keys/NAME.nkey     the key of an agent's bus connection: never the event key
  keys/NAME.session  a delegated session key
  keys/*.new         keys that replace those beside them, when the ledger has accepted it (`deed key rotate`)
  views.db           views; can always be rebuilt
  logs/              the log folders of Tree-of-Thoughts tasks; can always be written again
  bus/               the embedded nats-server's store, configuration and log
  witnessed          the last checkpoint that witnesses cosigned (if there are any); can be asked for again
  init.begun         there while `init` makes the keys and entry 0: keys beside it are no ledger's yet
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec
import nkeys
from nacl import bindings

from deedbook.ledger.client.author import now
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import (
    Key,
    open_key,
    read_key_file,
    read_private,
    write_private,
)
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.ledger.lifecycle.authority import CHECKPOINT, covers, is_delegable, to_ms
from deedbook.ledger.log.environment import FILE
from deedbook.ledger.proof.checkpoint import CheckpointKey

_SEED: Final = re.compile("SU[A-D][A-Z2-7]{55}")


class Home(msgspec.Struct, frozen=True):
    """The paths in a ledger's folder."""

    path: Path

    @property
    def keys(self) -> Path:
        """The folder of key files."""
        return self.path / "keys"

    @property
    def views(self) -> Path:
        """The file of views."""
        return self.path / VIEWS_FILE

    @property
    def bus(self) -> Path:
        """The folder of the embedded server."""
        return self.path / "bus"

    @property
    def begun(self) -> Path:
        """The file that is there while the ledger is made."""
        return self.path / "init.begun"

    def key_file(self, name: str) -> Path:
        """Return the path of an identity key."""
        return self.keys / f"{name}.key"

    def nkey_file(self, name: str) -> Path:
        """Return the path of a bus key."""
        return self.keys / f"{name}.nkey"

    def session_file(self, name: str) -> Path:
        """Return the path of a session key."""
        return self.keys / f"{name}.session"

    def is_rotating(self, name: str) -> bool:
        """Whether a rotation of an agent's keys was begun here and not finished."""
        return pending(self.key_file(name)).exists()

    @property
    def log_file(self) -> Path:
        """The log's data file."""
        return self.path / "log" / FILE

    def is_local(self) -> bool:
        """Whether the log itself is here (a remote agent's folder holds keys only)."""
        return self.log_file.is_file()

    def checkpoint_key(self, origin: str, public: Collection[str]) -> CheckpointKey:
        """Return the key here that is one of ``public`` (hex), which sign checkpoints under the ledger's origin.

        Raises Refused: as ``open``; ``KEY_FILE_MISSING`` when the file here holds none of them.
        """
        trust.demand(self.path)
        path = self.key_file(CHECKPOINT)
        for file in (path, pending(path)):  # the second, when a rotation was accepted and we crashed before its end
            if file == path or file.exists():
                key = open_key(file)
                if key.public.hex() in public:
                    return CheckpointKey(origin, key.seed)
        message = f"{path} is no key that signs this ledger's checkpoints now: copy here the one that replaced it"
        raise Refused("KEY_FILE_MISSING", message, path=str(path), keys=sorted(public))

    def open(self, name: str, passphrase: str | None = None) -> Key:
        """Return an identity key that lies here, if this user trusts the folder: else it is a stranger's key.

        Raises Refused: ``NOT_TRUSTED``; as ``identity.open_key``.
        """
        trust.demand(self.path)
        return open_key(self.key_file(name), passphrase)

    def signing_key(
        self, name: str, signed: list[tuple[str, str, Any]], ask: Callable[[str], str | None] = lambda _: None
    ) -> Key:
        """Return the key ``name`` signs with: a session key for all (kind, stream, data), else the identity key.

        ``ask`` is called with the name when the identity key is sealed, and may return its passphrase. Raises Refused:
        ``NOT_TRUSTED``, ``KEY_LOCKED``, ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE``.
        """
        trust.demand(self.path)  # before anybody is asked for a passphrase
        if (session := self.session_file(name)).exists():
            content = read_key_file(session)
            is_fresh = content.expires_at is not None and to_ms(content.expires_at) > to_ms(now())
            if is_fresh and all(
                is_delegable(kind, data) and covers(content.kinds, content.streams, kind, stream)
                for kind, stream, data in signed
            ):
                return open_key(session)
        path = self.key_file(name)
        is_sealed = read_key_file(path).sealed is not None
        return open_key(path, ask(name) if is_sealed else None)

    def bus_seed(self, name: str, *, is_new: bool = False) -> str:
        """Return the nkey seed of an agent's bus connection, or (``is_new``) the one that is to take its place.

        Raises Refused: ``NOT_TRUSTED``, ``KEY_FILE_MISSING``, ``KEY_FILE_MODE`` or ``INVALID_FORMAT``.
        """
        trust.demand(self.path)
        path = pending(self.nkey_file(name)) if is_new else self.nkey_file(name)
        seed = read_private(path).decode("ascii", "replace").strip()
        if _SEED.fullmatch(seed) is None:  # of an empty file, say, the connection would only say that it failed
            message = f"{path} holds no key of a bus connection: put a copy of it back"
            raise Refused("INVALID_FORMAT", message, path=str(path))
        return seed


def pending(path: Path) -> Path:
    """Return where the key lies that is to take the place of the one in ``path``."""
    return path.with_name(f"{path.name}.new")


def new_bus_key(path: Path) -> str:
    """Write a new nkey seed to ``path`` and return its public half."""
    seed = bus_seed(bindings.randombytes(32))
    write_private(path, f"{seed}\n".encode())
    return public_bus_key(seed)


def bus_seed(raw: bytes) -> str:
    """Return 32 bytes as the nkey seed of a user."""
    seed: bytes = nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def public_bus_key(seed: str) -> str:
    """Return the public half of an nkey seed."""
    public: bytes = nkeys.from_seed(bytearray(seed.encode())).public_key
    return public.decode()
