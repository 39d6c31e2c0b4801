"""`deed session move`: continues a session in another harness, with its messages, its records and a signed handoff.

The handoff is signed first, then the files are written. If we crash in between, the same call finds the handoff and
writes the files, because both are derived from the session.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import join, quote
from typing import Any, Final, NamedTuple, get_args

import click

from deedbook.consumers.handoffs import composition, operations
from deedbook.consumers.handoffs.moves.plan import (
    MovePlan,
    Parties,
    Records,
    check_receiver,
    passing_on,
    plan_move,
    records_of,
    tokens_max,
    tokens_min,
)
from deedbook.consumers.handoffs.moves.session_files import (
    NewSession,
    SessionPlace,
    find_session,
    find_sessions,
    new_prompt,
    new_session,
)
from deedbook.consumers.handoffs.receiver import EVERY_TOPIC
from deedbook.consumers.importers.transcripts.messages import HarnessName, SessionTranscript, read_messages
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.harness import project_of
from deedbook.consumers.interfaces.cli.output import print_command, print_next
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.record import make_folders
from deedbook.consumers.sdk.quotation import origin_of
from deedbook.consumers.sdk.text import counted, shorten
from deedbook.consumers.sessions.open_sessions import choose_session
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.environment import present_session
from deedbook.ledger.home.location import present_folder
from deedbook.ledger.system.files import as_unavailable, create_exclusively, read_regular

NO_SESSION: Final = "none"
candidates_max: Final = 20
"""How many sessions, from the newest on, are searched for one that has messages."""
_NAMES: Final = get_args(HarnessName)
_title_max_chars: Final = 100
_folder_mode: Final = 0o700


class _Move(NamedTuple):
    """A planned move: its source, its content, and its target.

    ``status`` is the status of its handoff, if it is signed already.
    """

    parties: Parties
    source: Path
    project: Path
    transcript: SessionTranscript
    records: Records
    plan: MovePlan
    new: NewSession
    status: str | None
    topics: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status is not None and self.new.path.exists()


@click.command(cls=Command)
@click.option("--from", "old", type=click.Choice(_NAMES), required=True, help="The harness that the session is of.")
@click.option("--to", "new", type=click.Choice(_NAMES), required=True, help="The harness that continues.")
@click.option("--session", "named", metavar="FILE|ID", help="The session (default: this project's newest).")
@click.option("--receiver", metavar="NAME", help="The agent that continues (default: the name of its harness).")
@click.option(
    "--ledger-session",
    "recorded",
    metavar="ID",
    help=f"The session in the ledger whose records go along (default: your open one; `{NO_SESSION}`: no records).",
)
@click.option(
    "--topic", "topics", cls=ListOption, metavar="NAME", help="Only records of this topic (default: of every one)."
)
@click.option(
    "--tokens",
    type=click.IntRange(min=tokens_min),
    help="The tokens that the messages may take (default: about half of the harness's context).",
)
@click.option(
    "--prompt",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write one prompt to this new file instead of a session, for a version that does not take the session.",
)
@click.option("--yes", is_flag=True, help="Ask nothing. Required unless you run this on a terminal.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the plan; sign and write nothing.")
def move(app: App, *, yes: bool, is_dry: bool, **options: Any) -> None:
    """Move a session of this project to another harness, and hand its work over.

    The new session has the messages, with tool calls as text and without secrets, and at the end your findings,
    unknowns, dead ends and reasoning in the ledger, your work in progress, and what could not be moved. A handoff from
    you to the agent of the other harness says the same. Without --as you are the agent that has the harness's name.

    If the session is too long, its first request and its newest messages are moved. A session that was moved is moved
    again only if something is new.
    """
    if app.settings().agent is None:
        app.act_as(options["old"])
    planned = _planned(app, **options)
    if is_dry or planned.is_done:
        app.show("session_move_plan", _answer(planned), lambda: _print_unmoved(planned))
        return
    if not yes:
        _ask(app, planned)
    _sign(app, planned)
    _write(planned.new)
    why = app.query("handoffs.why", id=planned.plan.id)
    following = operations.next_on(why)

    def text() -> None:
        if yes:
            _print_plan(planned)
            echo("")
        echo(f"{planned.plan.id} is {why['status']}")
        print_next(following, app.settings().agent)
        _print_end(planned)

    answer = _answer(planned) | {"status": why["status"], "next": [command for _, command in following]}
    app.show("session_move", answer, text, following=following[0].command if following else None)


def _ask(app: App, planned: _Move) -> None:
    if app.as_json or not app.has_terminal:
        raise Refused("USAGE", "read the plan with --dry-run, then add --yes: nothing was signed or written")
    _print_plan(planned)
    if not click.confirm("\nMove it?", default=False, err=True):
        raise click.Abort


def _planned(
    app: App,
    *,
    old: HarnessName,
    new: HarnessName,
    named: str | None,
    receiver: str | None,
    recorded: str | None,
    topics: tuple[str, ...],
    tokens: int | None,
    prompt: Path | None,
) -> _Move:
    if old == new:
        raise Refused("USAGE", f"{old} resumes its own sessions: name another harness with --to")
    parties = Parties(old, HARNESSES[old].title, app.acting(), new, HARNESSES[new].title, receiver or new)
    if parties.sender == parties.receiver:
        message = f"{parties.sender} cannot hand work to itself: act as the agent of {parties.old_title} with --as"
        raise Refused("USAGE", message)
    check_receiver(app.query_with, parties.receiver)
    project, source, transcript = _read(app, old, named)
    session = _ledger_session(app, parties.sender, recorded)
    records = records_of(app.query_with, parties.sender, session, topics)
    plan = plan_move(parties, transcript, records, origin_of(app.client()), tokens or tokens_max[new])
    if prompt is None:
        place = SessionPlace(new, _settings_of(new), project)
        created = new_session(place, plan.messages, plan.id, _end_of(transcript, source))
    else:
        created = new_prompt(new, prompt.absolute(), plan.messages)
    status = _status(app, plan.id, parties)
    if status is None:
        _check_free(created)
    chosen = () if session is None else topics or (EVERY_TOPIC,)
    return _Move(parties, source, project, transcript, records, plan, created, status, chosen)


def _check_free(new: NewSession) -> None:
    """Refuse to replace a file of somebody else."""
    for path, text in new.files.items():
        if path.exists() and _differs(path, text):
            raise Refused("FILE_EXISTS", f"{path} exists, and no file is replaced: move it away, or name a new one")


def _differs(path: Path, text: bytes) -> bool:
    return path.stat().st_size != len(text) or read_regular(path, size_max_bytes=len(text)) != text


def _read(app: App, harness: HarnessName, named: str | None) -> tuple[Path, Path, SessionTranscript]:
    """Return the project, the file and the messages of the ``named`` session, else of the newest that has messages.

    The project is this folder if it has the session, else the one with the ledger.
    """
    projects = dict.fromkeys([present_folder().resolve(), project_of(app.settings().home).resolve()])
    places = [SessionPlace(harness, _settings_of(harness), project) for project in projects]
    candidates = [(place.project, file) for place in places for file in find_sessions(place)] if named is None else []
    with progress("reading the session", is_shown=not app.as_json) as step:
        for project, file in candidates[:candidates_max]:
            try:
                return project, file, read_messages(file, harness, step)
            except Refused as refusal:  # an empty session: somebody opened it and left it again
                if refusal.code != "INVALID_FORMAT":
                    raise
        project, file = _found(places, named)
        return project, file, read_messages(file, harness, step)


def _found(places: Sequence[SessionPlace], named: str | None) -> tuple[Path, Path]:
    *nearer, last = places
    for place in nearer:
        try:
            return place.project, find_session(place, named)
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
    return last.project, find_session(last, named)


def _settings_of(harness: HarnessName) -> Path:
    return HARNESSES[harness].files(Path.home(), "user").settings.parent


def _ledger_session(app: App, agent: str, named: str | None) -> str | None:
    """Return the session in the ledger: the named one, that of DEEDBOOK_SESSION, else the agent's open one, if any."""
    if named is not None:
        return None if named == NO_SESSION else named
    return present_session() or choose_session(app.query_with, agent).session_id


def _end_of(transcript: SessionTranscript, source: Path) -> datetime:
    last = next((message.at for message in reversed(transcript.messages) if message.at), None)
    if last is not None:
        return datetime.fromisoformat(last)
    return datetime.fromtimestamp(int(source.stat().st_mtime), UTC)


def _status(app: App, id_: str, parties: Parties) -> str | None:
    """Return the status of the handoff of this move; None if it is not signed yet."""
    try:
        handoff = app.query("handoffs.facts", id=id_)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    if (handoff["from"], handoff["to"]) != (parties.sender, parties.receiver):
        raise Refused("INVALID_FIELD", f"{id_} is a handoff of {handoff['from']}: it is not this move", id=id_)
    return str(handoff["status"])


def _sign(app: App, planned: _Move) -> None:
    if planned.status is not None:
        return
    values: dict[str, Any] = {
        "title": planned.plan.title,
        "to": planned.parties.receiver,
        "body": planned.plan.body,
        "session": planned.records.session or NO_SESSION,
        "topics": list(planned.topics),
        "reasoning": list(planned.records.reasonings),
    }
    made = composition.creation(app.query_with, app.acting(), app.settings(), planned.plan.id, values)
    app.author().emit(Draft(stream=f"handoff/{made.id}", data=made.data))


def _write(new: NewSession) -> None:
    """Write the files of a session; an existing one is never replaced."""
    for path, text in new.files.items():
        make_folders(path.parent, mode=_folder_mode)
        with as_unavailable(path), suppress(FileExistsError), create_exclusively(path) as file:
            file.write(text)


def _answer(planned: _Move) -> dict[str, Any]:
    parties, plan, transcript = planned.parties, planned.plan, planned.transcript
    return {
        "id": plan.id,
        "from": {"harness": parties.old, "agent": parties.sender, "file": _shown(planned.source)},
        "to": {"harness": parties.new, "agent": parties.receiver, "file": _shown(planned.new.path)},
        "title": plan.title,
        "session": planned.new.id or None,
        "ledger_session": planned.records.session,
        "messages": len(plan.messages) - 1,
        "of_messages": len(transcript.messages),
        "changed": plan.changes.changed,
        "left_out": plan.changes.left_out,
        "folder": _shown(planned.project),
        "command": join(planned.new.command),
        "pass_on": {handoff["id"]: passing_on(handoff, parties) for handoff in planned.records.handoffs},
        "status": planned.status,
    }


def _shown(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _print_unmoved(planned: _Move) -> None:
    _print_plan(planned)
    if planned.is_done:
        echo(f"It was moved already: {planned.plan.id} is {planned.status}.")
    echo("Nothing was signed or written.")
    if planned.is_done:
        _print_end(planned)


def _print_plan(planned: _Move) -> None:
    parties, plan, transcript = planned.parties, planned.plan, planned.transcript
    echo(shorten(plan.title, _title_max_chars), bold=True)
    echo(f"  from     {parties.old_title} ({parties.sender}): {planned.source}")
    echo(f"  to       {parties.new_title} ({parties.receiver}): {planned.new.path}")
    echo(f"  messages {len(plan.messages) - 1} of {len(transcript.messages)}, and one that says where they come from")
    session, lines = planned.records.session, planned.records.notes + planned.records.lines
    recorded = f"{counted(len(lines), 'line')} of session {session} in the ledger"
    echo(f"  records  {recorded if session is not None else 'none: no session in the ledger was chosen'}")
    for heading, sentences in (("In another form:", plan.changes.changed), ("Not moved:", plan.changes.left_out)):
        for line in (heading, *(f"  - {line}" for line in sentences)) if sentences else ():
            echo(line)


def _print_end(planned: _Move) -> None:
    """Print how to continue in the new harness, and how to pass on the work that the old agent has claimed."""
    echo(f"{planned.parties.new_title} goes on with:")
    print_command(f"cd {quote(str(planned.project))} && {join(planned.new.command)}", "  ")
    for handoff in planned.records.handoffs:
        echo(f"{handoff['id']} is still {planned.parties.sender}'s. Its parties pass it on, and its ticks are removed:")
        for command in passing_on(handoff, planned.parties):
            print_command(command, "  ")
