"""What is told of a folder's files: what was done, and what was left undone and why."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from consumers.handoffs.files.planning import Held

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.client import Client
    from ledger.errors import Refused


class Told(NamedTuple):
    """Something that happened to a file, or was left undone: what, of which handoff, and the words for it."""

    what: str
    id: str
    text: str
    details: dict[str, Any] = {}


def refusal_told(id_: str, refusal: Refused) -> Told:
    """Return what is told of a file that the ledger, or its own form, refused."""
    line = refusal.details.get("line")
    where = f"line {line}: " if line else ""
    return Told("refused", id_, f"{where}{refusal.code}: {refusal.message}", {"code": refusal.code, "line": line})


def held_told(id_: str, held: Held) -> Told:
    """Return what is told of an edit that is somebody else's to make."""
    return Told("held", id_, f"{held.what}: {held.who or 'somebody'} runs {held.command}", held._asdict())


def left_to_sender(id_: str, what: str, file: Path, sender: str | None, client: Client) -> Told:
    """Return what is told of a handoff From somebody else; where he is no agent here, anybody may import it."""
    is_agent = any(one.name == sender for one in client.agents())
    command = shlex.join(("baton", "handoff", "import", str(file), "--as", sender if sender and is_agent else "NAME"))
    return held_told(id_, Held(what, sender or "", command))
