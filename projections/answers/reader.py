"""Bring the views up to date, then answer queries, each from one snapshot of the store."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from deedbook.ledger.client.client import Client, When
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.format.codec import encode_arguments, schema_error
from deedbook.ledger.format.envelope import decode_entry, event_id, pae
from deedbook.ledger.format.forms import STORE_PATTERN
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import CONFIG_FILE, VIEWS_FILE
from deedbook.ledger.home.trust import actions_of
from deedbook.ledger.lifecycle.clock import ledger_now
from deedbook.ledger.system.files import can_write
from deedbook.ledger.system.resource import Resource
from deedbook.projections.agents.compromised import marked
from deedbook.projections.answers.instants import index_or_time, instant_of
from deedbook.projections.answers.past import Pasts, StalePast
from deedbook.projections.answers.query import Answer, QueryContext, allowed
from deedbook.projections.reasoning.queries import get_full_reasoning
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.stores.sqlite_file import set_aside
from deedbook.projections.stores.store import DamagedStore, LocalStore, MovedViews, ReadTransaction, ViewVersion
from deedbook.projections.views.projection import Projection
from deedbook.projections.views.registry import EAGER_VIEWS, ON_DEMAND, QUERIES, VIEW_VERSIONS, VIEWS
from deedbook.projections.views.runner import Runner

if TYPE_CHECKING:
    from deedbook.projections.answers.instants import Instant
    from deedbook.projections.reasoning.queries import FullReasoning
    from deedbook.projections.views.runner import Progress

T = TypeVar("T")


class ViewsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[views]`` of config.toml: ``store`` is a PostgreSQL URL without a password; None: the folder's own file."""

    store: Annotated[str, msgspec.Meta(pattern=STORE_PATTERN, max_length=1_000)] | None = None


class Reader(Resource):
    """Answers queries about one ledger. Threads may share it; any number of processes may read the same folder."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        store: str | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open the views of the ledger's folder.

        They are in PostgreSQL if ``store`` is its URL, or if the trusted settings of the folder name one. Damaged views
        are moved away and rebuilt, and ``notice`` gets a sentence about it. If the folder is not writable, they are
        built in a temporary folder, anew for each reader. Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``,
        ``EXTRA_MISSING``. Corrupted: the views are damaged, or belong to another ledger.
        """
        self.client = client
        self.settings = settings
        self._notice = notice
        self._outside: tempfile.TemporaryDirectory[str] | None = None
        self._is_closed = False
        self._cached: tuple[list[ViewVersion], dict[str, list[dict[str, Any]]]] = ([], {})
        self._lock = threading.Lock()
        self._folding_all = threading.Lock()
        url = store or self._named_store()
        self.store = self._open_shared(url) if url else self._open_file(settings.home / VIEWS_FILE)

    def _named_store(self) -> str | None:
        if self.settings.actions is None and b"views" not in self.settings.text:
            return None  # the usual case; it avoids reading the trust file

        try:
            return msgspec.convert(actions_of(self.settings, self.client).views, ViewsSettings).store
        except msgspec.ValidationError as error:
            refusal = schema_error(error, "$.views")
            raise Refused(refusal.code, f"{CONFIG_FILE}: {refusal.message}", **refusal.details) from error
        except Refused:
            return None  # an untrusted folder is read from its own views file

    def _open_shared(self, url: str) -> LocalStore:
        try:
            from deedbook.projections.stores.postgres import PostgresStore
        except ModuleNotFoundError as error:
            message = "views in PostgreSQL need its driver: pip install 'deedbook[postgres]'"
            raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="postgres") from error
        return PostgresStore(url, ledger=self.client.ledger)

    def _open_file(self, path: Path) -> LocalStore:
        if not (can_write(path) and can_write(path.with_name(path.name + "-new"))):
            self._outside = tempfile.TemporaryDirectory(prefix="deedbook-views-")
            path = Path(self._outside.name) / VIEWS_FILE
        try:
            return SqliteStore(path, ledger=self.client.ledger)
        except DamagedStore as error:
            self._say_set_aside(error, str(set_aside(path)))
            return SqliteStore(path, ledger=self.client.ledger)

    @cached_property
    def runner(self) -> Runner:
        """The runner of all views. Raises Unavailable: ``STORE_UNAVAILABLE``, also if a newer Deedbook made them."""
        return self._runner_of(VIEWS)

    @cached_property
    def _eager_runner(self) -> Runner:
        """The runner of the views that every query brings up to date."""
        return self._runner_of(EAGER_VIEWS)

    def _runner_of(self, views: Sequence[Projection[Any]]) -> Runner:
        return Runner(self.client, self.store, views)

    @cached_property
    def _pasts(self) -> Pasts:
        return Pasts(self.client)

    def close(self) -> None:
        """Close the views; the client stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        if "_pasts" in vars(self):
            self._pasts.close()
        self.store.close()
        if self._outside is not None:
            self._outside.cleanup()

    def catch_up(self, *, progress: Callable[[Progress], None] | None = None) -> int:
        """Fold up to the end of the log; return the position reached."""
        with self._folding_all:
            return self._on_whole_views(lambda: self.runner.catch_up(progress=progress))

    def rebuild(self, names: list[str], *, progress: Callable[[Progress], None] | None = None) -> int:
        """Rebuild views; return the position reached. Raises Refused: ``NOT_FOUND``: there is no such view."""
        with self._folding_all:
            return self._on_whole_views(lambda: self.runner.rebuild(names, progress=progress))

    def answer(self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None) -> Answer:
        """Return the answer of a query by name (see ``QUERIES``) as plain JSON values, as of ``as_of`` if given.

        Raises:
            Refused: ``USAGE`` for an unknown query, ``UNKNOWN_FIELD`` or ``INVALID_FIELD`` for wrong arguments,
                ``INTEGER_OUT_OF_RANGE`` or ``INVALID_FORMAT`` for values outside JSON, and the query's own codes
                (``NOT_FOUND``, ``REF_AMBIGUOUS``); for ``as_of`` as ``instants.instant_of``.
        """
        return self.lasting(query, arguments, as_of)[0]

    def lasting(
        self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None
    ) -> tuple[Answer, int]:
        """Return the answer, and for how many ms it stays valid while nothing is written."""
        definition = QUERIES.get(query)
        if definition is None:
            raise Refused(
                "USAGE", f"there is no query {query!r}. The queries are {', '.join(sorted(QUERIES))}", query=query
            )
        encode_arguments(arguments or {}, query)  # refuse what the bus could not carry, in every interface
        try:
            args = msgspec.convert(arguments or {}, definition.arguments)
        except msgspec.ValidationError as error:
            code = "UNKNOWN_FIELD" if "unknown field" in str(error) else "INVALID_FIELD"
            raise Refused(code, f"{query}: {allowed(error, definition.arguments)}", query=query) from error
        on_demand = query.partition(".")[0] in ON_DEMAND

        def question(context: QueryContext) -> tuple[Answer, int]:
            return marked(context, query, definition.run(context, args)), context.lasting_ms

        if as_of is None:
            return self._ask(question, on_demand=on_demand)
        return self._ask_past(question, as_of, on_demand=on_demand)

    def full_reasoning(self, ref: str) -> FullReasoning:
        """Return a graph version by its ref, with the bytes that are hashed. Raises Refused: as ``find_version``."""
        return self._ask(lambda context: get_full_reasoning(context, ref))

    def _ask_past(self, question: Callable[[QueryContext], T], as_of: When, *, on_demand: bool) -> T:
        def ask(at: Instant | int) -> T:
            return self._on_whole_views(lambda: self._pasts.ask(self.store, at, question, on_demand=on_demand))

        if isinstance(index := index_or_time(as_of), int):
            with suppress(StalePast):
                return ask(index)
        while True:
            at = self._ask(lambda context: instant_of(context.reading, as_of), on_demand=on_demand)
            with suppress(StalePast):  # another process is rebuilding the views
                return ask(at)

    def _ask(self, question: Callable[[QueryContext], T], *, on_demand: bool = False) -> T:
        try:
            return self._ask_store(question, on_demand=on_demand)
        except Corrupted as error:
            if error.code != "HISTORY_CHANGED" or not self.settings.only_looks or self._outside is not None:
                raise
        # A read-only caller still gets an answer from this log; the views of the other history stay as they are.

        self._outside = tempfile.TemporaryDirectory(prefix="deedbook-views-")
        self.store.close()
        self.store = self._open_file(Path(self._outside.name) / VIEWS_FILE)
        for name in ("runner", "_eager_runner"):
            vars(self).pop(name, None)
        return self._ask_store(question, on_demand=on_demand)

    def _ask_store(self, question: Callable[[QueryContext], T], *, on_demand: bool) -> T:
        return self._on_whole_views(lambda: self._ask_now(question, on_demand=on_demand))

    def _ask_now(self, question: Callable[[QueryContext], T], *, on_demand: bool) -> T:
        expected, cached = self._cached
        if expected and are_current(self.client, expected, on_demand=on_demand):  # the usual case: saves a round trip
            with suppress(MovedViews), self.store.reading(expected) as reading:
                return question(QueryContext(reading, self._now_ms, cached))
        with self.store.reading() as reading:
            if are_current(self.client, reading.view_versions(), on_demand=on_demand):
                return question(self._context(reading))
        # A runner serves one thread at a time. The runner of all views folds the whole log the first time; other
        # queries are answered between its batches.
        with self._folding_all if on_demand else self._lock:
            (self.runner if on_demand else self._eager_runner).catch_up()
        with self.store.reading() as reading:
            return question(self._context(reading))

    def _context(self, reading: ReadTransaction) -> QueryContext:
        versions = reading.view_versions()
        if self._cached[0] != versions:
            self._cached = versions, {}
        return QueryContext(reading, self._now_ms, self._cached[1])

    def _on_whole_views(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``; if the views are damaged, move them away and run it on new ones."""
        try:
            return work()
        except DamagedStore as error:
            self._say_set_aside(error, self.store.set_aside())
            return work()

    def _say_set_aside(self, error: DamagedStore, aside: str) -> None:
        cause = error.details.get("cause", "no database")
        self._notice(f"the views were damaged ({cause}). They were moved to {aside} and are rebuilt from the log")

    def _now_ms(self, context: QueryContext) -> int:
        return ledger_now(last_ms(context), time.time_ns() // 1_000_000)


def last_ms(context: QueryContext) -> int:
    """Return the last entry's time, which may not be the latest one: root may have set the clock back."""
    rows = context.cached("SELECT accepted_ms FROM events ORDER BY event_index DESC LIMIT 1")
    return int(rows[0]["accepted_ms"]) if rows else 0


def are_current(client: Client, stored: Sequence[ViewVersion], *, on_demand: bool) -> bool:
    """Return whether every view exists in its present version and is folded up to the end of the log.

    Views folded on demand count only with ``on_demand``. It compares the same facts as the runner: versions, positions,
    and the id of the last event, so a log that was rolled back and grew again is not mistaken for the folded one.
    """
    expected = {name: version for name, version in VIEW_VERSIONS.items() if on_demand or name not in ON_DEMAND}
    versions = [version for version in stored if version.view in expected]
    live = {version.view: version for version in versions if version.is_live}
    if len(live) != len(versions) or {name: version.version for name, version in live.items()} != expected:
        return False
    positions = {(version.position, version.last_id) for version in live.values()}
    if len(positions) != 1:
        return False
    position, last_id = positions.pop()
    if position == 0:
        return False
    page = client.entries(position - 1, limit=1)
    return page.size == position and event_id(pae(decode_entry(page.entries[0][1]).body)) == last_id
