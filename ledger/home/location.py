"""The locations of a ledger's folder, of the files in it, and of the user's own folders."""

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
HANDOFF_FILES: Final = "docs/handoffs"  # the default folder of handoff files in a project
SIGNED_FILE: Final = ".deed.json"  # the end of the name of a signed file, which a clone without a ledger reads

VIEWS_FILE: Final = "views.db"

CONFIG_FILE: Final = "config.toml"

CHAINS_FILE: Final = "chains.toml"

WITNESSED_FILE: Final = "witnessed"

REPLACED: Final = "replaced"  # the folder of the logs that a restore replaced


def new_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for a new ledger: ``DEEDBOOK_HOME``, otherwise ``.deedbook`` in ``start``."""
    return named_home(environment) or start / FOLDER


def named_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ledger's folder that the environment names (``DEEDBOOK_HOME``)."""
    path = environment.get("DEEDBOOK_HOME")
    return Path(path) if path else None


def present_folder() -> Path:
    """Return the working directory of this process.

    Raises Unavailable: ``STORE_UNAVAILABLE`` if it was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "the working directory is gone: change to one that exists"
        raise Unavailable("STORE_UNAVAILABLE", message) from error


def find_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ledger's folder: ``DEEDBOOK_HOME``, otherwise that of ``start`` or of its nearest parent with one."""
    if (named := named_home(environment)) is not None:
        return named
    return next((home for folder in (start, *start.parents) if (home := home_in(folder)) is not None), None)


def home_in(folder: Path) -> Path | None:
    """Return the ``.deedbook`` in a folder; for a linked work tree of git, that of its main tree."""
    if (folder / FOLDER).is_dir():
        return folder / FOLDER
    main = main_tree(folder)
    return main / FOLDER if main is not None and (main / FOLDER).is_dir() else None


def main_tree(folder: Path) -> Path | None:
    """Return the main tree of a linked work tree of git (gitrepository-layout(5)); None for any other folder.

    A ``.git`` file may come from a stranger's archive and name any repository. So it counts only if this user owns it,
    and if that repository lists this folder as its work tree, which takes write access to the repository. Git is not
    run.
    """
    link = folder / GIT_FOLDER
    with suppress(DeedbookError, OSError, ValueError):  # ValueError: a path with a zero byte
        if link.is_file() and link.lstat().st_uid == os.geteuid():
            git_dir = path_in(link, b"gitdir: ")
            common = path_in(git_dir / "commondir")
            # An archive could bring a ``git_dir`` of its own beside the link: it must be in the repository.
            is_within = common.name == GIT_FOLDER and git_dir.parent == common / "worktrees"
            if is_within and path_in(git_dir / "gitdir") == resolved(folder) / GIT_FOLDER:
                return common.parent
    return None


def path_in(file: Path, prefix: bytes = b"") -> Path:
    """Return the path in a file of git. Raises ValueError: the file has none; otherwise as ``read_regular``."""
    line = (read_regular(file, size_max_bytes=limits.config_size_max_bytes) or b"").rstrip(b"\r\n")
    if not line.startswith(prefix) or len(line) == len(prefix):
        raise ValueError(file)
    return resolved(file.parent / os.fsdecode(line.removeprefix(prefix)))


def project_path(home: Path, path: str) -> Path:
    """Return the path of a setting. It is relative to the project, whatever the working directory is."""
    return (home.parent if home.name == FOLDER else home) / path


def resolved(folder: Path) -> Path:
    """Return a folder's path without links. The user trusts this path, not the name by which the folder was found.

    Raises Unavailable: ``NO_LEDGER`` for links in a circle.
    """
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise Unavailable("NO_LEDGER", f"{folder} leads to no folder: {error}", folder=str(folder)) from error


def read_file(home: Path, name: str) -> bytes:
    """Return the content of a file in a ledger's folder; empty if there is no such file.

    Raises Unavailable: ``STORE_UNAVAILABLE`` if it cannot be read. Refused: ``INVALID_FORMAT`` if it is a folder, a
    pipe or a device; ``TOO_LARGE``.
    """
    return read_regular(home / name, size_max_bytes=limits.config_size_max_bytes, follow=True) or b""


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for data that must survive any ledger's folder, such as trust stores (XDG state folder).

    Raises Unavailable: as ``config_folder``.
    """
    return _folder_of_user("XDG_STATE_HOME", ".local/state", environment)


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for this user's decisions (XDG configuration folder).

    Raises Unavailable: ``STORE_UNAVAILABLE`` if neither it nor a home folder is known.
    """
    return _folder_of_user("XDG_CONFIG_HOME", ".config", environment)


def _folder_of_user(variable: str, below: str, environment: Mapping[str, str]) -> Path:
    # The specification says to ignore a relative path: it would depend on the working directory.
    for folder, rest in ((environment.get(variable), ""), (environment.get("HOME"), below)):
        if folder and Path(folder).is_absolute():
            return Path(folder, rest, "deedbook")
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        home = Path()
    if not home.is_absolute():
        raise Unavailable("STORE_UNAVAILABLE", f"this user has no home folder: set {variable} or HOME")
    return home / below / "deedbook"
