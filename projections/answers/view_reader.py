"""Answers queries from views that are up to date. A ``Reader`` updates them first if necessary."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from deedbook.ledger.client.client import When
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, Refused, Unavailable, did_you_mean, near
from deedbook.ledger.format.codec import convert, schema_error
from deedbook.ledger.format.envelope import decode_entry, event_id
from deedbook.ledger.format.forms import STORE_PATTERN
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.environment import temporary_files_folder
from deedbook.ledger.home.location import CONFIG_FILE, VIEWS_FILE
from deedbook.ledger.home.trust import actions_of
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.packages import install_command
from deedbook.ledger.system.files import can_write, temporary_folder
from deedbook.ledger.system.resource import Resource
from deedbook.projections.agents.compromised import marked
from deedbook.projections.answers.query import Plain, QueryContext, ViewsBehind, read_arguments
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.stores.sqlite_file import move_away
from deedbook.projections.stores.store import DamagedStore, LocalStore, MovedViews, ReadTransaction, ViewVersion
from deedbook.projections.views.registry import QUERIES, group_of, versions_for

T = TypeVar("T")


class ViewsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[views]`` of config.toml: ``store`` is the URL of PostgreSQL, without a password; None: the folder's file."""

    store: Annotated[str, msgspec.Meta(pattern=STORE_PATTERN, max_length=1_000)] | None = None


class ViewReader(Resource):
    """Answers about one ledger; threads may share it, and any number of processes may have one on the same folder."""

    def __init__(
        self,
        client: LogReads,
        settings: Settings,
        *,
        store: str | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open the views of the ledger's folder.

        They are in PostgreSQL if ``store`` is its URL, or if the folder's trusted settings name one. Damaged views are
        moved away and built again, and ``notice`` gets a sentence about it. If the folder is not writable, each reader
        builds views in a temporary folder. Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``,
        ``EXTRA_MISSING``. Corrupted: the views are damaged, or belong to another ledger.
        """
        self.client = client
        self.settings = settings
        self._notice = notice
        self._outside = ExitStack()  # the temporary folder of the views, if the ledger's own is not writable
        self._is_outside = False
        self.is_closed = False
        self._cached: tuple[list[ViewVersion], dict[str, list[dict[str, Any]]]] = ([], {})
        url = store or self._named_store()
        self.store = self._open_shared(url) if url else self._open_file(settings.home / VIEWS_FILE)

    def _named_store(self) -> str | None:
        if self.settings.actions is None and b"views" not in self.settings.text:
            return None  # the usual case: the list of trusted folders need not be read

        try:
            return convert(actions_of(self.settings, self.client).views, ViewsSettings).store
        except msgspec.ValidationError as error:
            refusal = schema_error(error, "$.views")
            raise Refused(refusal.code, f"{CONFIG_FILE}: {refusal.message}", **refusal.details) from error
        except Refused:
            return None  # the views of an untrusted folder are in its own file

    def _open_shared(self, url: str) -> LocalStore:
        try:
            from deedbook.projections.stores.postgres import PostgresStore  # noqa: PLC0415 - extra `postgres`
        except ModuleNotFoundError as error:
            message = f"views in PostgreSQL need its driver: {install_command('postgres')}"
            raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="postgres") from error
        return PostgresStore(url, ledger=self.client.ledger)

    def _open_file(self, path: Path) -> LocalStore:
        if not (can_write(path) and can_write(path.with_name(path.name + "-new"))):
            path = self._folder_outside() / VIEWS_FILE
        try:
            return SqliteStore(path, ledger=self.client.ledger)
        except DamagedStore as error:
            self._report_damage(error, str(move_away(path)))
            return SqliteStore(path, ledger=self.client.ledger)

    def _folder_outside(self) -> Path:
        self._is_outside = True
        return self._outside.enter_context(temporary_folder(temporary_files_folder(), "deedbook-views-"))

    def close(self) -> None:
        """Close the views; the client stays open."""
        if self.is_closed:
            return
        self.is_closed = True
        self.store.close()
        self._outside.close()

    def answer(self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None) -> Plain:
        """Return the answer to a query by its name (see ``QUERIES``), as plain JSON values.

        With ``as_of`` the answer is the one that the views gave at that time.

        Raises:
            Refused: ``USAGE`` for an unknown query, the codes of ``read_arguments``, and the query's own codes
                (``NOT_FOUND``, ``REF_AMBIGUOUS``); for ``as_of`` the codes of ``instants.instant_of``.
        """
        definition = QUERIES.get(query)
        if definition is None:
            alike = near(query, QUERIES)
            listed = "" if alike else f". The queries are {', '.join(sorted(QUERIES))}"
            raise Refused("USAGE", f"there is no query {query!r}{did_you_mean(alike)}{listed}", query=query, near=alike)
        args = read_arguments(query, definition.arguments, arguments or {})
        group = group_of(query)

        def question(context: QueryContext) -> Plain:
            return marked(context, query, definition.run(context, args))

        if as_of is None:
            return self.ask(question, group=group)
        return self.ask_past(question, as_of, group=group)

    def ask_past(self, question: Callable[[QueryContext], T], as_of: When, *, group: str) -> T:
        """Return the result of ``question`` on the views as they were at ``as_of``."""
        raise ViewsBehind

    def ask(self, question: Callable[[QueryContext], T], *, group: str = "") -> T:
        """Return the result of ``question`` on the present views."""
        try:
            return self._ask_store(question, group=group)
        except Corrupted as error:
            if error.code != "HISTORY_CHANGED" or not self.settings.only_looks or self._is_outside:
                raise
        # The stored views belong to another history of this log. A command that only reads leaves them unchanged and
        # answers from temporary views of this log.
        self.store.close()
        self.store = self._open_file(self._folder_outside() / VIEWS_FILE)
        self.reset()
        return self._ask_store(question, group=group)

    def _ask_store(self, question: Callable[[QueryContext], T], *, group: str) -> T:
        return self.with_rebuilding(lambda: self._ask_now(question, group=group))

    def _ask_now(self, question: Callable[[QueryContext], T], *, group: str) -> T:
        expected, cached = self._cached
        if expected and are_current(self.client, expected, group=group):  # the usual case: saves a round trip
            with suppress(MovedViews), self.store.reading(expected) as reading:
                return question(QueryContext(reading, self._now_ms, cached))
        with self.store.reading() as reading:
            if are_current(self.client, reading.view_versions(), group=group):
                return question(self._context(reading))
        self.fold(group=group)
        with self.store.reading() as reading:
            return question(self._context(reading))

    def fold(self, *, group: str) -> None:
        """Bring the views up to date that every query needs, and those of a group (``views.registry``)."""
        raise ViewsBehind

    def reset(self) -> None:
        """Drop all state that belongs to the store that was open before."""

    def _context(self, reading: ReadTransaction) -> QueryContext:
        versions, cached = reading.view_versions(), self._cached
        if cached[0] != versions:
            self._cached = cached = versions, {}
        # Not ``self._cached``, because another thread may have replaced it for other versions.
        return QueryContext(reading, self._now_ms, cached[1])

    def with_rebuilding(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``. If the views are damaged, move them away, and run it again on new ones."""
        try:
            return work()
        except DamagedStore as error:
            self._report_damage(error, self.store.move_away())
            return work()

    def _report_damage(self, error: DamagedStore, moved_to: str) -> None:
        cause = error.details.get("cause", "no database")
        self._notice(
            f"the views were damaged ({cause}). They were moved to {moved_to} and are built again from the log"
        )

    def _now_ms(self, context: QueryContext) -> int:
        return ledger_now(last_ms(context), time.time_ns() // 1_000_000)


def last_ms(context: QueryContext) -> int:
    """Return the last entry's time. An earlier entry may have a later time, if root has set the clock back since."""
    rows = context.cached("SELECT accepted_ms FROM events ORDER BY event_index DESC LIMIT 1")
    return int(rows[0]["accepted_ms"]) if rows else 0


def are_current(client: LogReads, stored: Sequence[ViewVersion], *, group: str) -> bool:
    """Return whether every view has its present version and is folded up to the end of the log.

    Only the views that a query of the group needs count. Like the runner, this compares versions, positions and
    the id of the last event. So it detects a log that was rolled back and grew again.
    """
    wanted = versions_for(group)
    versions = [version for version in stored if version.view in wanted]
    live = {version.view: version for version in versions if version.is_live}
    if len(live) != len(versions) or {name: version.version for name, version in live.items()} != wanted:
        return False
    positions = {(version.position, version.last_id) for version in live.values()}
    if len(positions) != 1:
        return False
    position, last_id = positions.pop()
    if position == 0:
        return False
    page = client.entries(position - 1, limit=1)
    if not page.entries:
        return False  # a bundle of one stream may lack this entry; then updating finds nothing to fold
    return page.size == position and event_id(decode_entry(page.entries[0][1]).commitment) == last_id
