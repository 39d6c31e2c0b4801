"""Standard input as the server reads it: lines of bounded length, ended by the client or by a signal.

The SDK reads from a thread that nothing can interrupt. So it is given a pipe, which this module fills from the real
input: on a signal the pipe ends as if the client had closed it, and a server that is told to stop ends along the path
that it always ends on. Of a line that is too long the rest is dropped; it is answered as one (``unreadable``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

line_size_max_bytes: Final = 4 * 1024**2
_chunk_bytes: Final = 64 * 1024
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stoppable_input() -> Iterator[None]:
    """Put a pipe in the place of standard input, which ends with the real one, or at SIGINT or SIGTERM."""
    real = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    stopped, stop = os.pipe()
    filling = threading.Thread(target=_fill, args=(real, stopped, writing), name="baton-stdin", daemon=True)
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
