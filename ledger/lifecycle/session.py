"""The state machine of a session: its owner writes until it ends, and may report and correct it afterwards too.

An admin may also correct it, because the session may be imported, or its agent may be removed. Other agents contradict
it in their own sessions. Records of another tool form a session to which only their importer adds; no agent of this
ledger signed its content. The rules are ``proto/rules/session.json``.
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from deedbook.ledger.lifecycle.machine import LedgerState, OwnedState, Question, Unmet, import_is_own, owned_machine


def _target_exists(question: Question[OwnedState], ledger: LedgerState) -> Unmet | None:
    # The state does not hold the ids of events, because it would grow with each of them. A correction that does not
    # fit the kind of its target changes no view.
    event, target = question.event, question.data.target
    if ledger.index_of(event.stream, target) is not None:
        return None
    command = f"`deed session show {quote(event.name)}`"
    return Unmet(f"session {event.name} has no event {target}: {command} lists its events", {"asked": target})


MACHINE: Final = owned_machine(
    "session",
    {"import_is_own": import_is_own},
    {"target_exists": _target_exists},
    hint=": record what you know in a session of your own",
)
