"""Logs of verbs that keep running: one level for all, on standard error, as lines for a terminal and as JSON otherwise.

Messages of libraries are in the same form. They begin at ``warning`` at every level: at ``info`` some name each address
that they call, and the address of a webhook can be its secret.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

Command = TypeVar("Command", bound=Callable[..., Any])

LEVELS: Final = ("debug", "info", "warning", "error")


def logs(verb: Command) -> Command:
    """Give a verb the option of the level, which configures the logs before the verb runs."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="warning",
        show_default=True,
        envvar="DEEDBOOK_LOG_LEVEL",
        expose_value=False,
        callback=lambda _context, _option, level: configure_logging(level),
        help="Log to standard error from this level on; also DEEDBOOK_LOG_LEVEL. `info` has successful work, too.",
    )(verb)


def configure_logging(level: str = "warning") -> None:
    """Log from ``level`` on."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    after: list[Processor] = [structlog.processors.format_exc_info, renderer]
    structlog.configure(
        processors=[*before, *after],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        # Look up sys.stderr each time: after somebody replaces it, the old one may be closed.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    handler = _Handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *after],
            foreign_pre_chain=[*before, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("deedbook").setLevel(threshold)


class _Handler(logging.Handler):
    """Writes each record to the stream that ``sys.stderr`` is at that time."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")
