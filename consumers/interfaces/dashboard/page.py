"""What a page is given and what it gives: data, shown by a template or as JSON.

A page function takes ``Seen`` and returns ``Page``; an act (a POST) takes the form as well, and may return ``Go``.
Whatever they raise of ours becomes an error page with the status of its code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import jinja2
import msgspec

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.sdk.text import counted, cut, escape_text, json_text, sanitize_line
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.query import age_of

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.dashboard.audit import Audit
    from deedbook.consumers.interfaces.dashboard.guard import Session
    from deedbook.consumers.sdk.ledger import Ledger

_IDEOGRAPHS: Final = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")


class Page(NamedTuple):
    """What a page shows: a template's name, a title for the window, and plain JSON values.

    ``path`` is its own where it is shown in answer to a form, which was sent to another.
    """

    template: str
    title: str
    data: dict[str, Any]
    status: int = 200
    path: str = ""


class Go(NamedTuple):
    """Where an act that was done leads: another page, by 303."""

    path: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a page sees: the ledger at one moment, what was asked for in the address, and who looks.

    ``head`` is the index of the last entry (-1: none); ``as_of`` that of the last one looked at (None: now), asked for
    as ``moment``, and ``now_ms`` the clock then. ``human`` is who may decide here (None: this dashboard only reads),
    ``params`` stands in the path and ``query`` behind it, each name once; ``left`` is where the log ended when whoever
    looks went away, ``audit`` the one that runs or ran last, ``leave`` ends a session.
    """

    ledger: Ledger
    session: Session
    audit: Audit
    leave: Callable[[Session], None]
    head: int
    now_ms: int
    params: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    as_of: int | None = None
    moment: str | None = None
    human: str | None = None
    left: int | None = None

    @property
    def client(self) -> Client:
        """The client underneath: entries, proofs and blobs."""
        return self.ledger.client

    @property
    def settings(self) -> Settings:
        """The settings that the ledger was opened with."""
        return self.ledger.settings

    def ask(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a query at the moment asked for; None is not sent. Raises: as ``Ledger.ask``."""
        return self.ledger.ask(query, as_of=self.moment, **arguments)

    def view(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what ``ask`` does, as code that serves every door asks (``ledger.client.client.Ask``)."""
        return self.ask(query, **arguments)

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a number out of the address. Raises Refused: ``USAGE`` when it is none."""
        text = self.params.get(name) or self.query.get(name, "")
        if text and re.fullmatch(r"[0-9]{1,15}", text, re.ASCII) is None:
            raise Refused("USAGE", f"{name} is a number in this address, not {text[:40]!r}")
        return int(text) if text else default


class Route(NamedTuple):
    """The path of a page or an act, its name (the ``kind`` of its JSON) and function, given the form of an act as well.

    One with a ``menu`` stands in the head; one that ``searches`` asks views of full text, folded only for those who do.
    """

    path: str
    name: str
    show: Callable[..., Page | Go]
    menu: str = ""
    searches: bool = False


@cache  # compiled once a process
def templates() -> jinja2.Environment:
    """Return the templates: escaping always, and a value that is not there is an error, not an empty place."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("deedbook.consumers.interfaces.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        cache_size=-1,
    )
    environment.globals |= {"path_to": path_to, "address": address}
    environment.filters |= {
        "ago": ago,
        "counted": counted,
        "cut": cut,
        "iso": clock_text,
        "json": pretty,
        "language": language_of,
        "line": sanitize_line,
        "number": "{:,}".format,
        "visible": escape_text,
        "words": lambda text: text.replace("_", " "),
    }
    for name in environment.list_templates():  # now: an upgrade under this process must not mix its pages with our data
        environment.get_template(name)
    return environment


def address(path: str, query: Mapping[str, object] = MappingProxyType({}), **changed: object) -> str:
    """Return a path with what is asked of it; what is None or empty is left out."""
    asked = {name: value for name, value in {**query, **changed}.items() if value not in (None, "")}
    return f"{path}?{urlencode(asked)}" if asked else path


def pretty(value: object) -> str:
    """Return plain values as JSON over several lines, with what nobody would see as escapes."""
    return msgspec.json.format(json_text(value), indent=2)


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago something was, as short as a column wants it.

    >>> ago(0, 150_000), ago(0, 59_000)
    ('2m', 'now')
    """
    return "".join(age_of(at_ms, now_ms).removesuffix(" ago").replace("min", "m").removeprefix("just ").split())


def language_of(text: str) -> str | None:
    """Return the language by which a text's signs are drawn and broken: ``zh``, ``ja``, or None for the page's own."""
    return None if _IDEOGRAPHS.search(text) is None else "ja" if _KANA.search(text) else "zh"
