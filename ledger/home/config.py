"""The types of ``config.toml``, and the settings that are passed down.

A ledger's folder that was found in a parent folder is untrusted data: it may be a stranger's. So the file is read into
two types.
``Config`` is harmless and takes effect at once. ``Actions`` can run a program or send data; callers get it only through
``trust.actions_of``. Each new setting belongs to one of the two types, and a test checks that.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Refused, did_you_mean
from deedbook.ledger.format.codec import convert, schema_error
from deedbook.ledger.format.forms import NAME_PATTERN, WORDS, Name
from deedbook.ledger.home.location import CONFIG_FILE, read_file
from deedbook.ledger.home.quota import Quota

usual_port: Final = 4222  # NATS clients connect to it by default; `deed serve` listens on it if it is free.
first_ports: Final = range(usual_port, usual_port + 20)
"""The first start listens on the first of these that is free. The system gives none of them to another program."""

_SERVER: Final = r"(nats|tls|ws|wss)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?/?"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings in ``config.toml`` that run nothing and send nothing. They take effect in any folder.

    ``map_size_bytes`` limits the log (address space, not disk), ``blobs_size_max_bytes`` all blobs together.
    ``default_reviewer`` is written into a handoff that names no reviewer. ``quota`` limits what one agent may append
    and store (``ledger.home.quota``).
    """

    map_size_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.map_size_bytes
    blobs_size_max_bytes: Annotated[int, msgspec.Meta(ge=1024**2, le=2**46)] = limits.blobs_size_max_bytes
    default_reviewer: Name | None = None
    quota: Quota = Quota()


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """This node as one of several nodes whose NATS servers are a cluster. ``name`` is the node's agent.

    Other servers reach this node's server at ``listen`` (``HOST:PORT``); the servers find each other at ``routes``.
    Agents connect to ``host``. ``password`` is the file with the servers' password, ``tls`` a folder with ``NAME.pem``,
    ``NAME.key`` and ``ca.pem``: at least one of the two is required. Each stream is stored by ``replicas`` servers.
    """

    name: Name = "node"
    listen: str
    routes: list[str]
    host: str = "127.0.0.1"
    replicas: Literal[1, 3] = 3
    password: str | None = None
    tls: str | None = None


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The service that stores the keys of subjects: files of the user, or a PKCS#11 token.

    For a token, ``module`` is the path of its maker's library, ``token`` its label, ``pin_file`` a file with the PIN.
    """

    keys: Literal["files", "token"] = "files"
    module: str | None = None
    token: str | None = None
    pin_file: str | None = None


class Actions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings in ``config.toml`` that run a program, send something or write elsewhere. They need trust.

    ``nats_server`` is the path of the server program, relative to the project. ``llm`` is a model that may write prose
    (``consumers.sdk.llm``). ``validator_tree`` is the folder of the evidence against which reasoning is validated.
    ``notify`` lists the channels of notices (``consumers.handoffs.notifier``). ``reports`` and ``views`` say where to
    store reports and views (``consumers.sessions.copies``, ``projections.answers.reader``). ``witness`` names the
    witnesses that cosign. ``cluster`` makes this node one of several. ``seal`` says where the keys of subjects are.
    """

    nats_server: str | None = None
    llm: dict[str, Any] = {}
    validator_tree: str | None = None
    notify: list[dict[str, str | int | float | bool | list[str]]] = []
    reports: dict[str, str | bool] = {}
    witness: dict[str, str] = {}
    cluster: Cluster | None = None
    views: dict[str, str] = {}
    seal: Seal | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's folder or server, the acting agent, and the folder's configuration.

    A client that ``only_looks``, such as an auditor, may read a log that differs from the one read before; it gets a
    notice instead of an error. ``text`` is the bytes of ``config.toml`` as read once, so that the trust check hashes
    the same bytes that it parses. A program may set ``actions`` to its own settings; the settings of a folder are never
    stored there. ``server`` may name several nodes of one ledger, separated by commas. With ``spool``, events are
    stored locally while none of them answers (``ledger.client.spool``).
    """

    home: Path
    config: Config = Config()
    server: str | None = None
    agent: str | None = None
    only_looks: bool = False
    spool: bool = False
    text: bytes = b""
    actions: Actions | None = None


def read_config(home: Path) -> Config:
    """Return the settings of ``config.toml`` in ``home`` that need no trust; the defaults if there is no file.

    Raises Refused, Unavailable: as ``read_file`` and ``parse_config``.
    """
    return parse_config(read_file(home, CONFIG_FILE), home / CONFIG_FILE)[0]


def parse_config(text: bytes, path: Path) -> tuple[Config, Actions]:
    """Return the harmless settings in the bytes of ``config.toml``, and those that act once the folder is trusted.

    Raises Refused: ``INVALID_FORMAT``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``, naming the file.
    """
    if not text:
        return Config(), Actions()
    try:
        tables = tomllib.loads(text.decode())
        actions = {name: tables.pop(name) for name in Actions.__struct_fields__ if name in tables}
        return convert(tables, Config), convert(actions, Actions)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("INVALID_FORMAT", f"{path} is not TOML: {error}", path=str(path)) from error
    except msgspec.ValidationError as error:
        refusal = schema_error(error)
        raise Refused(refusal.code, f"{path}: {refusal.message}", **refusal.details, file=str(path)) from error


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid name of an agent. Raises Refused: ``INVALID_FIELD``."""
    try:
        return convert(name, Name)
    except msgspec.ValidationError as error:
        spelled = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
        hint = did_you_mean([spelled] if re.fullmatch(NAME_PATTERN, spelled) else [])
        message = f"{name!r} cannot be an agent's name: {WORDS[repr(NAME_PATTERN)]}{hint}"
        raise Refused("INVALID_FIELD", message) from error


def _is_server(url: str) -> bool:
    match = re.fullmatch(_SERVER, url)
    return match is not None and 0 < int(match["port"] or usual_port) < 2**16


def check_server(url: str) -> str:
    """Return ``url`` if it is the URL of a bus server, or of several, separated by commas.

    Raises Refused: ``INVALID_FIELD``. The error does not repeat a password in the URL.
    """
    if not all(map(_is_server, url.split(","))):
        url_text = repr(url[:80]) if "@" not in url else "this URL"
        message = f"{url_text} is no server: it must look like nats://HOST:PORT, as `deed serve` prints it"
        meant = f"nats://{re.sub('^https?://', '', url)}"
        hint = did_you_mean([meant] if "@" not in url and _is_server(meant) else [])
        raise Refused("INVALID_FIELD", message + hint, path="server")
    return url
