"""Joins a remote ledger: makes keys here, registers them by an invitation, and checks the ledger.

Before anything is made here, the server must admit the invitation. If the process dies at any point, the same call
continues. It uses the keys that exist here and never makes others, and it does not repeat a registration that the
ledger has accepted.

| we crash after             | the folder has                 | the next call                                       |
|----------------------------|--------------------------------|-----------------------------------------------------|
| the folder was begun       | ``join.begun``, some keys      | makes the missing keys                              |
| the ledger accepted        | all keys                       | connects with its own bus key, not with the token's |
| the history was checked    | all keys, and is trusted       | checks the history again                            |
| ``client.toml`` is written | everything, and ``join.begun`` | removes ``join.begun``                              |

The ledger's id is the hash of its root key. The registration is read back and checked: entry 0 must name the root key
that the code pins, and authority, replayed from there by the rules, must have this agent with the key made here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
from deedbook.ledger.home.home import Home, check_own_folder, make_own_folder, new_bus_key, public_bus_key
from deedbook.ledger.home.membership import (
    BEGUN_FILE,
    Membership,
    read_membership,
    remove_unfinished,
    write_membership,
)
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
    invitation: Invitation,
    home: Home,
    server: str,
    *,
    passphrase: Callable[[], str | None] = lambda: None,
    progress: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Joined:
    """Join a ledger by an invitation, with keys and settings in ``home``; a repeated call continues.

    ``server`` is one URL, or several with commas; ``passphrase`` returns the passphrase of the identity key.
    ``progress()`` is entered for slow steps: registering, and reading the history. Raises Refused: ``LEDGER_EXISTS`` if
    the folder is in use; ``NOT_INVITED``, ``BUS_DENIED``. Corrupted: ``VERIFICATION_FAILED``: the invitation is of
    another ledger. Unavailable: ``BUS_UNAVAILABLE``; repeat the call.
    """
    membership = Membership(invitation.ledger, invitation.root, server.split(","), invitation.name)
    check_own_folder(home.path)
    if not _is_begun(home, invitation, membership):
        with progress():
            _open_invited(invitation, server).close()  # a refused invitation or an absent server leaves nothing here
    with as_unavailable(home.path):
        home.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(home.keys):  # one process at a time: two would overwrite each other's keys
        _begin(home, invitation, membership)
        key = _identity_key(home, invitation, passphrase)
        # Keys are only used in a trusted folder, and this user has just made it.
        trust.adopt(home.path, invitation.root, now(), membership)
        index = None
        with progress():
            if not _is_let_in(home, invitation, server):
                _register(home, invitation, key, server)
            # a node replays the whole log from the pinned root, so it does not need this check
            if not _is_node(invitation):
                settings = Settings(home=home.path.resolve(), server=server, agent=invitation.name)
                index = _check(settings, invitation, key)
                write_membership(home.path, membership)
        (home.path / BEGUN_FILE).unlink(missing_ok=True)
    return Joined(membership, key.public.hex(), index)


def move(home: Home, servers: list[str]) -> Membership:
    """Let a folder that joined find its ledger at other addresses; return its membership.

    A server at each of them must admit this agent, continue the history that was read before, and name the same root.
    Keys, spool and trusted heads stay. If we crash between the two writes, the same call continues. Raises Refused:
    ``USAGE``: it joined no ledger; ``NOT_TRUSTED``; ``BUS_DENIED``. Corrupted: ``VERIFICATION_FAILED``,
    ``HISTORY_CHANGED``. Unavailable: ``BUS_UNAVAILABLE``. Then nothing was changed.
    """
    before = read_membership(home.path)
    if before is None:
        message = f"{trust.quoted_path(home.path)} joined no ledger: join one with `deed join CODE`"
        raise Refused("USAGE", message, folder=str(home.path))
    after = msgspec.structs.replace(before, servers=servers)
    with lock_folder(home.keys):
        try:
            trust.check_client(home.path, before)
        except Refused:
            trust.check_client(home.path, after)  # an earlier call crashed between the two writes
        for server in servers:
            _prove(home, before, server)
        trust.move_client(home.path, after)
        write_membership(home.path, after)
    return after


def _prove(home: Home, membership: Membership, server: str) -> None:
    """Check that the ledger that a folder joined is at ``server``. Raises as ``move``."""
    settings = Settings(home=home.path.resolve(), server=server, agent=membership.agent)
    with RemoteClient(settings) as client:  # it verifies the history
        root, answering = trust.root_in(client.entry(0)), client.server
    if answering != server:  # the client found this address by itself
        message = f"no node of this ledger lets {membership.agent} in at {server}, but one does at {answering}"
        raise Unavailable("BUS_UNAVAILABLE", message, server=server)
    if root != membership.root:
        message = f"the root key of the ledger at {server} has the fingerprint {root}, not {membership.root}"
        raise Corrupted("VERIFICATION_FAILED", f"{message}: it is another ledger", root=root)


def _is_begun(home: Home, invitation: Invitation, membership: Membership) -> bool:
    """Return whether the folder was begun for this invitation or joined as its agent; False: the folder is unused.

    Raises Refused: ``LEDGER_EXISTS`` if it is in use.
    """
    begun = read_regular(home.path / BEGUN_FILE, size_max_bytes=config_size_max_bytes)
    if begun == _mark(invitation):
        return True
    before = read_membership(home.path)
    if before is not None and begun is None and (before.ledger, before.agent) == (membership.ledger, membership.agent):
        return True  # it joined before, by this or another invitation; the next steps decide
    if begun is None and before is None and not home.is_local() and not any(home.keys.glob("*.*key")):
        return False
    path = trust.quoted_path(home.path)
    if begun is not None and before is None:
        message = (
            f"a join by another invitation is unfinished in {path}: repeat `deed join` with that code, or "
            f"{remove_unfinished(home.path)}, and join by this one"
        )
    else:
        whose = f"the folder of {before.agent}" if before else "a ledger" if home.is_local() else "in use for keys"
        message = f"{path} is already {whose}: join in another folder (--home DIR)"
    raise Refused("LEDGER_EXISTS", message, folder=str(home.path))


def _begin(home: Home, invitation: Invitation, membership: Membership) -> None:
    """Mark the folder as begun for this invitation. Raises Refused: ``LEDGER_EXISTS`` if it is in use."""
    if not _is_begun(home, invitation, membership):
        make_own_folder(home.path)
        write_whole(home.path / BEGUN_FILE, _mark(invitation))


def _mark(invitation: Invitation) -> bytes:
    context = "deedbook 2026-11 invitation: marks a folder"
    return blake3(invitation.token, derive_key_context=context).hexdigest().encode()


def _identity_key(home: Home, invitation: Invitation, passphrase: Callable[[], str | None]) -> Key:
    """Return the identity key; make it, the bus key and a node's checkpoint key if they do not exist."""
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
    """Return whether the server admits our bus key. If it does, the ledger has accepted the registration."""
    try:
        Connection(server, invitation.name, home.bus_seed(invitation.name)).close()
    except Refused as refusal:
        if refusal.code != "BUS_DENIED":
            raise
        return False
    return True


def _register(home: Home, invitation: Invitation, key: Key, server: str) -> None:
    """Register our keys, and wait until the server admits them."""
    name, ledger = invitation.name, invitation.ledger
    nkey = public_bus_key(home.bus_seed(invitation.name))
    checkpoint = open_key(home.key_file(CHECKPOINT)) if _is_node(invitation) else None
    protection = read_key_file(home.key_file(name)).protection
    data = invitation.make_registered(key, nkey, checkpoint=checkpoint, protection=protection)
    draft = Draft(stream=f"agent/{name}", data=data, idem="join")
    connection = _open_invited(invitation, server, home)
    cut: Refused | Unavailable | None = None
    try:
        submission = draft_and_sign([draft], key, ledger=ledger, author=name, at=now())
        connection.request(submit_subject(ledger, name), submission.encode())
    except (Refused, Unavailable) as error:
        # The server closes the token's connection after the registration, perhaps before the answer arrives.
        if error.code not in {"BUS_DENIED", "BUS_UNAVAILABLE"}:
            raise
        cut = error
    finally:
        connection.close()
    deadline = time.monotonic() + (let_in_wait_max_s if cut is None else _after_cut_max_s)
    while not _is_let_in(home, invitation, server):
        if time.monotonic() > deadline:
            if cut is not None:
                raise _not_let_in(invitation, cut, home) if isinstance(cut, Refused) else cut
            message = f"{name} is registered, but the server does not admit it yet: run the same command again"
            raise Unavailable("BUS_UNAVAILABLE", message, server=server)
        time.sleep(_let_in_poll_s)


def _open_invited(invitation: Invitation, server: str, begun: Home | None = None) -> Connection:
    """Return a connection that the server admits by the invitation; ``begun`` is a folder that already has keys.

    Raises Refused: ``NOT_INVITED``. Unavailable: ``BUS_UNAVAILABLE``.
    """
    try:
        return Connection(server, invitation.name, invitation.bus_seed)
    except Refused as refusal:
        raise (_not_let_in(invitation, refusal, begun) if refusal.code == "BUS_DENIED" else refusal) from refusal


def _not_let_in(invitation: Invitation, refusal: Refused, begun: Home | None) -> Refused:
    """Return the refusal of a token that the server does not admit; the server does not give the reason."""
    name, until = invitation.name, clock_text(invitation.expires_ms)
    if invitation.expires_ms <= now_ms():
        why, how = f"has expired ({until})", "expired"
    else:
        why, how = f"is not open: it was used, revoked or replaced (it would have expired at {until})", "ended"
    message = f"the invitation of {name} {why}. Ask an admin for another one: `deed agent invite {name}`"
    if begun is not None and (begun.path / BEGUN_FILE).exists():
        message += f". Before you join by it, {remove_unfinished(begun.path)}"
    return Refused("NOT_INVITED", message, name=name, how=how, reason=refusal.message)


def _check(settings: Settings, invitation: Invitation, key: Key) -> int:
    """Check the joined ledger against the invitation, and return the entry that registers the key."""
    with RemoteClient(settings) as client:
        root = trust.root_in(client.entry(0))
        if root != invitation.root:
            message = f"the ledger's root key has the fingerprint {root}, and the invitation pins {invitation.root}"
            raise Corrupted("VERIFICATION_FAILED", f"{message}: ask its sender", root=root)
        head = client.streams.read(f"agent/{invitation.name}").head
        agent = client.streams.authority.agent(invitation.name, head.size)
        record = client.streams.authority.key(key.public.hex(), head.size)
    if agent is None or record is None or agent.key != key.public.hex() or not record.is_valid:
        message = f"{invitation.name} is not registered with the key in this folder, or was removed since"
        raise Refused("NOT_INVITED", f"{message}: ask an admin for another invitation, under another name")
    return record.since_index


def _is_node(invitation: Invitation) -> bool:
    return invitation.roles == [NODE_ROLE]
