"""The input and output of page functions: data that a template renders, or JSON.

A page function takes a ``PageContext`` and returns a ``Page``, or a ``Download``. A form handler (a POST) also takes
the form, and may return a ``Redirect``. A ``DeedbookError`` becomes an error page with the HTTP status of its code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import jinja2
import msgspec

from deedbook.consumers.interfaces.dashboard.address import has_page, path_to
from deedbook.consumers.interfaces.dashboard.differences import folded, word_changes
from deedbook.consumers.interfaces.dashboard.marks import MARKS, OUTCOME_WORDS
from deedbook.consumers.interfaces.dashboard.text_links import link_pieces, place_pieces
from deedbook.consumers.sdk.sealer import named
from deedbook.consumers.sdk.text import counted, cut, escape_text, json_text, sanitize_line
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.families import file_of, installed
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.query import age_of
from deedbook.projections.briefs.prompt import fidelity_text

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.dashboard.account import Account
    from deedbook.consumers.interfaces.dashboard.audit import Audit
    from deedbook.consumers.interfaces.dashboard.guard import Guard, Session
    from deedbook.consumers.sdk.ledger import Ledger

_IDEOGRAPHS: Final = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_VERSION: Final = re.compile(r" \((?:version|result) \w+:[0-9a-f]+\)\Z")


class Page(NamedTuple):
    """The content of a page: the template's name, the window title, and plain JSON values.

    ``path`` is the page's own path, if it answers a form that was sent to another path.
    """

    template: str
    title: str
    data: dict[str, Any]
    status: int = 200
    path: str = ""


class Redirect(NamedTuple):
    """A redirect after a successful form, with status 303."""

    path: str


class Download(NamedTuple):
    """A file to download, as plain text."""

    name: str
    text: str


class PageContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a request: the ledger at one time, the parameters of the address, and the user.

    ``head`` is the index of the last entry (-1: none). ``as_of`` is the last entry that the page considers (None: all),
    ``instant`` the same as requested, and ``now_ms`` the time of that entry. ``session`` is the login of this browser,
    ``account`` its name and its rights now, and ``guard`` has all logins. ``params`` are from the path and ``query``
    from the query string, each name once. ``left`` is the last index when the user went away, ``audit`` the running or
    last audit.
    """

    ledger: Ledger
    session: Session
    account: Account
    guard: Guard
    audit: Audit
    head: int
    now_ms: int
    params: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    as_of: int | None = None
    instant: str | None = None
    left: int | None = None

    @property
    def human(self) -> str | None:
        """The name that may decide here; None if this login only reads."""
        return self.account.human

    @property
    def client(self) -> Client:
        """The client underneath: entries, proofs and blobs."""
        return self.ledger.client

    @property
    def settings(self) -> Settings:
        """The settings that the ledger was opened with."""
        return self.ledger.settings

    def ask(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a query as of the requested time; None is not sent. Raises: as ``Ledger.ask``.

        Sealed texts are named and not opened: a page stays in the caches and the history of its browser.
        """
        answer = self.ledger.ask(query, as_of=self.instant, **arguments)
        return named(answer, self.ledger.query_with)

    def view(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the same answer as ``ask``, with the signature ``ledger.client.client.Ask``."""
        return self.ask(query, **arguments)

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a number from the address. Raises Refused: ``USAGE`` if it is not a number."""
        text = self.params.get(name) or self.query.get(name, "")
        if text and re.fullmatch(r"[0-9]{1,15}", text, re.ASCII) is None:
            raise Refused("USAGE", f"{name} in this address must be a number, not {text[:40]!r}")
        return int(text) if text else default


class Route(NamedTuple):
    """A page or form: its path, its name (the ``kind`` of its JSON) and its function, which gets the fields of a form.

    A route with a ``menu`` text is in the menu. It needs the views of its ``group`` (``views.registry``); those of
    full-text search only if a request has a ``text``.
    """

    path: str
    name: str
    show: Callable[..., Page | Redirect | Download]
    menu: str = ""
    group: str = ""


@cache  # compiled once a process
def templates() -> jinja2.Environment:
    """Return the template environment: it always escapes, and a missing value is an error, not empty text."""
    own = jinja2.PackageLoader("deedbook.consumers.interfaces.dashboard")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([own, jinja2.PrefixLoader(dict(_template_folders()))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        cache_size=-1,
    )
    environment.globals |= {"path_to": path_to, "has_page": has_page, "address": address}
    environment.globals |= {"state_marks": MARKS, "outcome_words": OUTCOME_WORDS}
    environment.filters |= {
        "ago": ago,
        "counted": counted,
        "cut": cut,
        "brief_line": brief_line,
        "iso": clock_text,
        "json": pretty,
        "language": language_of,
        "line": sanitize_line,
        "link_pieces": link_pieces,
        "place_pieces": place_pieces,
        "number": "{:,}".format,
        "escape_text": escape_text,
        "fidelity": fidelity_text,
        "folded": lambda lines: folded(lines, lambda line: line["mark"] == "kept"),
        "word_changes": word_changes,
        "words": lambda text: text.replace("_", " "),
    }
    for name in own.list_templates():  # load all templates now: after an upgrade, new templates must not get old data
        environment.get_template(name)
    return environment


def _template_folders() -> Iterator[tuple[str, jinja2.BaseLoader]]:
    """Yield the folders of the families' templates, which are named ``FAMILY/FILE``."""
    for family in installed():
        if family.templates:
            yield family.name, jinja2.FileSystemLoader(file_of(family.templates))


def address(path: str, query: Mapping[str, object] = MappingProxyType({}), **changed: object) -> str:
    """Return a path with a query string; values that are None or empty are left out."""
    params = {name: value for name, value in {**query, **changed}.items() if value not in (None, "")}
    return f"{path}?{urlencode(params)}" if params else path


def pretty(value: object) -> str:
    """Return plain values as indented JSON, with invisible characters as escapes."""
    return msgspec.json.format(json_text(value), indent=2)


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago something was, in a short form for columns.

    >>> ago(0, 150_000), ago(0, 59_000)
    ('2m', 'now')
    """
    return "".join(age_of(at_ms, now_ms).removesuffix(" ago").replace("min", "m").removeprefix("just ").split())


def brief_line(text: str) -> str:
    """Return what an event's agent did without the hash of a version or result, which the page of the entry has.

    >>> brief_line("approved: good (version sha256:070387dc7c1a)")
    'approved: good'
    """
    return _VERSION.sub("", text)


def language_of(text: str) -> str | None:
    """Return the language for fonts and line breaks of a text: ``zh``, ``ja``, or None for the page's own."""
    return None if _IDEOGRAPHS.search(text) is None else "ja" if _KANA.search(text) else "zh"
