"""`deed setup`, `prime`, `hook`: hooks, MCP server and page of a harness; what an agent reads first; a hook by name.

Harnesses call `deed hook`, which always exits with 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click import shell_completion as shells

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.program import deed
from deedbook.consumers.interfaces.hooks.__main__ import respond
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES, Harness, Scope
from deedbook.consumers.interfaces.hooks.installation import Installation, Launcher, Outcome
from deedbook.consumers.interfaces.hooks.parts import State
from deedbook.consumers.interfaces.hooks.prime import agents_page, budget_min_tokens, budget_tokens
from deedbook.consumers.interfaces.hooks.prime import prime as primed
from deedbook.consumers.interfaces.hooks.record import read_record, record_path
from deedbook.consumers.interfaces.hooks.supervisor import Call, supervise
from deedbook.consumers.interfaces.mcp.tool_ledger import check_may_sign, roles_of
from deedbook.consumers.sdk.quotation import origin_of
from deedbook.consumers.sdk.text import sanitize_text
from deedbook.ledger.errors import Exit, Refused, Unavailable
from deedbook.ledger.home import trust
from deedbook.ledger.home.environment import environment_variable, present_session
from deedbook.ledger.home.location import find_home, home_in, present_folder

_TEAM_ADVICE: Final = (
    "Commit these files. They work where `deed` is installed and a ledger is found. DEEDBOOK_AGENT names the agent; "
    "without it, the agent is"
)
_MIXED_ADVICE: Final = " The commands name paths of this machine: for files that are committed, use --team."


@click.command(cls=Command)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
@click.option(
    "--check", "action", flag_value="check", help="Print the state of each file; exit code 6 if any is incomplete."
)
@click.option("--remove", "action", flag_value="remove", help="Restore every file as it was before setup.")
@click.option("--team", "scope", flag_value="team", help="Use the project's shared files, for the whole team.")
@click.option(
    "--user", "scope", flag_value="user", help="Use your home folder, for all projects (default: this project)."
)
@click.option("--force", is_flag=True, help="Also replace or remove edited parts; the file is saved first.")
def setup(app: App, harness: str, *, action: str | None, scope: Scope | None, force: bool) -> None:
    """Register Deedbook's hooks, its MCP server and the page for agents with HARNESS.

    Hooks act as --as NAME, by default as the agent that is called like the harness. Setup may be repeated: what is in
    place is left alone, what an earlier version wrote is brought up to date. With --team the commands name no path, and
    act as each one's DEEDBOOK_AGENT.
    """
    chosen = HARNESSES[harness]
    home = _home(app)
    if action is None and home is not None:
        trust.demand(home, app.client())
    folder = Path.home() if scope == "user" else _project(home)
    scope = _scope_of(app, chosen, folder, scope, action)
    launcher = _launcher(app, chosen, home, folder, scope, is_new=action is None)
    kept = None if home is None else home / "setup-kept"
    found = Installation(chosen, folder, launcher, scope=scope, kept=kept)
    if action == "check":
        outcomes = found.check()
        is_whole = all(one.state is State.INSTALLED for one in outcomes)
        _show(app, {"harness": harness, "installed": is_whole}, outcomes, lambda one: one.state)
        if not is_whole:
            click.get_current_context().exit(Exit.UNVERIFIED)
        return
    outcomes = found.remove(force=force) if action == "remove" else found.install(force=force)
    data = {"harness": harness, "scope": scope, "agent": launcher.agent}
    is_mixed = scope == "local" and not chosen.is_apart(scope)
    advice = f"{_TEAM_ADVICE} {harness}." if scope == "team" else f"{chosen.advice}{is_mixed * _MIXED_ADVICE}"
    _show(app, data | {"advice": "" if action else advice}, outcomes, lambda one: one.done)


def _scope_of(app: App, harness: Harness, folder: Path, given: Scope | None, action: str | None) -> Scope:
    """Return whose setup is meant; of the team's and this user's own settings in a project one calls our hooks.

    Raises Refused: ``USAGE`` for what would change the team's files, or have both call them.
    """
    found = Installation(harness, folder, Launcher(None, None)) if given != "user" else None
    has_own = found is not None and harness.is_apart("local") and found.check()[0].state is not State.MISSING
    if given == "team" and action is None and has_own:
        message = "your own settings of this project already call Deedbook's hooks, and both would run"
        raise Refused("USAGE", f"{message}: `deed setup {harness.name} --remove` first")
    if given is not None or not harness.is_shared(folder) or (action == "remove" and has_own):
        return given or "local"
    if action == "remove" or (action is None and app.agent is not None):
        message = "the shared settings of this project already call Deedbook's hooks; --team changes them for everybody"
        raise Refused("USAGE", f"{message}; to act as another agent, set DEEDBOOK_AGENT")
    return "team"


def _home(app: App) -> Path | None:
    try:
        return app.settings().home
    except Unavailable:
        return None  # removal and check need no ledger


def _project(home: Path | None) -> Path:
    """Return the folder of the project: the one here or above that has the ledger, else this one."""
    here = present_folder()
    homes = ((one, home_in(one)) for one in (here, *here.parents) if home is not None)
    return next((one for one, found in homes if found is not None and found.resolve() == home), here)


def _launcher(app: App, harness: Harness, home: Path | None, folder: Path, scope: Scope, *, is_new: bool) -> Launcher:
    """Return what hooks are called with: as given, else as setup was called before, else by default."""
    record = read_record(record_path(harness.name, folder))
    is_user = scope == "user"
    given = None if home is None else app.settings().agent
    agent = given or app.agent or (record.agent if record is not None else "") or harness.name
    if home is None:
        if is_new and not is_user:
            app.settings()  # says that there is no ledger, and what to do
        pinned, server = (None, None) if record is None else (record.home, record.server)
    else:
        found = find_home(folder, {})
        is_found = found is not None and found.resolve() == home.resolve()
        pinned = None if is_found or (is_user and app.home is None) else str(home.resolve())
        server = app.settings().server
    if scope == "team" and app.agent is not None:
        raise Refused("USAGE", "--team uses each person's DEEDBOOK_AGENT: omit --as")
    if scope == "team" and pinned is not None:
        raise Refused("USAGE", f"--team writes no paths of this machine; others have no ledger in {pinned}")
    if is_new and home is not None:
        check_may_sign(agent, roles_of(app.client(), agent), f"the hooks of {harness.title} would act as {agent}")
    if scope == "team":
        return Launcher(None, None, None, server)
    return Launcher(sys.executable, agent, pinned, server)


def _show(app: App, data: dict[str, Any], outcomes: list[Outcome], word: Callable[[Outcome], str]) -> None:
    files = [
        {"path": str(one.path), "state": str(one.state), "done": one.done, "kept": one.kept and str(one.kept)}
        for one in outcomes
    ]

    text = []
    for one in outcomes:
        text += [f"{word(one):10}{one.path}", *([f"{'':10}as it was: {one.kept}"] if one.kept else [])]
    app.show("setup", data | {"files": files}, filter(None, [*text, data.get("advice")]))


budget_max_tokens = 100_000


@click.command(cls=Command, looks_back=True)
@click.option("--task", metavar="TEXT", help="What you are about to do: its dead ends and reasonings come first.")
@click.option(
    "--budget",
    type=click.IntRange(budget_min_tokens, budget_max_tokens),
    default=budget_tokens,
    show_default=True,
    help="The most tokens to print.",
)
@click.option("--page", is_flag=True, help="Print the page for agents instead: how to work with Deedbook.")
def prime(app: App, *, task: str | None, budget: int, page: bool) -> None:
    """Print dead ends of similar tasks, what waits for you, and the last session, with commands.

    Items are printed whole. Items that do not fit are named at the end, with the command that shows them.
    """
    if page:
        app.show("page", {"text": agents_page()}, agents_page().splitlines())
        return
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
    app.show("primed", data, lambda: click.echo(sanitize_text(made.text), nl=False))


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
    """Answer one event of a harness: JSON on standard input, at most one JSON object on standard output.

    The exit code is always 0. Errors are written to hooks.log in the ledger's folder.
    """
    agent = app.agent or environment_variable("DEEDBOOK_AGENT") or harness
    supervise(Call(harness, agent, app.home, app.server), respond)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(app: App, shell: str) -> None:
    """Print the script that completes verbs and options. Load it where your shell starts.

    bash: eval "$(deed completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: deed
    completion fish > ~/.config/fish/completions/deed.fish.
    """
    made = {"bash": shells.BashComplete, "zsh": shells.ZshComplete, "fish": shells.FishComplete}[shell]
    source = made(deed, {}, "deed", "_DEED_COMPLETE").source()
    app.show("completion", {"shell": shell, "source": source}, source)
