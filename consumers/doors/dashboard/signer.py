"""The key with which a person decides here: opened by his passphrase for one decision, or for a short, visible time.

What is opened stays in this process's memory, of the one browser session that opened it, and is forgotten when its
time is over, whether anybody asks or not. The passphrase itself is kept, shown and logged nowhere. It is the identity
key that signs, never a session key: that lies unsealed, and with it a browser's cookie, which may only read, would
sign. For the same reason an identity key that lies unsealed is refused here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ledger import trust
from ledger.author import Author
from ledger.errors import Refused
from ledger.identity import read_key_file
from ledger.limits import key_unlocked_max_s, passphrase_wait_max_s

if TYPE_CHECKING:
    from consumers.sdk.ledger import Ledger
    from ledger.identity import Key

Clock = Callable[[], float]
passphrase_max_chars: Final = 4096


class Trials:
    """How often a wrong passphrase was given to a dashboard, by whichever session: each makes the next one wait longer.

    Opening a key takes most of a second and 256 MiB (Argon2id), so one is opened at a time.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        """Measure time by ``clock``, in seconds."""
        self.clock = clock
        self._lock = threading.Lock()
        self._wrong = 0
        self._next = 0.0

    def open(self, ledger: Ledger, name: str, passphrase: str) -> Key:
        """Return an identity key that lies in the ledger's folder.

        Raises Refused: ``KEY_LOCKED`` when the passphrase is wrong, missing or given too soon after a wrong one, and
        for a key that lies unsealed; as ``Home.open``.
        """
        with self._lock:
            path = ledger.home.key_file(name)
            if read_key_file(path).sealed is None:
                message = f"the key of {name} lies unsealed, so no browser may use it: seal a new one \
(`baton key rotate --lost --as {name}`), or decide in a terminal"
                raise Refused("KEY_LOCKED", message, name=name)
            if not passphrase:
                raise Refused("KEY_LOCKED", f"to sign as {name}, type the passphrase of your key", name=name)
            if (wait_s := math.ceil(self._next - self.clock())) > 0:
                message = f"a wrong passphrase was given: wait {wait_s} s, then try again"
                raise Refused("KEY_LOCKED", message, name=name, wait_s=wait_s)
            try:
                key = ledger.home.open(name, passphrase[:passphrase_max_chars])
            except Refused as refusal:
                if refusal.code == "KEY_LOCKED":
                    self._wrong += 1
                    self._next = self.clock() + min(2.0**self._wrong, passphrase_wait_max_s)
                raise
            self._wrong = 0
            return key


class Signer:
    """A person's key in one browser session; threads share it."""

    def __init__(self, trials: Trials) -> None:
        """Nothing is open."""
        self._trials = trials
        self._lock = threading.Lock()
        self._key: Key | None = None
        self._until = 0.0
        self._end: threading.Timer | None = None

    @property
    def left_s(self) -> int:
        """For how many seconds the key is still open, rounded up; 0 when it is not."""
        with self._lock:
            return 0 if self._key is None else max(0, math.ceil(self._until - self._trials.clock()))

    def unlock(self, ledger: Ledger, name: str, passphrase: str) -> None:
        """Keep the key of ``name`` open for ``key_unlocked_max_s``. Raises Refused: as ``Trials.open``."""
        key = self._trials.open(ledger, name, passphrase)
        self.lock()
        with self._lock:
            self._key, self._until = key, self._trials.clock() + key_unlocked_max_s
            self._end = threading.Timer(key_unlocked_max_s, self.lock)
            self._end.daemon = True
            self._end.start()

    def lock(self) -> None:
        """Forget the key now."""
        with self._lock:
            if self._end is not None:
                self._end.cancel()
            self._key = self._end = None

    def author(self, ledger: Ledger, name: str, passphrase: str) -> Author:
        """Return the author who signs as ``name``: with what is open here, else with what the passphrase opens.

        Raises Refused: as ``Trials.open``.
        """
        with self._lock:
            key = self._key if self._until > self._trials.clock() else None
        trust.demand(ledger.settings.home, ledger=ledger.client.ledger)  # a key that is open need not ask it again
        key = key or self._trials.open(ledger, name, passphrase)
        return Author(ledger.client, name, partial(_only, key))


def _only(key: Key, _signed: object) -> Key:
    return key
