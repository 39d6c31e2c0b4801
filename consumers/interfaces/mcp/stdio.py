"""Standard input as the server reads it: lines of bounded length, each answered, ended by the client or by a signal.

The SDK reads from a thread that nothing can interrupt. So it is given a pipe, which this module fills from the real
input: on a signal the pipe ends as if the client had closed it. Of a line that is too long the rest is dropped.

The SDK also drops a line that is no message without a word, and its sender would wait for ever. JSON-RPC 2.0, "Response
object": an error with the id of the request, or null where that cannot be told. A line is JSON and yet no message if it
holds half of a surrogate pair, which some clients write, or an id that is a fraction. An id is taken only from a
request's own level: another one could be that of a request which is still to be answered.
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
"""A line that cannot be read to its end, if its id stands before everything that is nested."""


@contextlib.contextmanager
def stoppable_input() -> Iterator[None]:
    """Put a pipe in the place of standard input, which ends with the real one, or at SIGINT or SIGTERM."""
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
    """Pass on what comes from ``real`` until it ends or ``stopped`` can be read, then end the pipe."""
    length = 0
    try:
        while True:
            ready, _, _ = select.select([real, stopped], [], [])
            if stopped in ready or not (chunk := os.read(real, _chunk_bytes)):
                return
            kept, length = bounded(chunk, length)
            while kept:
                kept = kept[os.write(writing, kept) :]
    except OSError:
        return  # whoever read the pipe has gone: there is nobody to pass anything on to
    finally:
        os.close(writing)


def bounded(chunk: bytes, length: int) -> tuple[bytes, int]:
    """Return what of a chunk lies within ``line_size_max_bytes`` of its line, and how long the last line is now.

    ``length`` is how much of the first line came before.
    """
    kept = []
    for number, part in enumerate(chunk.split(b"\n")):
        if number:
            kept.append(b"\n")
            length = 0
        kept.append(part[: max(0, line_size_max_bytes - length)])
        length += len(part)
    return b"".join(kept), length


class Answering:
    """The SDK's stream of messages, from which each line that is none was answered and taken out."""

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
    found = failure.errors(include_url=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        line = str(found[0]["input"])
        return _unparsed(line) if line.strip() else None
    # Of a message that lacks something, the whole of it is the input; and none is a request and an answer at once.
    whole = next((one["input"] for one in found if one["type"] == "missing" and len(one["loc"]) == 2), None)
    return _refusal(INVALID_REQUEST, id_of(whole), Refused("INVALID_FORMAT", "this line is no JSON-RPC 2.0 request"))


def _unparsed(line: str) -> JSONRPCError:
    if len(line.encode("utf-8", "surrogatepass")) >= line_size_max_bytes:
        refused = Refused("TOO_LARGE", f"a line has at most {line_size_max_bytes} bytes: send less at once")
    else:
        refused = Refused("INVALID_FORMAT", "this line is no JSON, or its texts are not Unicode")
    try:
        name = id_of(json.loads(line))
    except (ValueError, RecursionError):
        begun = _BEGINNING.match(line)
        name = None if begun is None else json.loads(begun[1])
    return _refusal(PARSE_ERROR, name, refused)


def id_of(message: Any) -> int | str | None:
    """Return the id of a request that is wrong in something else; None where there is none that can be answered."""
    name = message.get("id") if isinstance(message, dict) and isinstance(message.get("method"), str) else None
    if isinstance(name, str) and len(name) <= id_max_chars and name.isprintable():
        return name
    return name if isinstance(name, int) and not isinstance(name, bool) else None


def _refusal(code: int, name: int | str | None, refused: Refused) -> JSONRPCError:
    error = ErrorData(code=code, message=refused.message, data=error_dict(refused))
    return JSONRPCError(jsonrpc="2.0", id=name, error=error)
