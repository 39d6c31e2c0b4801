"""What a node does about blobs in the background: it drops those that no entry has referred to for a day."""

from __future__ import annotations

import threading
from typing import Final

import structlog

from ledger.log.expiry import drop_unreferenced
from ledger.log.log import Log

interval_s: Final = 600.0

log = structlog.get_logger("baton.blobs")


def drop_now_and_then(entries: Log, stop: threading.Event) -> None:
    """Drop them until ``stop`` is set; each time in short transactions, after which anybody else may write."""
    while not stop.is_set():
        dropped = drop_unreferenced(entries)
        if dropped.blobs:
            log.info("blobs dropped that no entry refers to", blobs=dropped.blobs, size_bytes=dropped.size)
        stop.wait(interval_s)
