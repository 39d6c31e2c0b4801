"""Families: kinds of events that a package brings, with the rules, views, commands and pages of these kinds.

A package registers a family by an entry point of the group ``deedbook.families``, whose name is that of the family:

    [project.entry-points."deedbook.families"]
    rollout = "deedbook_rollout:FAMILY"

Deedbook's own distribution registers its families in the same way, and no other module names them. A ``Family`` is only
data: it names modules as ``"module:attribute"``, which are imported when they are first used. So the ledger knows the
views and pages of a family without importing them.

**One name is one namespace.** All that a family brings begins with its name: kinds and queries (``rollout.started``),
streams (``rollout/ID``), tables (``rollout_runs``), its command (``deed rollout``), and its pages (``/rollout/ID``). No
family has a name of the core (``CORE_NAMES``), so families can neither override the core nor each other, and a reader
that lacks a family sees from the kind and stream alone that the family is missing.

A broken package stops only programs that need it: ``find`` returns an ``UnusableFamily``, whose text says what to do.

Entry points are read from the folders on ``sys.path`` without ``importlib.metadata``, because importing that module
takes a quarter of the time of ``deed --help`` (35 of 130 ms, measured), and this takes 1 ms. The current folder is left
out: a stranger's folder may look like a package.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

GROUP: Final = "deedbook.families"
FORMAT: Final = 1
"""The format of ``Family``. A package states the one that it was written for."""
CORE_NAMES: Final = frozenset(
    {
        *("accept", "agent", "agents", "answer", "append", "ask", "assessment", "audit", "backup", "blob"),
        *("briefs", "catalog", "checkpoint", "checkpoint_key", "client", "clock", "completion", "dashboard"),
        *("dead_end", "decide", "decision", "decisions", "demo", "deploy", "doctor", "emit", "entry"),
        *("erase", "events", "export", "find", "finding", "fsck", "graph", "grep", "handoff", "handoffs"),
        *("hook", "import", "inbox", "init", "join", "json", "key", "kind", "kinds", "knowledge", "launch"),
        *("ledger", "live", "lock", "log", "logout", "mcp", "me", "new", "next", "node", "notes", "notify"),
        *("prime", "project", "proof", "question", "questions", "ready", "reasoning", "receipt", "receipts"),
        *("record", "records", "recover", "redact", "redactions", "reply", "report", "reports", "resolve"),
        *("restore", "review", "reviews", "role", "router", "seal", "search", "serve", "session"),
        *("sessions", "settings", "settle", "setup", "show", "snapshot", "snapshots", "spool", "static"),
        *("status", "subject", "submit", "tail", "timeline", "todo", "token", "tool", "trust", "uninstall"),
        *("unknown", "unlock", "unread", "validations", "verify", "watch", "week", "why", "withdraw", "x"),
    }
)
"""Names of the core: of its streams, kinds, queries, verbs and pages. No family has one of them."""
NAME: Final = "[a-z][a-z0-9_]{1,30}"
_SUFFIXES: Final = (".dist-info", ".egg-info")


class Command(msgspec.Struct, frozen=True):
    """The command group ``deed NAME``: its click group, as ``"module:attribute"``, and one line of help."""

    group: str
    help: str


class Page(msgspec.Struct, frozen=True):
    """A page of the dashboard, and its title in the menu. A page without ``menu`` is not in the menu.

    ``path`` is relative to ``/NAME``: ``""`` or ``"/{id:path}"``. ``page`` is the function that makes the page, as
    ``"module:attribute"``. Without it the page is a table of the rows of the list ``query``.
    """

    path: str
    page: str = ""
    menu: str = ""
    query: str = ""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a package. A text with a colon names an attribute of a module.

    For the ledger: ``kinds`` are the data types (subclasses of ``EventData``), by kind. ``rules`` is a
    ``StateMachine`` or a ``Transition``, and ``table`` the file with the state machine's rows, as
    ``"module:file.json"`` beside the module. ``codes`` is a dict of error codes, of type ``Code``.

    For the views: ``views`` are the versions of its projections, and ``projections`` these projections, by name.
    ``queries`` are the functions that answer its queries, and ``answers`` the ``kind`` of their JSON documents, if it
    is not the query's name; ``ids`` are the fields of their answers with the id of a stream, if it is not ``id``.
    ``texts`` is a dict from data types to functions that return their texts, for lists of events and the search.
    ``phrases`` say what the author of a kind did, and ``timeline`` are the kinds that the timeline shows. ``lists``
    are the verbs that list its things, by the word for a thing, and ``newest`` the columns by which the newest rows
    of its tables are found.

    For the interfaces: ``command``, ``pages``, ``templates`` (the folder of the pages' templates, as
    ``"module:folder"``), and ``hooks``, which interfaces look up by name (``consumers.interfaces.families``).
    """

    format: int
    name: str
    kinds: Mapping[str, str]
    rules: str
    table: str = ""
    codes: str = ""
    views: Mapping[str, int] = {}
    projections: Mapping[str, str] = {}
    queries: Mapping[str, str] = {}
    answers: Mapping[str, str] = {}
    ids: Mapping[str, str] = {}
    texts: str = ""
    phrases: Mapping[str, str] = {}
    timeline: tuple[str, ...] = ()
    lists: Mapping[str, str] = {}
    newest: Mapping[str, str] = {}
    command: Command | None = None
    pages: tuple[Page, ...] = ()
    templates: str = ""
    hooks: Mapping[str, str] = {}

    def parts(self) -> Iterator[str]:
        """Yield all attributes of modules that the family names."""
        command = "" if self.command is None else self.command.group
        pages = (page.page for page in self.pages)
        tables = (self.kinds, self.projections, self.queries, self.hooks)
        named = (self.rules, self.codes, self.texts, command, *pages, *chain(*(table.values() for table in tables)))
        return filter(None, named)


class Source(NamedTuple):
    """The entry point of a family: its name, ``"module:attribute"``, and the distribution that registers it."""

    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


class UnusableFamily(NamedTuple):
    """A family whose package cannot be used, and the reason."""

    source: Source
    why: str

    def __str__(self) -> str:
        return (
            f"the family {self.source.name} of the package {self.source} cannot be used ({self.why}): "
            f"update it, or run `pip uninstall {self.source.distribution}`"
        )


def find(name: str) -> Family | UnusableFamily | None:
    """Return the family of that name, loaded on first use; None if no installed package has one."""
    if name in CORE_NAMES:  # a program that needs only the core searches no packages
        return None
    return _find(name) if name in sources() else None


def is_of_package(kind: str, stream: str) -> bool:
    """Return whether an event is of a family that a package brings, whether it is installed or not."""
    name, _, rest = stream.partition("/")
    return (
        bool(rest) and kind.startswith(f"{name}.") and re.fullmatch(NAME, name) is not None and name not in CORE_NAMES
    )


def installed() -> Iterator[Family]:
    """Yield the families of all installed packages that can be used, by name."""
    return (family for family in map(_find, sources()) if isinstance(family, Family))


def unusable() -> Iterator[UnusableFamily]:
    """Yield the families that cannot be used."""
    return (family for family in map(_find, sources()) if isinstance(family, UnusableFamily))


def load(reference: str) -> Any:
    """Return the object that ``"module:attribute"`` names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def file_of(reference: str) -> Path:
    """Return the path of the file or folder that ``"module:name"`` names, beside the module."""
    module, _, name = reference.partition(":")
    return Path(import_module(module).__file__ or "").with_name(name)


@cache
def sources() -> Mapping[str, Source]:
    """Return the entry points of families by name, in order.

    They are read once for a process, and nothing is loaded. If two distributions register a name, this has the first of
    them, and ``find`` reports that it cannot be used.
    """
    found: dict[str, Source] = {}
    for source in _registered():
        found.setdefault(source.name, source)
    return dict(sorted(found.items()))


@cache
def _registered() -> tuple[Source, ...]:
    found: list[Source] = []
    distributions: set[str] = set()
    for folder in _folders():
        for name in sorted(_names_in(folder)):
            distribution, _, version = name.rpartition(".")[0].partition("-")
            if distribution.lower() in distributions:  # as Python does, the first on the path counts
                continue
            distributions.add(distribution.lower())
            if (content := _read(f"{folder}/{name}/entry_points.txt")) and GROUP.encode() in content:
                points = _points(content.decode("utf-8", "replace"))
                found += [Source(*point, distribution, version) for point in points]
    return tuple(found)


def _folders() -> Iterator[str]:
    """Yield the folders on ``sys.path`` without the current one, even if its path is listed."""
    try:
        here = os.path.realpath(".")
    except OSError:  # it was deleted
        here = ""
    return (name for name in dict.fromkeys(sys.path) if name and os.path.realpath(name) != here)


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.name.endswith(_SUFFIXES)]
    except OSError:  # it is a file, does not exist, or may not be read
        return []


def _read(path: str) -> bytes:
    """Return the content of a file; nothing if it does not exist, as in most distributions, or may not be read."""
    try:
        # creating a path object for each file takes longer than the rest
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as opened:
        return opened.read()


def _points(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the group's entry points in a file ``entry_points.txt``."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == GROUP and "=" in line:
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


@cache
def _find(name: str) -> Family | UnusableFamily:
    source = sources()[name]
    rivals = [str(other) for other in _registered() if other.name == name]
    if len(rivals) > 1:
        return UnusableFamily(source, f"{' and '.join(rivals)} both register it")
    try:
        family = load(source.value)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may raise anything
        return UnusableFamily(source, f"{type(error).__name__}: {error}"[:300])
    fault = _fault(family, name)
    return UnusableFamily(source, fault) if fault else family


def _fault(family: Any, name: str) -> str:
    """Return why an object cannot be used as the family ``name``; empty if it can."""
    if not isinstance(family, Family):
        return f"it is a {type(family).__name__} and no Family"
    if family.format != FORMAT:
        return f"it is written for format {family.format} of families, and this Deedbook has format {FORMAT}"
    if family.name != name or not re.fullmatch(NAME, name):
        return f"the family names itself {family.name!r}"
    if name in CORE_NAMES:
        return f"{name} is a name of Deedbook's core"
    strangers = [kind for kind in (*family.kinds, *family.queries) if not kind.startswith(f"{name}.")]
    strangers += [view for view in family.views if view != name and not view.startswith(f"{name}_")]
    if strangers:
        owner = strangers[0].partition(".")[0]
        which = "the core" if owner in CORE_NAMES else f"the family {owner}"
        return f"{strangers[0]} would belong to {which}: all names of this family begin with {name!r}"
    if family.views.keys() != family.projections.keys():
        return "views and projections name different views"
    return ""
