"""`baton import`: records of other tools, kept as they were and shown as imported (DESIGN §13)."""

from __future__ import annotations

import click

from consumers.doors.cli.program import Group, Lazy


@click.group(
    "import",
    cls=Group,
    lazy={
        "empirica": Lazy("import_notes:empirica", "Git notes of Empirica: reports, checkpoints, findings, goals."),
        "handoffs": Lazy("handoff_files:import_", "Handoffs as markdown: v1 and v2 files, proposals, active.md."),
        "thinking": Lazy("import_thinking:thinking", "Transcripts with thinking blocks, as Claude Code keeps them."),
        "list": Lazy("import_list:list_", "What was imported, and what was only kept aside."),
    },
    aliases={"ls": "list", "notes": "empirica", "transcript": "thinking"},
)
def import_() -> None:
    """Import the history of other tools: every original is kept, shown as imported, and grants nothing.

    A second run adds nothing. What cannot be read is kept aside with the reason, and counted.
    """
