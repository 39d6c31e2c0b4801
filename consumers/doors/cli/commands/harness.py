"""`baton setup`, `prime`, `hook`: hooks, MCP server and page of a harness; what an agent reads first; a hook by name.

What harnesses call is ``python -P -m consumers.doors.hooks``, which loads less than `baton hook`; both answer the same
and exit with 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.hooks.__main__ import respond
from consumers.doors.hooks.harnesses import HARNESSES, Harness
from consumers.doors.hooks.installation import Installation, Launcher, Outcome
from consumers.doors.hooks.parts import State
from consumers.doors.hooks.prime import budget_min_tokens, budget_tokens
from consumers.doors.hooks.prime import prime as primed
from consumers.doors.hooks.record import Record, read_record, record_path
from consumers.doors.hooks.supervisor import Call, supervise
from consumers.sdk.quotation import origin_of
from consumers.sdk.text import clean
from ledger import trust
from ledger.config import FOLDER, environment_variable, find_home, present_folder, present_session
from ledger.errors import Exit, Refused, Unavailable

ACTIONS: Final = ("check", "remove")


@click.command(cls=Command)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
@click.option("--check", "action", flag_value="check", help="Say what stands in each file; exit code 6 unless all.")
@click.option("--remove", "action", flag_value="remove", help="Leave every file as it was before setup.")
@click.option("--user", is_flag=True, help="In your home, for all projects (default: in this project).")
@click.option("--force", is_flag=True, help="Also replace or remove what somebody edited; the file is kept.")
def setup(app: App, harness: str, *, action: str | None, user: bool, force: bool) -> None:
    """Register Baton's hooks, its MCP server and the page for agents with HARNESS.

    Hooks act as --as NAME, by default as the agent that is called like the harness. Setup may be repeated: what is in
    place is left alone, what an earlier version wrote is brought up to date.
    """
    chosen = HARNESSES[harness]
    home = _home(app)
    if action is None and home is not None:
        trust.demand(home, app.client())
    folder = Path.home() if user else _project(home)
    record = read_record(record_path(harness, folder))
    launcher = _launcher(app, chosen, home, folder, record, is_user=user, is_new=action is None)
    kept = None if home is None else home / "setup-kept"
    found = Installation(chosen, folder, launcher, is_user=user, kept=kept)
    if action == "check":
        _check(app, chosen, found.check())
        return
    outcomes = found.remove(force=force) if action == "remove" else found.install(force=force)
    data = {"harness": harness, "scope": "user" if user else "project", "agent": launcher.agent}
    _show(app, data | {"advice": "" if action else chosen.advice}, outcomes, lambda one: one.done)


def _home(app: App) -> Path | None:
    try:
        return app.settings().home
    except Unavailable:
        return None  # removal and check need no ledger


def _project(home: Path | None) -> Path:
    """Return the folder of the project: the one that holds the ledger, where that is here or above, else this one."""
    here = present_folder()
    if home is not None and home.name == FOLDER and home.resolve().parent in (here, *here.parents):
        return home.resolve().parent
    return here


def _launcher(
    app: App, harness: Harness, home: Path | None, folder: Path, record: Record | None, *, is_user: bool, is_new: bool
) -> Launcher:
    """Return what hooks are called with: as given, else as setup was called before, else by default."""
    given = None if home is None else app.settings().agent
    agent = given or app.agent or (harness.name if record is None else record.agent)
    if home is None:
        if is_new and not is_user:
            app.settings()  # says that there is no ledger, and what to do
        pinned, server = (None, None) if record is None else (record.home, record.server)
    else:
        found = find_home(folder, {})
        is_found = found is not None and found.resolve() == home.resolve()
        pinned = None if is_found or (is_user and app.home is None) else str(home.resolve())
        server = app.settings().server
    if is_new and home is not None:
        _check_agent(app, harness, agent)
    return Launcher(sys.executable, agent, pinned, server)


def _check_agent(app: App, harness: Harness, agent: str) -> None:
    try:
        app.query("agents.show", name=agent)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        advice = f"`baton agent add {agent} --role agent` registers it, --as NAME takes another"
        message = f"the hooks of {harness.title} would act as {agent}, who is not registered: {advice}"
        raise Refused("AGENT_UNKNOWN", message, name=agent) from refusal


def _check(app: App, harness: Harness, outcomes: list[Outcome]) -> None:
    is_whole = all(one.state is State.INSTALLED for one in outcomes)
    _show(app, {"harness": harness.name, "installed": is_whole}, outcomes, lambda one: one.state)
    if not is_whole:
        click.get_current_context().exit(Exit.UNVERIFIED)


def _show(app: App, data: dict[str, Any], outcomes: list[Outcome], word: Callable[[Outcome], str]) -> None:
    files = [
        {"path": str(one.path), "state": str(one.state), "done": one.done, "kept": one.kept and str(one.kept)}
        for one in outcomes
    ]

    def text() -> None:
        for one in outcomes:
            click.echo(f"{word(one):10}{one.path}")
            if one.kept is not None:
                click.echo(f"{'':10}as it was: {one.kept}")
        if data.get("advice"):
            click.echo(data["advice"])

    app.show("setup", data | {"files": files}, text)


budget_max_tokens = 100_000


@click.command(cls=Command)
@click.option("--task", metavar="TEXT", help="What you are about to do: dead ends of similar tasks come first.")
@click.option("--budget", type=click.IntRange(budget_min_tokens, budget_max_tokens), default=budget_tokens,
              show_default=True, help="At most so many tokens.")  # fmt: skip
def prime(app: App, *, task: str | None, budget: int) -> None:
    """Print how to work with Baton, dead ends of similar tasks, what waits for you, and the last session.

    Only whole items are printed; what found no room is named at the end, with the command that shows it.
    """
    agent = app.settings().agent
    require_trust(app)
    session = present_session()
    made = primed(
        app.query_with,
        app.client().get_blob,
        origin_of(app.client(), app.ledger_home()),
        agent=agent,
        session=None if session is None else session.removeprefix("session/"),
        task=task,
        budget=budget,
    )
    data = made._asdict() | {"budget": budget, "agent": agent}
    app.show("primed", data, lambda: click.echo(clean(made.text), nl=False))


def require_trust(app: App) -> None:
    """Refuse a folder that is not trusted, in words for an agent: without a path, which may be a stranger's text."""
    try:
        trust.demand(app.settings().home)
        trust.demand(app.settings().home, app.client())
    except Refused as refusal:
        raise Refused(refusal.code, trust.UNTRUSTED) if refusal.code == "NOT_TRUSTED" else refusal from None


@click.command(cls=Command, hidden=True)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
def hook(app: App, harness: str) -> None:
    """Answer one event of a harness: its JSON on standard input, at most one JSON object on standard output.

    Never fails: what goes wrong is written to hooks.log in the ledger's folder.
    """
    supervise(Call(harness, app.agent or environment_variable("BATON_AGENT"), app.home, app.server), respond)
