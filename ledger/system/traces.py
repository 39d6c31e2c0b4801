"""Spans of work, for a program that records them with OpenTelemetry (``consumers.interfaces.node.telemetry``).

Until ``use`` is called, a call here costs a few microseconds and records nothing. Other threads refer to a span by its
``traceparent`` (W3C Trace Context), and so do other machines, which receive it in a header.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Final, Protocol

from deedbook.ledger.errors import DeedbookError, Refused

HEADER: Final = "traceparent"
entries_remembered_max: Final = 10_000

Attributes = dict[str, str | int]

current: Final = ContextVar("traceparent", default="")
"""The span in which this code runs; empty: none."""


class Recorder(Protocol):
    """Records spans."""

    def begin(
        self, name: str, parent: str, began_ns: int, *, is_request: bool
    ) -> tuple[str, Callable[[Attributes], None]]:
        """Begin a span; return its ``traceparent``, and the function that ends it."""


class _State:
    recorder: Recorder | None = None
    spans_of_entries: Final = dict[int, str]()


def use(recorder: Recorder | None) -> None:
    """Record spans with this recorder from now on; with None, stop recording."""
    _State.recorder = recorder
    _State.spans_of_entries.clear()


@contextlib.contextmanager
def span(name: str, headers: Mapping[str, str] | None = None, **attributes: str | int) -> Iterator[Attributes]:
    """Record the work in the block, which may add attributes. With ``headers`` it is a request of another program."""
    if (recorder := _State.recorder) is None:
        yield attributes
        return
    parent = current.get() if headers is None else headers.get(HEADER, "")
    traceparent, end = recorder.begin(name, parent, time.time_ns(), is_request=headers is not None)
    token = current.set(traceparent)
    try:
        yield attributes
    except Exception as error:
        note(attributes, error)
        raise
    finally:
        current.reset(token)
        end(attributes)


def note(attributes: Attributes, error: Exception) -> None:
    """Add the code of an error. A refusal is no error of the server."""
    code = error.code if isinstance(error, DeedbookError) else type(error).__name__
    attributes["refusal" if isinstance(error, Refused) else "error.type"] = code


def record(name: str, began_s: float, parents: Iterable[str], **attributes: str | int) -> None:
    """Record work that began at ``began_s`` (``time.perf_counter``) and ends now, in each span that waited for it."""
    if (recorder := _State.recorder) is not None:
        began_ns = time.time_ns() - int((time.perf_counter() - began_s) * 1e9)
        for parent in parents:
            recorder.begin(name, parent, began_ns, is_request=False)[1](attributes)


def remember(index: int, traceparent: str) -> None:
    """Remember in which span an entry was appended, until it is published."""
    if traceparent:
        _State.spans_of_entries[index] = traceparent
        if len(_State.spans_of_entries) > entries_remembered_max:
            _State.spans_of_entries.pop(next(iter(_State.spans_of_entries)))


def recall(indexes: Iterable[int]) -> set[str]:
    """Return the spans in which these entries were appended, and forget them."""
    return {_State.spans_of_entries.pop(index, "") for index in indexes} if _State.recorder else set()


def caller() -> dict[str, str]:
    """Return the headers that name the span of the caller: its present one, or the one in which the program started.

    Only a program that uses OpenTelemetry has imported it: nothing is imported for others.
    """
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.propagate import inject  # noqa: PLC0415 - extra `otel`

        headers: dict[str, str] = {}
        inject(headers)
        if HEADER in headers:
            return {HEADER: headers[HEADER]}
    return {HEADER: text} if (text := os.environ.get("TRACEPARENT")) else {}
