"""`deed setup`, `prime`, `completion`: set up a harness, print the first text for an agent, and complete in shells."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from click import shell_completion as shells

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.program import deed
from deedbook.consumers.interfaces.hooks.harnesses import ASK_AT_STOP, COMMAND, HARNESSES, Harness, Scope, own_command
from deedbook.consumers.interfaces.hooks.installation import Installation, Launcher, Outcome
from deedbook.consumers.interfaces.hooks.parts import State
from deedbook.consumers.interfaces.hooks.record import KEPT, read_record, record_path
from deedbook.consumers.sdk.tool_agents import check_may_sign, names_of, roles_of
from deedbook.ledger.errors import Exit, Refused, Unavailable
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import find_home, home_in, present_folder
from deedbook.ledger.packages import install_command

_TEAM_ADVICE: Final = (
    "Commit these files. They work on machines with `deed` and a ledger. DEEDBOOK_AGENT names the agent that acts; "
    "without it, the agent is"
)
_MIXED_ADVICE: Final = " The commands contain paths of this machine. If you commit the files, use --team."


@click.command(cls=Command)
@click.argument("harness", type=click.Choice(list(HARNESSES)))
@click.option(
    "--check",
    "action",
    flag_value="check",
    help="Show the state of each file, and your edits in it; exit code 6 unless all are installed.",
)
@click.option("--remove", "action", flag_value="remove", help="Restore every file to its content before setup.")
@click.option("--team", "scope", flag_value="team", help="Write the project's shared files, for the whole team.")
@click.option(
    "--user", "scope", flag_value="user", help="Write to your home, for all projects (default: this project)."
)
@click.option("--force", is_flag=True, help="Also replace or remove edited parts; keep a copy of the file.")
@click.option(
    f"{ASK_AT_STOP}/--no-ask-at-stop",
    "asks",
    default=None,
    help="Send the agent back once if it edited files and recorded nothing (Claude Code).",
)
def setup(app: App, harness: str, *, action: str | None, scope: Scope | None, force: bool, asks: bool | None) -> None:
    """Register Deedbook's hooks, its MCP server and the page for agents with HARNESS.

    Hooks act as --as NAME (default: the agent with the name of the harness). You may repeat setup: it leaves current
    parts alone and updates parts of an earlier version. With --team the commands contain no path, and each user's
    DEEDBOOK_AGENT acts.
    """
    installation = installation_here(app, harness, scope, action, asks_at_stop=asks)
    scope, target, launcher = installation.scope, installation.harness, installation.launcher
    if action == "check":
        outcomes = installation.check()
        is_whole = all(outcome.state is State.INSTALLED for outcome in outcomes)
        data = {"harness": harness, "installed": is_whole, "advice": mcp_advice()}
        _show(app, data, outcomes, lambda outcome: outcome.state, Exit.OK if is_whole else Exit.UNVERIFIED)
        return
    outcomes = installation.remove(force=force) if action == "remove" else installation.install(force=force)
    data = {"harness": harness, "scope": scope, "agent": launcher.agent}
    advice = "" if action else "\n".join(filter(None, [advice_of(target, scope), *common_advice()]))
    _show(app, data | {"advice": advice}, outcomes, lambda outcome: outcome.done)


def installation_here(
    app: App,
    harness: str,
    scope: Scope | None = None,
    action: str | None = None,
    *,
    asks_at_stop: bool | None = None,
) -> Installation:
    """Return the setup of a harness in this project, or in the user's home; ``action`` is None for a new setup.

    ``asks_at_stop`` None keeps the present setting.

    Raises Refused: ``USAGE`` where this scope cannot be set up; ``NOT_TRUSTED``. Unavailable: ``NO_LEDGER``.
    """
    target = HARNESSES[harness]
    home = _home(app)
    if action is None and home is not None:
        trust.demand(home, app.client())
    folder = Path.home() if scope == "user" else project_of(home)
    scope = _scope_of(app, target, folder, scope, action)
    if asks_at_stop and not target.edit_tools:
        raise Refused("USAGE", f"{target.title} takes no question at the end of a turn: leave {ASK_AT_STOP} out")
    asks = target.asks_at_stop(folder, scope) if asks_at_stop is None else asks_at_stop
    launcher = _launcher(app, target, home, folder, scope, is_new=action is None)._replace(asks_at_stop=asks)
    return Installation(target, folder, launcher, scope=scope, kept=None if home is None else home / KEPT)


def advice_of(harness: Harness, scope: Scope) -> str:
    """Return what a person still has to do for a harness after its setup."""
    if scope == "team":
        return f"{_TEAM_ADVICE} {harness.name}."
    if scope == "user" and harness.is_apart("local"):
        return ""  # its advice is about the files of a project
    is_mixed = scope == "local" and not harness.is_apart(scope)
    return f"{harness.advice}{is_mixed * _MIXED_ADVICE}"


def common_advice() -> list[str]:
    """Return what a person still has to do for every harness."""
    return list(filter(None, [path_advice(), mcp_advice()]))


def mcp_advice() -> str:
    """Return how to make the MCP server start if its extra is missing; else nothing."""
    return "" if find_spec("mcp") is not None else f"The MCP server cannot start: run {install_command('mcp')}"


def path_advice() -> str:
    """Return advice if a shell does not find this `deed` by its name, which the page for agents uses; else nothing."""
    own, on_path = own_command(), shutil.which(COMMAND)
    if on_path is not None and Path(on_path).samefile(own):
        return ""
    folder = f"the folder of `{COMMAND}`" if own == COMMAND else Path(own).parent
    return f"Agents call `{COMMAND}` without a path: put {folder} first on PATH."


def _scope_of(app: App, harness: Harness, folder: Path, scope: Scope | None, action: str | None) -> Scope:
    """Return the scope of a setup. The team's settings of a project and this user's own must not both call our hooks.

    Raises Refused: ``USAGE`` if it would change the team's files, or if both would call the hooks.
    """
    installation = Installation(harness, folder, Launcher(COMMAND, None)) if scope != "user" else None
    has_own = (
        installation is not None and harness.is_apart("local") and installation.check()[0].state is not State.MISSING
    )
    if scope == "team" and action is None and has_own:
        message = "your own settings of this project already call Deedbook's hooks, so both would run"
        raise Refused("USAGE", f"{message}. Run `deed setup {harness.name} --remove` first.")
    if scope is not None or not harness.is_shared(folder) or (action == "remove" and has_own):
        return scope or "local"
    if action == "remove" or (action is None and app.agent is not None):
        message = (
            "this project's shared settings already call Deedbook's hooks. Add --team to change them for everybody"
        )
        raise Refused("USAGE", f"{message}, or set DEEDBOOK_AGENT to act as another agent.")
    return "team"


def _home(app: App) -> Path | None:
    try:
        return app.settings().home
    except Unavailable:
        return None  # removal and check need no ledger


def project_of(home: Path | None) -> Path:
    """Return the folder of the project: this one or the parent that has the ledger, else this one."""
    here = present_folder()
    homes = ((folder, home_in(folder)) for folder in (here, *here.parents) if home is not None)
    return next((folder for folder, ledger in homes if ledger is not None and ledger.resolve() == home), here)


def _launcher(app: App, harness: Harness, home: Path | None, folder: Path, scope: Scope, *, is_new: bool) -> Launcher:
    """Return how hooks are called: by the options, else as in the previous setup, else by default."""
    record = read_record(record_path(harness.name, folder))
    is_user = scope == "user"
    configured = None if home is None else app.settings().agent
    agent = configured or app.agent or (record.agent if record is not None else "") or harness.name
    if home is None:
        if is_new and not is_user:
            app.settings()  # raises NO_LEDGER with its advice
        pinned, server = (None, None) if record is None else (record.home, record.server)
    else:
        nearest = find_home(folder, {})
        is_found = nearest is not None and nearest.resolve() == home.resolve()
        pinned = None if is_found or (is_user and app.home is None) else str(home.resolve())
        server = app.settings().server
    if scope == "team" and app.agent is not None:
        raise Refused("USAGE", "--team lets each user's DEEDBOOK_AGENT act. Leave out --as.")
    if scope == "team" and pinned is not None:
        raise Refused("USAGE", f"--team writes no path of this machine, and others have no ledger in {pinned}")
    if is_new and home is not None:
        before, names = f"the hooks of {harness.title} would act as {agent}", names_of(app.client())
        check_may_sign(agent, roles_of(app.client(), agent), before, names=names)
    if scope == "team":
        return Launcher(COMMAND, None, None, server)
    return Launcher(own_command(), agent, pinned, server)


def _show(
    app: App,
    data: dict[str, Any],
    outcomes: list[Outcome],
    word: Callable[[Outcome], str],
    exit_code: int = Exit.OK,
) -> None:
    text = [line for outcome in outcomes for line in lines_of(outcome, word(outcome))]
    lines = filter(None, [*text, data.get("advice")])
    app.show("setup", data | {"files": described(outcomes)}, lines, exit_code=exit_code)


def described(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Return the outcomes of a setup for JSON."""
    return [
        {
            "path": str(outcome.path),
            "state": str(outcome.state),
            "done": outcome.done,
            "kept": outcome.kept and str(outcome.kept),
            "difference": list(outcome.difference),
        }
        for outcome in outcomes
    ]


def lines_of(outcome: Outcome, word: str) -> list[str]:
    """Return the lines that say what a setup did with one file."""
    kept = [f"{'':10}copy of the edited file: {outcome.kept}"] if outcome.kept else []
    return [f"{word:10}{outcome.path}", *kept, *(f"{'':10}{line}" for line in outcome.difference)]


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(app: App, shell: str) -> None:
    """Print a script that completes verbs and options in a shell. Load it in the shell's start file.

    bash: eval "$(deed completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: deed completion
    fish > ~/.config/fish/completions/deed.fish.
    """
    completer = {"bash": shells.BashComplete, "zsh": shells.ZshComplete, "fish": shells.FishComplete}[shell]
    source = completer(deed, {}, "deed", "_DEED_COMPLETE").source()
    app.show("completion", {"shell": shell, "source": source}, source)
