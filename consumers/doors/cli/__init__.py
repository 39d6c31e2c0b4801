"""The command line: how people and scripts meet a ledger (DESIGN §13).

- ``main``: the entry point; turns errors into codes and exit codes
- ``lazy``: groups whose subcommands are imported when they are called, so that a command starts quickly
- ``app``: what a command needs: settings, client, author, views, output
- ``commands``: one module a verb or family of verbs

``--json`` prints exactly one document; follow modes print one JSON object a line. Nothing prompts off a terminal.
"""

from __future__ import annotations

from consumers.doors.cli.main import main

__all__ = ["main"]
