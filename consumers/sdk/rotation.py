"""Replaces the keys of agents, root, nodes and checkpoints; after a crash a usable key is left.

The new key is written first, as ``NAME.key.new`` (and ``NAME.nkey.new``), sealed like the old one. Then the rotation is
submitted. When the ledger has accepted it, the new files replace the old ones, which can sign nothing any more. After a
crash in between, ``settle`` asks the ledger which key is right, before the next signature or rotation:

| we crash after            | the ledger has | then                                                      |
|---------------------------|----------------|-----------------------------------------------------------|
| writing the new files     | the old key    | the old key signs; the next rotation uses the new files   |
| the ledger accepted       | the new key    | the new files replace the old ones                        |
| some files were renamed   | the new key    | the other files are renamed, ``NAME.key.new`` last        |

A new file that exists is used and never written again, because the ledger may still accept its key. If the ledger
refuses a rotation, the new files that this call wrote are deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.authority import CheckpointKeyRotated, KeyRotated
from deedbook.ledger.format.identity import Key, encode_key, open_key, read_key_file, read_private
from deedbook.ledger.home.home import Home, new_bus_key, pending, public_bus_key
from deedbook.ledger.lifecycle.authority import CHECKPOINT, RESERVED_NAMES
from deedbook.ledger.system.files import lock_folder, write_whole

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.client.local import LocalClient


def rotate_agent(
    author: Author, home: Home, name: str, *, passphrase: str | None, reason: str, reopen: Callable[[], Client]
) -> tuple[KeyRotated, Accepted]:
    """Replace the identity key and the bus key of ``name``, signed by ``author``; return event and position.

    With a ``passphrase`` the new key is sealed. The bus keys of root and node stay, because they belong to no agent.
    ``reopen`` connects again as the agent. Raises Refused: the ledger does not admit it, or an existing new key cannot
    be opened with ``passphrase``. Unavailable: the answer is unknown; repeat the call.
    """
    with _alone(home):
        settle(author.client, home, name)
        files = (home.key_file(name), home.nkey_file(name))
        with _forgotten_when_refused(*files):
            key = _new_key(author.client, files[0], name, passphrase)
            rotated = KeyRotated(
                agent=name,
                key=key.public.hex(),
                proof=key.prove_possession(author.client.ledger, name),
                protection=read_key_file(pending(files[0])).protection,
                nkey=None if name in RESERVED_NAMES else _new_bus_key(files[1]),
                reason=reason,
            )
            submission = author.sign(Draft(stream=f"agent/{name}", data=rotated))
            try:
                accepted = author.client.submit(submission)[0]
            except (Refused, Unavailable) as error:
                if error.code not in {"BUS_DENIED", "BUS_UNAVAILABLE"}:
                    raise
                # The server closes the old bus key's connection after the rotation, perhaps before its answer arrives.
                # Over the new key's connection, the same submission gets the first answer or the refusal.
                with reopen() as client:
                    accepted = client.submit(submission)[0]
        _take_over(home, name)
    return rotated, accepted


def rotate_checkpoint(
    client: LocalClient, author: Author, home: Home, *, reason: str
) -> tuple[CheckpointKeyRotated, Accepted]:
    """Replace the key that signs checkpoints, signed by ``author``, who is root.

    Until the new file has replaced the old one, ``LocalClient`` uses whichever of the two the ledger names.
    Raises Refused: the ledger does not admit it.
    """
    path = home.key_file(CHECKPOINT)
    with _alone(home):
        if pending(path).exists() and read_key_file(pending(path)).public in client.checkpoint_keys():
            pending(path).replace(path)
        with _forgotten_when_refused(path):
            key = _new_key(client, path, CHECKPOINT, None)
            proof = key.prove_possession(client.ledger, CHECKPOINT)
            rotated = CheckpointKeyRotated(key=key.public.hex(), proof=proof, reason=reason)
            accepted = author.emit(Draft(stream="ledger", data=rotated))[0]
        pending(path).replace(path)
    return rotated, accepted


def settle(client: Client, home: Home, name: str) -> None:
    """Finish an interrupted rotation of an agent's keys, if the ledger has accepted it."""
    path = pending(home.key_file(name))
    if not path.exists():
        return
    with contextlib.suppress(FileNotFoundError):  # another process has just finished it
        public = read_key_file(path).public
        if any(agent.name == name and agent.key == public for agent in client.agents()):
            _take_over(home, name)


def _take_over(home: Home, name: str) -> None:
    # Keys that the old key delegated ended with it. The identity key is renamed last: while its new file exists,
    # ``settle`` runs this again after a crash.
    home.session_file(name).unlink(missing_ok=True)
    for path in (home.nkey_file(name), home.key_file(name)):
        with contextlib.suppress(FileNotFoundError):  # there is no bus key, or another process renamed it
            pending(path).replace(path)


def _new_key(client: Client, path: Path, name: str, passphrase: str | None) -> Key:
    path = pending(path)
    if path.exists():
        return open_key(path, passphrase)
    key = Key.generate()
    write_whole(path, encode_key(key, ledger=client.ledger, name=name, passphrase=passphrase))
    return key


def _new_bus_key(path: Path) -> str:
    path = pending(path)
    if not path.exists():
        # Written under another name and renamed: after a crash, the next call must not use half a seed.
        made = path.with_suffix(".making")
        made.unlink(missing_ok=True)
        new_bus_key(made)
        made.replace(path)
    return public_bus_key(read_private(path).decode("ascii", "replace").strip())


@contextlib.contextmanager
def _forgotten_when_refused(*paths: Path) -> Iterator[None]:
    """Delete the new files that the block made if the rotation is refused: the next rotation must not use them."""
    made = [pending(path) for path in paths if not pending(path).exists()]
    try:
        yield
    except Refused as refusal:
        # If the bus denies it, an earlier attempt of the same request may still have been accepted.
        if refusal.code != "BUS_DENIED":
            for path in made:
                path.unlink(missing_ok=True)
        raise


def _alone(home: Home) -> contextlib.AbstractContextManager[None]:
    """Lock the folder for one rotation: two at once would overwrite each other's new keys."""
    if not home.keys.is_dir():
        message = f"there are no keys in {home.path}: run this on the machine that has the keys"
        raise Refused("KEY_FILE_MISSING", message, path=str(home.keys))
    return lock_folder(home.keys)
