"""Deedbook for Python agents: one object that publishes, asks, reacts and audits.

    from deedbook import Ledger

    with Ledger(agent="kuro") as ledger:
        ledger.handoff("event-bus").create(to="claude-code", reviewer="alex", title="Event bus")
        print(ledger.handoff("event-bus").why()["sentence"])

``AsyncLedger`` has the same names for programs with an event loop. What can be published beside the nouns is in
``ledger.events``; every refusal is a ``Refused`` with a ``code`` of ``proto/errors.json``. Names are loaded when first
used.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

_PACKAGES = ("ledger", "projections", "consumers")


def _check_packages() -> None:
    """Refuse to go on with somebody else's package of one of our names: its errors would make no sense to anybody."""
    here = Path(__file__).resolve().parent
    # Beside this package when installed, four folders up in a checkout.
    places = {here.parent, *here.parents[3:4]}
    for name in _PACKAGES:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec is not None and spec.origin is not None else None
        if found is None or found.parent not in places:
            where = "nowhere" if spec is None else str(found or list(spec.submodule_search_locations or ()))
            message = (
                f"deedbook needs its own package {name!r}, but Python finds {where}: rename that one, run Python from "
                f"another folder, or take it off PYTHONPATH"
            )
            if sys.argv and (sys.argv[0] == "-m" or Path(sys.argv[0]).name == "deedbook"):
                sys.exit(f"deed: {message}")  # the command, or `python -m deedbook`, which runs this first
            raise ImportError(message, name=name)


_check_packages()

from ledger.front_door import front_door  # noqa: E402 - after the check that it is ours

if TYPE_CHECKING:
    from deedbook.ledger import AsyncLedger as AsyncLedger
    from deedbook.ledger import Ledger as Ledger
    from consumers.sessions import generate_handoff_report as generate_handoff_report
    from consumers.sessions import query_handoff_reports as query_handoff_reports
    from consumers.sessions import resume_previous_session as resume_previous_session
    from ledger.admission.decide import Accepted as Accepted
    from ledger.errors import DeedbookError as DeedbookError
    from ledger.errors import Corrupted as Corrupted
    from ledger.errors import Refused as Refused
    from ledger.errors import Unavailable as Unavailable
    from ledger.events.body import Event as Event
    from ledger.receipt import Receipt as Receipt
    from projections.briefs.sentences import expand as expand
else:
    __getattr__, __dir__ = front_door(__name__)
