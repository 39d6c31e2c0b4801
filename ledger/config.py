"""Settings: one frozen object, read once from the environment and ``config.toml``, passed down.

Nothing else reads environment variables. Decoded by msgspec: importing pydantic costs five bare Python starts.

A ledger's folder that was found by walking up is data, often a stranger's. So what ``config.toml`` says falls in two
types: ``Config`` is harmless and counts at once; ``Actions`` runs a program or sends something somewhere, and is
reached through ``trust.actions_of`` alone. A new setting belongs to one of them, and a test asks which.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from ledger import limits
from ledger.codec import schema_error
from ledger.errors import DeedbookError, Refused, Unavailable
from ledger.files import read_regular, replaceable_by
from ledger.forms import NAME_PATTERN, WORDS, Name
from ledger.quota import Quota

FOLDER: Final = ".deedbook"
GIT_FOLDER: Final = ".git"
VIEWS_FILE: Final = "views.db"
CONFIG_FILE: Final = "config.toml"
CHAINS_FILE: Final = "chains.toml"
WITNESSED_FILE: Final = "witnessed"
usual_port: Final = 4222  # Where clients of NATS look, and `deed serve` listens when nobody else does.
_SERVER: Final = r"(nats|tls|ws|wss)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?/?"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What ``config.toml`` may say that runs nothing and sends nothing: it counts in anybody's folder.

    ``map_size_bytes`` is the most the log can hold (address space, not disk), ``blobs_map_size_bytes`` the most its
    blobs can; ``default_reviewer`` is written into a handoff that names none; ``quota`` is what one agent may append
    and store (``ledger.quota``).
    """

    map_size_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.map_size_bytes
    blobs_map_size_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.blobs_map_size_bytes
    default_reviewer: Name | None = None
    quota: Quota = Quota()


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """This node as one of several, whose servers are a cluster: ``name`` is the agent that it is.

    At ``listen`` (``HOST:PORT``) other servers reach its own, they find each other at ``routes``, agents connect at
    ``host``. ``password`` is the file of the servers' password, ``tls`` a folder with ``NAME.pem``, ``NAME.key`` and
    ``ca.pem``: one of both there must be. Each stream is kept by ``replicas`` servers.
    """

    name: Name = "node"
    listen: str
    routes: list[str]
    host: str = "127.0.0.1"
    replicas: Literal[1, 3] = 3
    password: str | None = None
    tls: str | None = None


class Actions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What ``config.toml`` may say that runs a program, sends something or writes elsewhere: only when trusted.

    ``nats_server`` is the path of the server program, relative to the project; ``llm`` a model that may write prose
    (``consumers.sdk.llm``); ``validator_tree`` the folder of the evidence by which reasoning is validated; ``notify``
    says whom to tell how (``consumers.handoffs.notifier``); ``reports`` and ``views`` where they are kept beside the
    log (``consumers.sessions.copies``, ``projections.reader``); ``witness`` who cosigns; ``cluster``: one of several.
    """

    nats_server: str | None = None
    llm: dict[str, Any] = {}
    validator_tree: str | None = None
    notify: list[dict[str, str | int | float | bool | list[str]]] = []
    reports: dict[str, str | bool] = {}
    witness: dict[str, str] = {}
    cluster: Cluster | None = None
    views: dict[str, str] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ledger is, who acts, and what the folder's configuration says.

    Whoever ``only_looks``, as an auditor, may read a log that is not the one read before, and is told so.
    ``text`` is ``config.toml`` as it was read: what is hashed when trust is asked for is what is parsed then. A
    program that names no folder's settings but its own gives them as ``actions``; from a folder none come here.
    ``server`` may name several nodes of one ledger, separated by commas; ``spool`` keeps what is reported while none of
    them answers (``ledger.spool``).
    """

    home: Path
    config: Config = Config()
    server: str | None = None
    agent: str | None = None
    only_looks: bool = False
    spool: bool = False
    text: bytes = b""
    actions: Actions | None = None


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
    """Return the ledger's folder: ``DEEDBOOK_HOME`` itself, else that of ``start`` or its nearest parent (``home_in``)."""
    if (named := named_home(environment)) is not None:
        return named
    return next((home for folder in (start, *start.parents) if (home := home_in(folder)) is not None), None)


def home_in(folder: Path) -> Path | None:
    """Return the ledger's folder that a folder has: its ``.deedbook``, or for a work tree of git that of the main one."""
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


def read_settings(
    *,
    home: Path | None = None,
    server: str | None = None,
    agent: str | None = None,
    spool: bool = False,
    start: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings; what is given wins over the environment, which wins over ``config.toml``.

    Raises Unavailable: ``NO_LEDGER`` when no folder is given or found; as ``present_folder``. Refused:
    ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` when ``config.toml`` or a name is wrong; ``NOT_TRUSTED`` when the folder is
    another user's, or could be, and is not both named and trusted.
    """
    is_named = home is not None or named_home(environment) is not None
    start = start or (Path() if is_named else present_folder())
    folder = home or find_home(start, environment)
    server = server or environment.get("DEEDBOOK_SERVER") or None
    agent = agent or environment.get("DEEDBOOK_AGENT") or None
    if folder is None:
        from ledger.absence import no_ledger  # noqa: PLC0415 - where there is one, nobody needs the words

        raise no_ledger(start, server, agent)
    if agent is not None:
        check_name(agent)
    if server is not None:
        check_server(server)
    is_linked = not is_named and folder.parent not in (start, *start.parents)
    folder = resolved(folder)
    check_place(folder, is_named=is_named, environment=environment)
    if is_linked:  # a file of git led here, and not the place where this was called: only to what is trusted
        from ledger import trust  # noqa: PLC0415 - as in `check_place`

        trust.demand(folder, environment=environment)
    if (server is None or agent is None) and (folder / "client.toml").exists():
        from ledger import membership, trust  # noqa: PLC0415 - few folders are a client's home

        if (member := membership.read_membership(folder)) is not None:
            trust.check_client(folder, member, environment)
            server = server or (member.server and check_server(member.server))
            agent = agent or check_name(member.agent)
    text = read_file(folder, CONFIG_FILE)
    config, _ = declared(text, folder / CONFIG_FILE)
    spool = spool or bool(environment.get("DEEDBOOK_SPOOL"))
    return Settings(home=folder, config=config, server=server, agent=agent, spool=spool, text=text)


def beside(home: Path, path: str) -> Path:
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


def check_place(home: Path, *, is_named: bool, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a folder that another user made, or could put in the place of this one, unless named and trusted.

    Raises Refused: ``NOT_TRUSTED``.
    """
    reason = replaceable_by(home)
    if reason is None:
        return
    from ledger import trust  # noqa: PLC0415 - it reads these settings; and hardly a folder comes so far

    if not is_named:
        raise trust.refusal(home, f"is not used unless you name it with --home and trust it: {reason}")
    trust.demand(home, environment=environment)


def read_file(home: Path, name: str) -> bytes:
    """Return what a file of a ledger's folder holds; nothing when there is none.

    Raises Unavailable: ``STORE_UNAVAILABLE`` when it cannot be read. Refused: ``INVALID_FORMAT`` when it is a folder, a
    pipe or a device; ``TOO_LARGE``.
    """
    return read_regular(home / name, size_max_bytes=limits.config_size_max_bytes, follow=True) or b""


def read_config(home: Path) -> Config:
    """Return what ``config.toml`` in ``home`` says that needs no trust; all defaults when there is none.

    Raises Refused, Unavailable: as ``read_file`` and ``declared``.
    """
    return declared(read_file(home, CONFIG_FILE), home / CONFIG_FILE)[0]


def declared(text: bytes, path: Path) -> tuple[Config, Actions]:
    """Return what the bytes of ``config.toml`` say: what is harmless, and what would act if it were trusted.

    Raises Refused: ``INVALID_FORMAT``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``, naming the file.
    """
    if not text:
        return Config(), Actions()
    import tomllib  # noqa: PLC0415 - most ledgers have no such file, and every command starts here

    try:
        tables = tomllib.loads(text.decode())
        acting = {name: tables.pop(name) for name in Actions.__struct_fields__ if name in tables}
        return msgspec.convert(tables, Config), msgspec.convert(acting, Actions)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("INVALID_FORMAT", f"{path} is not TOML: {error}", path=str(path)) from error
    except msgspec.ValidationError as error:
        refusal = schema_error(error)
        raise Refused(refusal.code, f"{path}: {refusal.message}", **refusal.details, file=str(path)) from error


def check_name(name: str) -> str:
    """Return ``name`` if an agent can have it. Raises Refused: ``INVALID_FIELD``."""
    try:
        return msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"{name!r} is no agent's name: {WORDS[repr(NAME_PATTERN)]}") from error


def check_server(url: str) -> str:
    """Return ``url`` if a server of the bus can be there, or, separated by commas, several.

    Raises Refused: ``INVALID_FIELD``; a password in the URL is not repeated.
    """
    matches = [re.fullmatch(_SERVER, one) for one in url.split(",")]
    if not all(match and 0 < int(match["port"] or usual_port) < 2**16 for match in matches):
        shown = repr(url[:80]) if "@" not in url else "what was given"
        message = f"{shown} is no server: it must look like nats://HOST:PORT, as `deed serve` prints it"
        raise Refused("INVALID_FIELD", message, path="server")
    return url


def environment_variable(name: str) -> str | None:
    """Return a variable that the configuration names, as the one with a model's API key."""
    return os.environ.get(name)


def present_session() -> str | None:
    """Return the session that the verbs of sessions mean when they name none (``DEEDBOOK_SESSION``)."""
    return os.environ.get("DEEDBOOK_SESSION") or None


def wants_traceback() -> bool:
    """Return whether an unforeseen error is shown with its traceback (``DEEDBOOK_TRACEBACK``)."""
    return bool(os.environ.get("DEEDBOOK_TRACEBACK"))


def wants_colour() -> bool:
    """Return whether a terminal is printed to in colour (``NO_COLOR``: no-color.org)."""
    return not os.environ.get("NO_COLOR")


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
