"""`baton setup`: hooks, the MCP server and the page for agents in a harness; checked, and removed without a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.hooks.harnesses import HARNESSES
from consumers.doors.hooks.installing import Installation, Told
from consumers.doors.hooks.ours import Launcher
from consumers.doors.hooks.parts import State
from consumers.doors.hooks.record import Record, read_record, record_path
from ledger.config import FOLDER, find_home, present_folder
from ledger.errors import Exit, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumers.doors.hooks.harnesses import Harness

ACTIONS: Final = ("check", "remove")


@click.command(cls=Command)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
@click.option("--check", "action", flag_value="check", help="Say what stands in each file; exit code 6 unless all.")
@click.option("--remove", "action", flag_value="remove", help="Leave every file as it was before setup.")
@click.option("--user", is_flag=True, help="In your home, for all projects (default: in this project).")
@click.option("--force", is_flag=True, help="Also replace or remove what somebody edited; the file is kept.")
@click.pass_obj
def setup(app: App, harness: str, *, action: str | None, user: bool, force: bool) -> None:
    """Register Baton's hooks, its MCP server and the page for agents with HARNESS.

    Hooks act as --as NAME, by default as the agent that is called like the harness. Setup may be repeated: what is in
    place is left alone, what an earlier version wrote is brought up to date.
    """
    chosen = HARNESSES[harness]
    home = _home(app)
    folder = Path.home() if user else _project(home)
    record = read_record(record_path(harness, folder))
    launcher = _launcher(app, chosen, home, folder, record, is_user=user, is_new=action is None)
    kept = None if home is None else home / "setup-kept"
    found = Installation(chosen, folder, launcher, is_user=user, kept=kept)
    if action == "check":
        _check(app, chosen, found.check())
        return
    told = found.remove(force=force) if action == "remove" else found.install(force=force)
    data = {"harness": harness, "scope": "user" if user else "project", "agent": launcher.agent}
    _show(app, data | {"advice": "" if action else chosen.advice}, told, lambda one: one.done)


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
    app: App,
    harness: Harness,
    home: Path | None,
    folder: Path,
    record: Record | None,
    *,
    is_user: bool,
    is_new: bool,
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


def _check(app: App, harness: Harness, told: list[Told]) -> None:
    is_whole = all(one.state is State.INSTALLED for one in told)
    _show(app, {"harness": harness.name, "installed": is_whole}, told, lambda one: one.state)
    if not is_whole:
        click.get_current_context().exit(Exit.UNVERIFIED)


def _show(app: App, data: dict[str, Any], told: list[Told], word: Callable[[Told], str]) -> None:
    files = [
        {"path": str(one.path), "state": str(one.state), "done": one.done, "kept": one.kept and str(one.kept)}
        for one in told
    ]

    def text() -> None:
        for one in told:
            click.echo(f"{word(one):10}{one.path}")
            if one.kept is not None:
                click.echo(f"{'':10}as it was: {one.kept}")
        if data.get("advice"):
            click.echo(data["advice"])

    app.show("setup", data | {"files": files}, text)
