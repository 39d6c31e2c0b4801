"""Invitations: one line that lets an agent, or a node, join from where its own keys are made and stay.

Whoever invites makes a random token, and signs into the ledger two public keys that follow from it (``agent.invited``);
the token itself goes along in the code, and nowhere else. From it follow an Ed25519 key that signs for the key which
joins, and an nkey by which a server lets its holder in. They are two keys because a client signs any nonce that a
server sends. The code also pins the ledger: the id and fingerprint of its root key, to which all that is read later
must lead.

Refused: a hash of the token in the log, which would have to be revealed to be checked, so that a reader of the first
attempt could use it for his own key; a key made by whoever invites, which would travel.
"""

from __future__ import annotations

import base64
from typing import Annotated, Final, Self

import msgspec
from blake3 import blake3
from nacl import utils

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentInvited, AgentRegistered, Role
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.identity import Key, joining
from deedbook.ledger.home.home import bus_seed, public_bus_key
from deedbook.ledger.lifecycle.authority import CHECKPOINT
from deedbook.ledger.lifecycle.clock import clock_text

PREFIX: Final = "deedbook-invite:"
code_size_max: Final = 4096
_TOKEN_SIZE_BYTES: Final = 32
_CHECK_SIZE_BYTES: Final = 4
_SIGNING: Final = "deedbook 2026-11 invitation: signs for the key that joins"
_BUS: Final = "deedbook 2026-11 invitation: opens the connection to join"

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Server = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class Invitation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a code says; ``root`` is the fingerprint of the ledger's root key, ``expires_ms`` by the ledger's clock."""

    root: Digest
    name: Name
    roles: list[Role]
    token: bytes
    servers: Annotated[list[Server], msgspec.Meta(max_length=8)]
    expires_ms: int

    def __repr__(self) -> str:
        return f"Invitation({self.name!r})"  # logs and tracebacks never show the token

    @classmethod
    def parse(cls, code: str) -> Self:
        """Return what a code says, of which the ledger will say whether it is so.

        Raises Refused: ``INVALID_FORMAT``: it is no code, or not all of it.
        """
        text = "".join(code[:code_size_max].split()).removeprefix(PREFIX)  # terminals and mails break long lines
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            packed, check = raw[:-_CHECK_SIZE_BYTES], raw[-_CHECK_SIZE_BYTES:]
            invitation = msgspec.msgpack.decode(packed, type=cls)
            is_whole = _check_of(packed) == check and len(invitation.token) == _TOKEN_SIZE_BYTES
        except (*UNREADABLE, ValueError):
            is_whole = False
        if not is_whole:  # raised out here: the errors' own words may hold what is secret
            message = f"this is no whole invitation: copy the line that begins with {PREFIX} as it was printed"
            raise Refused("INVALID_FORMAT", message)
        return invitation

    @property
    def ledger(self) -> str:
        """The id of the ledger: the first digits of the fingerprint, as it is of the same hash."""
        return self.root[:32]

    @property
    def code(self) -> str:
        """The one line to hand over."""
        packed = msgspec.msgpack.encode(self)
        return PREFIX + base64.urlsafe_b64encode(packed + _check_of(packed)).decode().rstrip("=")

    @property
    def key(self) -> Key:
        """The key whose public half ``agent.invited`` names as ``token_key``."""
        return Key(self._derived(_SIGNING))

    def invited(self) -> AgentInvited:
        """Return what whoever invites signs into the ledger."""
        return AgentInvited(
            name=self.name,
            roles=self.roles,
            token_key=self.key.public.hex(),
            nkey=public_bus_key(self.bus_seed),
            expires_at=clock_text(self.expires_ms),
        )

    def registered(self, key: Key, nkey: str | None = None, *, checkpoint: Key | None = None) -> AgentRegistered:
        """Return what who was invited signs with his ``key``; a node names its ``checkpoint`` key, too."""
        return AgentRegistered(
            name=self.name,
            key=key.public.hex(),
            proof=key.prove_possession(self.ledger, self.name),
            roles=self.roles,
            nkey=nkey,
            token_proof=self.key.sign(joining(self.ledger, self.name, key.public)).hex(),
            checkpoint_key=checkpoint.public.hex() if checkpoint else None,
            checkpoint_proof=(
                checkpoint.prove_possession(self.ledger, f"{CHECKPOINT}/{self.name}") if checkpoint else None
            ),
        )

    @property
    def bus_seed(self) -> str:
        """The nkey seed of the connection to join by."""
        return bus_seed(self._derived(_BUS))

    def _derived(self, purpose: str) -> bytes:
        return blake3(self.token, derive_key_context=purpose).digest()


def new_token() -> bytes:
    """Return the random token of one invitation."""
    return utils.random(_TOKEN_SIZE_BYTES)


def _check_of(packed: bytes) -> bytes:
    return blake3(packed).digest(length=_CHECK_SIZE_BYTES)
