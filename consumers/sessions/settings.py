r"""The stores of a project's copied reports: the table ``[reports]`` of ``config.toml``, and their names.

    [reports]
    git = "auto"      # or the path of a repository, or false
    files = "docs/sessions/handoffs"   # or another path, or false; default: see below

Paths are relative to the project: the folder that contains ``.deedbook``, else the current one. By default git notes
are written if the project is in a git repository, and files only into a folder ``docs/sessions/handoffs`` that somebody
made: files in the work tree are part of somebody's next commit.

The name of a session or agent is one component of a git ref and of a path, but its id may be any text. Characters that
``git check-ref-format`` refuses, slashes, and ``%`` itself, are written ``%XX`` as in a URL, so no two ids share a
name. A legal id without ``%`` stays as it is, also in Chinese. An empty id is a single ``%``. A name that is too long
for a file system ends in ``%-`` and the SHA-256 of the whole; only such a name cannot be decoded.

    >>> name_of("45a42346-364e-467c-9b2f-d15a8de0c52c")
    '45a42346-364e-467c-9b2f-d15a8de0c52c'
    >>> name_of("a session/with .. in it"), text_of("a%20session%2Fwith%20.%2E%20in%20it")
    ('a%20session%2Fwith%20.%2E%20in%20it', 'a session/with .. in it')
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import converted
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import CONFIG_FILE, FOLDER, present_folder, resolved
from deedbook.ledger.home.trust import actions_of

AUTO: Final = "auto"
FILES_FOLDER: Final = Path("docs/sessions/handoffs")

# A ref is a file, too, and its lock is `NAME.lock`: both fit into 255 bytes, the limit nearly everywhere.
name_size_max_bytes: Final = 200
_EMPTY: Final = "%"
_CUT: Final = "%-"
# Characters that no ref may have, and %; also control characters of Latin-1, line separators and lone surrogates.
_ILLEGAL: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0~^:?*\[\\/%\u2028\u2029\ud800-\udfff]|^\.|(?<=\.)\.|\.\Z|\.(?=lock\Z)|@(?=\{)"
)

Status: TypeAlias = Literal["written", "unchanged", "skipped", "failed"]
Store: TypeAlias = Literal["git_notes", "files"]


class ReportsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The table ``[reports]``; the default of ``files`` depends on the folders of the project."""

    git: str | bool = AUTO
    files: str | bool = AUTO


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The two places where a project's reports are copied: as notes in a git repository, and as files in a folder.

    ``git`` is a folder of the repository. If ``git`` or ``files`` is None, no reports are copied there, and ``no_git``
    or ``no_files`` says why. ``is_git_sure``: somebody configured the repository, so if it is missing, copies fail.
    """

    git: Path | None = None
    files: Path | None = None
    is_git_sure: bool = True
    no_git: str = "no repository is configured"
    no_files: str = "no folder is configured"


class StoredCopy(NamedTuple):
    """A copy of a report: its store, its location (``git:REF`` or a path), its status, and a reason or note.

    A ``skipped`` copy is not wanted. A ``failed`` copy is missing, and ``repair`` writes it.
    """

    store: Store
    location: str
    status: Status
    reason: str = ""


def project_of(settings: Settings) -> Project:
    """Return the stores of a ledger's reports.

    The folder must be trusted even without this table: git runs programs that a repository's files name. Raises
    Refused: ``NOT_TRUSTED``; ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` if the table ``[reports]`` is wrong.
    """
    file = settings.home / CONFIG_FILE
    reports = actions_of(settings).reports
    try:
        chosen = converted(reports, ReportsSettings, "$.reports")
    except Refused as refusal:
        raise Refused(refusal.code, f"{file}: {refusal.message}", **refusal.details, file=str(file)) from refusal
    for name, value in (("git", chosen.git), ("files", chosen.files)):
        if value is True or (isinstance(value, str) and (not value or "\0" in value)):
            text = f"{file}: [reports] {name} must be a path, {AUTO!r} or false"
            raise Refused("INVALID_FIELD", text, path=f"$.reports.{name}", file=str(file))
    home = resolved(settings.home)  # a link to a trusted folder does not make the link's parent trusted
    folder = home.parent if home.name == FOLDER else present_folder()
    files, no_files = _files(folder, None if chosen.files is False else str(chosen.files))
    git = None if chosen.git is False else folder if chosen.git == AUTO else folder / str(chosen.git)
    no_git, is_git_sure = "config.toml has git = false", chosen.git != AUTO
    return Project(git=git, files=files, is_git_sure=is_git_sure, no_git=no_git, no_files=no_files)


def _files(folder: Path, chosen: str | None) -> tuple[Path | None, str]:
    if chosen is None:
        return None, "config.toml has files = false"
    if chosen != AUTO:
        return folder / chosen, ""
    if not (folder / FILES_FOLDER).resolve().is_relative_to(folder.resolve()):
        return None, f"{FILES_FOLDER} is a link out of {folder}: set files in [reports] of config.toml"
    if not (folder / FILES_FOLDER).is_dir():
        return None, f"{folder} has no folder {FILES_FOLDER}: create it, or set files in [reports] of config.toml"
    return folder / FILES_FOLDER, ""


def name_of(text: str) -> str:
    """Return a name for ``text`` that is legal in a git ref and on a file system; no other text gets it."""
    if not text:
        return _EMPTY
    name = _ILLEGAL.sub(_escaped, text)
    encoded = name.encode()
    if len(encoded) <= name_size_max_bytes:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    room = name_size_max_bytes - len(_CUT) - len(digest)
    start = re.sub(r"%[0-9A-F]?\Z", "", encoded[:room].decode("utf-8", "ignore"))
    return f"{start}{_CUT}{digest}"


def text_of(name: str) -> str | None:
    """Return the text from which ``name_of`` made a name; None if the name was cut, or ``name_of`` did not make it."""
    if name == _EMPTY:
        return ""
    try:
        text = unquote(name, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if name_of(text) == name and _CUT not in name else None


def _escaped(illegal: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in illegal[0].encode("utf-8", "surrogatepass"))
