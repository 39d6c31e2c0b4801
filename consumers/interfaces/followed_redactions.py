"""Notices redactions by others, and removes the texts from the copies that belong to this ledger's folder.

Each command, hook and call of an MCP tool checks the log at its end, which costs one request to a server. Without a new
redaction nothing else is imported or written.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from deedbook.consumers.sdk.erased_entries import unhandled_erasures
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings


class FollowedRedactions(NamedTuple):
    """The lines that report the changes, and whether everything is done."""

    lines: list[str]
    is_done: bool = True


def follow_redactions(client: Client, settings: Settings) -> FollowedRedactions:
    """Remove the texts that others redacted since the last call; without such texts there are no lines.

    Never write into a folder that its user does not trust. Never raise, because the command has already done its work;
    the next command tries again.
    """
    try:
        if not trust.is_trusted(settings.home):
            return FollowedRedactions([])
        erased = unhandled_erasures(client, settings.home)
        if not erased.streams:
            return FollowedRedactions([])
        # Import it only now: it loads modules that few commands need.
        copies: Any = import_module("deedbook.consumers.interfaces.erased_copies")
        lines: list[str] = copies.copy_lines(copies.erase_copies(client, settings, (), erased))
    except DeedbookError as error:
        return FollowedRedactions([f"the copies here may still hold redacted texts: {error.message}"], is_done=False)
    count = len(erased.streams)
    heading = f"{count} entr{'ies were' if count > 1 else 'y was'} redacted since the last look here:"
    return FollowedRedactions([heading, *lines] if lines else [])
