r"""Where a project's reports go beside the log: the table ``[reports]`` of ``config.toml``, names, and what came of it.

    [reports]
    git = "auto"      # or the path of a repository, or false
    files = "docs/sessions/handoffs"   # or another path, or false; without it, as below

Paths are relative to the project: the folder that holds ``.deedbook``, else the current one. Without a word in the
table git notes are written when the project lies in a git repository, and files when it has the folder ``docs/``: files
of the work tree are somebody's next commit, so a project that has no place for documents is given none.

The name of a session or agent is one component of a git ref and of a path, where its id may be any text: what
``git check-ref-format`` refuses, slashes, and ``%`` itself, are written ``%XX`` as in a URL, so no two ids have one
name. A legal id without ``%`` stands as it is, Chinese too. No text at all is a single ``%``. What is longer than a
file system takes ends in ``%-`` and the SHA-256 of the whole; that alone cannot be read back.

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

# A ref is a file too, and its lock is called `NAME.lock`: 255 bytes, the limit nearly everywhere, hold both.
name_size_max_bytes: Final = 200
_EMPTY: Final = "%"
_CUT: Final = "%-"
# What no ref may hold, and %; control characters of Latin-1, separators of lines and lone surrogates neither.
_ILLEGAL: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0~^:?*\[\\/%\u2028\u2029\ud800-\udfff]|^\.|(?<=\.)\.|\.\Z|\.(?=lock\Z)|@(?=\{)"
)

Status: TypeAlias = Literal["written", "unchanged", "skipped", "failed"]
Store: TypeAlias = Literal["git_notes", "files"]


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


class Stored(NamedTuple):
    """A store, the place in it (``git:REF`` or a path), what came of it, and why it is not there or not plainly so.

    ``skipped`` is as it is meant to be, ``failed`` is not, and ``repair`` tries it again.
    """

    store: Store
    location: str
    status: Status
    reason: str = ""


def project_of(settings: Settings) -> Project:
    """Return where the reports of a ledger go.

    Also where the table says nothing the folder must be trusted: git runs programs that a repository's files name.
    Raises Refused: ``NOT_TRUSTED``; ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` when the table ``[reports]`` is wrong.
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
    home = resolved(settings.home)  # a link to a trusted folder does not make the folder around it trusted
    folder = home.parent if home.name == FOLDER else present_folder()
    files, no_files = _files(folder, None if chosen.files is False else str(chosen.files))
    git = None if chosen.git is False else folder if chosen.git == AUTO else folder / str(chosen.git)
    no_git, is_git_sure = "config.toml says git = false", chosen.git != AUTO
    return Project(git=git, files=files, is_git_sure=is_git_sure, no_git=no_git, no_files=no_files)


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


def name_of(text: str) -> str:
    """Return ``text`` as a name that is legal in a git ref and on a file system, and no other text's name."""
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
    """Return the text that ``name_of`` named so; None when the name is cut, or no name of ours."""
    if name == _EMPTY:
        return ""
    try:
        text = unquote(name, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if name_of(text) == name and _CUT not in name else None


def _escaped(illegal: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in illegal[0].encode("utf-8", "surrogatepass"))
