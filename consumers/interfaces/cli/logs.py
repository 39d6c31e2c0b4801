"""Logs of verbs that keep running."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(*, verbose: bool) -> None:
    """Log to stderr: lines for a terminal, JSON otherwise."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if verbose else logging.WARNING),
        # Looked up each time: whoever replaces sys.stderr must not leave a closed one behind.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
