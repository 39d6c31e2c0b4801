"""`deed report resume`: prints what an agent needs to continue.

Agents read this output first when they begin to work, so it has headings and is never cut to the width of a terminal.
"""

from __future__ import annotations

from typing import Final

import click

from deedbook.consumers.interfaces.cli.output import ai_id_option
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sessions.query import mode_of
from deedbook.consumers.sessions.resume import resume as resume_sessions
from deedbook.consumers.sessions.resumed_text import resumed_text

resumed_max: Final = 5
MODES: Final = ("last", "last_n", "session_id")
LEVELS: Final = ("summary", "detailed", "full")


@click.command(cls=ReadingCommand, looks_back=True)
@ai_id_option
@click.option("--resume-mode", type=click.Choice(MODES), help="Which sessions (default: last; with --count, last_n).")
@click.option("--session-id", metavar="ID", help="With --resume-mode session_id: the session to resume.")
@click.option("--count", type=click.IntRange(1, resumed_max), help="How many of the last sessions.")
@click.option(
    "--detail-level",
    type=click.Choice(LEVELS),
    default="summary",
    show_default=True,
    help="At most 400, 800 or 1,250 tokens a session.",
)
def resume(  # noqa: PLR0917 - the options, in the order of the API
    app: ReadingApp,
    ai_id: str | None,
    resume_mode: str | None,
    session_id: str | None,
    count: int | None,
    detail_level: str,
) -> None:
    """Print what an agent needs to continue: its own last session or, if it has none, the last of another agent.

    With --count, several sessions are printed. Dead ends come first, then task, findings, open questions, next steps,
    and what was left out.
    """
    mode = mode_of(resume_mode, session_id, count)
    agent = app.settings().agent
    answer = resume_sessions(
        app.query_with, app.get_blob, ai_id, mode, session_id, count or 1, detail_level, agent=agent
    )
    lines = resumed_text(answer).splitlines()

    def text() -> None:
        for line in lines:
            echo(line, bold=line[:1].isalpha())

    app.show("resumed", answer, text)
