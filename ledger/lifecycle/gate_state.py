"""The state of the gate: whether somebody must enter a passphrase before anything is approved.

The gate is *closed* if the current key of root, of each admin, and of each reviewer and human was registered as sealed
with a passphrase. It is *open* if one of them has no passphrase: then any program of that user can approve, or register
somebody who can. It is always open in a trial ledger, whose keys are made for a first try. An agent's key without a
passphrase opens nothing, because it approves nothing.

The state is a fold over authority, so every reader of the log computes the same state. It relies on the programs that
made the keys: a key that was registered as sealed may have been copied before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

TRUSTED_ROLES: Final = frozenset({"admin", "human", "reviewer"})
"""The roles that can approve, or register somebody who can."""

named_max: Final = 3


class GateState(msgspec.Struct, frozen=True):
    """The state of the gate since entry ``since``.

    ``unprotected`` are the names of root, admins, reviewers and humans whose current key has no passphrase.
    """

    state: Literal["closed", "open"] = "closed"
    trial: bool = False
    unprotected: tuple[str, ...] = ()
    since: int = 0

    def after(self, index: int, unprotected: Mapping[str, bool], *, trial: bool = False) -> GateState:
        """Return the state after the event at ``index``, which changed whether these names have no passphrase."""
        kept = {name for name in self.unprotected if name not in unprotected}
        names = tuple(sorted(kept | {name for name, has_none in unprotected.items() if has_none}))
        trial = self.trial or trial
        state: Literal["closed", "open"] = "open" if trial or names else "closed"
        return GateState(state, trial, names, self.since if state == self.state else index)

    def __str__(self) -> str:
        """Return the state in words, as every verdict says it.

        >>> str(GateState()), str(GateState(since=7))
        ('closed', 'closed since entry 7')
        >>> str(GateState("open", unprotected=("alex",)))
        "open (alex's key has no passphrase)"
        >>> str(GateState("open", unprotected=("alex", "bea", "cy", "root")))
        'open (the keys of alex, bea, cy and 1 more have no passphrase)'
        >>> str(GateState("open", trial=True, unprotected=("alex", "root")))
        'open (trial)'
        """
        if self.state == "closed":
            return f"closed since entry {self.since}" if self.since else "closed"
        if self.trial:
            return "open (trial)"
        if len(self.unprotected) == 1:
            return f"open ({self.unprotected[0]}'s key has no passphrase)"
        more = len(self.unprotected) - named_max
        names = [*self.unprotected[:named_max], *([f"{more} more"] if more > 0 else [])]
        return f"open (the keys of {', '.join(names[:-1])} and {names[-1]} have no passphrase)"


def read_gate(plain: Mapping[str, Any] | None) -> GateState | None:
    """Return the state of the gate in an answer, which has it as plain values."""
    return None if plain is None else GateState(**plain)


def is_closed(gate: GateState | None) -> bool:
    """Return whether a reader knows that the gate is closed."""
    return gate is not None and gate.state == "closed"


def gate_text(gate: GateState | None) -> str:
    """Return what an answer or verdict says about the gate; None: the reader lacks valid entries of authority."""
    return f"gate: {gate or 'not known (entries are missing or not valid, perhaps also some about keys and roles)'}"
