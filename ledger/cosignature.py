"""Cosignatures: a witness' signed word that, at a time, a log's largest tree it had seen was this one.

C2SP tlog-cosignature, ``cosignature/v1`` (Ed25519). A *witness* watches that a log only grows: it cosigns a checkpoint
after a proof that the tree begins with the last one it cosigned. So a log that shows two histories needs its witnesses
to lie, too. How many of them somebody wants is a *policy* (``ledger.policy``).

Left out: ML-DSA-44, for which there is no library here that is kept well; a vkey of that type is refused by name.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec

from ledger.checkpoint import COSIGNATURE_KEY, SignatureLine, check_key, key_id, parse_vkey, vkey_of
from ledger.errors import Corrupted
from ledger.identity import verify

_TIME_SIZE_BYTES: Final = 8
_TIME_MAX_S: Final = 2**63 - 1


class Cosigner(msgspec.Struct, frozen=True):
    """The public side of a witness: its name, and 32 bytes of Ed25519.

    Raises:
        Refused: it cannot be a key's name, or the key has another length.
    """

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        check_key(self.name, self.public_key, "public key")

    @classmethod
    def from_vkey(cls, vkey: str) -> Self:
        """Return the witness of a vkey of type 4.

        Raises:
            Refused: as ``checkpoint.parse_vkey``.
        """
        return cls(*parse_vkey(vkey, COSIGNATURE_KEY))

    @property
    def vkey(self) -> str:
        """The text to name the witness with in a policy."""
        return vkey_of(self.name, COSIGNATURE_KEY, self.public_key)

    def times(self, text: str, lines: list[SignatureLine]) -> list[int]:
        """Return when this witness cosigned a note (``split_note``), in Unix seconds.

        Raises:
            Corrupted: a line that names its key does not fit the text, or says no time.
        """
        id_ = key_id(self.name, COSIGNATURE_KEY, self.public_key)
        return [self._time(line, text) for line in lines if (line.name, line.key_id) == (self.name, id_)]

    def _time(self, line: SignatureLine, text: str) -> int:
        time_s = int.from_bytes(line.signature[:_TIME_SIZE_BYTES], "big")
        signed = f"cosignature/v1\ntime {time_s}\n{text}".encode()
        is_signed = verify(self.public_key, signed, line.signature[_TIME_SIZE_BYTES:])
        if not is_signed or not 0 < time_s <= _TIME_MAX_S:
            message = (
                f"a cosignature of the witness {self.name!r} does not fit the checkpoint: it is forged, or it lies"
            )
            raise Corrupted("VERIFICATION_FAILED", message, witness=self.name)
        return time_s
