"""Makes the error for a call that must sign although no agent is named. Only such a call imports this module."""

from __future__ import annotations

from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.format.identity import names_of_agents
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.log.environment import log_not_found


def absent_agent(settings: Settings) -> DeedbookError:
    """Return the error. It lists the agents whose keys are in the folder; ``NO_LEDGER`` if that has no ledger."""
    home = Home(settings.home)
    names = names_of_agents(home.keys)
    if settings.server is None and not names and not home.is_local():
        return log_not_found(home.path / "log")
    who = f"--as with one of {names}" if names else "--as NAME"
    if "," not in names:  # at most one agent: probably the person who made the ledger
        who += " (`deed agent add NAME` registers an agent)"
    return Refused("USAGE", f"no agent is named to sign this: add {who}, or set DEEDBOOK_AGENT")
