"""The key with which a person decides here: unlocked by their passphrase for one decision, or for a short, shown time.

An unlocked key stays in this process's memory, for the one browser session that unlocked it. A timer forgets it when
its time is over. Servers on other ports also receive the cookie, and with it can read every page and its form, so the
cookie must not sign. An unlocked key signs only with a proof that the browser got when it unlocked the key. The browser
keeps the proof where no other port can read it (the fragment of an address, then the storage of its origin). For the
same reason only the identity key signs, never a session key, because session keys are stored unsealed; an identity key
that is stored unsealed is refused here. The passphrase is never stored, shown or logged.
"""

from __future__ import annotations

import ctypes
import hmac
import math
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.limits import key_unlocked_max_s, passphrase_wait_max_s

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger
    from deedbook.ledger.format.identity import Key


_SET_DUMPABLE: Final = 4  # PR_SET_DUMPABLE of prctl(2)
_opening = threading.Lock()  # one unlocking at a time for all sessions: each takes a second and 256 MiB


def why_unusable(ledger: Ledger, name: str) -> str:
    """Return why no browser can sign with the key of ``name`` in the ledger's folder, and the command that helps.

    Empty if only its passphrase is missing.
    """
    try:
        check_usable(ledger, name)
    except Refused as refusal:
        return refusal.message
    return ""


def check_usable(ledger: Ledger, name: str) -> None:
    """Check everything about a key except its passphrase."""
    trust.demand(ledger.settings.home, ledger=ledger.client.ledger)
    file = read_key_file(ledger.home.key_file(name))
    if file.sealed is None:
        seal = f"make a sealed key (`deed key rotate --as {name}`), or decide in a terminal"
        raise Refused("KEY_LOCKED", f"the key of {name} has no passphrase, so no browser may use it: {seal}")
    registered = next((agent for agent in ledger.client.agents() if agent.name == name), None)
    if registered is None or registered.removed_index is not None:
        raise Refused("NOT_AUTHORIZED", f"{name} is no longer registered: see `deed agent show {name}`")
    if registered.key != file.public:
        renewed = f"copy {name}'s present key here, or make a new one (`deed key rotate --lost --as {name}`)"
        raise Refused("KEY_LOCKED", f"the key of {name} in this folder is no longer the registered one: {renewed}")


class Trials:
    """Attempts to unlock a key: each wrong passphrase lengthens the wait.

    The sessions of one human count together, so a new login gives no new attempts. A session that opened the key counts
    alone from then on: the attempts of a stranger who came in by the human's link cannot lock out the human.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time by ``clock``, in seconds."""
        self.clock = clock
        self._wrong, self._next = 0, 0.0

    def open(self, ledger: Ledger, name: str, passphrase: str) -> Key:
        """Return an identity key from the ledger's folder.

        Raises Refused: ``KEY_LOCKED`` if the passphrase is wrong, missing or sent too soon after a wrong one, and if
        the key is stored unsealed; as ``Home.open``.
        """
        with _opening:
            check_usable(ledger, name)
            if not passphrase:
                raise Refused("KEY_LOCKED", f"to sign as {name}, type the passphrase of your key")
            if (wait_s := math.ceil(self._next - self.clock())) > 0:
                raise Refused("KEY_LOCKED", f"the last passphrase was wrong: wait {wait_s} s, then try again")
            self._wrong += 1
            try:
                key = ledger.home.open(name, passphrase)
            finally:  # any other failure costs time, too; the wait begins when the result is known
                self._next = self.clock() + min(2.0**self._wrong, passphrase_wait_max_s)
            self._wrong, self._next = 0, 0.0
            return key


class Signer:
    """The key of one human in one browser session; threads share it."""

    def __init__(self, name: str, trials: Trials) -> None:
        """Start locked, with the attempts of all sessions of ``name``."""
        self._name, self._trials = name, trials
        self._key: Key | None = None
        self._is_over = False
        self._until, self._proof = 0.0, ""
        self._end: threading.Timer | None = None

    @property
    def left_s(self) -> int:
        """The seconds for which the key is still unlocked, rounded up; 0 if it is locked."""
        return 0 if self._key is None else max(0, math.ceil(self._until - self._trials.clock()))

    def unlock(self, ledger: Ledger, passphrase: str) -> str:
        """Unlock the key for ``key_unlocked_max_s``, and return the proof that later signatures need.

        Raises Refused: as ``Trials.open``.
        """
        key = self._open(ledger, passphrase)
        self.lock()
        proof = self._proof = secrets.token_urlsafe(16)
        self._key, self._until = key, self._trials.clock() + key_unlocked_max_s
        self._end = threading.Timer(key_unlocked_max_s, self.lock)
        self._end.daemon = True
        self._end.start()
        if self._is_over:  # the session ended while the key was opened, which takes a second
            self.lock()
        return proof

    def end(self) -> None:
        """Forget the key now, and remember none from now on."""
        self._is_over = True
        self.lock()

    def lock(self) -> None:
        """Forget the key now."""
        end, self._key, self._end = self._end, None, None
        if end is not None:
            end.cancel()

    def author(self, ledger: Ledger, passphrase: str, proof: str = "") -> Author:
        """Return the author who signs as this human, by the proof of the unlocked key or by the passphrase.

        A request with neither has only the cookie: it locks the key.

        Raises Refused: as ``Trials.open``.
        """
        trust.demand(ledger.settings.home, ledger=ledger.client.ledger)  # nothing later checks this for an unlocked key
        key = self._key if self.left_s and hmac.compare_digest(proof.encode(), self._proof.encode()) else None
        if key is None and not passphrase:
            self.lock()
        signing = key or self._open(ledger, passphrase)
        return Author(ledger.client, self._name, lambda _: signing)

    def _open(self, ledger: Ledger, passphrase: str) -> Key:
        key = self._trials.open(ledger, self._name, passphrase)
        self._trials = Trials(self._trials.clock)
        return key


def hide_memory() -> None:
    """Prevent other processes of this user from reading or dumping the memory of this process (Linux; root still can).

    Agents often run as the same user. Without this, on many systems they could read an unlocked key here.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
