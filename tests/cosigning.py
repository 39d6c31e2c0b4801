"""Witnesses for tests, written from C2SP tlog-cosignature alone. Tests can let them sign wrong statements."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Final

from nacl.signing import SigningKey

TIME_S: Final = 1_800_000_000


class Signer:
    """A witness with a key."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.key = SigningKey(bytes([seed]) * 32)
        self.public = bytes(self.key.verify_key)
        self.id = sha256(name.encode() + b"\n\x04" + self.public).digest()[:4]

    @property
    def vkey(self) -> str:
        """The vkey of the witness, of type 4."""
        return f"{self.name}+{self.id.hex()}+{b64encode(bytes([4]) + self.public).decode()}"

    def line(self, note: str, time_s: int = TIME_S, *, signed_time_s: int | None = None) -> str:
        """Return the signature line of the witness for a note."""
        text = note.rpartition("\n\n")[0] + "\n"
        message = f"cosignature/v1\ntime {time_s if signed_time_s is None else signed_time_s}\n{text}"
        blob = self.id + time_s.to_bytes(8, "big") + self.key.sign(message.encode()).signature
        return f"— {self.name} {b64encode(blob).decode()}\n"
