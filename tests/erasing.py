"""Redactions by root through any client, and the search for a text in the raw bytes of all files of a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.consumers.sdk.redaction import plan_erasure
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.events.authority import EntryRedacted
from deedbook.ledger.format.envelope import decode_entry, is_remnant
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.format.envelope import Submission
    from deedbook.ledger.format.identity import Key

SECRET: Final = "correct-horse-battery-staple"


def files_with(folder: Path, text: str = SECRET) -> list[str]:
    """Return the files below a folder whose raw bytes contain a text, in any encoding that a store might use.

    Other processes may make and delete files meanwhile.
    """
    wanted = [text.encode(), text.encode("utf-16-le"), text.lower().encode()]
    held: list[str] = []
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            try:
                is_held = path.is_file() and any(each in path.read_bytes() for each in wanted)
            except FileNotFoundError:
                continue
            if is_held:
                held.append(str(path.relative_to(folder)))
    return sorted(held)


def signed_redaction(client: Client, index: int, root: Key, reason: str = "it holds a password") -> Submission:
    """Return the redaction of an entry, signed by root. It may be submitted repeatedly."""
    plan = plan_erasure(client, index)
    data = EntryRedacted(entry=index, event=plan.erased.event.id, remnant=plan.erased.remnant, reason=reason)
    draft = Draft(stream="ledger", data=data)
    return draft_and_sign([draft], root, ledger=client.ledger, author=ROOT, at=now())


def redact(client: Client, index: int, root: Key, reason: str = "it holds a password") -> Accepted:
    """Erase the body of an entry as root."""
    return client.submit(signed_redaction(client, index, root, reason))[0]


def is_erased(data: bytes) -> bool:
    """Return whether an entry has lost its body."""
    return is_remnant(decode_entry(data).body)
