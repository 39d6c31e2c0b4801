"""Printing the error of a call that failed, and its exit code."""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from deedbook.consumers.interfaces.cli import guesses
from deedbook.consumers.interfaces.cli.hints import (
    absent_argument_hint,
    absent_options,
    argument_before_text,
    choice_hint,
    option_hint,
    passphrase_line,
    spelled,
    words_hint,
)
from deedbook.consumers.interfaces.cli.printed_commands import commands_in_home, lines_in_home
from deedbook.consumers.interfaces.cli.terminal import discard, echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import ExtraWords
from deedbook.consumers.sdk.text import error_document, json_text
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
from deedbook.ledger.home.environment import wants_traceback
from deedbook.ledger.secrets.scanner import scan

MACHINE_ERRORS: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
argument_shown_max: Final = 80
options_shown_max: Final = 6


def print_failure(error: Exception, arguments: list[str], home: Path | None = None) -> int:
    """Print an error, as JSON if ``arguments`` contain ``--json``, and return the exit code; ``home`` is the --home.

    If DEEDBOOK_TRACEBACK asks for a traceback, an error that is neither a usage error nor a DeedbookError is raised
    again.
    """
    as_json = "--json" in arguments
    if isinstance(error, click.UsageError):
        return print_usage(error, arguments, as_json=as_json)
    if isinstance(error, DeedbookError):
        error.message = lines_in_home(error.message, home)
        commands_in_home(error.details, home)
        if error.code == "BUS_UNAVAILABLE" and "--spool" in arguments:
            error.message += f". Not stored: {guesses.SPOOLED}"
        if "--passphrase-fd" in error.message and "next" not in error.details and not sys.stdin.isatty():
            error.message += f"\n  next: {without_secrets(passphrase_line(arguments), arguments)}"
        return print_error(error, as_json=as_json, meant="" if as_json else command_meant(error, arguments))
    if wants_traceback():
        raise error
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        return print_error(machine_error(error), as_json=as_json)
    message = f"{type(error).__name__}: {error} (run again with DEEDBOOK_TRACEBACK=1, and please report it)"
    return print_error(DeedbookError("UNEXPECTED", message), as_json=as_json)


def give_up_output(error: OSError, exit_code: int) -> int:
    """Return the exit code after standard output failed: its reader has ended, or its disk is full.

    An ``exit_code`` other than 0 says that an error was printed already; then nothing more is printed.
    """
    discard(sys.stdout)
    if isinstance(error, BrokenPipeError) or exit_code != Exit.OK:
        return exit_code
    try:
        return print_error(machine_error(error), as_json=False)
    except OSError:
        discard(sys.stderr)
        return Exit.UNAVAILABLE


def machine_error(error: OSError) -> Unavailable:
    """Return the error of a disk that is full or failing."""
    message = f"{error}: a disk is full or failing. Check what was done before you try again"
    return Unavailable("STORE_UNAVAILABLE", message)


def print_usage(error: click.UsageError, arguments: Sequence[str], *, as_json: bool) -> int:
    """Print the fault of a call, and return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not as_json and error.ctx is not None:
            echo(error.ctx.get_help(), err=True)
            return Exit.USAGE
        error = click.UsageError("a verb is missing", error.ctx)
    hint = "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"
    message = without_secrets(_message_of(error, arguments), arguments)
    return print_error(Refused("USAGE", message + hint), as_json=as_json)


def _message_of(error: click.UsageError, arguments: Sequence[str]) -> str:
    message = error.message.rstrip(".")
    if isinstance(error, click.MissingParameter) and error.ctx is not None and error.param is not None:
        return _absent_message(error.ctx, error.param, arguments)
    if isinstance(error, ExtraWords):
        return f"{message}: {words_hint(error) or _taken_by(error.command)}"
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        name = error.option_name
        if name in guesses.PASSPHRASES:
            return f"{message}: {passphrase_line(arguments)}"
        if any(word.startswith(name) and " " in word.partition("=")[0] for word in arguments):
            return f"{message}: write `--` before a text that begins with a dash"
        hint = option_hint(error.ctx.command, error.ctx.command_path, name, _value_of(name, arguments), arguments)
        return f"{message}: {hint}" if hint else message
    message = error.format_message().rstrip(".")
    if isinstance(error, click.BadOptionUsage) and error.option_name in guesses.PASSPHRASES:
        return f"{message}: {passphrase_line(arguments)}"
    if isinstance(error, click.BadParameter) and error.ctx is not None and isinstance(error.param, click.Option):
        name = error.param.opts[0]
        if name in guesses.PASSPHRASES:
            return f"{message}: {passphrase_line(arguments)}"
        hint = option_hint(error.ctx.command, error.ctx.command_path, name, _value_of(name, arguments), arguments)
        return f"{message}: {hint}" if hint else message
    if isinstance(error, click.BadParameter) and error.ctx is not None and error.param is not None:
        choices = getattr(error.param.type, "choices", None)
        value = error.message.partition(" is not one of ")[0].strip("'")
        return f"{message}{choice_hint(error.ctx.command_path, value, choices)}" if choices else message
    return message


def _absent_message(ctx: click.Context, absent: click.Parameter, arguments: Sequence[str]) -> str:
    """Return the message about a call that lacks ``absent``, or the argument before a text that was read as it."""
    name, ids = spelled(absent, ctx) if isinstance(absent, click.Option) else absent.make_metavar(ctx), ""
    if (before := argument_before_text(ctx, absent)) is not None:
        name, ids = f"{before[0]} before the text", before[1]
    options = [spelled(option, ctx) for option in absent_options(ctx.command, arguments)]
    hint = ids or absent_argument_hint(ctx.command_path)
    return f"`{ctx.command_path}` needs {', '.join(dict.fromkeys([name, *options]))}{hint}"


def _value_of(option: str, arguments: Sequence[str]) -> str:
    """Return the value that ``arguments`` give an option, or an empty text."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return ""


def _taken_by(command: click.Command) -> str:
    """Return a text about the arguments and options that a verb takes."""
    names = [parameter.human_readable_name for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [parameter.opts[-1] for parameter in command.params if isinstance(parameter, click.Option)]
    more = [f"{len(options) - options_shown_max} more"] if len(options) > options_shown_max else []
    return f"it takes {', '.join(names) or 'no argument'}, and options: {', '.join(options[:options_shown_max] + more)}"


def without_secrets(message: str, arguments: Sequence[str]) -> str:
    """Return the message about a wrong call without the secrets in its arguments, and with long arguments cut short.

    Terminals, build logs and transcripts store the printed message.
    """
    for word in sorted(
        {part for argument in arguments for part in (argument, argument.partition("=")[2]) if part},
        key=len,
        reverse=True,
    ):
        replacement = word if len(word) <= argument_shown_max else f"{word[:argument_shown_max]}…"
        if scan(word) is not None:
            replacement = "(not repeated: it looks like a secret)"
        for form in {word, repr(word)[1:-1]}:
            message = message.replace(form, replacement) if replacement != word else message
    # The message may quote an argument in another spelling: cut short, or inside another library's error.
    return message if scan(message) is None else "an argument looks like a secret and is not repeated here"


def command_meant(error: DeedbookError, arguments: Sequence[str]) -> str:
    """Return the call with the only similar name in place of the unknown one; empty if there is no such call."""
    alike, reference = error.details.get("near", ()), error.details.get("reference")
    if error.code != "NOT_FOUND" or len(alike) != 1 or arguments.count(reference) != 1:
        return ""
    command = shlex.join(["deed", *(alike[0] if word == reference else word for word in arguments)])
    return command if without_secrets(command, arguments) == command and command.isprintable() else ""


def print_error(error: DeedbookError, *, as_json: bool, meant: str = "") -> int:
    """Print an error and the command that was ``meant``. Return its exit code, also if nobody reads the output."""
    if as_json:
        try:
            echo_exact(json_text(error_document(error), order="deterministic"))
        except BrokenPipeError:
            discard(sys.stdout)
        return error.exit_code
    echo(f"{error.code}: ", err=True, nl=False, bold=True)
    echo(error.message, err=True)  # the text may come from a server, a git remote or an id
    events = error.details.get("events", [])
    if meant:
        echo(f"  next: {meant}", err=True)
    own = [event for event in events if event["code"] != "DEPENDS_ON_REFUSED"]
    for event in own if len(own) > 1 else []:  # a single one is already in the message
        echo(f"  event {event['position'] + 1}: {event['code']}: {event['message']}", err=True)
    return error.exit_code
