"""`deed init`: sets up a project in one step."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.agents import UNPROTECTED_HELP, new_passphrase
from deedbook.consumers.interfaces.cli.commands.harness import (
    advice_of,
    common_advice,
    described,
    installation_here,
    lines_of,
    project_of,
)
from deedbook.consumers.interfaces.cli.login_name import login_name
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.interfaces.hooks.harnesses import COMMAND, HARNESSES, Harness
from deedbook.consumers.interfaces.hooks.installation import Installation, Launcher, Outcome
from deedbook.consumers.interfaces.hooks.parts import State
from deedbook.consumers.sdk.service import register_agent
from deedbook.ledger.client.creation import check_is_new, create_ledger
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import Role
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import check_name, read_config
from deedbook.ledger.home.home import Home, check_own_folder
from deedbook.ledger.home.location import GIT_FOLDER, new_home, present_folder, resolved
from deedbook.ledger.home.settings import check_folder
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import ROOT

NOBODY: Final = "none"
_PERSON: Final[tuple[Role, ...]] = ("human", "reviewer")
_AGENT: Final[tuple[Role, ...]] = ("agent",)
_TRIAL_MEMBERS: Final[dict[str, tuple[Role, ...]]] = {"alex": _PERSON, "claude-code": _AGENT, "kuro": _AGENT}
_TRIAL_LINES: Final = (
    "A trial: alex reviews, claude-code and kuro work, and no key has a passphrase, so the dashboard only reads.",
    "Decide in a terminal. Use `deed init` for real work.",
    "Next: deed handoff create --as kuro --to claude-code --reviewer alex --title TITLE",
)


class Plan(NamedTuple):
    """The members and harnesses that a new ledger gets, beside root."""

    members: dict[str, tuple[Role, ...]]
    harnesses: list[str]

    @property
    def person(self) -> str | None:
        """The member who approves, if there is one."""
        return next((name for name, roles in self.members.items() if "human" in roles), None)


@click.command(cls=Command)
@click.option("--name", metavar="NAME", help=f"Your name: you approve work. `{NOBODY}` registers nobody.")
@click.option(
    "--harness",
    "harnesses",
    cls=ListOption,
    type=click.Choice([*HARNESSES, NOBODY]),
    help="A harness to register an agent for and to set up here (default: those that are installed).",
)
@click.option("--yes", is_flag=True, help="Ask nothing: your login name, and the harnesses that are installed.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the plan; change nothing.")
@click.option(
    "--origin", help="The name on the ledger's checkpoints, such as example.org/team (default: host and folder)."
)
@click.option("--unprotected", is_flag=True, help=UNPROTECTED_HELP)
@click.option(
    "--trial",
    "is_trial",
    is_flag=True,
    help="For a first try: also register alex (human, reviewer) and the agents claude-code and kuro, all keys without "
    "a passphrase. Every verdict says `gate: open (trial)`, for ever.",
)
def init(
    app: App,
    name: str | None,
    harnesses: tuple[str, ...],
    origin: str | None,
    *,
    yes: bool,
    is_dry: bool,
    unprotected: bool,
    is_trial: bool,
) -> None:
    """Make a new ledger in .deedbook of this folder, or in --home DIR or DEEDBOOK_HOME, and begin to work with it.

    Makes a root key, a checkpoint key and a node key, and entry 0, which names them. Git ignores the folder. On a
    terminal it asks for your name, for the harnesses to set up, and for a passphrase, with which it seals your key and
    root's. It registers you as human and reviewer, and an agent for each harness, and sets the harness up (hooks, MCP
    server, page for agents). Off a terminal it does this with --yes, --name or --harness; without them it makes only
    the ledger. `deed uninstall` undoes it.
    """
    path = app.home or new_home(present_folder())
    home = Home(path)
    check_is_ours(home)
    asks = app.has_terminal and not yes and not app.as_json
    _check_place(app, path, asks=asks, yes=yes)
    plan = Plan(_TRIAL_MEMBERS, []) if is_trial else _planned(name, harnesses, asks=asks, yes=yes)
    setups = [_setup(HARNESSES[harness], path) for harness in plan.harnesses]
    origin = origin or _default_origin(path)
    if is_dry:
        _show_plan(app, path, origin, plan, setups)
        return
    unprotected = unprotected or is_trial or (asks and app.passphrase_fd is None and not _wants_seal(plan))
    passphrase = new_passphrase(app, ROOT, ("admin",), unprotected=unprotected, beside=plan.person)
    map_size = read_config(path).map_size_bytes
    ledger = create_ledger(home, origin=origin, map_size=map_size, passphrase=passphrase, is_trial=is_trial)
    _register(app, home, plan, passphrase)
    lines, written = _install(app, path, plan)
    root = read_key_file(home.key_file(ROOT)).public
    data = {
        "home": str(path),
        "ledger": ledger,
        "origin": origin,
        "root_key": root,
        "root_fingerprint": fingerprint(bytes.fromhex(root)),
        "trial": is_trial,
        "members": {member: list(roles) for member, roles in plan.members.items()},
        "files": written,
    }
    text = [
        f"A new ledger {ledger} in {path}",
        f"  origin  {origin}",
        f"  root    {data['root_fingerprint']}",
        "Give this fingerprint to auditors: `deed verify --root FINGERPRINT` checks that it is this ledger.",
        *([] if is_trial else _member_lines(plan)),
        *lines,
        *(_TRIAL_LINES if is_trial else _next_lines(plan, app.passphrase_fd)),
    ]
    app.show("ledger", data, text)
    if not app.as_json and not trust.is_trusted(path):
        echo("It could not be noted that you trust this folder: see `deed doctor`.", err=True)


def check_is_ours(home: Home) -> None:
    """Refuse to make a ledger from keys in a folder that this user neither made nor trusted."""
    if home.path.exists():
        check_folder(resolved(home.path), is_named=True)
    check_is_new(home)
    check_own_folder(home.path)
    if home.key_file(ROOT).exists() and not home.is_local() and not trust.is_trusted(home.path):
        raise trust.refusal(home.path, "holds the key of a root already, and its maker would own the ledger")


def _check_place(app: App, path: Path, *, asks: bool, yes: bool) -> None:
    """Ask before a ledger is made in the user's home folder or, on a terminal, outside of a project.

    Raises Refused: ``USAGE`` if nobody can be asked about the home folder, or if the person declines.
    """
    here = resolved(present_folder())
    is_home = here == resolved(Path.home())
    is_project = any((folder / GIT_FOLDER).exists() for folder in (here, *here.parents))
    if app.home is not None or yes or (is_project and not is_home):
        return
    place = "your home folder, so it would serve every folder below it" if is_home else "not in a git repository"
    if asks and not click.confirm(f"{here} is {place}. Make the ledger in {path}?", default=False, err=True):
        raise Refused("USAGE", "nothing was made: change to the folder of your project, and run `deed init` there")
    if is_home and not asks:
        raise Refused("USAGE", f"{here} is {place}: change to the folder of your project, or add --yes")


def _default_origin(path: Path) -> str:
    parts = (socket.gethostname() or "localhost", path.absolute().parent.name or "ledger")
    return "/".join(re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in parts)


# The plan


def _planned(name: str | None, named: Iterable[str], *, asks: bool, yes: bool) -> Plan:
    """Return the plan that options, a person or --yes give; without any of them, nothing beside the ledger."""
    found = [harness.name for harness in HARNESSES.values() if harness.is_present()]
    harnesses = [harness for harness in dict.fromkeys(named) if harness != NOBODY]
    if name is None and (asks or yes):
        default = login_name()
        name = click.prompt("Your name, to approve work with", default=default, err=True) if asks else default
    if not list(named) and (asks or yes):
        harnesses = _asked_harnesses(found) if asks and found else found
    person = None if name in (None, NOBODY) else check_name(str(name).lower())
    members = {} if person is None else {person: _PERSON}
    if person == ROOT or person in HARNESSES:
        raise Refused("USAGE", f"{person} is the name of {'a key' if person == ROOT else 'an agent'}: choose another")
    return Plan(members | dict.fromkeys(harnesses, _AGENT), harnesses)


def _asked_harnesses(found: list[str]) -> list[str]:
    """Return the harnesses that a person chooses; ask again after an unknown name."""

    def parsed(text: str) -> list[str]:
        chosen = [word for word in re.split(r"[\s,]+", text.lower()) if word and word != NOBODY]
        for word in chosen:
            if word not in HARNESSES:
                raise click.BadParameter(f"{word!r} is none of {', '.join(HARNESSES)}, {NOBODY}")
        return list(dict.fromkeys(chosen))

    question = f"Installed here: {', '.join(found)}. Set up (or `{NOBODY}`)"
    chosen: list[str] = click.prompt(question, default=", ".join(found), value_proc=parsed, err=True)
    return chosen


def _wants_seal(plan: Plan) -> bool:
    whose = "key of root" if plan.person is None else f"keys of root and {plan.person}"
    question = f"Protect the {whose} with a passphrase? Without one, any program here can approve work"
    return click.confirm(question, default=True, err=True)


def _setup(harness: Harness, home: Path) -> Installation:
    """Return the planned setup of a harness. Raises Refused: our part cannot be added to one of its files."""
    installation = Installation(harness, project_of(home), Launcher(COMMAND, harness.name))
    if edited := [str(outcome.path) for outcome in installation.check() if outcome.state is State.EDITED]:
        message = f"{', '.join(edited)}: somebody edited the part that an earlier setup wrote"
        raise Refused("EDITED_BY_HAND", f"{message}. Run `deed setup {harness.name} --remove --force` first.")
    return installation


def _show_plan(app: App, path: Path, origin: str, plan: Plan, setups: list[Installation]) -> None:
    files = [str(file) for setup in setups for file in setup.parts]
    members = {member: list(roles) for member, roles in plan.members.items()}
    data = {"home": str(path), "origin": origin, "members": members, "files": files}
    text = [
        f"would make a ledger in {path}, with the origin {origin}",
        *(f"would register {member} as {', '.join(roles)}" for member, roles in plan.members.items()),
        *(f"would write {file}" for file in files),
        "Nothing was written.",
    ]
    app.show("ledger_plan", data, text)


# Carrying out the plan


def _register(app: App, home: Home, plan: Plan, passphrase: str | None) -> None:
    app.act_as(ROOT)
    if passphrase is not None:
        app.remember_passphrase(ROOT, passphrase)
    for member, roles in plan.members.items():
        is_sealed = member == plan.person
        register_agent(app.ledger().author(ROOT), home, member, roles, passphrase=passphrase if is_sealed else None)


def _install(app: App, path: Path, plan: Plan) -> tuple[list[str], list[dict[str, Any]]]:
    """Set up the harnesses; return the lines that report it, and the files."""
    lines: list[str] = []
    outcomes: list[Outcome] = []
    for name in plan.harnesses:
        harness = HARNESSES[name]
        app.act_as(None if harness.is_shared(project_of(path)) else name)
        installation = installation_here(app, name)
        done = installation.install()
        outcomes += done
        lines += [line for outcome in done for line in lines_of(outcome, outcome.done)]
        lines += [advice_of(harness, installation.scope)]
    return lines + (common_advice() if plan.harnesses else []), described(outcomes)


def _member_lines(plan: Plan) -> list[str]:
    return [f"{member} is registered as {', '.join(roles)}" for member, roles in plan.members.items()]


def _next_lines(plan: Plan, passphrase_fd: int | None) -> list[str]:
    if plan.person is None or not plan.harnesses:
        # Root signs, and its key has this passphrase; that of the new agent has none.
        opened = "" if passphrase_fd is None else f" --unprotected --passphrase-fd {passphrase_fd}"
        return [f"Next: deed agent add NAME --role agent{opened}"]
    first = plan.harnesses[0]
    return [
        f"Next: start {HARNESSES[first].title} here, or give it work yourself:",
        f'  deed handoff create --as {plan.person} --to {first} --title "TITLE" --criterion "TEXT"',
    ]
