"""The state machine of a subject: erased once, by root or a human. Its rules are ``proto/rules/subject.json``."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import ROOT
from deedbook.ledger.lifecycle.authority import has_role
from deedbook.ledger.lifecycle.machine import LedgerState, OwnedState, Question, Unmet, owned_machine


def _author_is_root_or_human(question: Question[OwnedState], ledger: LedgerState) -> Unmet | None:
    """Nobody can undo an erasure, so only root or a human decides it; condition ``author_is_root_or_human``."""
    author = question.event.author
    if author == ROOT or has_role(ledger, author, {"human"}):
        return None
    return Unmet(f"only {ROOT} or a human may erase {question.event.name}, not {author}", {"name": author})


def sealed_too_late(subject: str) -> Refused:
    """Return the refusal of new content that is sealed for an erased subject."""
    message = f"the subject {subject} was erased: seal this for another subject (`deed seal create NAME`)"
    return Refused("SUBJECT_ERASED", message, subject=subject)


MACHINE: Final = owned_machine("subject", ledger_conditions={"author_is_root_or_human": _author_is_root_or_human})
