"""Where a ledger's folder is, which files lie in it, and where the user's own folders are."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deedbook.ledger import limits
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.system.files import read_regular

FOLDER: Final = ".deedbook"

GIT_FOLDER: Final = ".git"

VIEWS_FILE: Final = "views.db"

CONFIG_FILE: Final = "config.toml"

CHAINS_FILE: Final = "chains.toml"

WITNESSED_FILE: Final = "witnessed"


def new_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which a new ledger is made: ``DEEDBOOK_HOME`` itself, else ``.deedbook`` of ``start``."""
    return named_home(environment) or start / FOLDER


def named_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ledger's folder that the environment names (``DEEDBOOK_HOME``)."""
    given = environment.get("DEEDBOOK_HOME")
    return Path(given) if given else None


def present_folder() -> Path:
    """Return the folder that this process runs in.

    Raises Unavailable: ``STORE_UNAVAILABLE`` when somebody has removed it since.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "the folder that this runs in is gone: change to one that is there"
        raise Unavailable("STORE_UNAVAILABLE", message) from error


def find_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ledger's folder: ``DEEDBOOK_HOME``, else that of ``start`` or of its nearest parent that has one."""
    if (named := named_home(environment)) is not None:
        return named
    return next((home for folder in (start, *start.parents) if (home := home_in(folder)) is not None), None)


def home_in(folder: Path) -> Path | None:
    """Return the ``.deedbook`` of a folder; a linked work tree of git has that of its main tree."""
    if (folder / FOLDER).is_dir():
        return folder / FOLDER
    main = main_tree(folder)
    return main / FOLDER if main is not None and (main / FOLDER).is_dir() else None


def main_tree(folder: Path) -> Path | None:
    """Return the main tree of a linked work tree of git (gitrepository-layout(5)), not asking git; None for others.

    A ``.git`` file may be a stranger's, out of an archive, and name any repository. So it counts only where it is this
    user's, and that repository says in turn that this is its work tree, which only who may write in it can make it say.
    """
    link = folder / GIT_FOLDER
    with suppress(DeedbookError, OSError, ValueError):  # ValueError: a path with a zero byte
        if link.is_file() and link.lstat().st_uid == os.geteuid():
            administered = path_in(link, b"gitdir: ")
            common = path_in(administered / "commondir")
            is_within = common.name == GIT_FOLDER and administered.parent == common / "worktrees"  # not beside the link
            if is_within and path_in(administered / "gitdir") == resolved(folder) / GIT_FOLDER:
                return common.parent
    return None


def path_in(file: Path, prefix: bytes = b"") -> Path:
    """Return the path that a file of git holds. Raises ValueError: it holds none. As ``read_regular``."""
    line = (read_regular(file, size_max_bytes=limits.config_size_max_bytes) or b"").rstrip(b"\r\n")
    if not line.startswith(prefix) or len(line) == len(prefix):
        raise ValueError(file)
    return resolved(file.parent / os.fsdecode(line.removeprefix(prefix)))


def project_path(home: Path, path: str) -> Path:
    """Return what a setting means by a path: relative to the project, wherever the verb is called."""
    return (home.parent if home.name == FOLDER else home) / path


def resolved(folder: Path) -> Path:
    """Return a folder without links: where it lies is what is trusted, not the name by which it was found.

    Raises Unavailable: ``NO_LEDGER`` for links that lead in a circle.
    """
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise Unavailable("NO_LEDGER", f"{folder} leads nowhere: {error}", folder=str(folder)) from error


def read_file(home: Path, name: str) -> bytes:
    """Return what a file of a ledger's folder holds; nothing when there is none.

    Raises Unavailable: ``STORE_UNAVAILABLE`` when it cannot be read. Refused: ``INVALID_FORMAT`` when it is a folder, a
    pipe or a device; ``TOO_LARGE``.
    """
    return read_regular(home / name, size_max_bytes=limits.config_size_max_bytes, follow=True) or b""


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what must outlive and stand outside any ledger (XDG state folder).

    Raises Unavailable: as ``config_folder``.
    """
    return _folder_of_user("XDG_STATE_HOME", ".local/state", environment)


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what this user decided (XDG configuration folder).

    Raises Unavailable: ``STORE_UNAVAILABLE`` when neither it nor a home folder is known.
    """
    return _folder_of_user("XDG_CONFIG_HOME", ".config", environment)


def _folder_of_user(variable: str, below: str, environment: Mapping[str, str]) -> Path:
    # A relative path counts for nothing, as the specification has it: it would lead into whatever folder one is in.
    for given, rest in ((environment.get(variable), ""), (environment.get("HOME"), below)):
        if given and Path(given).is_absolute():
            return Path(given, rest, "deedbook")
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        home = Path()
    if not home.is_absolute():
        raise Unavailable("STORE_UNAVAILABLE", f"this user has no home folder: set {variable} or HOME")
    return home / below / "deedbook"
