"""`deed session`: the work and the findings of an agent, from the start to the end of a session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from shlex import join
from typing import Any, Final

import click
from msgspec.structs import asdict

from deedbook.consumers.handoffs.receiver import without_noted
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.app import App, Command, Group
from deedbook.consumers.interfaces.cli.arguments import parameters, seal_option, values_of
from deedbook.consumers.interfaces.cli.commands.session_report import print_made, remedy, with_options
from deedbook.consumers.interfaces.cli.session_choice import UUID, append, chosen_session, id_chars_min, session_and
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import Lazy
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.reasoning.validator.evidence import cite
from deedbook.consumers.sdk.text import dead_end_text, quote_text, sanitize_line, shorten
from deedbook.consumers.sessions.open_sessions import SessionChoice, choose_session
from deedbook.consumers.sessions.operations import OPERATIONS, RECORDED, Resolution, Retraction, Verb
from deedbook.consumers.sessions.report import correct, report_at_end
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.blob import SEALABLE_FIELDS
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.home.environment import present_session

dead_ends_max = 5

_STATEMENTS: Final[dict[type[EventData], str]] = {
    kinds.FindingLogged: "findings",
    kinds.UnknownLogged: "unknowns",
    kinds.DeadEndLogged: "dead_ends",
}
"""The kinds that nobody has to record twice in a session, and the lists of ``sessions.show`` that have them."""

VECTOR_NAMES: Final = kinds.Vectors.__struct_fields__
columns_max: Final = 6
lines_max: Final = 50
task_cells_max: Final = 110
_none: Final = "-"

LAZY: Final = {
    "record": Lazy("session_record:record", "Record many entries from a file: findings, dead ends, tools, steps."),
    "assess": Lazy("assessment:assess", "Assess your knowledge, ability and uncertainty at one phase of the work."),
    "move": Lazy("session_move:move", "Move the session of a harness to another one."),
    "sweep": Lazy("session_report:sweep", "End your idle sessions, and make missing reports."),
}

of_session_option: Final = click.option(
    "--session", "within", metavar="ID", help="Refuse REF if it belongs to another session."
)


@click.group(cls=Group, lazy=LAZY, aliases={"new": "start", "add": "finding", "close": "end", "done": "end"})
def session() -> None:
    """Record what you do and learn: assessments, findings, unknowns, dead ends, tools.

    You may omit ID: the default is DEEDBOOK_SESSION, or your newest open session. There is no default if you have an
    older open session with an event since the newest one began.
    """


@session.command(params=parameters(OPERATIONS["start"].arguments))
@click.argument("id_", metavar="[ID]", required=False)
def start(app: App, /, id_: str | None, **options: Any) -> None:
    """Start a session of the acting agent. Without ID one is generated.

    Prints approaches that failed in sessions with a similar task.
    """
    author = app.author()
    if id_ is not None and " " in id_ and not options["task"]:  # the caller meant a task; an id cannot be changed
        call = join(["deed", "session", "start", "--task", id_, "--as", author.name])
        message = f"{id_!r} was read as the session's id: give a task with --task"
        raise Refused("USAGE", f"{message}\n  next: {call}", next=[call])
    name = str(uuid.uuid4()) if id_ is None else id_.removeprefix("session/")
    fields = {"ai_id": author.name} | values_of(OPERATIONS["start"].arguments, options)
    if "resumes" in fields:
        fields["resumes"] = app.query("sessions.show", id=fields["resumes"])["id"]
    data = kinds.SessionStarted(**fields)
    # Query the views before signing. If a query failed later, the caller would not learn the id of the new session.
    similar = {"task": data.task, "limit": dead_ends_max}
    dead_ends = app.query("search.related", **similar)["dead_ends"] if data.task.strip() else []
    waiting = app.query("handoffs.next", agent=author.name)["items"] if dead_ends else []
    dead_ends = without_noted(app.query_with, waiting, dead_ends)
    warnings = list(_of_open(choose_session(app.query_with, author.name), author.name, name))
    try:
        accepted = author.emit(Draft(stream=f"session/{name}", data=data))[0]
    except Refused as refusal:
        if refusal.code != "TRANSITION_NOT_ALLOWED":
            raise
        raise Refused(refusal.code, f"{refusal.message}: use it, or take another id", **refusal.details) from refusal
    answer = {"id": name, "ai_id": data.ai_id, "dead_ends": dead_ends, "accepted": asdict(accepted)}
    answer |= {"warnings": warnings} if warnings else {}

    def text() -> None:
        echo(name)
        output.warn(warnings)
        if dead_ends:
            echo("\nDead ends of similar tasks", bold=True)
        for event in dead_ends:
            line, whose = sanitize_line(dead_end_text(event)), output.imported_by(event["imported"])
            echo(f"  - {event['near']}: {line}  [{event['session_id']}]{whose}")

    app.show("session", answer, text)


def _of_open(chosen: SessionChoice, agent: str, new: str) -> Iterator[str]:
    """Yield a warning if other sessions of the agent are open when it starts a ``new`` one."""
    if others := ", ".join(row["id"] for row in chosen.candidates if row["id"] != new):
        used = f"DEEDBOOK_SESSION ({named})" if (named := present_session()) else f"{new}, until another gets an entry"
        advice = f"verbs without an ID use {used}; `deed session end ID` ends one"
        yield f"{agent} has other open sessions ({others}): {advice}"


def _recording(verb: Verb) -> click.Command:
    """Return the command that records one thing in a session, with its text after the ID."""
    operation, what = OPERATIONS[verb], verb.replace("_", " ")
    main, *others = operation.arguments
    kind: Any = operation.form

    def record_text(app: App, /, arguments: tuple[str, ...], **options: Any) -> None:
        name, text = session_and(app, arguments, main.option.partition("|")[0])
        subject, idem = options.pop("seal", None), options.pop("idem", None)
        data = kind(**values_of(operation.arguments, {main.name: text} | options))
        if subject is None and idem is None and (earlier := _earlier(app, name, data)) is not None:
            name, accepted = earlier
            at = f"entry {accepted.index}, {output.when(accepted.accepted_ms)}"
            line = f"{name}: this {what} was there already ({at}): nothing recorded; --idem KEY records it again"
            app.show("session", {"id": name, "accepted": asdict(accepted)}, line)
            return
        record(app, name, data if subject is None else app.sealer(subject).event(data), what, idem=idem)
        if not app.as_json:
            output.warn(cite([data], app.query_with)[1])

    text = click.Argument(["arguments"], nargs=-1, metavar=f"[ID] {main.option}")
    params: list[click.Parameter] = [text, *parameters(others)]
    if kind in SEALABLE_FIELDS:
        params.append(seal_option())
    if kind in _STATEMENTS:
        words = f"Record it although the session has the same {what}. The same call again returns the first answer."
        params.append(click.Option(["--idem"], metavar="KEY", help=words))
    return Command(verb.replace("_", "-"), params=params, callback=record_text, help=operation.words)


def _earlier(app: App, session_id: str, data: EventData) -> tuple[str, Accepted] | None:
    """Return the agent's open session and the entry in it that says the same and is still in force, or None.

    A missing look stops no append: None also if the views cannot be read, or are not asked because of --spool.
    """
    field = _STATEMENTS.get(type(data))
    if app.spool or field is None:
        return None
    try:
        session = app.query("sessions.show", id=session_id)
        if session["status"] != "open" or session["author"] != app.acting():
            return None
        fields = type(data).__struct_fields__
        rows = (row for row in session[field] if row["correction"] is None)
        same = [row for row in rows if all(row[name] == getattr(data, name) for name in fields)]
        if not same:
            return None
        index, accepted_ms = same[0]["event_index"], same[0]["accepted_ms"]
        event_id = read_event(index, app.client().entry(index)).id
    except DeedbookError:
        return None
    return session["id"], Accepted(index, event_id, accepted_ms, is_repeat=True)


for _verb in RECORDED:
    session.add_command(_recording(_verb))


@session.command(params=parameters(OPERATIONS["retract"].arguments))
@of_session_option
def retract(app: App, /, within: str | None, **options: Any) -> None:
    """Retract a finding or dead end of your session, also after its end. An admin may retract any.

    REF is its entry's index (`deed session show` prints it) or id. It stays in the log and is struck out in reports.
    Resumes and searches for similar work leave it out.
    """
    _correct(app, Retraction(**values_of(OPERATIONS["retract"].arguments, options)), within, "retracted")


@session.command(params=parameters(OPERATIONS["resolve"].arguments))
@of_session_option
def resolve(app: App, /, within: str | None, **options: Any) -> None:
    """Record the answer to an unknown of your session, also after its end. REF as in `retract`."""
    _correct(app, Resolution(**values_of(OPERATIONS["resolve"].arguments, options)), within, "resolved")


def _correct(app: App, entry: Retraction | Resolution, within: str | None, what: str) -> None:
    done = correct(app.author(), app.query_with, app.settings(), entry, within=within)
    output.warn(() if app.as_json else done["warnings"])
    app.show("session", done, f"{done['id']}: entry {entry.ref} {what} (entry {done['event_index']})")


@session.command(params=parameters(OPERATIONS["end"].arguments), help=OPERATIONS["end"].words)
@click.argument("id_", metavar="[ID]", required=False)
def end(app: App, /, id_: str | None, **options: Any) -> None:
    """End a session."""
    data = kinds.SessionEnded(**values_of(OPERATIONS["end"].arguments, options))
    name, accepted = append(app, chosen_session(app, id_), data)
    report = report_at_end(app.author(), app.query_with, app.settings(), name)

    def text() -> None:
        echo(f"{name}: end recorded (entry {accepted[0].index})")
        if report["status"] == "success":
            print_made(report)
        elif report["status"] != "exists":
            echo(f"  {report.get('message') or with_options(report['error']['message'])}")
            code = report["error"]["code"] if "error" in report else "INVALID_FIELD"
            command = remedy(name, code, has_findings=report["status"] != "nothing_found")
            output.print_command(f"{command} --as {app.acting()}")

    output.warn(() if app.as_json else report.get("warnings", ()))
    app.show("session", {"id": name, "accepted": asdict(accepted[0]), "report": report}, text)


@session.command(looks_back=True, unseals=True)
@click.argument("id_", metavar="[ID]", required=False)
@web_option("session", "id_", "sessions.show")
def show(app: App, id_: str | None) -> None:
    """Show a session: vectors by phase, findings, unknowns, dead ends, tools."""
    session = app.query("sessions.show", id=chosen_session(app, id_))
    answer = session | {"trajectory": app.query("sessions.trajectory", id=session["id"])} if app.as_json else session
    app.show("sessions.show", answer, lambda: print_session(session))


@session.command("list", looks_back=True)
@click.option("--agent", "author", metavar="NAME", help="Only sessions of this agent.")
@click.option("--ai-id", help="Only sessions with this label.")
@click.option("--status", type=click.Choice(["open", "ended", "imported"]), help="Only this state.")
@output.period_options("Only sessions that began at or after this time")
@output.page_options()
def list_(app: App, **filters: Any) -> None:
    """List sessions, newest first."""
    output.list_page(
        app,
        "sessions.list",
        filters,
        lambda row: {
            "id": _short_id(row["id"]),
            "status": row["status"],
            "task": shorten(sanitize_line(row["task"]), task_cells_max),
            "started": output.when(row["happened_ms"]),
            "by": row["ai_id"] or row["author"],
            "findings": row["findings"],
            "unknowns": row["unknowns"],
        },
    )


def _short_id(name: str) -> str:
    """Return an id for a row.

    On a terminal it is the beginning of a UUID, so that the task has room; every verb accepts this beginning.
    """
    return name[:id_chars_min] if output.terminal_cells() is not None and UUID.fullmatch(name) else name


def record(app: App, session_id: str, data: EventData, what: str, *, idem: str | None = None) -> None:
    """Append one event of a session and print the result."""
    name, accepted = append(app, session_id, data, idem=idem)
    answer = {"id": name, "accepted": asdict(accepted[0])}
    done = "was there already" if accepted[0].is_repeat else "recorded"
    line = f"{name}: {what} {done} (entry {accepted[0].index})"
    if isinstance(data, kinds.DeadEndLogged) and data.basis is None:
        line += ", as tried; --basis argued if nobody tried it"
    app.show("session", answer, line)


def print_session(session: dict[str, Any]) -> None:
    """Print a session (the answer of ``sessions.show``)."""
    _print_head(session)
    if session["assessments"]:
        echo("\nVectors", bold=True)
        header, rows, left_out = trajectory(session["assessments"])
        output.print_table(header, rows)
        if left_out:
            echo(f"({left_out} assessments between the first and the last ones are not shown: --json has all)")
    findings = [
        "\n      ".join([_marked(event, quote_text(event["finding"])), *map(quote_text, event["evidence"])])
        for event in session["findings"]
    ]
    _print_newest("Findings", findings)
    _print_newest("Unknowns", [_marked(event, quote_text(event["unknown"])) for event in session["unknowns"]])
    _print_newest("Dead ends", [_marked(event, sanitize_line(dead_end_text(event))) for event in session["dead_ends"]])
    tools = [filter(None, (quote_text(event["tool"]), quote_text(event["purpose"]))) for event in session["tools"]]
    _print_newest("Tools", [": ".join(parts) for parts in tools])


def _print_head(session: dict[str, Any]) -> None:
    echo(quote_text(session["task"]) or "(no task)", bold=True)
    who = session["author"] if session["imported"] is None else session["ai_id"]
    until = "" if session["ended_ms"] is None else f" to {output.when(session['ended_ms'])}"
    echo(f"{session['id']}  [{session['status']}]  by {who}  {output.when(session['happened_ms'])}{until}")
    if (mark := session["imported"]) is not None:
        source = f"{mark['importer']} from {mark['source']} and others"
        echo(f"  imported by {source}: it says this of itself")
    elif session["ai_id"] not in ("", session["author"]):
        echo(f"  label: {session['ai_id']}")
    if session["resumes"]:
        echo(f"  continues {session['resumes']}")
    if session["summary"]:
        echo(f"  summary: {quote_text(session['summary'])}")
    echo("  " + ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in session["counts"].items()))


def _print_newest(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    echo(f"\n{title}", bold=True)
    if len(lines) > lines_max:
        echo(f"({len(lines) - lines_max} older ones are not shown: --json has all)")
    for line in lines[-lines_max:]:
        echo(f"  - {line}")


def trajectory(assessments: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]], int]:
    """Return header and rows of the vectors over the phases, and how many phases had no room.

    The last column is the last value minus the first. A vector that was assessed once has no change, and a vector that
    was never assessed has no row.
    """
    columns = list(assessments)
    if len(columns) > columns_max:
        columns = [columns[0], *columns[len(columns) - columns_max + 1 :]]
    phases = [f"{column['phase']} {column['round'] or ''}".rstrip() for column in columns]
    header = ["vector", *phases, "change"]
    left_out = len(assessments) - len(columns)
    series = {name: [assessment["vectors"].get(name) for assessment in assessments] for name in VECTOR_NAMES}
    series["overall (own)"] = [assessment["overall_confidence"] for assessment in assessments]
    rows = []
    for name, values in series.items():
        if known := [value for value in values if value is not None]:
            cells = [_none if value is None else f"{value:.2f}" for value in values[:1] + values[1 + left_out :]]
            change = f"{round(known[-1] - known[0], 4):+.2f}" if len(known) > 1 else _none
            rows.append([name, *cells, change])
    return header, rows, left_out


def _marked(event: dict[str, Any], text: str) -> str:
    """Return the line of a record with impact, topic and the index of its entry; struck out if it was corrected.

    `retract` and `resolve` take the index.
    """
    notes = [] if event["impact"] is None else [f"impact {event['impact']:.2f}"]
    notes += [quote_text(event["topic"])] if event["topic"] else []
    weight = f"  ({', '.join(notes)})" if notes else ""
    line, done = f"{text}{weight}  #{event['event_index']}", event["correction"]
    return line if done is None else f"~~{line}~~\n      {output.corrected(done)}"
