"""Printing for people: tables, lists of fields and pages, on terminals and in pipes.

On a terminal, lists fit its width, cut texts end in an ellipsis, and states have a colour. In a pipe, the columns are
always the same and hold their whole text. A command for pasting is never cut: it continues after a backslash. Width is
counted in cells, not characters: a Chinese character takes two, an accent none. The progress bar is printed on stderr,
and only on a terminal, so pipes do not contain it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, takewhile
from shlex import join
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli.printed_commands import in_home
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp
from deedbook.consumers.interfaces.cli.terminal import echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import Options
from deedbook.consumers.sdk.text import quote_text, sanitize_line, sanitize_text
from deedbook.consumers.sdk.times import parse_since, parse_until
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.home.environment import environment_variable
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.lifecycle.rules import NONE, rules_of
from deedbook.projections.answers.answer import UNDATED_MS

if TYPE_CHECKING:
    from deedbook.consumers.handoffs.operations import NextCommand
    from deedbook.ledger.admission.decide import Accepted

VerbT = TypeVar("VerbT", bound="Callable[..., Any]")

key_digits_shown: Final = 16
rows_max: Final = 500
cut_cells_min: Final = 15
"""The narrowest width of a cut column, with its gap; a narrower one is left out."""
gap: Final = "  "
depth_drawn_max: Final = 16
screen_cells_default: Final = 80
_COLOURS: Final = {
    "approved": "cyan",
    "blocked": "red",
    "rejected": "red",
    "verified": "green",
    "missing": "red",
    "open": "cyan",
    "active": "cyan",
    "concluded": "green",
    "valid": "green",
    "expired": "yellow",
    "revoked": "red",
    "searching": "blue",
    "solved": "green",
    "failed": "red",
    "unverified": "yellow",
}
_STAGES: Final = {"waiting": "yellow", "working": "blue", "completed": "green"}
_STATE: Final = r"\[([a-z_]+)( →[^\]…]*)?[\]…]"
_WORDS: Final = r"""(?:'[^']*'|"[^"]*"|[^ '"])+"""  # words as `shlex.join` quotes them
_match_whole: Final = functools.partial(re.fullmatch, r"[0-9a-f.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:]{8}Z)?")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as their content, or as the terminal allows; without rows, print that.

    On a terminal, empty columns are left out, and columns at the right that have no room. A last line names the latter.
    """
    body = [[" ".join(sanitize_text(str(cell)).split("\n")) for cell in row] for row in rows]
    if not body:
        echo("(none)")
        return
    columns = [[name, *cells] for name, *cells in zip(header, *body, strict=True)]
    widths, cells_max = [max(map(width, column)) for column in columns], terminal_cells()
    unseen: list[str] = []
    if cells_max is not None:
        columns = [column for column in columns if any(column[1:])]
        widths, unseen = _fitted(columns, cells_max)
        columns = columns[: len(widths)]
    names, *rows = zip(*columns, strict=True)
    echo(gap.join(padded(name, wide) for name, wide in zip(names, widths, strict=True)).rstrip(), bold=True)
    for row in rows:
        cells = [padded(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        cells[-1] = cells[-1].rstrip()
        for at, name in enumerate(names):
            cells[at] = _coloured(cells[at], row[at] if name in ("status", "state") else "")
        echo_exact(gap.join(cells).rstrip())
    if unseen:
        print_lines(f"not shown, because the terminal is too narrow: {', '.join(unseen)}")


def _fitted(columns: list[list[str]], cells_max: int) -> tuple[list[int], list[str]]:
    """Return the widths of the columns that fit into a line, and the names of those that do not.

    The first column names the subject of a row and is shortened last. Numbers, times and keys are never cut, because a
    part of them is useless.
    """
    room = cells_max + len(gap)
    wanted = [min(max(map(width, column)), cells_max) + len(gap) for column in columns]
    least = [
        min(wide, room // 2 if at == 0 else wide if all(map(_match_whole, column[1:])) else cut_cells_min)
        for at, (wide, column) in enumerate(zip(wanted, columns, strict=True))
    ]
    count = len(columns)
    while count > 1 and sum(least[:count]) > room:
        count -= 1
    widths = wanted[:count]
    while sum(widths) > room and (longer := [at for at in range(count) if widths[at] > least[at]]):
        widths[max(longer, key=lambda at: widths[at])] -= 1
    return [wide - len(gap) for wide in widths], [name for name, *_ in columns[count:]]


def terminal_cells() -> int | None:
    """Return the width of the terminal that gets the output; None if it is no terminal."""
    if not sys.stdout.isatty():
        return None

    return screen_cells()


def screen_cells() -> int:
    """Return the width of the terminal: from COLUMNS, else from the terminal itself, else 80."""
    columns = environment_variable("COLUMNS") or ""
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or screen_cells_default
    except (OSError, ValueError):
        return screen_cells_default


def print_lines(*lines: str) -> None:
    """Print lines of a list, cut to the terminal's width."""
    cells = terminal_cells()
    for line in map(sanitize_text, lines):
        echo_exact(_coloured(line if cells is None else cut(line, cells)))


def stems(depths: Sequence[int], *, goes_on: bool = False) -> list[str]:
    """Return the prefix of each line of a tree: its branches, and those that continue below the line."""
    drawn = []
    # for each depth: whether another line of this depth follows before a shallower one
    follows = [goes_on] * (max(depths, default=0) + 2)
    for depth in reversed(depths):
        stem = "".join("│  " if follows[level] else "   " for level in range(1, depth))
        if depth > depth_drawn_max:  # hundreds of branch lines would leave no room for the text
            stem = f"⋯ {depth} deep "
        drawn.append(stem + ("" if depth == 0 else "├─ " if follows[depth] else "└─ "))
        follows[depth] = True
        follows[depth + 1 :] = [False] * len(follows[depth + 1 :])
    return drawn[::-1]


def print_command(command: str, before: str = "") -> None:
    """Print a command for pasting, as ``in_home``. If it is wider than the terminal, it is broken with backslashes."""
    context = click.get_current_context(silent=True)
    options = context.find_object(Options) if context is not None else None
    command = in_home(command, options.home if options is not None else None)
    cells, (first, *arguments) = terminal_cells(), re.findall(_WORDS, command)
    line = before + first
    for word in arguments:
        if cells is not None and width(line) + width(word) + len(" " + " \\") > cells:
            echo(f"{line} \\")
            line = " " * (len(before) - len(before.lstrip()) + len(gap)) + word
        else:
            line += f" {word}"
    echo(line)


def print_next(following: Iterable[NextCommand], acting: str | None) -> None:
    """Print the next commands. For commands of agents other than the ``acting`` one, name the agent."""
    for step in following:
        print_command(step.command, step.led_by(acting))


def cut(text: str, cells: int) -> str:
    """Return as much of a text as fits, with an ellipsis if something was cut."""
    return text if width(text) <= cells else fitting(text, cells - 1).rstrip() + "…"


def fitting(text: str, cells: int) -> str:
    """Return as many of a text's characters as fit."""
    room = accumulate(map(width, text))
    return text[: sum(1 for _ in takewhile(cells.__ge__, room))]


def padded(text: str, cells: int) -> str:
    """Return a text that takes exactly this many cells: cut, or filled up with spaces."""
    text = cut(text, cells)
    return text + " " * (cells - width(text))


def _coloured(text: str, status: str = "") -> str:
    """Return a text in the colour of a state. A ``[status → receiver]`` in it gets its own colour."""
    if status and (colour := colour_of(status)) is not None:
        return click.style(text, fg=colour)
    return re.sub(_STATE, _coloured_state, text) if "[" in text else text


def _coloured_state(state: re.Match[str]) -> str:
    colour = colour_of(state[1])
    return state[0] if colour is None else click.style(state[0], fg=colour)


def colour_of(state: str) -> str | None:
    """Return the colour of a state: its own, or that of a handoff's stage; None for any other word."""
    if state in _COLOURS:
        return _COLOURS[state]
    status = rules_of("handoff").states.get(state)
    return None if status is None or state == NONE else _STAGES.get(status.stage or "", "bright_black")


def print_fields(fields: dict[str, Any], indent: str = "") -> None:
    """Print names and values, with nested ones indented; empty values are left out."""
    present = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    wide = max((len(name) for name in present), default=0)
    for name, value in present.items():
        if isinstance(value, dict):
            echo(f"{indent}{name}")
            print_fields(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            echo(f"{indent}{name}")
            for item in value:
                print_fields(item, indent + "  ")
                echo()
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            if name.endswith("_ms") and isinstance(value, int):
                text = f"{value} ({when(value)})"
            echo(f"{indent}{name.ljust(wide)}  {quote_text(text)}")


def width(text: str) -> int:
    """Return the columns that ``text`` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(sign: str) -> int:
    if sign < "\N{COMBINING GRAVE ACCENT}" or sign == "→":
        return 1

    # The emoji selector widens the character before it; any other mark is drawn over that character.
    if sign != "\N{VARIATION SELECTOR-16}" and unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def imported_by(mark: dict[str, Any] | None) -> str:
    """Return the mark of a record that another tool made, after two spaces; empty if it was not imported."""
    return "" if mark is None else f"  [imported by {mark['importer']}]"


def marks_cell(row: dict[str, Any]) -> str:
    """Return the marks of a row that a stolen key may have signed, or whose texts are erased; else an empty text."""
    marks = [f"COMPROMISED: {row['compromised']}"] if "compromised" in row else []
    return " ".join([*marks, f"REDACTED: {row['redacted']['redaction']}"] if "redacted" in row else marks)


def short_key(key: str) -> str:
    """Return a key (hex) in the short form that all texts use; verbs accept it, too."""
    return key[:key_digits_shown]


def corrected(done: dict[str, Any]) -> str:
    """Return a text about the correction of an event: retracted or resolved, when, by whom and why."""
    by = f"{when(done['happened_ms'])} by {done['author']}"
    return f"{done['kind'].partition('.')[2]} {by}: {sanitize_line(done['words'])}"


def when(milliseconds: int) -> str:
    """Return a time of the ledger's clock, in UTC to the second; an imported record may be undated."""
    if milliseconds == UNDATED_MS:
        return "undated"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def show_page(
    app: ReadingApp, kind: str, answer: dict[str, Any], text: Callable[[], None], *, cursor: str = "after"
) -> None:
    """Print a page by ``text``, and the command for the next page, unless ``answer["next"]`` is None."""
    following, total = next_page(answer["next"], cursor), answer.get("total", answer.get("total_found"))
    app.show(kind, answer, text, following=following)
    if following is not None and not app.as_json:
        print_command(following, f"{'' if total is None else f'{total} in all; '}continue with: ")
    elif following is not None and _is_limit_default():  # a program may take this page for the whole list
        of = "there are more rows" if total is None else f"a page of {total} rows"
        echo(f"{of}; continue with: {following} --json", err=True)
    if total == 0:
        for hint in _unknown_names(app, click.get_current_context().params):
            echo(hint, err=True)


def _is_limit_default() -> bool:
    """Return whether the caller gave no --limit, and so may take a page for the whole list."""
    return click.get_current_context().get_parameter_source("limit") is click.core.ParameterSource.DEFAULT


def list_page(
    app: ReadingApp,
    query: str,
    arguments: dict[str, Any],
    cells: Callable[[dict[str, Any]], dict[str, object]],
) -> None:
    """Print a page of a query's rows as a table; ``cells`` returns the values of a row by column name."""
    answer = app.query(query, **arguments)
    rows = [cells(row) for row in answer["items"]]
    show_page(app, query, answer, lambda: print_table([*rows[0]] if rows else (), [[*row.values()] for row in rows]))


def _unknown_names(app: ReadingApp, arguments: dict[str, Any]) -> Iterator[str]:
    """Yield a hint for each unknown agent or stream in the filters of an empty list, with similar names."""
    if wanted := [
        arguments[of] for of in ("agent", "author", "to", "sender", "reviewer", "importer") if arguments.get(of)
    ]:
        names = {agent["name"] for agent in app.query("agents.list", all=True)["agents"]}
        yield from (
            f"there is no agent {name}{did_you_mean(near(name, names))}" for name in wanted if name not in names
        )
    if (stream := arguments.get("stream")) is not None:
        whole = _streams_like(app, stream)
        if whole != [stream]:
            form = "" if "/" in stream or whole else f": a stream is TYPE/ID, such as {stream}/ID"
            yield f"there is no stream {stream}{did_you_mean(whole) or form}"


def _streams_like(app: ReadingApp, stream: str) -> Sequence[str]:
    """Return the streams that a name may mean: the stream of this name, or similar ones."""
    try:
        return [app.query("resolve", id=stream)["stream"]]
    except Refused as refusal:
        alike: Sequence[str] = refusal.details.get("near") or refusal.details.get("candidates", ())
        return alike


@contextlib.contextmanager
def naming_near_streams(app: ReadingApp, stream: str | None) -> Iterator[None]:
    """Add similar streams to the block's refusal of ``stream``, which only the log was searched for."""
    try:
        yield
    except Refused as refusal:
        if stream is None or (refusal.code, refusal.details.get("stream")) != ("NOT_FOUND", stream):
            raise
        alike = _streams_like(app, stream)
        advice = did_you_mean(alike) or ": `deed log` prints the stream of each event"
        raise Refused("NOT_FOUND", f"{refusal.message}{advice}", stream=stream, near=alike) from refusal


def warn(warnings: Iterable[str]) -> None:
    """Print warnings about the operation on stderr, where they do not mix with the answer."""
    for warning in warnings:
        echo(f"warning: {warning}", err=True)


_TIMES: Final = ("since", "until")


def next_page(value: object, cursor: str = "after") -> str | None:
    """Return the command line of this run with another cursor, ready to be pasted into a shell; None for no cursor."""
    if value is None:
        return None

    context = click.get_current_context()
    parameters, agent = context.params | {cursor: value}, context.ensure_object(Options).agent
    arguments: list[str] = []
    options = [] if agent is None else ["--as", agent]
    for parameter in context.command.params:
        setting = parameters.get(parameter.name or "")
        if parameter.name in _TIMES and isinstance(setting, int):
            setting = clock_text(setting)  # as ``parse_since`` reads it
        values = [item for item in (setting if isinstance(setting, tuple) else (setting,)) if item not in (None, "")]
        if isinstance(parameter, click.Argument):
            arguments += map(str, values)
        elif setting is True or (setting is False and parameter.secondary_opts):
            options.append((parameter.opts if setting else parameter.secondary_opts)[0])
        elif setting is not False:
            options += [word for item in values for word in (parameter.opts[0], str(item))]
    is_plain = not any(argument.startswith("-") for argument in arguments)
    parts = [*arguments, *options] if is_plain else [*options, "--", *arguments]
    return join([*context.command_path.split(), *parts])


def since_option(what: str) -> Callable[[VerbT], VerbT]:
    """Return the option ``--since``, which is Unix milliseconds to the command."""
    help_ = f'{what}: a date or time (UTC), or a text such as "7 days ago".'
    return click.option("--since", metavar="TIME", callback=_since_ms, help=help_)


def _since_ms(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_since(text, datetime.now(UTC))


def _until_ms(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_until(text, datetime.now(UTC))


def period_options(what: str) -> Callable[[VerbT], VerbT]:
    """Return a decorator that adds ``--since`` and ``--until`` to a verb; ``what`` begins the help of ``--since``."""
    help_ = 'The end of the period: "2025-11-01" and "yesterday" mean the end of the day.'
    until = click.option("--until", metavar="TIME", callback=_until_ms, help=help_)
    return lambda verb: since_option(what)(until(verb))


def route_options(verb: VerbT) -> VerbT:
    """Add ``--tag`` and ``--domain`` to a verb."""
    tag = click.option("--tag", metavar="TAG", help="Only reasonings with this tag, and work that cites them.")
    domain = click.option("--domain", metavar="NAME", help="Only reasonings of this domain, and work that cites them.")
    return tag(domain(verb))


def limit_option(default: int = 50, what: str = "Rows of a page.") -> Callable[[VerbT], VerbT]:
    """Return the option ``--limit`` of a verb that lists."""
    return click.option("--limit", type=click.IntRange(1, rows_max), default=default, show_default=True, help=what)


def page_options(default: int = 50) -> Callable[[VerbT], VerbT]:
    """Return a decorator that adds ``--limit`` and ``--after`` to a verb that lists."""
    after = click.option("--after", type=int, help="Continue after an earlier page.")
    return lambda verb: limit_option(default, "Rows.")(after(verb))


ai_id_option: Final = click.option(
    "--ai-id", metavar="LABEL", help="Only records of the agent with this label (default: all agents)."
)
reason_option: Final = click.option("--reason", default="no reason given", show_default=True, help="Why.")


def accepted_line(accepted: Accepted) -> str:
    """Return the ledger's answer for one event as a line."""
    return f"{accepted.index}  {accepted.id}{'  (was there already)' if accepted.is_repeat else ''}"


def show_accepted(app: ReadingApp, accepted: list[Accepted]) -> None:
    """Print the ledger's answer."""
    app.show("accepted", {"accepted": [asdict(entry) for entry in accepted]}, map(accepted_line, accepted))
