"""`baton session`: what an agent does and learns, from its start to its end (seed 004)."""

from __future__ import annotations

import uuid
from typing import Any, Final

import click

from consumers.doors.cli.app import App, read_text
from consumers.doors.cli.output import fields_of, page_options, show_page, when
from consumers.doors.cli.program import Group, Lazy
from consumers.doors.cli.session_choice import append, chosen_session, find_session, session_and, whole_id
from consumers.doors.cli.session_text import print_dead_ends, print_session
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events import EventData
from ledger.events import session as kinds

dead_ends_max = 5

LAZY: Final = {
    "assess": Lazy("assessing:assess", "Record how well you know, can and are sure, at one phase of the work."),
    "sweep": Lazy("sweeping:sweep", "End your sessions that never closed, and make the reports that are missing."),
}

impact_option: Final = click.option("--impact", type=click.FloatRange(0, 1), help="How much it matters, from 0 to 1.")
subject_option: Final = click.option("--subject", default="", help="What it is about, as a module or a topic.")


@click.group(cls=Group, lazy=LAZY, aliases={"new": "start", "close": "end", "done": "end"})
def session() -> None:
    """Keep what you do and learn: assessments, findings, unknowns, dead ends, tools.

    The ID may be left out where BATON_SESSION names the session, or where you have just one open.
    """


@session.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--task", metavar="TEXT|@FILE", help="What is to be done.")
@click.option("--ai-id", help="The label that reports are found by (default: the acting agent's name).")
@click.option("--resumes", metavar="ID", help="The session that this one goes on from.")
@click.pass_obj
def start(app: App, id_: str | None, task: str | None, ai_id: str | None, resumes: str | None) -> None:
    """Start a session; the acting agent owns it. Without an ID one is made.

    Says which approaches failed in sessions with a similar task.
    """
    author = app.author()
    name = str(uuid.uuid4()) if id_ is None else id_.removeprefix("session/")
    data = kinds.SessionStarted(
        task=read_text(task, "--task"),
        ai_id=author.name if ai_id is None else ai_id,
        resumes="" if resumes is None else whole_id(app, resumes),
    )
    # Asked before anything is signed: where the views fail, no session has begun whose id nobody was told.
    dead_ends = failed_before(app, data.task)
    try:
        accepted = author.emit(Draft(stream=f"session/{name}", data=data))[0]
    except Refused as refusal:
        if refusal.code != "TRANSITION_NOT_ALLOWED":
            raise
        raise Refused(refusal.code, f"{refusal.message}: use it, or take another id", **refusal.details) from refusal
    answer = {"id": name, "ai_id": data.ai_id, "dead_ends": dead_ends, "accepted": fields_of(accepted)}

    def text() -> None:
        click.echo(name)
        print_dead_ends(dead_ends)

    app.show("session", answer, text)


@session.command()
@click.argument("words", nargs=-1, metavar="[ID] TEXT")
@click.option("--evidence", multiple=True, metavar="PATH:LINE", help="Where it can be seen; may be given repeatedly.")
@impact_option
@subject_option
@click.pass_obj
def finding(app: App, words: tuple[str, ...], *, evidence: tuple[str, ...], impact: float | None, subject: str) -> None:
    """Record what you found out."""
    name, found = session_and(app, words, "TEXT")
    data = kinds.FindingLogged(finding=found, evidence=list(evidence), impact=impact, subject=subject)
    record(app, name, data, "finding")


@session.command()
@click.argument("words", nargs=-1, metavar="[ID] TEXT")
@impact_option
@subject_option
@click.pass_obj
def unknown(app: App, words: tuple[str, ...], *, impact: float | None, subject: str) -> None:
    """Record what you do not know yet."""
    name, asked = session_and(app, words, "TEXT")
    record(app, name, kinds.UnknownLogged(unknown=asked, impact=impact, subject=subject), "unknown")


@session.command("dead-end")
@click.argument("words", nargs=-1, metavar="[ID] APPROACH")
@click.option("--why", required=True, metavar="TEXT", help="Why it failed.")
@impact_option
@subject_option
@click.pass_obj
def dead_end(app: App, words: tuple[str, ...], *, why: str, impact: float | None, subject: str) -> None:
    """Record an approach that failed, so that nobody tries it again."""
    name, approach = session_and(app, words, "APPROACH")
    data = kinds.DeadEndLogged(approach=approach, why_failed=why, impact=impact, subject=subject)
    record(app, name, data, "dead end")


@session.command()
@click.argument("words", nargs=-1, metavar="[ID] NAME")
@click.option("--purpose", default="", help="What you used it for.")
@click.pass_obj
def tool(app: App, words: tuple[str, ...], *, purpose: str) -> None:
    """Record a tool that you used to find something out."""
    name, used = session_and(app, words, "NAME")
    record(app, name, kinds.ToolUsed(tool=used, purpose=purpose), "tool")


@session.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--summary", metavar="TEXT|@FILE", help="How it ended.")
@click.pass_obj
def end(app: App, id_: str | None, summary: str | None) -> None:
    """End a session. Its report can still be made, and made again."""
    name = chosen_session(app, id_)
    record(app, name, kinds.SessionEnded(summary=read_text(summary, "--summary")), "end")


@session.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.pass_obj
def show(app: App, id_: str | None) -> None:
    """Show a session: its vectors from phase to phase, findings, unknowns, dead ends, tools."""
    found = find_session(app, chosen_session(app, id_))
    shown = found | {"trajectory": app.query("sessions.trajectory", id=found["id"])} if app.as_json else found
    app.show("session", shown, lambda: print_session(found))


@session.command("list")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option("--ai-id", help="Only those with this label.")
@click.option("--status", type=click.Choice(["open", "ended", "imported"]), help="Only those in this state.")
@page_options()
@click.pass_obj
def list_(
    app: App, *, agent: str | None, ai_id: str | None, status: str | None, limit: int, cursor: int | None
) -> None:
    """List sessions, newest first."""
    answer = app.query("sessions.list", author=agent, ai_id=ai_id, status=status, limit=limit, after=cursor)
    rows = [
        (one["id"], one["status"], when(one["happened_ms"]), one["ai_id"] or one["author"], one["findings"],
         one["unknowns"], one["task"])
        for one in answer["sessions"]
    ]  # fmt: skip
    header = ("id", "status", "started", "by", "findings", "unknowns", "task")
    options = {"agent": agent, "ai-id": ai_id, "status": status, "limit": limit}
    show_page(app, "sessions", answer, (header, rows), ("baton session list", options))


def record(app: App, given: str, data: EventData, what: str) -> None:
    """Append one event of a session and say so."""
    name, accepted = append(app, given, data)
    app.show(
        "session",
        {"id": name, "accepted": fields_of(accepted[0])},
        lambda: click.echo(f"{name}: {what} recorded (entry {accepted[0].index})"),
    )


def failed_before(app: App, task: str) -> list[dict[str, Any]]:
    """Return the dead ends of sessions with a similar task."""
    if not task.strip():
        return []
    found: list[dict[str, Any]] = app.query("reports.dead_ends", task=task, limit=dead_ends_max)["dead_ends"]
    return found
