"""Answering from views that are up to date. Where they are not, a ``Reader`` folds them first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from deedbook.ledger.client.client import When
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.format.codec import encode_arguments, schema_error
from deedbook.ledger.format.envelope import decode_entry, event_id, pae
from deedbook.ledger.format.forms import STORE_PATTERN
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.environment import temporary_files_folder
from deedbook.ledger.home.location import CONFIG_FILE, VIEWS_FILE
from deedbook.ledger.home.trust import actions_of
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.system.files import can_write, temporary_folder
from deedbook.ledger.system.resource import Resource
from deedbook.projections.agents.compromised import marked
from deedbook.projections.answers.query import Answer, QueryContext, ViewsBehind, allowed
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.stores.sqlite_file import set_aside
from deedbook.projections.stores.store import DamagedStore, LocalStore, MovedViews, ReadTransaction, ViewVersion
from deedbook.projections.views.registry import ON_DEMAND, QUERIES, VIEW_VERSIONS

T = TypeVar("T")


class ViewsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[views]`` of config.toml: ``store`` is a URL of PostgreSQL without a password; None: the folder's own file."""

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

        They are in PostgreSQL where ``store`` is its URL, or the trusted settings of the folder name one. Views that
        are damaged are set aside and made again, of which ``notice`` is told in a sentence. Where the folder cannot be
        written they are made in a temporary one, anew for each reader. Raises Unavailable: ``STORE_UNAVAILABLE``,
        ``STORE_FULL``, ``EXTRA_MISSING``. Corrupted: the views are damaged, or of another ledger.
        """
        self.client = client
        self.settings = settings
        self._notice = notice
        self._outside = ExitStack()  # a folder for views where the ledger's own cannot be written
        self._is_outside = False
        self.is_closed = False
        self._kept: tuple[list[ViewVersion], dict[str, list[dict[str, Any]]]] = ([], {})
        url = store or self._named_store()
        self.store = self._open_shared(url) if url else self._open_file(settings.home / VIEWS_FILE)

    def _named_store(self) -> str | None:
        if self.settings.actions is None and b"views" not in self.settings.text:
            return None  # which is nearly always so, and saves reading whom this user trusts

        try:
            return msgspec.convert(actions_of(self.settings, self.client).views, ViewsSettings).store
        except msgspec.ValidationError as error:
            refusal = schema_error(error, "$.views")
            raise Refused(refusal.code, f"{CONFIG_FILE}: {refusal.message}", **refusal.details) from error
        except Refused:
            return None  # a folder that is not trusted is read, out of its own file

    def _open_shared(self, url: str) -> LocalStore:
        try:
            from deedbook.projections.stores.postgres import PostgresStore  # noqa: PLC0415 - few use it
        except ModuleNotFoundError as error:
            message = "views in PostgreSQL need its driver: pip install 'deedbook[postgres]'"
            raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="postgres") from error
        return PostgresStore(url, ledger=self.client.ledger)

    def _open_file(self, path: Path) -> LocalStore:
        if not (can_write(path) and can_write(path.with_name(path.name + "-new"))):
            path = self._folder_outside() / VIEWS_FILE
        try:
            return SqliteStore(path, ledger=self.client.ledger)
        except DamagedStore as error:
            self._say_set_aside(error, str(set_aside(path)))
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

    def answer(self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None) -> Answer:
        """Return the answer to a query by its name (see ``QUERIES``), as plain JSON values; with ``as_of``, then.

        Raises:
            Refused: ``USAGE`` for an unknown query, ``UNKNOWN_FIELD`` or ``INVALID_FIELD`` for wrong arguments,
                ``INTEGER_OUT_OF_RANGE`` or ``INVALID_FORMAT`` for what JSON cannot carry, and the query's own codes
                (``NOT_FOUND``, ``REF_AMBIGUOUS``); for ``as_of`` as ``instants.instant_of``.
        """
        return self.lasting(query, arguments, as_of)[0]

    def lasting(
        self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None
    ) -> tuple[Answer, int]:
        """Return what ``answer`` does, and for how many ms it stays so while nothing is written."""
        found = QUERIES.get(query)
        if found is None:
            raise Refused("USAGE", f"there is no query {query!r}: there are {', '.join(sorted(QUERIES))}", query=query)
        encode_arguments(arguments or {}, query)  # what the bus could not carry is refused here too
        try:
            args = msgspec.convert(arguments or {}, found.arguments)
        except msgspec.ValidationError as error:
            code = "UNKNOWN_FIELD" if "unknown field" in str(error) else "INVALID_FIELD"
            raise Refused(code, f"{query}: {allowed(error, found.arguments)}", query=query) from error
        on_demand = query.partition(".")[0] in ON_DEMAND

        def question(context: QueryContext) -> tuple[Answer, int]:
            return marked(context, query, found.run(context, args)), context.lasting_ms

        if as_of is None:
            return self.ask(question, on_demand=on_demand)
        return self.ask_past(question, as_of, on_demand=on_demand)

    def ask_past(self, question: Callable[[QueryContext], T], as_of: When, *, on_demand: bool) -> T:
        """Return what a question finds in the views as they were."""
        raise ViewsBehind

    def ask(self, question: Callable[[QueryContext], T], *, on_demand: bool = False) -> T:
        """Return what a function makes of the views as they are now."""
        try:
            return self._ask_store(question, on_demand=on_demand)
        except Corrupted as error:
            if error.code != "HISTORY_CHANGED" or not self.settings.only_looks or self._is_outside:
                raise
        # Whoever only looks is answered from this log nevertheless, and leaves the views of the other past as they are.

        self.store.close()
        self.store = self._open_file(self._folder_outside() / VIEWS_FILE)
        self.reopened()
        return self._ask_store(question, on_demand=on_demand)

    def _ask_store(self, question: Callable[[QueryContext], T], *, on_demand: bool) -> T:
        return self.on_whole_views(lambda: self._ask_now(question, on_demand=on_demand))

    def _ask_now(self, question: Callable[[QueryContext], T], *, on_demand: bool) -> T:
        expected, kept = self._kept
        if expected and are_current(self.client, expected, on_demand=on_demand):  # as it is most often: one way less
            with suppress(MovedViews), self.store.reading(expected) as reading:
                return question(QueryContext(reading, self._now_ms, kept))
        with self.store.reading() as reading:
            if are_current(self.client, reading.view_versions(), on_demand=on_demand):
                return question(self._moment(reading))
        self.fold(on_demand=on_demand)
        with self.store.reading() as reading:
            return question(self._moment(reading))

    def fold(self, *, on_demand: bool) -> None:
        """Bring the views up to date that every question needs, or, ``on_demand``, all."""
        raise ViewsBehind

    def reopened(self) -> None:
        """Forget what was made for the store that was open before."""

    def _moment(self, reading: ReadTransaction) -> QueryContext:
        versions = reading.view_versions()
        if self._kept[0] != versions:
            self._kept = versions, {}
        return QueryContext(reading, self._now_ms, self._kept[1])

    def on_whole_views(self, work: Callable[[], T]) -> T:
        """Return what ``work`` gives; where the views turn out to be damaged, on others made in their place."""
        try:
            return work()
        except DamagedStore as error:
            self._say_set_aside(error, self.store.set_aside())
            return work()

    def _say_set_aside(self, error: DamagedStore, aside: str) -> None:
        cause = error.details.get("cause", "no database")
        self._notice(f"the views were damaged ({cause}). They were moved to {aside}, and are built again from the log")

    def _now_ms(self, context: QueryContext) -> int:
        return ledger_now(last_ms(context), time.time_ns() // 1_000_000)


def last_ms(context: QueryContext) -> int:
    """Return the last entry's time: not the latest one, because the root may have set the clock back."""
    rows = context.cached("SELECT accepted_ms FROM events ORDER BY event_index DESC LIMIT 1")
    return int(rows[0]["accepted_ms"]) if rows else 0


def are_current(client: LogReads, held: Sequence[ViewVersion], *, on_demand: bool) -> bool:
    """Return whether every view is there in its present version, and folded up to the end of the log.

    Those that are folded ``on_demand`` count only when they are what is args. What is compared is what the runner
    compares: versions, positions, and the id of the last event, so that a log that was rolled back and grew again is
    not taken for the one that was folded.
    """
    wanted = {name: version for name, version in VIEW_VERSIONS.items() if on_demand or name not in ON_DEMAND}
    versions = [version for version in held if version.view in wanted]
    live = {version.view: version for version in versions if version.is_live}
    if len(live) != len(versions) or {name: version.version for name, version in live.items()} != wanted:
        return False
    ends = {(version.position, version.last_id) for version in live.values()}
    if len(ends) != 1:
        return False
    position, last_id = ends.pop()
    if position == 0:
        return False
    page = client.entries(position - 1, limit=1)
    return page.size == position and event_id(pae(decode_entry(page.entries[0][1]).body)) == last_id
