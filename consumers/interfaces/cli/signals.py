"""Signals that end a verb which keeps running."""

from __future__ import annotations

import asyncio
import signal
import threading


def stopped_by_signals() -> threading.Event:
    """Return what SIGINT, SIGTERM and SIGHUP set from now on, so that long work ends along its own path.

    A terminal that is closed sends SIGHUP to us alone: a command that we run is in a session of its own, and would go
    on without anybody who ends it. Under ``nohup`` we go on, too.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    return stop


def stop_at_signals() -> asyncio.Event:
    """Return what SIGINT and SIGTERM set from now on, in the event loop that runs."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
