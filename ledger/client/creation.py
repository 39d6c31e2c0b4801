"""Creates a ledger: its folder, its keys and entry 0."""

from __future__ import annotations

from collections.abc import Callable

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.format.identity import Key, ledger_id, open_key, read_key_file, write_key
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home, make_own_folder, new_bus_key
from deedbook.ledger.home.membership import BEGUN_FILE, unfinished_join
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.log.data_file import check_data_file
from deedbook.ledger.log.environment import translate_errors
from deedbook.ledger.log.log import Log
from deedbook.ledger.proof.checkpoint import CheckpointKey
from deedbook.ledger.system.files import as_unavailable, sync_folder


def check_is_new(home: Home) -> None:
    """Refuse a root key that already made a ledger: a second one would have the same id and another history.

    Refuse also the folder of an unfinished `deed join`, whose keys may be registered in another ledger.

    If a file that an unfinished `init` left is beside the key, the key made no ledger yet, and may be used again. This
    mark is not in the key file, because a copied key must not carry it. Raises Refused: ``LEDGER_EXISTS``. Corrupted:
    the ledger in the folder is damaged. Unavailable: ``STORE_UNAVAILABLE``: it cannot be read.
    """
    if (home.path / BEGUN_FILE).exists():
        raise Refused("LEDGER_EXISTS", unfinished_join(home.path), folder=str(home.path))
    path = home.key_file(ROOT)
    if path.exists() and not home.init_mark.exists():
        if home.is_local():
            with translate_errors(home.log_file.parent):
                check_data_file(home.log_file, may_be_new=True)  # its error says how to restore a damaged ledger
            raise _already_exists(home)
        message = (
            f"{path} is the root key of a ledger that exists elsewhere. A second ledger with this key would have the "
            "same id and another history. To use that ledger here, run `deed backup` there and `deed restore` here; "
            f"to make a new one, move {home.keys} away"
        )
        raise Refused("LEDGER_EXISTS", message, folder=str(home.path), key=str(path))


def _already_exists(home: Home) -> Refused:
    return Refused(
        "LEDGER_EXISTS", f"there is a ledger in {home.path} already: `deed next` works with it", folder=str(home.path)
    )


def create_ledger(
    home: Home,
    *,
    origin: str,
    map_size: int,
    passphrase: str | None = None,
    is_trial: bool = False,
    clock_ms: Callable[[], int] | None = None,
) -> str:
    """Create a ledger in ``home`` and return its id. It has three keys and entry 0.

    A passphrase encrypts the root key. A ledger for a first try is marked as one for ever (``is_trial``). ``clock_ms``
    returns the time of entry 0 (default: now). This user trusts the folder from then on, but not a settings file that
    was there before. Raises Refused: ``LEDGER_EXISTS``. Unavailable: ``STORE_UNAVAILABLE`` when the folder cannot be
    written.
    """
    CheckpointKey(origin, bytes(32))  # refuses an origin that cannot name a key, before anything is written
    check_is_new(home)
    make_own_folder(home.path)
    with as_unavailable(home.path):
        (home.path / "log").mkdir(exist_ok=True)
    with Log(home.path, map_size=map_size, create=True) as log:
        with log.snapshot() as snapshot:
            if snapshot.size:
                home.init_mark.unlink(missing_ok=True)  # an `init` was killed between entry 0 and its own unlink
                raise _already_exists(home)
        # Both come before the keys. If we crash after the keys and before entry 0, the next `init` may use the keys: it
        # finds this file, and the keys are in a folder that this user trusts.
        trust.adopt(home.path, "", now())
        home.init_mark.touch(0o600)
        sync_folder(home.path)
        root = _key_for(home, ROOT, passphrase)
        ledger = ledger_id(root.public)
        node, checkpoint = (_key_for(home, name, None, ledger) for name in (NODE, CHECKPOINT))
        for name in (NODE, ROOT):
            if not home.nkey_file(name).exists():
                new_bus_key(home.nkey_file(name))
        created = LedgerCreated(
            origin=origin,
            root=root.public.hex(),
            checkpoint_key=checkpoint.public.hex(),
            node_key=node.public.hex(),
            root_protection=read_key_file(home.key_file(ROOT)).protection,
            trial=is_trial,
        )
        at = now() if clock_ms is None else clock_text(clock_ms())
        Gate(log, clock_ms=clock_ms).submit(
            draft_and_sign([Draft(stream="ledger", data=created)], root, ledger=ledger, author=ROOT, at=at)
        )
    home.init_mark.unlink()
    trust.adopt(home.path, trust.fingerprint(root.public), now())
    return ledger


def _key_for(home: Home, name: str, passphrase: str | None, ledger: str | None = None) -> Key:
    path = home.key_file(name)
    if path.exists():
        return open_key(path, passphrase)
    key = Key.generate()
    write_key(path, key, ledger=ledger or ledger_id(key.public), name=name, passphrase=passphrase)
    return key
