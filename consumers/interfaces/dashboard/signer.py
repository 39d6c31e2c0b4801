"""The key with which a person decides here: opened by his passphrase for one decision, or for a short, visible time.

What is opened stays in this process's memory, of the one browser session that opened it, and is forgotten when its
time is over, whether anybody asks or not. A cookie, which servers on other ports are sent, too, reads every page and
its form, so it must not sign: what is open signs with a proof that the browser was given when it opened it, and keeps
where no other port looks (the fragment of an address, then the storage of its origin). For the same reason it is the
identity key that signs, never a session key, which lies unsealed; and an identity key that lies unsealed is refused
here. The passphrase itself is kept, shown and logged nowhere.
"""

from __future__ import annotations

import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.limits import key_unlocked_max_s, passphrase_wait_max_s

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger
    from deedbook.ledger.format.identity import Key


_opening = threading.Lock()  # one at a time, whoever opens: a second and 256 MiB each


class Trials:
    """How one session opens keys: later after each wrong passphrase.

    Not whatever others tried, who would lock out the human: who can make himself sessions can read the sealed key, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time by ``clock``, in seconds."""
        self.clock = clock
        self._wrong, self._next = 0, 0.0

    def open(self, ledger: Ledger, name: str, passphrase: str) -> Key:
        """Return an identity key that lies in the ledger's folder.

        Raises Refused: ``KEY_LOCKED`` when the passphrase is wrong, missing or given too soon after a wrong one, and
        for a key that lies unsealed; as ``Home.open``.
        """
        with _opening:
            if read_key_file(ledger.home.key_file(name)).sealed is None:
                seal = f"seal a new one (`deed key rotate --lost --as {name}`), or decide in a terminal"
                raise Refused("KEY_LOCKED", f"the key of {name} lies unsealed, so no browser may use it: {seal}")
            if not passphrase:
                raise Refused("KEY_LOCKED", f"to sign as {name}, type the passphrase of your key")
            if (wait_s := math.ceil(self._next - self.clock())) > 0:
                raise Refused("KEY_LOCKED", f"a wrong passphrase was given: wait {wait_s} s, then try again")
            # Until it is known to be right it counts as wrong: whatever else fails, trying costs time.
            self._wrong += 1
            self._next = self.clock() + min(2.0**self._wrong, passphrase_wait_max_s)
            key = ledger.home.open(name, passphrase)
            self._wrong, self._next = 0, 0.0
            return key


class Signer:
    """A person's key in one browser session; threads share it."""

    def __init__(self, trials: Trials) -> None:
        """Nothing is open."""
        self._trials = trials
        self._key: Key | None = None
        self._until, self._proof = 0.0, ""
        self._end: threading.Timer | None = None

    @property
    def left_s(self) -> int:
        """For how many seconds the key is still open, rounded up; 0 when it is not."""
        return 0 if self._key is None else max(0, math.ceil(self._until - self._trials.clock()))

    def unlock(self, ledger: Ledger, name: str, passphrase: str) -> str:
        """Keep the key of ``name`` open for ``key_unlocked_max_s``, for whoever has the proof that is returned.

        Raises Refused: as ``Trials.open``.
        """
        key = self._trials.open(ledger, name, passphrase)
        self.lock()
        proof = self._proof = secrets.token_urlsafe(16)
        self._key, self._until = key, self._trials.clock() + key_unlocked_max_s
        self._end = threading.Timer(key_unlocked_max_s, self.lock)
        self._end.daemon = True
        self._end.start()
        return proof

    def lock(self) -> None:
        """Forget the key now."""
        end, self._key, self._end = self._end, None, None
        if end is not None:
            end.cancel()

    def author(self, ledger: Ledger, name: str, passphrase: str, proof: str = "") -> Author:
        """Return the author who signs as ``name``: with what is open here, by its proof, else by the passphrase.

        With neither it is locked: who asks so has the cookie alone.

        Raises Refused: as ``Trials.open``.
        """
        trust.demand(ledger.settings.home, ledger=ledger.client.ledger)  # a key that is open need not ask it again
        opened = self._key if self.left_s and hmac.compare_digest(proof.encode(), self._proof.encode()) else None
        if opened is None and not passphrase:
            self.lock()
        key = opened or self._trials.open(ledger, name, passphrase)
        return Author(ledger.client, name, lambda _: key)
