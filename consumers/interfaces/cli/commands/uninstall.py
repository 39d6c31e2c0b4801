"""`deed uninstall`: undo what `deed init` and `deed setup` did in a project, and name what stays."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.harness import described, installation_here, lines_of, project_of
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.installation import Outcome
from deedbook.consumers.interfaces.hooks.parts import State
from deedbook.consumers.interfaces.hooks.record import KEPT, kept_folder, make_folders, record_path
from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sdk.text import counted
from deedbook.consumers.sessions.notes import NOTES
from deedbook.consumers.sessions.settings import FILES_FOLDER
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Exit, Refused
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import (
    FOLDER,
    config_folder,
    find_home,
    named_home,
    present_folder,
    resolved,
    state_folder,
)
from deedbook.ledger.service.server import unserved
from deedbook.ledger.system.files import TEMPORARY, as_unavailable

_named_max: Final = 3
_OWN_NAME: Final = re.compile(
    r"\.gitignore|witnessed|(?:chains|client|config)\.toml|(?:dashboard|tokens)\.json|dashboard\.html"
    rf"|keys|log|blobs|bus|cache|logs|replaced|{KEPT}|spool|subscribers"
    r"|[\w.-]+\.(?:begun|lock|log|secret|token)|[\w.-]+\.db(?:-[a-z]+)?|" + re.escape(TEMPORARY) + ".*"
)
"""The names of the files that Deedbook makes in a ledger's folder."""


class Left(NamedTuple):
    """One thing that uninstalling leaves, and the command that removes it."""

    thing: str
    command: str


@click.command(cls=Command)
@click.option("--delete-ledger", "deletes", is_flag=True, help="Also delete the ledger's folder, with its keys.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print what would be removed; change nothing.")
@click.option("--force", is_flag=True, help="Also remove parts that somebody edited; keep a copy of each such file.")
def uninstall(app: App, *, deletes: bool, yes: bool, is_dry: bool, force: bool) -> None:
    """Remove the hooks, MCP servers and pages of every harness set up in this project, and list what stays.

    Every file gets its content before the setup again. The ledger stays unless --delete-ledger is given: what is signed
    in it exists nowhere else, unless you made a backup (`deed backup FILE`). Sessions that `deed session move` wrote
    stay among the sessions of their harness.
    """
    found = app.home or find_home(present_folder())
    home = None if found is None else Home(resolved(found))
    if deletes and not is_dry:
        _check_deletion(app, home, found, yes=yes)
    folder = project_of(None if home is None else home.path)
    outcomes, left, failures = _remove_setups(app, force=force, is_dry=is_dry)
    deleted = _delete(app, home, left) if deletes and home is not None and not (failures or is_dry) else None
    left += [] if home is None or deleted is not None else _left_of_ledger(app, home)
    left += _left_in(folder)
    outside = _outside()
    data = {
        "files": described(outcomes),
        "deleted": None if deleted is None else str(deleted),
        "left": [thing._asdict() for thing in left],
        "outside": [thing._asdict() for thing in outside],
    }
    text = [
        *(line for outcome in outcomes for line in lines_of(outcome, outcome.done)),
        *([] if deleted is None else [f"deleted   {deleted}"]),
        *([] if outcomes or failures or deleted is not None else ["No harness is set up in this project."]),
        *(["This stays:"] if left else ["Nothing of Deedbook is left in this project."]),
        *(f"  {thing.thing}: {thing.command}" for thing in left),
        *(["Outside of this project, for all ledgers of this user, stay:"] if outside else []),
        *(f"  {thing.thing}: {thing.command}" for thing in outside),
        *(["Nothing was changed."] if is_dry else []),
    ]
    app.show("uninstalled", data, text, exit_code=failures[0].exit_code if failures else Exit.OK)


def _remove_setups(app: App, *, force: bool, is_dry: bool) -> tuple[list[Outcome], list[Left], list[DeedbookError]]:
    """Remove the setup of each harness; return the results, the setups that stay, and the errors of these.

    If a file must first be repaired by a person, only the setup of its own harness stays.
    """
    outcomes: list[Outcome] = []
    left: list[Left] = []
    failures: list[DeedbookError] = []
    for name in HARNESSES:
        try:
            installation = installation_here(app, name, action="remove")
            if any(outcome.state is not State.MISSING for outcome in installation.check()) or installation.record:
                outcomes += installation.remove(force=force, is_dry=is_dry)
        except DeedbookError as error:
            if error.code == "USAGE":
                left.append(Left(f"the team's shared settings of {name}", f"deed setup {name} --team --remove"))
                continue
            failures.append(error)
            forced = " --force" if error.code == "EDITED_BY_HAND" or force else ""
            left.append(Left(f"the setup of {name} ({error.message})", f"deed setup {name} --remove{forced}"))
        if record_path(name, Path.home()).exists():
            left.append(Left(f"the setup of {name} for all projects", f"deed setup {name} --user --remove"))
    return outcomes, left, failures


def _outside() -> list[Left]:
    """Return the folders that this user has for all ledgers together, if they exist."""
    remembered = "what commands remember of ledgers and setups"
    things = {config_folder(): "trusted folders and keys of sealed content", state_folder(): remembered}
    folders = ((what, path) for path, what in things.items() if path.is_dir())
    return [Left(f"{what} in {path}", f"rm -r {trust.quoted_path(path)}") for what, path in folders]


def _check_deletion(app: App, home: Home | None, found: Path | None, *, yes: bool) -> None:
    """Ask before a deletion. Raises Refused: ``NOT_FOUND`` without a ledger; ``USAGE`` if nobody agrees to it.

    If the ledger here is a link to another folder, that folder is deleted only if the user names it: the link may have
    come with an archive from somebody else.
    """
    is_named = app.home is not None or named_home() is not None
    if home is not None and found is not None and found.is_symlink() and not is_named:
        named = trust.quoted_path(home.path)
        message = f"{trust.quoted_path(found)} is a link to {named}: to delete that ledger, add --home {named}"
        raise Refused("USAGE", message)
    if home is None or not home.is_local():
        raise Refused("NOT_FOUND", "there is no ledger in this folder or above it, so there is none to delete")
    trust.demand(home.path)
    if others := _names_of_others(home.path):
        named = ", ".join(others[:_named_max]) + (", …" if len(others) > _named_max else "")
        message = f"{trust.quoted_path(home.path)} also holds files that Deedbook did not make: {named}"
        raise Refused("USAGE", f"{message}. Nothing was deleted: move them away first.", others=others[:_named_max])
    if yes:
        return
    what = f"{home.path} with its keys and {_entries(app)}"
    if not app.has_terminal:
        raise Refused("USAGE", f"this deletes {what}. Without a terminal, add --yes")
    if not click.confirm(f"Delete {what}? Nobody can bring them back.", default=False, err=True):
        raise Refused("USAGE", "nothing was deleted")


def _names_of_others(folder: Path) -> list[str]:
    """Return the names of files in a ledger's folder that Deedbook did not make.

    There may be some if `--home` names a folder that holds a project, too.
    """
    if folder.name == FOLDER:
        return []
    return sorted(entry.name for entry in folder.iterdir() if _OWN_NAME.fullmatch(entry.name) is None)


def _entries(app: App) -> str:
    try:
        with LocalClient(app.settings()) as client:
            return f"{client.head().size} entries"
    except DeedbookError as error:
        return f"a log that cannot be read ({error.code})"


def _delete(app: App, home: Home, left: list[Left]) -> Path:
    """Delete a ledger's folder, and this user's records of it.

    `deed setup` stored copies of files that a person had edited. They exist nowhere else, so they are first moved out
    of the folder, and named in ``left``.
    """
    store = None
    with contextlib.suppress(DeedbookError), LocalClient(app.settings()) as client:  # a damaged log has no readable id
        store = client.trust_store
    with unserved(home.bus), as_unavailable(home.path):
        left += _move_copies(home.path / KEPT)
        shutil.rmtree(home.path)
    if store is not None:
        store.forget()
    trust.forget(home.path)
    return home.path


def _move_copies(kept: Path) -> Iterator[Left]:
    """Move copies of edited files out of a ledger's folder, beside the records of setups."""
    copies = sorted(path for path in kept.iterdir() if path.is_file()) if kept.is_dir() else []
    if copies:
        folder = kept_folder()
        make_folders(folder, mode=0o700)
        for copy in copies:  # the name has a digest of the content, so no other copy has it
            shutil.move(copy, folder / copy.name)
        named = ", ".join(copy.name for copy in copies[:_named_max]) + (", …" if len(copies) > _named_max else "")
        thing = f"the copies of {counted(len(copies), 'file')} that you edited, now in {folder} ({named})"
        yield Left(thing, f"rm -r {trust.quoted_path(folder)}")


def _left_of_ledger(app: App, home: Home) -> Iterator[Left]:
    if not home.is_local():  # on a machine that joined, the ledger itself is elsewhere
        own = home.path / "keys" if _names_of_others(home.path) else home.path
        yield Left(f"{home.path}, with the keys of the agents of this machine", f"rm -r {trust.quoted_path(own)}")
        return
    yield Left(f"the ledger in {home.path}, with its keys and {_entries(app)}", "deed uninstall --delete-ledger")


def _left_in(folder: Path) -> Iterator[Left]:
    """Return copies of reports in a project: git notes and files."""
    try:
        refs = Git(folder, is_own=False).call("for-each-ref", "--format=%(refname)", NOTES).out.split()
    except DeedbookError:  # no repository, or no git
        refs = []
    if refs:
        command = f"git for-each-ref --format='delete %(refname)' {NOTES} | git update-ref --stdin"
        yield Left(f"{counted(len(refs), 'report')} in git notes below {NOTES}", command)
    if (folder / FILES_FOLDER).is_dir():
        yield Left(f"reports in {FILES_FOLDER}", f"rm -r {FILES_FOLDER}")
