"""A PostgreSQL connection that sends several statements at once, prepares them, and returns values as SQLite does.

Booleans come back as 1 and 0, sums as integers, JSON as text. Statements use libpq's pipeline mode through the driver's
own binding (``psycopg.pq``). Three statements through cursors, one after the other, took five times as long, and the
driver's own pipeline twice as long (measured).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import adapt, errors, postgres, waiting
from psycopg.abc import Buffer, PQGen
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.types import numeric, string

from deedbook.projections.stores.postgres_schema import ESCAPE, ESCAPED

statements_prepared_max: Final = 500
_UNESCAPED: Final = {ESCAPED["\0"]: "\0", ESCAPED[ESCAPE]: ESCAPE}
_ESCAPES: Final = str.maketrans(dict(ESCAPED))
_ESCAPED_PAIR: Final = re.compile(f"{ESCAPE}.")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_Key: TypeAlias = tuple[str, tuple[int, ...]]
_Bound: TypeAlias = tuple[Sequence[Buffer | None], tuple[int, ...], Sequence[Format] | None]


class SqlStatement(NamedTuple):
    """SQL with its bound values; ``is_prepared``: prepare it for reuse, unless it contains words of a user's query."""

    sql: str
    values: Sequence[Any] = ()
    is_prepared: bool = True


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of the driver's that can also send several statements at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See ``psycopg.Connection.connect``. Cursors prepare nothing: the driver would deallocate ours at times."""
        super().__init__(*args, **kwargs)
        for kind, dumper in ((str, _TextDumper), (bool, _TruthDumper)):
            self.adapters.register_dumper(kind, dumper)
        for name, loader in (("json", string.TextLoader), ("bool", _TruthLoader), ("numeric", _NumberLoader)):
            self.adapters.register_loader(name, loader)
        self._adapting = adapt.Transformer(self)
        self._names: dict[_Key, bytes] = {}
        self._new: dict[_Key, bytes] = {}
        self._are_answers: list[bool] = []
        self._numbers = itertools.count()

    def together(self, statements: Sequence[SqlStatement]) -> list[PGresult]:
        """Send statements at once and return their results.

        After a failed statement, all later results are its failure.
        """
        self.send(statements)
        return self.received()

    def run(self, sql: str, values: Sequence[Any] = ()) -> PGresult:
        """Return the result of one statement. Raises psycopg.Error: it failed."""
        (result,) = self.together([SqlStatement(sql, values)])
        self.check(result)
        return result

    def send(self, statements: Sequence[SqlStatement]) -> None:
        """Send statements without waiting; the next call must be ``received``."""
        bound = [(*statement, *self._bound(statement.values)) for statement in statements]
        self._new, self._are_answers = {}, []
        self.pgconn.enter_pipeline_mode()
        for sql, _, is_prepared, values, types, formats in bound:
            key = (sql, types)
            if name := self._names.pop(key, None):
                self._names[key] = name  # move it to the end: the first name is deallocated first
            elif not (name := self._new.get(key)):
                name = b"deedbook_%d" % next(self._numbers) if is_prepared else b""
                self.pgconn.send_prepare(name, sql.encode(), types)
                self._are_answers.append(False)
                if is_prepared:
                    self._new[key] = name
            self.pgconn.send_query_prepared(name, values, formats)
            self._are_answers.append(True)
        # Deallocate last: a statement before a BEGIN would begin a transaction of its own.
        while len(self._names) > statements_prepared_max:
            self.pgconn.send_query_params(b"DEALLOCATE " + self._names.pop(next(iter(self._names))), None)
            self._are_answers.append(False)
        self.pgconn.pipeline_sync()

    def _bound(self, values: Sequence[Any]) -> _Bound:
        dumped = self._adapting.dump_sequence(values, [adapt.PyFormat.AUTO] * len(values))
        return dumped, self._adapting.types or (), self._adapting.formats

    def received(self) -> list[PGresult]:
        """Return the results of ``send``; empty if nothing was sent."""
        if self.pgconn.pipeline_status == PipelineStatus.OFF:
            return []
        results = self.wait(_results(self.pgconn))
        failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        if self.pgconn.status == ConnStatus.BAD:
            raise errors.error_from_result(failed) if failed else errors.OperationalError("the connection was lost")
        self.pgconn.exit_pipeline_mode()
        if failed is None:
            self._names |= self._new
        answered = ((result if failed is None or result.status in _DONE else failed) for result in results)
        return [result for result, is_answer in zip(answered, self._are_answers, strict=True) if is_answer]

    def check(self, result: PGresult) -> None:
        """Raises psycopg.Error: the statement failed."""
        if result.status not in _DONE:
            raise errors.error_from_result(result)

    def read(self, result: PGresult) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of a result's columns and its rows. Raises psycopg.Error: its statement failed."""
        self.check(result)
        self._adapting.set_pgresult(result)
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        return names, unescaped(self._adapting.load_rows(0, result.ntuples, tuple))


def _results(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """Wait for all results of a pipeline; read what arrives while there is still something to send."""
    results: list[PGresult] = []
    pgconn.consume_input()  # results of earlier statements have all arrived
    while pgconn.flush():
        if (yield waiting.WAIT_RW) & waiting.READY_R:
            pgconn.consume_input()
    while pgconn.status == ConnStatus.OK:
        if pgconn.is_busy():
            yield waiting.WAIT_R
            pgconn.consume_input()
        elif (result := pgconn.get_result()) is None:
            continue  # the end of one statement's results
        elif result.status == ExecStatus.PIPELINE_SYNC:
            break
        else:
            results.append(result)
    return results


def _escaped(text: str) -> str:
    if ESCAPE in text or "\0" in text:
        return text.translate(_ESCAPES)
    return text


def unescaped(read: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with their text as it was before escaping."""
    if ESCAPE not in "".join([value for row in read for value in row if value.__class__ is str]):
        return read

    def whole(value: Any) -> Any:
        return _ESCAPED_PAIR.sub(lambda pair: _UNESCAPED[pair[0]], value) if value.__class__ is str else value

    return [tuple(map(whole, row)) for row in read]


class _TextDumper(string.StrDumper):
    """Text; characters that PostgreSQL cannot hold become two characters."""

    def dump(self, obj: str) -> Any:
        return super().dump(_escaped(obj))


class _TruthDumper(adapt.Dumper):
    """A bool as SQLite takes it: a number."""

    oid = postgres.types["int8"].oid

    def dump(self, obj: bool) -> bytes:  # noqa: FBT001 - the driver's signature
        return b"1" if obj else b"0"


class _TruthLoader(adapt.Loader):
    """The value of a condition as SQLite returns it."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


class _NumberLoader(numeric.NumericLoader):
    """A sum of integers, which PostgreSQL returns as a numeric."""

    def load(self, data: Any) -> Any:
        number = super().load(data)
        return int(number) if number == number.to_integral_value() else float(number)
