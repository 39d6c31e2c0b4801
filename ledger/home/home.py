"""A ledger's folder: its files, and the key that an agent signs with.

.deedbook/
  config.toml        settings (optional)
  chains.toml        chains of handoffs that the router runs (optional)
                     (settings that act, chains, and private keys are used only if the folder is trusted: ``trust``)
  log/               the LMDB environment of the log
  blobs/             the content of blobs, a file each (once there is one); their records are in log/
  keys/NAME.key      identity keys (0600); root, checkpoint and node among them
  keys/NAME.nkey     the key of an agent's bus connection (never the key that signs events)
  keys/NAME.session  a delegated session key
  keys/*.new         keys that replace those beside them once the ledger has accepted the rotation (`deed key rotate`)
  views.db           views; can always be rebuilt
  logs/              folders that families write, such as logs; can always be written again
  bus/               the embedded nats-server's store, configuration and log
  witnessed          the last checkpoint that witnesses cosigned (if there are any); can be requested again
  init.begun         exists while `init` makes the keys and entry 0: keys beside it may belong to no ledger yet
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
from deedbook.ledger.home.location import GIT_FOLDER, VIEWS_FILE
from deedbook.ledger.lifecycle.authority import CHECKPOINT, covers, is_delegable, to_ms
from deedbook.ledger.log.environment import FILE, finish_swap
from deedbook.ledger.proof.checkpoint import CheckpointKey
from deedbook.ledger.system.files import as_unavailable, read_regular, write_whole

_IGNORE_FILE: Final = ".gitignore"
_IGNORE_ALL: Final = b"*\n"
_ignore_file_max_bytes: Final = 1024**2
_SEED: Final = re.compile("SU[A-D][A-Z2-7]{55}")


def check_own_folder(path: Path) -> None:
    """Check that a folder, which may be missing, can become a ledger's folder without harm to files of others.

    A clone or an archive may bring the folder. Through a link in it, keys would be written where git shares them, or a
    file elsewhere would be replaced.

    Raises Refused: ``INVALID_FORMAT``. Unavailable: ``STORE_UNAVAILABLE``.
    """
    with as_unavailable(path, "cannot be read"):
        link = next((entry for entry in path.iterdir() if entry.is_symlink()), None) if path.is_dir() else None
        if link is not None:
            message = f"{trust.quoted_path(link)} is a link, so a part of the ledger would be written elsewhere"
            raise Refused("INVALID_FORMAT", f"{message}. Delete it first.", path=str(link))
        if (path / GIT_FOLDER).exists():
            message = f"{trust.quoted_path(path)} is a git repository, and a ledger needs a folder of its own"
            raise Refused("INVALID_FORMAT", f"{message}, such as .deedbook in it", folder=str(path))
        ignored = read_regular(path / _IGNORE_FILE, size_max_bytes=_ignore_file_max_bytes)
    if ignored not in (None, _IGNORE_ALL):
        message = f"{trust.quoted_path(path / _IGNORE_FILE)} has other content than `*`, but git must ignore a ledger"
        raise Refused("INVALID_FORMAT", f"{message}. Delete it, or choose a folder of its own.", folder=str(path))


def make_own_folder(path: Path) -> None:
    """Make the folder of a ledger, which git ignores.

    Raises Refused: ``INVALID_FORMAT``. Unavailable: ``STORE_UNAVAILABLE``.
    """
    check_own_folder(path)
    with as_unavailable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path / _IGNORE_FILE, _IGNORE_ALL, mode=0o644)


class Home(msgspec.Struct, frozen=True):
    """A ledger's folder: its paths, and its keys if the user trusts it."""

    path: Path

    @property
    def keys(self) -> Path:
        """The folder of key files."""
        return self.path / "keys"

    @property
    def views(self) -> Path:
        """The database of views."""
        return self.path / VIEWS_FILE

    @property
    def bus(self) -> Path:
        """The folder of the embedded nats-server."""
        return self.path / "bus"

    @property
    def init_mark(self) -> Path:
        """The file that exists while `init` makes the ledger."""
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
        """Whether a rotation of an agent's keys was started here and is not finished."""
        return pending(self.key_file(name)).exists()

    @property
    def log_file(self) -> Path:
        """The log's data file."""
        return self.path / "log" / FILE

    def is_local(self) -> bool:
        """Whether the log is in this folder (a remote agent's folder has only keys).

        If a process was killed while it replaced the log's file, this first moves the file back (``log.rewrite``).
        """
        return finish_swap(self.log_file.parent) and self.log_file.is_file()

    def checkpoint_key(self, origin: str, public: Collection[str]) -> CheckpointKey:
        """Return the checkpoint key of this folder, if its public half is among ``public`` (hex).

        Raises Refused: as ``open``; ``KEY_FILE_MISSING`` if the key files here hold none of them.
        """
        trust.demand(self.path)
        path = self.key_file(CHECKPOINT)
        # If a rotation crashed after the ledger had accepted it, the second file has the valid key.
        for file in (path, pending(path)):
            if file == path or file.exists():
                key = open_key(file)
                if key.public.hex() in public:
                    return CheckpointKey(origin, key.seed)
        message = f"{path} no longer signs this ledger's checkpoints: copy the key that replaced it here"
        raise Refused("KEY_FILE_MISSING", message, path=str(path), keys=sorted(public))

    def open(self, name: str, passphrase: str | None = None) -> Key:
        """Return an identity key of this folder, if the user trusts the folder: any other may hold a stranger's key.

        Raises Refused: ``NOT_TRUSTED``; as ``identity.open_key``.
        """
        trust.demand(self.path)
        return open_key(self.key_file(name), passphrase)

    def signing_key(
        self,
        name: str,
        signed: list[tuple[str, str, Any]],
        ask: Callable[[str], Key | str | None] = lambda _: None,
        *,
        is_identity: bool = False,
    ) -> Key:
        """Return the agent's session key if it may sign all of ``signed``, otherwise the agent's identity key.

        With ``is_identity``, always return the identity key.

        ``signed`` lists (kind, stream, data). ``ask`` gets the agent's name if the identity key is sealed, and may
        return the passphrase or the opened key. Raises Refused: ``NOT_TRUSTED``, ``KEY_LOCKED``,
        ``KEY_FILE_MISSING`` or ``KEY_FILE_MODE``.
        """
        trust.demand(self.path)  # before ``ask`` asks a person for a passphrase
        if not is_identity and (session := self.session_file(name)).exists():
            content = read_key_file(session)
            is_fresh = content.expires_at is not None and to_ms(content.expires_at) > to_ms(now())
            if is_fresh and all(
                is_delegable(kind, stream, data) and covers(content.kinds, content.streams, kind, stream)
                for kind, stream, data in signed
            ):
                return open_key(session)
        path = self.key_file(name)
        answer = ask(name) if read_key_file(path).sealed is not None else None
        return answer if isinstance(answer, Key) else open_key(path, answer)

    def bus_seed(self, name: str) -> str:
        """Return the nkey seed of an agent's bus connection.

        Raises Refused: ``NOT_TRUSTED``, ``KEY_FILE_MISSING``, ``KEY_FILE_MODE`` or ``INVALID_FORMAT``.
        """
        trust.demand(self.path)
        return _read_bus_seed(self.nkey_file(name))

    def bus_seeds(self, name: str) -> list[str]:
        """Return the seeds that the server may know: that of an unfinished rotation, if any, and ``bus_seed``.

        Raises Refused: as ``bus_seed``.
        """
        trust.demand(self.path)
        path = pending(self.nkey_file(name))
        # Read in this order: a rotation that ends in between leaves the new seed in the other file.
        new_seeds = [_read_bus_seed(path)] if path.exists() else []
        return [*new_seeds, self.bus_seed(name)]


def _read_bus_seed(path: Path) -> str:
    seed = read_private(path).decode("ascii", "replace").strip()
    if _SEED.fullmatch(seed) is None:  # with an empty file, for example, the connection would fail without a reason
        message = f"{path} holds no key of a bus connection: restore it from a copy"
        raise Refused("INVALID_FORMAT", message, path=str(path))
    return seed


def pending(path: Path) -> Path:
    """Return the path of the key that will replace the one in ``path``."""
    return path.with_name(f"{path.name}.new")


def new_bus_key(path: Path) -> str:
    """Write a new nkey seed to ``path`` and return its public half."""
    seed = bus_seed(bindings.randombytes(32))
    write_private(path, f"{seed}\n".encode())
    return public_bus_key(seed)


def bus_seed(raw: bytes) -> str:
    """Return 32 random bytes encoded as the nkey seed of a user."""
    seed: bytes = nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def public_bus_key(seed: str) -> str:
    """Return the public half of an nkey seed."""
    public: bytes = nkeys.from_seed(bytearray(seed.encode())).public_key
    return public.decode()
