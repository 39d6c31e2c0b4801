"""Settings: one frozen object, read once from the environment and ``config.toml``, passed down.

Nothing else reads environment variables. Decoded by msgspec: importing pydantic costs five bare Python starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from ledger import limits
from ledger.codec import schema_error
from ledger.errors import Refused, Unavailable
from ledger.events.fields import NAME_PATTERN, Name
from ledger.quota import Quota

FOLDER: Final = ".baton"
VIEWS_FILE: Final = "views.db"
usual_port: Final = 4222
"""Where clients of NATS look, and `baton serve` listens when nobody else does."""

_SERVER: Final = re.compile(r"(nats|tls|ws|wss)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?/?")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What ``config.toml`` in the ledger's folder may say.

    ``map_size_bytes`` is the most the log can hold (address space, not disk), ``blobs_map_size_bytes`` the most its
    blobs can; ``default_reviewer`` is written into
    a handoff that names none; ``nats_server`` is the path of the server program for ``baton serve``; ``llm`` is the
    table of a model that may write prose beside briefs (``consumers.sdk.llm``), and empty asks nobody;
    ``validator_tree`` is the folder that the evidence of reasoning is in: with it, ``baton serve`` validates every
    concluded reasoning; ``notify`` holds the tables ``[[notify]]``, whom to tell how that something waits for them
    (``consumers.handoffs.notifier``), and empty tells nobody; ``reports`` says where handoff reports are kept beside
    the log (``consumers.sessions.copies``), and empty leaves that to what the project has; ``quota`` is
    what one agent may append and store (``ledger.quota``).
    """

    map_size_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.map_size_bytes
    blobs_map_size_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.blobs_map_size_bytes
    default_reviewer: Name | None = None
    nats_server: str | None = None
    llm: dict[str, str | int | float | bool] = {}
    validator_tree: str | None = None
    notify: list[dict[str, str | int | float | bool | list[str]]] = []
    reports: dict[str, str | bool] = {}
    quota: Quota = Quota()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ledger is, who acts, and what the folder's configuration says.

    Whoever ``only_looks``, as an auditor, may read a log that is not the one read before, and is told so.
    """

    home: Path
    config: Config = Config()
    server: str | None = None
    agent: str | None = None
    only_looks: bool = False


def new_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which a new ledger is made: ``BATON_HOME`` itself, else ``.baton`` of ``start``."""
    given = environment.get("BATON_HOME")
    return Path(given) if given else start / FOLDER


def present_folder() -> Path:
    """Return the folder that this process runs in.

    Raises:
        Unavailable: ``STORE_UNAVAILABLE`` when somebody has removed it since.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "the folder that this runs in is gone: change to one that is there"
        raise Unavailable("STORE_UNAVAILABLE", message) from error


def find_home(start: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ledger's folder: ``BATON_HOME`` itself, else ``.baton`` of ``start`` or its nearest parent."""
    if given := environment.get("BATON_HOME"):
        return Path(given)
    for folder in (start, *start.parents):
        if (folder / FOLDER).is_dir():
            return folder / FOLDER
    return None


def read_settings(
    *,
    home: Path | None = None,
    server: str | None = None,
    agent: str | None = None,
    start: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings; what is given wins over the environment, which wins over ``config.toml``.

    Raises:
        Unavailable: ``NO_LEDGER`` when no folder is given or found; as ``present_folder``.
        Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` when ``config.toml`` or a name is wrong.
    """
    is_named = home is not None or bool(environment.get("BATON_HOME"))
    start = start or (Path() if is_named else present_folder())
    folder = home or find_home(start, environment)
    if folder is None:
        message = f"there is no {FOLDER} in {start} or any folder above it: run `baton init`, or name one with --home"
        raise Unavailable("NO_LEDGER", message, folder=str(start))
    agent = agent or environment.get("BATON_AGENT") or None
    if agent is not None:
        check_name(agent)
    server = server or environment.get("BATON_SERVER") or None
    if server is not None:
        check_server(server)
    return Settings(home=folder, config=read_config(folder), server=server, agent=agent)


def read_config(home: Path) -> Config:
    """Return what ``config.toml`` in ``home`` says; all defaults when there is none.

    Raises:
        Refused: ``INVALID_FORMAT``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``, naming the file.
        Unavailable: ``STORE_UNAVAILABLE`` when there is one that cannot be read.
    """
    path = home / "config.toml"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{path} cannot be read: {error}", path=str(path)) from error
    import tomllib  # noqa: PLC0415 - most ledgers have no such file, and every command starts here

    try:
        return msgspec.convert(tomllib.loads(text.decode()), Config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused("INVALID_FORMAT", f"{path} is not TOML: {error}", path=str(path)) from error
    except msgspec.ValidationError as error:
        refusal = schema_error(error)
        raise Refused(refusal.code, f"{path}: {refusal.message}", **refusal.details, file=str(path)) from error


def check_name(name: str) -> str:
    """Return ``name`` if an agent can have it.

    Raises:
        Refused: ``INVALID_FIELD``.
    """
    try:
        return msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"{name!r} is no agent's name: it must match {NAME_PATTERN}") from error


def check_server(url: str) -> str:
    """Return ``url`` if a server of the bus can be there.

    Raises:
        Refused: ``INVALID_FIELD``; a password in the URL is not repeated.
    """
    match = _SERVER.fullmatch(url)
    if match is None or not 0 < int(match["port"] or usual_port) < 2**16:
        shown = repr(url[:80]) if "@" not in url else "what was given"
        message = f"{shown} is no server: it must look like nats://HOST:PORT, as `baton serve` prints it"
        raise Refused("INVALID_FIELD", message, path="server")
    return url


def environment_variable(name: str) -> str | None:
    """Return a variable that the configuration names, as the one with a model's API key."""
    return os.environ.get(name)


def present_session() -> str | None:
    """Return the session that the verbs of sessions mean when they name none (``BATON_SESSION``)."""
    return os.environ.get("BATON_SESSION") or None


def wants_traceback() -> bool:
    """Return whether an unforeseen error is shown with its traceback (``BATON_TRACEBACK``)."""
    return bool(os.environ.get("BATON_TRACEBACK"))


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what must outlive and stand outside any ledger (XDG state folder)."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "baton"
