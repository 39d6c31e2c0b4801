"""What verbs print for people: tables, lists of fields and pages that stay readable when piped, and a progress bar.

Chinese text is counted as wide. The progress bar goes to stderr, and only on a terminal, so that pipes see nothing.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from consumers.doors.cli.app import App
from consumers.sdk.text import clean, told

if TYPE_CHECKING:
    from ledger.admission.decide import Accepted

VerbT = TypeVar("VerbT", bound="Callable[..., Any]")

key_digits_shown: Final = 16


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as their content; says so when there is none."""
    body = [[" ".join(clean(str(cell)).split("\n")) for cell in row] for row in rows]
    if not body:
        click.echo("(none)")
        return
    widths = [max(map(width, column)) for column in zip(header, *body, strict=True)]
    for number, row in enumerate([list(header), *body]):
        line = "  ".join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)).rstrip()
        click.secho(line, bold=number == 0)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        click.echo(line)


def print_fields(fields: dict[str, Any], indent: str = "") -> None:
    """Print names and values, nested ones indented; what is empty is left out."""
    shown = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    wide = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        if isinstance(value, dict):
            click.echo(f"{indent}{name}")
            print_fields(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            click.echo(f"{indent}{name}")
            for item in value:
                print_fields(item, indent + "  ")
                click.echo()
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            click.echo(f"{indent}{name.ljust(wide)}  {told(text)}")


def width(text: str) -> int:
    """Return the columns that ``text`` takes on a terminal."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def imported_by(mark: dict[str, Any] | None) -> str:
    """Return the mark of what another tool recorded, with two spaces before it; empty for what was not imported."""
    return "" if mark is None else f"  [imported by {clean(mark['importer'])}]"


def suspect_cell(row: dict[str, Any]) -> str:
    """Return the mark of a row that may be the work of a thief; empty for any other."""
    return f"SUSPECT: {row['suspect']}" if "suspect" in row else ""


def short_key(key: str) -> str:
    """Return a key (hex) as texts name it everywhere; verbs take it so, too."""
    return key[:key_digits_shown]


def when(milliseconds: int) -> str:
    """Return a time of the ledger's clock, in UTC to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def show_page(app: App, kind: str, answer: dict[str, Any], text: Callable[[], None], *, cursor: str = "cursor") -> None:
    """Print a page by ``text``, and the command that goes on with ``answer["next"]`` (None: this page is the last)."""
    following = next_page(answer["next"], cursor)

    def with_following() -> None:
        text()
        if following is not None:
            total = answer.get("total", answer.get("total_found"))
            click.echo(f"{'' if total is None else f'{total} in all; '}go on with: {clean(following)}")

    app.show(kind, answer, with_following, following=following)


def next_page(value: object, cursor: str = "cursor") -> str | None:
    """Return the command line of this run with another cursor, ready to be pasted into a shell; None for no cursor."""
    if value is None:
        return None
    from shlex import join  # noqa: PLC0415 - only lists with a further page need it

    context = click.get_current_context()
    asked, agent = context.params | {cursor: value}, context.ensure_object(App).agent
    arguments: list[str] = []
    options = [] if agent is None else ["--as", agent]
    for parameter in context.command.params:
        given = asked.get(parameter.name or "")
        values = [one for one in (given if isinstance(given, tuple) else (given,)) if one not in (None, "")]
        if isinstance(parameter, click.Argument):
            arguments += map(str, values)
        elif given is True or (given is False and parameter.secondary_opts):
            options.append((parameter.opts if given else parameter.secondary_opts)[0])
        elif given is not False:
            options += [word for one in values for word in (parameter.opts[0], str(one))]
    is_plain = not any(argument.startswith("-") for argument in arguments)
    words = [*arguments, *options] if is_plain else [*options, "--", *arguments]
    return join([*context.command_path.split(), *words])


@contextlib.contextmanager
def progress(what: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function ``step(done, total)`` that long work calls now and then."""
    if not shown or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs several bare Python starts
    from rich.progress import Progress  # noqa: PLC0415 - see above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def page_options(default: int = 50, rows_max: int = 500) -> Callable[[VerbT], VerbT]:
    """Return what adds ``--limit`` and ``--cursor`` to a verb that lists."""

    def decorate(verb: VerbT) -> VerbT:
        limit = click.option("--limit", type=click.IntRange(1, rows_max), default=default, show_default=True)
        return limit(click.option("--cursor", type=int, help="Go on where an earlier page ended.")(verb))

    return decorate


def configure_logging(*, verbose: bool) -> None:
    """Log to stderr: lines for a terminal, JSON otherwise."""
    import logging  # noqa: PLC0415 - only verbs that run for long log

    import structlog  # noqa: PLC0415 - as above

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


def fields_of(accepted: Accepted) -> dict[str, Any]:
    """Return what the ledger answered for one event, with names."""
    return {name: getattr(accepted, name) for name in accepted.__struct_fields__}


def print_accepted(accepted: list[Accepted]) -> None:
    """Print what the ledger answered."""
    for one in accepted:
        click.echo(f"{one.index}  {one.id}{'  (was there already)' if one.is_repeat else ''}")


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
