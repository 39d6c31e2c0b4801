"""Bearer tokens for HTTP, each with a role and for a registered agent (RFC 6750).

A token of the role ``metrics`` needs no agent: it reads no entry, and a scraper should not become an agent. Its name is
only a label, unless an agent has this name. Requests over loopback need a token, too, because every agent on the
machine can send them. A token is 32 random bytes and is shown once. Its SHA-256 is stored in a file that only its owner
can read; nobody can guess so many random bits from it, so no slow hash is needed. A token becomes invalid if it expires
or is revoked, or if the log removes its agent or ends the agent's key. The log contains nothing about tokens, because
they grant only reading, and sending events that their agent's keys signed.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import json_decoder
from deedbook.ledger.format.identity import read_private
from deedbook.ledger.system.files import as_unavailable, lock_folder, write_whole

if TYPE_CHECKING:
    from deedbook.ledger.log.state import Snapshot

FILE: Final = "tokens.json"
PREFIX: Final = "deedbook_"
tokens_max: Final = 256
_token_bytes: Final = 32
_log: Final = logging.getLogger("deedbook.web")
_id_digits: Final = 8

Role = Literal["reader", "writer", "metrics"]


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored token: its id, agent, role, digest, creation and expiry (Unix ms)."""

    id: str
    agent: Name
    role: Role
    digest: str
    created_ms: int
    expires_ms: int


_decoder: Final = json_decoder(list[Token])


class Tokens:
    """The tokens of one ledger; a change by another process counts from the next request on."""

    def __init__(self, home: Path) -> None:
        self._file = home / FILE
        self._version: tuple[int, int] | None = None
        self._tokens: list[Token] = []

    def present(self) -> list[Token]:
        """Return all stored tokens, oldest first.

        Raises Refused: ``KEY_FILE_MODE`` if others can read the file; ``INVALID_FORMAT`` if it is not a token file.
        """
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return []
        if self._version != (version := (status.st_ino, status.st_ctime_ns)):
            try:
                self._tokens = _decoder.decode(read_private(self._file))
            except msgspec.MsgspecError as error:
                raise Refused("INVALID_FORMAT", f"{self._file} is not a token file ({error}): delete it") from error
            self._version = version
        return self._tokens

    def create(self, agent: str, role: Role, expires_ms: int) -> tuple[Token, str]:
        """Store a new token; return the stored record and the token itself, which cannot be read again.

        Raises Refused: ``TOO_LARGE`` if there are too many. Unavailable: ``STORE_UNAVAILABLE``.
        """
        text = PREFIX + secrets.token_urlsafe(_token_bytes)
        digest = sha256(text.encode()).hexdigest()
        token = Token(digest[:_id_digits], agent, role, digest, time.time_ns() // 1_000_000, expires_ms)
        with as_unavailable(self._file), lock_folder(self._file.parent):
            if len(tokens := self.present()) >= tokens_max:
                raise Refused(
                    "TOO_LARGE", f"there are already {tokens_max} tokens: revoke unused ones with `deed token revoke`"
                )
            write_whole(self._file, msgspec.json.encode([*tokens, token]))
        return token, text

    def revoke(self, name: str) -> list[Token]:
        """Delete a token by its id, or all tokens of an agent; return them. Raises Refused: ``NOT_FOUND``."""
        with as_unavailable(self._file), lock_folder(self._file.parent):
            revoked = [token for token in self.present() if name in (token.id, token.agent)]
            if not revoked:
                raise Refused(
                    "NOT_FOUND", f"there is no token {name} and no token of an agent {name}: see `deed token list`"
                )
            write_whole(self._file, msgspec.json.encode([token for token in self.present() if token not in revoked]))
        return revoked

    def check(self, header: str, snapshot: Snapshot) -> Token:
        """Return the token in an ``Authorization`` header.

        Raises Refused: ``TOKEN_INVALID``. Unavailable: ``STORE_UNAVAILABLE`` if the token file cannot be read; the
        client gets neither its path nor the problem.
        """
        try:
            known = self.present()
        except DeedbookError as error:
            _log.warning("every reader is refused: %s", error)
            message = "tokens cannot be checked: the operator of this server finds the reason with `deed token list`"
            raise Unavailable("STORE_UNAVAILABLE", message) from error
        scheme, _, text = header.partition(" ")
        digest = sha256(text.strip().encode("utf-8", "surrogateescape")).hexdigest()
        matches = [candidate for candidate in known if hmac.compare_digest(candidate.digest, digest)]
        if scheme.lower() != "bearer" or not matches:
            message = "this needs a token: make one with `deed token create NAME` in the ledger's folder"
            raise Refused("TOKEN_INVALID", message)
        state = state_of(matches[0], snapshot)
        if state != "valid":
            raise Refused("TOKEN_INVALID", f"this token is no longer valid ({state}): ask for a new one", state=state)
        return matches[0]


def state_of(token: Token, snapshot: Snapshot) -> str:
    """Return ``valid``, ``expired``, or the reason why its agent may not read."""
    if token.expires_ms <= time.time_ns() // 1_000_000:
        return "expired"
    agent = snapshot.agent(token.agent)
    if agent is None and token.role == "metrics":
        return "valid"
    if agent is None or agent.removed_index is not None:
        return "agent removed"
    key = snapshot.key(agent.key)
    return "valid" if key is not None and key.is_valid else "key ended"
