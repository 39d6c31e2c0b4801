"""Making a new ledger: its folder, its keys and entry 0."""

from __future__ import annotations

from collections.abc import Callable

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.format.identity import Key, ledger_id, open_key, write_key
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home, new_bus_key
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.log.data_file import check_data_file
from deedbook.ledger.log.environment import translate_errors
from deedbook.ledger.log.log import Log
from deedbook.ledger.proof.checkpoint import CheckpointKey
from deedbook.ledger.system.files import as_unavailable, sync_folder


def check_is_new(home: Home) -> None:
    """Refuse to make a ledger of a root key that has made one already: both would have one id and two histories.

    That an unfinished `init` left the key is told by a file beside the keys, not by a mark in the key: who copies a key
    does not copy it, and the key is never written again. Raises Refused: ``LEDGER_EXISTS``. Corrupted: the ledger that
    is there is damaged. Unavailable: ``STORE_UNAVAILABLE``: it cannot be read.
    """
    path = home.key_file(ROOT)
    if path.exists() and not home.begun.exists():
        if home.is_local():
            with translate_errors(home.log_file.parent):
                check_data_file(home.log_file, may_be_new=True)  # of a damaged ledger, say how to get it back
            raise _exists(home)
        message = (
            f"{path} is the root of a ledger that exists already, elsewhere: a second one made of it would have the "
            "same id and another history. To have that ledger here: `deed backup` there, `deed restore` here; "
            f"to make a new one: move {home.keys} away"
        )
        raise Refused("LEDGER_EXISTS", message, folder=str(home.path), key=str(path))


def _exists(home: Home) -> Refused:
    return Refused("LEDGER_EXISTS", f"there is a ledger in {home.path} already", folder=str(home.path))


def create_ledger(
    home: Home,
    *,
    origin: str,
    map_size: int,
    passphrase: str | None = None,
    clock_ms: Callable[[], int] | None = None,
) -> str:
    """Make a new ledger in ``home``: three keys and entry 0. Returns the ledger's id.

    The root key is sealed when there is a passphrase; entry 0 is of the time that ``clock_ms`` gives (default: now).
    This user trusts the folder from then on, but not a file of settings that lay there before. Raises Refused:
    ``LEDGER_EXISTS``. Unavailable: ``STORE_UNAVAILABLE`` when the folder cannot be written.
    """
    CheckpointKey(origin, bytes(32))  # an origin that cannot name a key is refused before anything is written
    check_is_new(home)
    with as_unavailable(home.path):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home.path / ".gitignore").write_text("*\n", "ascii")
        (home.path / "log").mkdir(exist_ok=True)
    with Log(home.path, map_size=map_size, create=True) as log:
        with log.snapshot() as snapshot:
            if snapshot.size:
                home.begun.unlink(missing_ok=True)  # its maker was killed after entry 0
                raise _exists(home)
        trust.adopt(home.path, "", now())  # already now: so keys of an `init` that was killed are known to be its own
        home.begun.touch(0o600)  # before the first key: if we crash with keys and without entry 0, it is still there
        sync_folder(home.path)
        root = _key_for(home, ROOT, passphrase)
        ledger = ledger_id(root.public)
        node, checkpoint = (_key_for(home, name, None, ledger) for name in (NODE, CHECKPOINT))
        for name in (NODE, ROOT):
            if not home.nkey_file(name).exists():
                new_bus_key(home.nkey_file(name))
        created = LedgerCreated(
            origin=origin, root=root.public.hex(), checkpoint_key=checkpoint.public.hex(), node_key=node.public.hex()
        )
        at = now() if clock_ms is None else clock_text(clock_ms())
        # If we crash before this, there are keys without entry 0: the next call goes on with them.
        Gate(log, clock_ms=clock_ms).submit(
            draft_and_sign([Draft(stream="ledger", data=created)], root, ledger=ledger, author=ROOT, at=at)
        )
    home.begun.unlink()
    trust.adopt(home.path, trust.fingerprint(root.public), now())
    return ledger


def _key_for(home: Home, name: str, passphrase: str | None, ledger: str | None = None) -> Key:
    path = home.key_file(name)
    if path.exists():
        return open_key(path, passphrase)
    key = Key.generate()
    write_key(path, key, ledger=ledger or ledger_id(key.public), name=name, passphrase=passphrase)
    return key
