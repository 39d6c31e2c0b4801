"""Invitations: a code of one line with which an agent or a node joins.

The agent or node makes its own keys on its machine, and they stay there. The inviter makes a random token. Two key
pairs are derived from it: an Ed25519 key that signs for the joining key, and an nkey with which the server accepts the
connection. There are two keys, because a client signs any nonce that a server sends. The inviter signs both public keys
into the ledger (``agent.invited``). Only the code contains the token. The code also contains the fingerprint of the
ledger's root key: everything that is read later must be signed by a chain of keys from it.

Rejected: a hash of the token in the log. The agent that joins would have to reveal the token, and anybody who read
that attempt could use the token first, with their own key. Also rejected: a key made by the inviter, because it would
have to be sent.
"""

from __future__ import annotations

import base64
from typing import Annotated, Final, Self

import msgspec
from blake3 import blake3
from nacl import utils

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentInvited, AgentRegistered, Protection, Role
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import UNREADABLE, read_msgpack
from deedbook.ledger.format.identity import Key, joining
from deedbook.ledger.home.home import bus_seed, public_bus_key
from deedbook.ledger.lifecycle.authority import CHECKPOINT
from deedbook.ledger.lifecycle.clock import clock_text

PREFIX: Final = "deedbook-invite:"
code_size_max: Final = 4096
expires_max_ms: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that can be written as text (RFC 3339)."""
_TOKEN_SIZE_BYTES: Final = 32
_CHECK_SIZE_BYTES: Final = 4
_SIGNING: Final = "deedbook 2026-11 invitation: signs for the key that joins"
_BUS: Final = "deedbook 2026-11 invitation: opens the connection to join"

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Server = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class Invitation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a code. ``root`` is the fingerprint of the root key; ``expires_ms`` is by the ledger's clock."""

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
        """Return the invitation in a code. It is only decoded: the ledger checks it when the agent joins.

        Raises Refused: ``INVALID_FORMAT``: it is no code, or not the whole code.
        """
        text = "".join(code[:code_size_max].split()).removeprefix(PREFIX)  # terminals and mails break long lines
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            packed, check = raw[:-_CHECK_SIZE_BYTES], raw[-_CHECK_SIZE_BYTES:]
            invitation = read_msgpack(packed, cls)
            is_whole = _checksum(packed) == check and len(invitation.token) == _TOKEN_SIZE_BYTES
        except (*UNREADABLE, ValueError):
            is_whole = False
        if not is_whole:  # raised outside of the handler, because the cause may contain the token
            message = f"this is not a complete invitation: copy the whole line that begins with {PREFIX}"
            if "://" in code:
                message = "an address is no invitation: `deed agent invite NAME`, where the ledger is, prints one"
            raise Refused("INVALID_FORMAT", message)
        if not 0 <= invitation.expires_ms <= expires_max_ms:
            message = "this invitation ends at a time that no clock shows, so no ledger made it: ask for another one"
            raise Refused("INVALID_FORMAT", message)
        return invitation

    @property
    def ledger(self) -> str:
        """The id of the ledger: the first 32 digits of the fingerprint, because both are the same hash."""
        return self.root[:32]

    @property
    def code(self) -> str:
        """The invitation as one line of text, for the agent that joins."""
        packed = msgspec.msgpack.encode(self)
        return PREFIX + base64.urlsafe_b64encode(packed + _checksum(packed)).decode().rstrip("=")

    @property
    def key(self) -> Key:
        """The key whose public half ``agent.invited`` names as ``token_key``."""
        return Key(self._derive(_SIGNING))

    def make_invited(self) -> AgentInvited:
        """Return the data of the event ``agent.invited``, which the inviter signs."""
        return AgentInvited(
            name=self.name,
            roles=self.roles,
            token_key=self.key.public.hex(),
            nkey=public_bus_key(self.bus_seed),
            expires_at=clock_text(self.expires_ms),
        )

    def make_registered(
        self, key: Key, nkey: str | None = None, *, checkpoint: Key | None = None, protection: Protection = "none"
    ) -> AgentRegistered:
        """Return the data of the event ``agent.registered``, which the joining agent signs with ``key``.

        A node also names its ``checkpoint`` key. ``protection`` is how ``key`` is stored.
        """
        return AgentRegistered(
            name=self.name,
            key=key.public.hex(),
            proof=key.prove_possession(self.ledger, self.name),
            roles=self.roles,
            protection=protection,
            nkey=nkey,
            token_proof=self.key.sign(joining(self.ledger, self.name, key.public)).hex(),
            checkpoint_key=checkpoint.public.hex() if checkpoint else None,
            checkpoint_proof=(
                checkpoint.prove_possession(self.ledger, f"{CHECKPOINT}/{self.name}") if checkpoint else None
            ),
        )

    @property
    def bus_seed(self) -> str:
        """The nkey seed with which the agent connects to join."""
        return bus_seed(self._derive(_BUS))

    def _derive(self, purpose: str) -> bytes:
        return blake3(self.token, derive_key_context=purpose).digest()


def new_token() -> bytes:
    """Return the random token of one invitation."""
    return utils.random(_TOKEN_SIZE_BYTES)


def _checksum(packed: bytes) -> bytes:
    return blake3(packed).digest(length=_CHECK_SIZE_BYTES)
