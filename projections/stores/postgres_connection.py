"""A connection to PostgreSQL: statements that travel together, each prepared when first used, and values as SQLite's.

What comes back is what SQLite gives back: truths as 1 and 0, sums as integers, JSON as text. Statements go through
libpq's pipeline mode by the driver's own binding of it (``psycopg.pq``): three through cursors, one after the other,
took five times as long, and the driver's own pipeline twice (measured).
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

statements_kept: Final = 500
_UNESCAPED: Final = {ESCAPED["\0"]: "\0", ESCAPED[ESCAPE]: ESCAPE}
_ESCAPES: Final = str.maketrans(dict(ESCAPED))
_ESCAPED_PAIR: Final = re.compile(f"{ESCAPE}.")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_Key: TypeAlias = tuple[str, tuple[int, ...]]
_Bound: TypeAlias = tuple[Sequence[Buffer | None], tuple[int, ...], Sequence[Format] | None]


class Statement(NamedTuple):
    """SQL with what it binds; ``is_kept``: prepared for the next time, unless a question's own words stand in it."""

    sql: str
    values: Sequence[Any] = ()
    is_kept: bool = True


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of the driver's that is also asked several things at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See ``psycopg.Connection.connect``; where its cursors prepare, the driver now and then forgets all."""
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

    def together(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Return the results of statements, sent at once; of what stands behind one that failed, its failure.

        Raises psycopg.Error: the connection broke.
        """
        self.send(statements)
        return self.received()

    def run(self, sql: str, values: Sequence[Any] = ()) -> PGresult:
        """Return the result of one statement. Raises psycopg.Error: it failed."""
        (result,) = self.together([Statement(sql, values)])
        self.check(result)
        return result

    def send(self, statements: Sequence[Statement]) -> None:
        """Send statements and wait for nothing: the next call is ``received``."""
        bound = [(*statement, *self._bound(statement.values)) for statement in statements]
        self._new, self._are_answers = {}, []
        self.pgconn.enter_pipeline_mode()
        for sql, _, is_kept, values, types, formats in bound:
            key = (sql, types)
            if name := self._names.pop(key, None):
                self._names[key] = name  # the last to be forgotten
            elif not (name := self._new.get(key)):
                name = b"deedbook_%d" % next(self._numbers) if is_kept else b""
                self.pgconn.send_prepare(name, sql.encode(), types)
                self._are_answers.append(False)
                if is_kept:
                    self._new[key] = name
            self.pgconn.send_query_prepared(name, values, formats)
            self._are_answers.append(True)
        # Last: what stands before a BEGIN begins a transaction of its own.
        while len(self._names) > statements_kept:
            self.pgconn.send_query_params(b"DEALLOCATE " + self._names.pop(next(iter(self._names))), None)
            self._are_answers.append(False)
        self.pgconn.pipeline_sync()

    def _bound(self, values: Sequence[Any]) -> _Bound:
        dumped = self._adapting.dump_sequence(values, [adapt.PyFormat.AUTO] * len(values))
        return dumped, self._adapting.types or (), self._adapting.formats

    def received(self) -> list[PGresult]:
        """Return what ``together`` does, of what was sent; nothing where nothing was."""
        if self.pgconn.pipeline_status == PipelineStatus.OFF:
            return []
        results = self.wait(_results(self.pgconn))
        failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        if self.pgconn.status == ConnStatus.BAD:
            raise errors.error_from_result(failed) if failed else errors.OperationalError("the connection was lost")
        self.pgconn.exit_pipeline_mode()
        if failed is None:
            self._names |= self._new
        told = ((result if failed is None or result.status in _DONE else failed) for result in results)
        return [result for result, is_answer in zip(told, self._are_answers, strict=True) if is_answer]

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
    """Wait for all results of a pipeline, and take in what comes while there is still something to be sent."""
    results: list[PGresult] = []
    pgconn.consume_input()  # of what was sent long ago all is there
    while pgconn.flush():
        if (yield waiting.WAIT_RW) & waiting.READY_R:
            pgconn.consume_input()
    while pgconn.status == ConnStatus.OK:
        if pgconn.is_busy():
            yield waiting.WAIT_R
            pgconn.consume_input()
        elif (result := pgconn.get_result()) is None:
            continue  # the end of one statement's
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
    """Return rows with their text as it was written."""
    if ESCAPE not in "".join([value for row in read for value in row if value.__class__ is str]):
        return read

    def whole(value: Any) -> Any:
        return _ESCAPED_PAIR.sub(lambda pair: _UNESCAPED[pair[0]], value) if value.__class__ is str else value

    return [tuple(map(whole, row)) for row in read]


class _TextDumper(string.StrDumper):
    """Text, with what PostgreSQL cannot hold as two characters."""

    def dump(self, obj: str) -> Any:
        return super().dump(_escaped(obj))


class _TruthDumper(adapt.Dumper):
    """A truth as SQLite takes it: a number."""

    oid = postgres.types["int8"].oid

    def dump(self, obj: bool) -> bytes:  # noqa: FBT001 - the driver's signature
        return b"1" if obj else b"0"


class _TruthLoader(adapt.Loader):
    """A condition's value as SQLite gives it."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


class _NumberLoader(numeric.NumericLoader):
    """A sum of integers, which PostgreSQL makes exact numbers of."""

    def load(self, data: Any) -> Any:
        number = super().load(data)
        return int(number) if number == number.to_integral_value() else float(number)
