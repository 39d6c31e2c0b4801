"""Standard input for the server: lines of bounded length, each answered, until the client or a signal ends it.

The SDK reads in a thread that nothing can interrupt. So this module gives it a pipe and fills the pipe from the real
input; on a signal the pipe ends as if the client had closed it. If a line is too long, its end is dropped. The SDK
silently drops invalid lines, and their senders would wait for ever. This module answers such lines with an error that
has the id of the request, or null if the id is unknown (JSON-RPC 2.0, "Response object"). A line can be JSON and still
invalid: with half of a surrogate pair, which some clients write, or with a fraction as id. The id is taken only from
the top level of a request, because a nested id could belong to another request that is still to be answered.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import re
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final, Self

import anyio
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from deedbook.consumers.interfaces.mcp.answers import error_dict
from deedbook.ledger.errors import Refused

line_size_max_bytes: Final = 4 * 1024**2
_chunk_bytes: Final = 64 * 1024
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
id_max_chars: Final = 200
_BEGINNING: Final = re.compile(
    r'\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*"id"\s*:\s*(-?[0-9]{1,15}|"[^"\\]{1,200}")\s*[,}]'
)
"""Matches the beginning of an unreadable line whose id comes before any nested value."""


@contextlib.contextmanager
def stoppable_input() -> Iterator[None]:
    """Replace standard input by a pipe that ends with the real input, or at SIGINT or SIGTERM."""
    real = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    stopped, stop = os.pipe()
    filling = threading.Thread(target=_fill, args=(real, stopped, writing), name="deedbook-stdin", daemon=True)
    handlers = {number: signal.signal(number, lambda *_: os.write(stop, b".")) for number in _SIGNALS}
    filling.start()
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.write(stop, b".")
        filling.join()
        os.dup2(real, 0)
        for descriptor in (real, stopped, stop):
            os.close(descriptor)


def _fill(real: int, stopped: int, writing: int) -> None:
    """Copy ``real`` to the pipe until it ends or ``stopped`` is readable, then close the pipe."""
    length = 0
    try:
        while True:
            ready, _, _ = select.select([real, stopped], [], [])
            if stopped in ready or not (chunk := os.read(real, _chunk_bytes)):
                return
            data, length = bounded(chunk, length)
            while data:
                data = data[os.write(writing, data) :]
    except OSError:
        return  # the reader has closed the pipe
    finally:
        os.close(writing)


def bounded(chunk: bytes, length: int) -> tuple[bytes, int]:
    """Return a chunk without bytes beyond ``line_size_max_bytes`` of their line, and the length of its last line.

    ``length`` is the length of the first line so far.
    """
    parts = []
    for number, part in enumerate(chunk.split(b"\n")):
        if number:
            parts.append(b"\n")
            length = 0
        parts.append(part[: max(0, line_size_max_bytes - length)])
        length += len(part)
    return b"".join(parts), length


class Answering:
    """The SDK's stream of messages without invalid lines. This class answers those."""

    def __init__(self, reading: ReadStream[SessionMessage | Exception], writing: WriteStream[SessionMessage]) -> None:
        self._reading = reading
        self._writing = writing

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the last message's sender, which the SDK restores."""
        return getattr(self._reading, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        while isinstance(item := await self._reading.receive(), Exception):
            if (answer := answer_to(item)) is not None:
                await self._writing.send(SessionMessage(answer))
        return item

    async def aclose(self) -> None:  # noqa: D102 - the SDK's
        await self._reading.aclose()

    def __aiter__(self) -> Answering:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def answer_to(failure: Exception) -> JSONRPCError | None:
    """Return the answer to a line that the SDK could not read as a message; None for an empty line."""
    if not isinstance(failure, ValidationError):
        return None
    problems = failure.errors(include_url=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        line = str(problems[0]["input"])
        return _unparsed(line) if line.strip() else None
    # If a message lacks a field, the input is the whole message; no message is both a request and an answer.
    whole = next(
        (problem["input"] for problem in problems if problem["type"] == "missing" and len(problem["loc"]) == 2), None
    )
    return _refusal(INVALID_REQUEST, id_of(whole), Refused("INVALID_FORMAT", "this line is not a JSON-RPC 2.0 request"))


def _unparsed(line: str) -> JSONRPCError:
    if len(line.encode("utf-8", "surrogatepass")) >= line_size_max_bytes:
        refused = Refused("TOO_LARGE", f"a line may have at most {line_size_max_bytes} bytes: split the request")
    else:
        refused = Refused("INVALID_FORMAT", "this line is not valid JSON, or contains invalid Unicode")
    try:
        name = id_of(json.loads(line))
    except (ValueError, RecursionError):
        match = _BEGINNING.match(line)
        name = None if match is None else json.loads(match[1])
    return _refusal(PARSE_ERROR, name, refused)


def id_of(message: Any) -> int | str | None:
    """Return the id of an otherwise invalid request; None if it has no valid id."""
    name = message.get("id") if isinstance(message, dict) and isinstance(message.get("method"), str) else None
    if isinstance(name, str) and len(name) <= id_max_chars and name.isprintable():
        return name
    return name if isinstance(name, int) and not isinstance(name, bool) else None


def _refusal(code: int, name: int | str | None, refused: Refused) -> JSONRPCError:
    error = ErrorData(code=code, message=refused.message, data=error_dict(refused))
    return JSONRPCError(jsonrpc="2.0", id=name, error=error)
