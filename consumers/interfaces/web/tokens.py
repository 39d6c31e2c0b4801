"""Who may read over HTTP: bearer tokens, each with a role and of a registered agent (RFC 6750).

Loopback is no gate, as every agent on the machine reaches it: reading takes a token there, too. A token is 32 random
bytes, shown once. What is kept is its SHA-256, in a file that only its owner reads: so many random bits are not guessed
from it, and need no slow hash. It reads nothing more once it has expired or was revoked, or as soon as the log says
that its agent was removed or the agent's key has ended. Nothing of it is in the log: it grants nothing but reading.
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
from deedbook.ledger.format.identity import read_private
from deedbook.ledger.system.files import as_unavailable, locked, write_whole

if TYPE_CHECKING:
    from deedbook.ledger.log.state import Snapshot

FILE: Final = "tokens.json"
PREFIX: Final = "deedbook_"
tokens_max: Final = 256
_token_bytes: Final = 32
_log: Final = logging.getLogger("deedbook.web")
_id_digits: Final = 8

Role = Literal["reader", "metrics"]


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a token: by what it is named, whose it is, what it may read, and until when (Unix ms)."""

    id: str
    agent: Name
    role: Role
    digest: str
    created_ms: int
    expires_ms: int


_decoder: Final = msgspec.json.Decoder(list[Token])


class Tokens:
    """The tokens of one ledger; a change by another process counts from the next request on."""

    def __init__(self, home: Path) -> None:
        self._file = home / FILE
        self._seen: tuple[int, int] | None = None
        self._tokens: list[Token] = []

    def present(self) -> list[Token]:
        """Return all that are kept, the oldest first.

        Raises Refused: ``KEY_FILE_MODE`` when others can read the file; ``INVALID_FORMAT`` when it is none of ours.
        """
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return []
        if self._seen != (seen := (status.st_ino, status.st_ctime_ns)):
            try:
                self._tokens = _decoder.decode(read_private(self._file))
            except msgspec.MsgspecError as error:
                raise Refused("INVALID_FORMAT", f"{self._file} holds no tokens ({error}): delete it") from error
            self._seen = seen
        return self._tokens

    def create(self, agent: str, role: Role, expires_ms: int) -> tuple[Token, str]:
        """Keep a new token; return what is kept, and the token itself, which nobody can read here again.

        Raises Refused: ``TOO_LARGE`` when there are too many. Unavailable: ``STORE_UNAVAILABLE``.
        """
        text = PREFIX + secrets.token_urlsafe(_token_bytes)
        digest = sha256(text.encode()).hexdigest()
        token = Token(digest[:_id_digits], agent, role, digest, time.time_ns() // 1_000_000, expires_ms)
        with as_unavailable(self._file), locked(self._file.parent):
            if len(held := self.present()) >= tokens_max:
                raise Refused("TOO_LARGE", f"there are {tokens_max} tokens: `deed token revoke` those of nobody")
            write_whole(self._file, msgspec.json.encode([*held, token]))
        return token, text

    def revoke(self, name: str) -> list[Token]:
        """Keep a token no more, by its id, or all of an agent; return them. Raises Refused: ``NOT_FOUND``."""
        with as_unavailable(self._file), locked(self._file.parent):
            gone = [one for one in self.present() if name in (one.id, one.agent)]
            if not gone:
                raise Refused("NOT_FOUND", f"there is no token {name}, nor one of {name}: see `deed token list`")
            write_whole(self._file, msgspec.json.encode([one for one in self.present() if one not in gone]))
        return gone

    def check(self, header: str, snapshot: Snapshot) -> Token:
        """Return the token that an ``Authorization`` header bears.

        Raises Refused: ``TOKEN_INVALID``. Unavailable: ``STORE_UNAVAILABLE``: the file is none; where it lies, and what
        is wrong with it, is not for whoever asks.
        """
        try:
            known = self.present()
        except DeedbookError as error:
            _log.warning("nobody is let in: %s", error)
            message = "no token can be looked up here: whoever serves this sees why by `deed token list`"
            raise Unavailable("STORE_UNAVAILABLE", message) from error
        scheme, _, text = header.partition(" ")
        digest = sha256(text.strip().encode("utf-8", "surrogateescape")).hexdigest()
        fitting = [one for one in known if hmac.compare_digest(one.digest, digest)]
        if scheme.lower() != "bearer" or not fitting:
            message = "reading takes a token: `deed token create NAME` in the ledger's folder makes one"
            raise Refused("TOKEN_INVALID", message)
        state = state_of(fitting[0], snapshot)
        if state != "valid":
            raise Refused("TOKEN_INVALID", f"this token counts no more ({state}): have another one made", state=state)
        return fitting[0]


def state_of(token: Token, snapshot: Snapshot) -> str:
    """Return ``valid``, ``expired``, or why its agent may read nothing."""
    if token.expires_ms <= time.time_ns() // 1_000_000:
        return "expired"
    agent = snapshot.agent(token.agent)
    if agent is None or agent.removed_index is not None:
        return "agent removed"
    key = snapshot.key(agent.key)
    return "valid" if key is not None and key.is_valid else "key ended"
