"""`deed router` in a process of its own; on request, it kills itself right after it created a handoff."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from deedbook.consumers.interfaces.cli.commands.router import router
from deedbook.consumers.interfaces.cli.verbs import Options
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.events.handoff import HandoffCreated


def main(deadly: str, *arguments: str) -> None:
    """Call the verb; with ``deadly``, die as by a power cut once a new handoff is in the log."""
    emit = Author.emit

    def emit_and_die(author: Author, *drafts: Draft) -> list[Accepted]:
        accepted = emit(author, *drafts)
        if isinstance(drafts[0].data, HandoffCreated) and not accepted[0].is_repeat:
            os.kill(os.getpid(), signal.SIGKILL)
        return accepted

    if deadly == "deadly":
        patched: Any = Author
        patched.emit = emit_and_die
    router.main(list(arguments), standalone_mode=False, obj=Options())


main(*sys.argv[1:])
