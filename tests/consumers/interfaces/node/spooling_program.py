"""An agent in a process of its own that reports even without its ledger; a test kills it."""

from __future__ import annotations

import sys

from serving import SESSION

from deedbook import Ledger, Unavailable
from deedbook.ledger.events.session import FindingLogged


def main(home: str, server: str, name: str) -> None:
    """Report numbered findings, and print each number once it is recorded or spooled."""
    with Ledger("carol", home=home, server=server, spool=True) as ledger:
        for number in range(10**6):
            try:
                ledger.publish(SESSION, FindingLogged(finding=f"{name} {number}"))
            except Unavailable as error:
                if error.code != "SPOOLED":
                    raise
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


main(*sys.argv[1:])
