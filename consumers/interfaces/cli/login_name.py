"""The login name of this machine's user, as the name of an agent."""

from __future__ import annotations

import getpass
import re

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.ledger.lifecycle.authority import ROOT


def login_name() -> str:
    """Return this user's login name as the name of an agent; `reviewer` for root and for names with other letters."""
    try:
        name = re.sub(r"[^a-z0-9_-]+", "-", getpass.getuser().lower()).strip("-_")
    except (KeyError, OSError):  # no account with this user id, as in some containers
        name = ""
    return name if name and name not in (ROOT, *HARNESSES) else "reviewer"
