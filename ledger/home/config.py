"""What ``config.toml`` may say, in two types, and the settings that are passed down.

A ledger's folder that was found by walking up is data, often a stranger's. So the file falls in two types: ``Config``
is harmless and counts at once; ``Actions`` runs a program or sends something somewhere, and is reached through
``trust.actions_of`` alone. A new setting belongs to one of them, and a test asks which.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import schema_error
from deedbook.ledger.format.forms import NAME_PATTERN, WORDS, Name
from deedbook.ledger.home.location import CONFIG_FILE, read_file
from deedbook.ledger.home.quota import Quota

usual_port: Final = 4222  # Where clients of NATS look, and `deed serve` listens when nobody else does.


_SERVER: Final = r"(nats|tls|ws|wss)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?/?"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What ``config.toml`` may say that runs nothing and sends nothing: it counts in anybody's folder.

    ``map_size_bytes`` is the most the log can hold (address space, not disk), ``blobs_map_size_bytes`` the most its
    blobs can; ``default_reviewer`` is written into a handoff that names none; ``quota`` is what one agent may append
    and store (``ledger.home.quota``).
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
    log (``consumers.sessions.copies``, ``projections.answers.reader``); ``witness`` who cosigns; ``cluster``: one of
    several.
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
    them answers (``ledger.client.spool``).
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
    """Return what ``config.toml`` in ``home`` says that needs no trust; all defaults when there is none.

    Raises Refused, Unavailable: as ``read_file`` and ``parse_config``.
    """
    return parse_config(read_file(home, CONFIG_FILE), home / CONFIG_FILE)[0]


def parse_config(text: bytes, path: Path) -> tuple[Config, Actions]:
    """Return what the bytes of ``config.toml`` say: what is harmless, and what would act if it were trusted.

    Raises Refused: ``INVALID_FORMAT``, ``UNKNOWN_FIELD`` or ``INVALID_FIELD``, naming the file.
    """
    if not text:
        return Config(), Actions()
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
