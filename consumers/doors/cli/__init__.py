"""The command line: how people and scripts meet a ledger.

- ``program``: the verbs, imported when they are called; the entry point, which turns errors into exit codes
- ``app``: what a command needs: settings, client, author, views, one way to print JSON
- ``output``: what is printed for people
- ``commands``: one module a family of verbs

``--json`` prints exactly one document; follow modes print one JSON object a line. Nothing prompts off a terminal.
"""

from __future__ import annotations

from consumers.doors.cli.program import main

__all__ = ["main"]
