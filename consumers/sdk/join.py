"""Joining a ledger that is elsewhere: keys are made here, registered by an invitation, and what was joined is checked.

Killed at any point, the same call goes on: the keys that lie here are used, never made anew, and what the ledger has
accepted is not sent again.

| we crash after             | what lies here                | and then                                          |
|----------------------------|-------------------------------|---------------------------------------------------|
| the folder was begun       | ``join.begun``, some keys     | the rest of the keys are made                     |
| the ledger has accepted    | all keys                      | the own bus key is let in, that of the token not  |
| the history was checked    | the folder is trusted         | it is checked once more                           |
| ``client.toml`` is written | everything, ``join.begun``    | the mark is taken away                            |

The ledger's id is the hash of its root key, and what was accepted is read back: entry 0 must name the very root that
the code pins, and authority, replayed from there by the rules, must have this agent with the key that was made here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec
from blake3 import blake3

from deedbook.ledger.bus.loop_thread import Connection
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.format.identity import Key, open_key, read_key_file, write_key
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, new_bus_key, public_bus_key
from deedbook.ledger.home.membership import BEGUN_FILE, Membership, read_membership, write_membership
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE_ROLE
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.system.files import as_unavailable, lock_folder, read_regular, write_whole

let_in_wait_max_s: Final = 15.0
_after_cut_max_s: Final = 5.0
_let_in_poll_s: Final = 0.1


class Joined(msgspec.Struct, frozen=True):
    """The result of joining: membership, public identity key (hex), and index of the registration."""

    membership: Membership
    key: str
    index: int | None


def join(
    invitation: Invitation, home: Home, server: str, *, passphrase: Callable[[], str | None] = lambda: None
) -> Joined:
    """Join by an invitation, with keys and settings in ``home``; called again, go on or return what is so already.

    ``server`` is one URL, or several with commas; ``passphrase`` is asked for when the identity key is made, or opened.
    Raises Refused: ``LEDGER_EXISTS`` for a folder that is somebody's already; ``NOT_INVITED``, ``BUS_DENIED``.
    Corrupted: ``VERIFICATION_FAILED``: it is not the ledger that the code is of. Unavailable: ``BUS_UNAVAILABLE``; the
    same call again goes on.
    """
    membership = Membership(invitation.ledger, invitation.root, server.split(","), invitation.name)
    with as_unavailable(home.path):
        home.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(home.keys):  # one at a time: two would each register the keys that the other is about to make
        _begin(home, invitation, membership)
        key = _identity_key(home, invitation, passphrase)
        # Before the first use of a key that lies here: this user has just made the folder.
        trust.adopt(home.path, invitation.root, now(), membership)
        index = None
        if not _is_let_in(home, invitation, server):
            _register(home, invitation, key, server)
        if not _is_node(invitation):  # a node replays the whole log that it follows, from the root that is pinned now
            settings = Settings(home=home.path.resolve(), server=server, agent=invitation.name)
            index = _check(settings, invitation, key)
            write_membership(home.path, membership)
        (home.path / BEGUN_FILE).unlink(missing_ok=True)
    return Joined(membership, key.public.hex(), index)


def _begin(home: Home, invitation: Invitation, membership: Membership) -> None:
    """Take the folder for this invitation, unless it is somebody's."""
    mark = blake3(invitation.token, derive_key_context="deedbook 2026-11 invitation: marks a folder").hexdigest()
    begun = read_regular(home.path / BEGUN_FILE, size_max_bytes=config_size_max_bytes)
    if begun == mark.encode():
        return
    before = read_membership(home.path)
    if before is not None and begun is None and (before.ledger, before.agent) == (membership.ledger, membership.agent):
        return  # it joined, by this invitation or an earlier one: what follows finds that out
    if begun is not None or home.is_local() or before is not None or any(home.keys.glob("*.*key")):
        whose = f"of {before.agent}" if before else "a ledger's own" if home.is_local() else "begun for somebody else"
        message = f"{trust.quoted_path(home.path)} is {whose}: join in a folder of your own (--home DIR)"
        raise Refused("LEDGER_EXISTS", message, folder=str(home.path))
    (home.path / ".gitignore").write_text("*\n", "ascii")
    write_whole(home.path / BEGUN_FILE, mark.encode())


def _identity_key(home: Home, invitation: Invitation, passphrase: Callable[[], str | None]) -> Key:
    """Return the identity key that lies here, or make it; with the bus key, and a node's key of checkpoints."""
    path, bus = home.key_file(invitation.name), home.nkey_file(invitation.name)
    if not path.exists():
        write_key(path, Key.generate(), ledger=invitation.ledger, name=invitation.name, passphrase=passphrase())
    if _is_node(invitation) and not home.key_file(CHECKPOINT).exists():
        write_key(home.key_file(CHECKPOINT), Key.generate(), ledger=invitation.ledger, name=CHECKPOINT)
    if not bus.exists():
        new_bus_key(bus)
    content = read_key_file(path)
    if content.ledger != invitation.ledger:
        raise Refused("WRONG_LEDGER", f"{path} is a key of another ledger: join in a folder of your own (--home DIR)")
    return open_key(path, passphrase() if content.sealed else None)


def _is_let_in(home: Home, invitation: Invitation, server: str) -> bool:
    """Return whether the server knows the bus key that lies here: then the ledger has accepted it."""
    try:
        Connection(server, invitation.name, home.bus_seed(invitation.name)).close()
    except Refused as refusal:
        if refusal.code != "BUS_DENIED":
            raise
        return False
    return True


def _register(home: Home, invitation: Invitation, key: Key, server: str) -> None:
    """Register the keys that lie here, and wait until they are let in."""
    name, ledger = invitation.name, invitation.ledger
    nkey = public_bus_key(home.bus_seed(invitation.name))
    checkpoint = open_key(home.key_file(CHECKPOINT)) if _is_node(invitation) else None
    data = invitation.make_registered(key, nkey, checkpoint=checkpoint)
    draft = Draft(stream=f"agent/{name}", data=data, idem="join")
    try:
        connection = Connection(server, name, invitation.bus_seed)
    except Refused as refusal:
        raise (_not_let_in(invitation, refusal) if refusal.code == "BUS_DENIED" else refusal) from refusal
    cut: Refused | Unavailable | None = None
    try:
        submission = draft_and_sign([draft], key, ledger=ledger, author=name, at=now())
        connection.request(submit_subject(ledger, name), submission.encode())
    except (Refused, Unavailable) as error:
        # The server that has the news cuts this connection, perhaps before the answer came.
        if error.code not in {"BUS_DENIED", "BUS_UNAVAILABLE"}:
            raise
        cut = error
    finally:
        connection.close()
    deadline = time.monotonic() + (let_in_wait_max_s if cut is None else _after_cut_max_s)
    while not _is_let_in(home, invitation, server):
        if time.monotonic() > deadline:
            if cut is not None:
                raise _not_let_in(invitation, cut) if isinstance(cut, Refused) else cut
            message = f"{name} is registered, but the server does not admit it yet: run the same command again"
            raise Unavailable("BUS_UNAVAILABLE", message, server=server)
        time.sleep(_let_in_poll_s)


def _not_let_in(invitation: Invitation, refusal: Refused) -> Refused:
    """Return the refusal of a token that no server lets in: which of the reasons it is, the server does not say."""
    name, until = invitation.name, clock_text(invitation.expires_ms)
    if invitation.expires_ms <= now_ms():
        why, how = f"has expired ({until})", "expired"
    else:
        why, how = f"is not open there: it was used, taken back or replaced (it would have held until {until})", "ended"
    message = f"the invitation of {name} {why}. Ask an admin for another one: `deed agent invite {name}`"
    return Refused("NOT_INVITED", message, name=name, how=how, reason=refusal.message)


def _check(settings: Settings, invitation: Invitation, key: Key) -> int:
    """Hold the ledger that was joined against the code, and return the entry that registers the key."""
    with RemoteClient(settings) as client:
        root = trust.root_in(client.entry(0))
        if root != invitation.root:
            message = f"the ledger's root key has the fingerprint {root}, and the invitation pins {invitation.root}"
            raise Corrupted("VERIFICATION_FAILED", f"{message}: ask whoever sent it", root=root)
        head = client.streams.read(f"agent/{invitation.name}").head
        agent = client.streams.authority.agent(invitation.name, head.size)
        record = client.streams.authority.key(key.public.hex(), head.size)
    if agent is None or record is None or agent.key != key.public.hex() or not record.is_valid:
        message = f"{invitation.name} is not registered with the key that lies here, or was removed since"
        raise Refused("NOT_INVITED", f"{message}: ask an admin for another invitation, under another name")
    return record.since_index


def _is_node(invitation: Invitation) -> bool:
    return invitation.roles == [NODE_ROLE]
