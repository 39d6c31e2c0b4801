"""Signals that end a verb that keeps running."""

from __future__ import annotations

import asyncio
import signal
import threading


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGINT, SIGTERM and SIGHUP set from now on, so that long work ends in its normal way.

    A closed terminal sends SIGHUP only to us. A command that we run has a session of its own, and would continue with
    nobody to end it. Under ``nohup`` we continue, too.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    return stop


def stop_at_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on, in the running event loop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
