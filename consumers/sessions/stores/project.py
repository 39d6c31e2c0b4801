"""Where a project's reports go beside the log: the table ``[reports]`` of ``config.toml``, and what holds without it.

    [reports]
    git = "auto"      # or the path of a repository, or false
    files = "docs/sessions/handoffs"   # or another path, or false; without it, as below

Paths are relative to the project: the folder that holds ``.baton``, else the current one. Without a word in the table

- git notes are written when the project lies in a git repository. They touch no branch and no file of it, and nobody
  gets them before somebody pushes them.
- files are written when the project has the folder ``docs/`` (they go to ``docs/sessions/handoffs``, the seed's place):
  files of the work tree are somebody's next commit, so a project that has no place for documents is given none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import schema_error
from ledger.config import FOLDER, present_folder
from ledger.errors import Refused

if TYPE_CHECKING:
    from ledger.config import Settings

AUTO: Final = "auto"
FILES_FOLDER: Final = Path("docs/sessions/handoffs")


class ReportsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the table ``[reports]`` may say; ``files`` without a value is decided by what the project has."""

    git: str | bool = AUTO
    files: str | bool = AUTO


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """Where reports go: the folder of a git repository, the folder of files; None with the reason why not.

    ``is_git_sure`` says that somebody named the repository: then it is a failure when there is none.
    """

    git: Path | None = None
    files: Path | None = None
    is_git_sure: bool = True
    no_git: str = "no repository is given"
    no_files: str = "no folder is given"


def project_of(settings: Settings) -> Project:
    """Return where the reports of a ledger go.

    Raises:
        Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` when the table ``[reports]`` is wrong.
    """
    file = settings.home / "config.toml"
    try:
        chosen = msgspec.convert(settings.config.reports, ReportsSettings)
    except msgspec.ValidationError as error:
        refusal = schema_error(error, "$.reports")
        raise Refused(refusal.code, f"{file}: {refusal.message}", **refusal.details, file=str(file)) from error
    for name, value in (("git", chosen.git), ("files", chosen.files)):
        if value is True or (isinstance(value, str) and (not value or "\0" in value)):
            text = f"{file}: [reports] {name} must be a path, {AUTO!r} or false"
            raise Refused("INVALID_FIELD", text, path=f"$.reports.{name}", file=str(file))
    home = settings.home.absolute()
    folder = home.parent if home.name == FOLDER else present_folder()
    files, no_files = _files(folder, None if chosen.files is False else str(chosen.files))
    return Project(
        git=None if chosen.git is False else folder if chosen.git == AUTO else folder / str(chosen.git),
        files=files,
        is_git_sure=chosen.git != AUTO,
        no_git="config.toml says git = false",
        no_files=no_files,
    )


def _files(folder: Path, chosen: str | None) -> tuple[Path | None, str]:
    if chosen is None:
        return None, "config.toml says files = false"
    if chosen != AUTO:
        return folder / chosen, ""
    if not (folder / FILES_FOLDER.parts[0]).is_dir():
        return None, f"{folder} has no folder docs: make {FILES_FOLDER}, or set files in [reports] of config.toml"
    if not (folder / FILES_FOLDER).resolve().is_relative_to(folder.resolve()):
        return None, f"{FILES_FOLDER} leads out of {folder} by a link: set files in [reports] of config.toml"
    return folder / FILES_FOLDER, ""
