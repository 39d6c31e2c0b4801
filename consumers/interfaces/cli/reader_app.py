"""The app of verbs that only read the ledger in this folder: settings, a reader of the log, and printing.

These verbs start in half the time of others, because they load no keys and no gate, and those that only list rows of
views load no rules, folds or event types. If one needs more, ``ReadingApp`` raises ``NeedsApp`` before anything is
printed, and the verb runs again with an ``App``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from deedbook.consumers.interfaces.cli.printed_commands import commands_in_home, in_home, lines_in_home
from deedbook.consumers.interfaces.cli.terminal import discard, echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import ClosableOptions, LazyGroup, Options, VerbBase, load
from deedbook.consumers.sdk.text import document, json_text
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.client.client import When
from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.errors import DeedbookError, Exit, Unavailable
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.home.trust import ignored_settings, quoted_path
from deedbook.projections.agents.compromised import compromised_names, compromised_sentences
from deedbook.projections.answers.query import ViewsBehind
from deedbook.projections.redactions.marks import redacted_sentences
from deedbook.projections.views.registry import CHECKED, CONFIRMED, kind_of

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.cli.checked_answers import CheckedAnswers
    from deedbook.ledger.client.client import Client

SEALED: Final = b"sealed:"


class NeedsApp(Exception):
    """The verb needs something that only an ``App`` can do."""


class ReadingApp(ClosableOptions):
    """One run of a verb."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        vars(self).update(vars(options or Options()))
        self._settings: tuple[object, Settings] | None = None
        self._reader: LocalReader | None = None
        self._checked: CheckedAnswers | None = None
        self._has_asked = False
        self._doubts: dict[str, int] = {}

    def finish(self) -> None:
        """Remove texts that somebody redacted elsewhere from the copies of this folder, as an ``App`` does."""
        if self._checked is not None and not self.only_looks and self._checked.has_new_erasures():
            self.close()
            with contextlib.closing(load("app:App")(self)) as app:
                app.client()
                app.finish()

    def close(self) -> None:
        """Close whatever was opened."""
        if self._reader is not None:
            self._reader.close()
            self._reader = self._checked = None

    def settings(self) -> Settings:
        """Return the settings of this run, read once; print ignored settings on standard error."""
        options = self.home, self.server, self.agent, self.spool, self.only_looks
        if self._settings is None or self._settings[0] != options:
            settings = read_settings(home=self.home, server=self.server, agent=self.agent, spool=self.spool)
            settings = msgspec.structs.replace(settings, only_looks=True) if self.only_looks else settings
            self._settings = options, settings
            if settings.text and (names := ", ".join(ignored_settings(settings))):
                where = quoted_path(settings.home)
                way = f"`deed trust --home {where}` shows why"
                echo(f"{where} is not trusted with {names}: ignored ({way})", err=True)
        return self._settings[1]

    def here(self, command: str) -> str:
        """Return ``command`` with the --home of this run where it needs one, so that it works on the same folder."""
        return in_home(command, self.home)

    @cached_property
    def instant(self) -> When | None:
        """The time in --as-of, which is an index or ISO 8601; None for now.

        Raises Refused: ``INVALID_FIELD`` if it is neither.
        """
        if self.as_of is None or self.as_of.isdecimal():
            return self.as_of

        return parse_moment(self.as_of)

    def query(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a view query; arguments that are None are not sent."""
        self._has_asked = True
        if self.bundle is not None or self.settings().server is not None:
            raise NeedsApp
        sent = {name: value for name, value in arguments.items() if value is not None}
        try:
            if self._reader is None:
                self._reader = LocalReader(self.settings(), views=load("open_views:open_views"))
            return self.displayed(self._answer(self._reader, query, sent))
        except (
            ViewsBehind,
            Unavailable,
        ):  # an App updates the views, and shares a log that this process has open
            raise NeedsApp from None

    def _answer(self, reader: LocalReader, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if query not in CHECKED and query not in CONFIRMED:
            return reader.view(query, arguments, self.instant)
        if b"witness" in self.settings().text:  # an App says what witnesses have cosigned
            raise NeedsApp
        if self._checked is None:
            self._checked = load("checked_answers:CheckedAnswers")(reader)
        answer: dict[str, Any] = self._checked.ask(query, arguments, self.instant)
        return answer

    def displayed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer as this verb shows it.

        Raises NeedsApp: it contains sealed texts, which only an App can show.
        """
        if self.names_sealed and SEALED in msgspec.json.encode(answer):
            raise NeedsApp
        return answer

    def withheld(self) -> list[int]:
        """Return the indexes of entries whose texts are hidden (see ``App.withheld``)."""
        return [] if self._reader is None else self._erased_since(self._reader)

    def _erased_since(self, reader: Client | LocalReader) -> list[int]:
        if self.bundle is not None or reader.disagreement is None:
            return []
        erased: list[int] = load("..sdk.erased_entries:erased_in_copies")(
            reader.ledger, self.settings().home, reader.entry
        )
        return erased

    def acting(self) -> str:
        """Return the name of the agent who acts; refused where none was named."""
        agent = self.settings().agent
        if agent is None:
            error: DeedbookError = load("absent_agent:absent_agent")(self.settings())
            raise error
        return agent

    def query_with(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a view query, with the signature ``ledger.client.client.Ask``."""
        answer = self.query(query, **arguments)

        self._doubts |= compromised_names(answer)  # warn of them, too, if a text made from the answer lacks its marks
        return answer

    def whole(self) -> Any:
        """Return the ``App`` of this run, for a verb that needs all of it. Raises NeedsApp."""
        raise NeedsApp

    def get_blob(self, ref: str) -> bytes:
        """Return a blob. Raises: as ``whole``, and ``Client.get_blob``."""
        content: bytes = self.whole().client().get_blob(ref)
        return content

    def described(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the events of rows of ``catalog.find`` as documents. Raises NeedsApp."""
        raise NeedsApp

    def follow(self, kinds: tuple[str, ...], stream: str | None, author: str | None, start: int) -> None:
        """Print events from an index on, as they are accepted. Raises NeedsApp."""
        raise NeedsApp

    def show(
        self,
        kind: str,
        data: Any,
        text: str | Iterable[str] | Callable[[], None],
        *,
        following: str | None = None,
        exit_code: int = Exit.OK,
    ) -> None:
        """Print an answer: as one JSON document, or as ``text``.

        ``text`` is the lines, or a function that prints them. ``kind`` may be the query that gives the answer. With an
        ``exit_code`` other than 0 the verb ends with it, also if the reader of the answer goes away.
        """
        try:
            self._print(kind, data, text, following)
        except BrokenPipeError:
            if exit_code == Exit.OK:
                raise
            discard(sys.stdout)
        if exit_code != Exit.OK:
            raise click.exceptions.Exit(exit_code)

    def _print(
        self, kind: str, data: Any, text: str | Iterable[str] | Callable[[], None], following: str | None
    ) -> None:
        if not self.as_json:
            if self._has_asked:  # print first which parts of the answer may be from a thief
                for warning in compromised_sentences(data, self._doubts):
                    echo(warning, fg="red")
                for words in redacted_sentences(data):
                    echo(f"REDACTED: {words}", fg="yellow")
            if self.instant is not None:
                then = self.query("catalog.instant", at=self.instant)
                echo(f"as of entry {then['event_index']}, {then['at']}", err=True)
            if callable(text):
                text()
            else:
                for line in [text] if isinstance(text, str) else text:
                    echo(lines_in_home(line, self.home))
            return
        if self._doubts and isinstance(data, dict) and "compromised" not in data:
            data |= {"compromised": max(self._doubts.values())}
        if "." in kind:
            kind = kind_of(kind)
        commands_in_home(data, self.home)
        self.line(document(kind, data, following and self.here(following)) | self.source())

    def source(self) -> dict[str, Any]:
        """Return the fields that say where a document comes from: none for a ledger. ``App`` adds those of a bundle."""
        return {}

    def line(self, value: Any) -> None:
        """Print one JSON document on one line."""
        echo_exact(json_text(value, order="deterministic"))


class ReadingCommand(VerbBase):
    """A verb whose function gets a ``ReadingApp``, or an ``App`` if it needs more."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the verb."""
        options = ctx.ensure_object(Options)
        self.check_reading(ctx, options)
        try:
            return self.call(ctx, ReadingApp(options))
        except NeedsApp:
            return self.call(ctx, load("app:App")(options))


class ReadingGroup(LazyGroup):
    """A group whose verbs only read; those that write are in its table."""

    command_class = ReadingCommand
