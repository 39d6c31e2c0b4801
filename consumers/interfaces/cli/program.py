"""The command line: its verbs, imported only when they are called, and the entry point.

A start should cost little more than a start of Python: the help of a group is printed from its table, without importing
any command. The entry point prints an error in the form that was asked for and exits with its code.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.sdk.text import error_document, sanitize_text
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable, did_you_mean, near
from deedbook.ledger.home.settings import wants_colour, wants_traceback
from deedbook.ledger.secrets.scanner import scan

help_width_max: Final = 150
collected_every: Final = 20_000
"""So many objects more, and garbage is looked for: after Python's 700, a fourteenth of a short verb goes into that."""


class Lazy(msgspec.Struct, frozen=True):
    """A command: ``module:attribute`` under ``cli.commands``, and its one line of help."""

    target: str
    help: str


_COMMON: Final[dict[str, dict[str, Any]]] = {
    "home": {
        "param_decls": ["--home"],
        "type": click.Path(path_type=Path, file_okay=False),
        "help": "The ledger's folder itself (default: .deedbook of the nearest parent, or DEEDBOOK_HOME).",
    },
    "server": {
        "param_decls": ["--server"],
        "metavar": "URL",
        "help": "Ask these nodes of a ledger (or DEEDBOOK_SERVER).",
    },
    "agent": {"param_decls": ["--as"], "metavar": "NAME", "help": "The agent who acts (or DEEDBOOK_AGENT)."},
    "passphrase_fd": {
        "param_decls": ["--passphrase-fd"],
        "type": click.IntRange(0),
        "help": "Read the passphrase of a sealed key from this file descriptor.",
    },
    "spool": {"param_decls": ["--spool"], "is_flag": True, "help": "Keep reports while no server answers (exit 7)."},
    "as_json": {"param_decls": ["--json", "json_"], "is_flag": True, "help": "Print one JSON document."},
    "as_of": {"param_decls": ["--as-of"], "metavar": "INDEX|TIME", "help": "As it was after this entry, or then."},
}
"""The options that stand before or after any verb, by the attribute of the ``App`` that keeps what is given."""


class _Common(click.Option):
    """An option of every verb: one line at the end of a page stands for all of them, not five on each."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return nothing: the line below is of all."""


_COMMON_LINE: Final = "Everywhere: --as --home --server --spool --json --passphrase-fd{} (see `deed --help`)"


class _WithCommon(click.Command):
    """A command or group with the common options, which the ``App`` keeps."""

    looks_back = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, option in _COMMON.items():
            self.params.append(_Common(**option, expose_value=False, callback=partial(_keep, name)))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End a page with the common options: in one line, and explained where it is the page of all."""
        if ctx.parent is not None:
            formatter.write_paragraph()
            formatter.write_text(_COMMON_LINE.format(" --as-of" if self.looks_back else ""))
            return
        with formatter.section("Everywhere"):
            records = (click.Option.get_help_record(one, ctx) for one in self.params if isinstance(one, _Common))
            formatter.write_dl([record for record in records if record is not None])


def _keep(name: str, context: click.Context, _: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(context.ensure_object(App), name, value)


class ListOption(click.Option):
    """An option for names or numbers, given several times or joined by commas."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"multiple": True})

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the values, each of them checked."""
        words = [word.strip() for one in value or () for word in str(one).split(",")]
        return super().type_cast_value(ctx, words if value else value)


class Command(_WithCommon):
    """A verb, with the common options; its function gets the ``App`` first.

    One that ``only_looks``, as an auditor, is told of a history that changed, and goes on (``ledger.trust.store``). One
    that ``looks_back`` shows nothing but answers of views, which ``--as-of`` makes those of then.
    """

    def __init__(
        self,
        name: str | None,
        callback: Callable[..., Any],
        *,
        only_looks: bool = False,
        looks_back: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, callback=click.pass_obj(callback), **kwargs)
        self._only_looks, self.looks_back = only_looks, looks_back

    def invoke(self, ctx: click.Context) -> Any:
        """Call the verb. Raises Refused: ``USAGE`` for --as-of where it does or shows what is now."""
        app = ctx.ensure_object(App)
        app.only_looks = self._only_looks
        if app.as_of is not None and (not self.looks_back or ctx.params.get("is_following")):
            what = "--follow goes on" if self.looks_back else f"`{ctx.command_path}` does or shows what is now"
            raise Refused("USAGE", f"{what}, --as-of looks back: leave one of them out")
        return super().invoke(ctx)


class Group(_WithCommon, click.Group):
    """A group of verbs that are imported when called; an unknown one names the nearest."""

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, Lazy] | None = None,
        sections: Mapping[str, Iterable[str]] | None = None,
        aliases: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}
        self._sections = sections
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb, importing it now."""
        name = self._aliases.get(cmd_name, cmd_name)
        found = self._lazy.get(name)
        if found is None:
            return super().get_command(ctx, name)
        module, _, attribute = found.target.partition(":")
        command: click.Command = getattr(
            import_module(f"deedbook.consumers.interfaces.cli.commands.{module}"), attribute
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was called; an unknown one is refused with the nearest names."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = self._nested(ctx, name) or self._near(ctx, name)
            ctx.fail(f"there is no verb {name!r}{did_you_mean([f'`{ctx.command_path} {one}`' for one in names])}")
        return super().resolve_command(ctx, args)

    def _nested(self, ctx: click.Context, name: str) -> list[str]:
        """Return the verbs of this group's own groups that are called ``name``: `claim` is `handoff claim`."""
        return [
            f"{one} {group._aliases.get(name, name)}"
            for one in self.list_commands(ctx)
            if isinstance(group := self.get_command(ctx, one), Group) and group.get_command(ctx, name) is not None
        ]

    def _near(self, ctx: click.Context, name: str) -> list[str]:
        alike = near(name, [*self.list_commands(ctx), *self._aliases])
        return list(dict.fromkeys(self._aliases.get(one, one) for one in alike))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the verbs with their help from the table, importing nothing."""
        sections = self._sections or {"Verbs": self.list_commands(ctx)}
        for section, names in sections.items():
            with formatter.section(section):
                formatter.write_dl([(name, self._short_help(ctx, name)) for name in names])

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in self._lazy:
            return self._lazy[name].help
        command = super().get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(help_width_max)


SECTIONS: Final = {
    "Every day": {
        "next": Lazy("handoff_list:next_", "Show what waits for you, and the command with which it goes on."),
        "handoff": Lazy("handoff:handoff", "Hand work over: create, approve, claim, complete."),
        "session": Lazy("sessions:session", "Keep what you do and learn, from start to end."),
        "report": Lazy("reports:report", "Make, find and resume from reports of what sessions learned."),
        "reasoning": Lazy("reasoning:reasoning", "Record reasoning, brief it, fetch it."),
        "search": Lazy("search:search", "Find text in all that was written."),
        "log": Lazy("events:log_", "List events, or follow them as they come."),
        "show": Lazy("events:show", "Show one event, by index or reference."),
        "why": Lazy("events:why", "Walk from an event to what it follows from."),
        "dashboard": Lazy("dashboard:dashboard", "Supervise the agents from a page in the browser; decide there."),
        "watch": Lazy("watch:watch", "Run a command for every event of a kind."),
        "prime": Lazy("harness:prime", "Print what an agent should know before it starts."),
    },
    "Check and prove": {
        "verify": Lazy("audit:verify", "Verify the ledger, or an exported bundle."),
        "doctor": Lazy("ledger:doctor", "Check the installation, the ledger and its keys."),
        "fsck": Lazy("audit:fsck", "Check every stored byte of the ledger in this folder."),
        "checkpoint": Lazy("audit:checkpoint", "Print a signed checkpoint."),
        "export": Lazy("audit:export", "Export the log to a bundle that anyone can verify."),
        "receipt": Lazy("receipts:receipt_", "Prove that an event is in the log; check such a proof."),
        "snapshot": Lazy("snapshots:snapshot", "Take what you know along; receive it with a decision."),
        "review": Lazy("snapshots:review", "See what waits for a human, and answer it."),
        "notes": Lazy("notes:notes", "Keep reports as git notes and files; push, fetch."),
        "backup": Lazy("backup:backup", "Write the ledger to one file, while it is in use."),
        "restore": Lazy("backup:restore", "Make the ledger of a backup, after all of it was verified."),
        "recover": Lazy("backup:recover", "Bring lost entries back from the stream, or go on without them."),
    },
    "Set up": {
        "init": Lazy("ledger:init", "Make a new ledger in this folder."),
        "agent": Lazy("agents:agent", "Register, invite, list and remove agents."),
        "join": Lazy("join:join", "Join a ledger that is elsewhere, by an invitation."),
        "key": Lazy("keys:key", "Delegate, replace, revoke and list signing keys."),
        "trust": Lazy("trust:trust", "Let this ledger's folder run, send and sign what it says."),
        "clock": Lazy("clock:clock", "Compare the ledger's clock with this machine's; set it, as root."),
        "setup": Lazy("harness:setup", "Put Deedbook into Claude Code, Codex or Gemini, or remove it."),
        "mcp": Lazy("serve:mcp", "Serve eight tools to agents over MCP, on stdio or HTTP."),
        "serve": Lazy("serve:serve", "Serve the ledger to agents over NATS."),
        "node": Lazy("nodes:node", "See the nodes of this ledger; let another one lead."),
        "token": Lazy("tokens:token", "Let programs read the ledger over HTTP, for as long as you say."),
        "notify": Lazy("notify:notify", "Tell agents and people once that something waits for them."),
        "router": Lazy("router:router", "Hand work on by declared chains; tell what became ready."),
        "import": Lazy("imports:import_", "Import the history of other tools; it grants nothing."),
        "deploy": Lazy("deploy:deploy", "Write the configuration of nats-servers beside the node."),
        "completion": Lazy("harness:completion", "Print what makes a shell complete verbs and options."),
        "demo": Lazy("demo:demo", "Tell the whole story with real processes, in under a minute."),
    },
    "Under the hood": {
        "spool": Lazy("spool:spool", "What waits here because no server answered: list, send, drop."),
        "emit": Lazy("emission:emit", "Sign and append one event."),
        "submit": Lazy("emission:submit", "Append events that were signed elsewhere."),
        "blob": Lazy("blobs:blob", "Keep what is too large for an event: put, get, list, stat."),
        "project": Lazy("views:project", "Bring the views up to date, or rebuild them."),
        "hook": Lazy("harness:hook", "Answer what a harness calls at an event of its session."),
        "tot": Lazy("tot:tot", "Let six agents search a tree of thoughts; show and prove it."),
    },
}
"""The verbs by what they are for, in the order in which help shows them."""

VERBS: Final = {name: verb for section in SECTIONS.values() for name, verb in section.items()}

argument_shown_max: Final = 80
MACHINE_ERRORS: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
# What a shell reports of a command that SIGINT ended.
stopped_by_user: Final = 130

ALIASES: Final = {
    "audit": "verify",
    "tail": "log",
    "events": "log",
    "append": "emit",
    "create": "emit",
    "ls": "log",
    "ready": "next",
    "grep": "search",
    "find": "search",
}


@click.command(
    "deed",
    cls=Group,
    lazy=VERBS,
    sections=SECTIONS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="deedbook", message="%(version)s")
@click.pass_context
def deed(context: click.Context) -> None:
    """Deedbook: a signed, append-only ledger for AI agents that hand work to each other."""
    context.ensure_object(App)
    if sys.stdout.isatty():
        context.color = None if wants_colour() else False


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 ok, 1 unexpected, 2 usage or malformed input, 3 not found, 4 conflict, 5 gated, 6 verification
    failed, 7 store or bus unavailable.
    """
    gc.freeze()  # what was imported stays: it is not looked through
    gc.set_threshold(collected_every)
    gc.enable()
    given = list(sys.argv[1:] if arguments is None else arguments)
    app = App()
    try:
        code = run(given, app)
        sys.stdout.flush()
    except OSError as error:
        code = _give_up_output(error)
    finally:
        app.close()
    gc.freeze()  # what ends with the process is not searched for garbage first: a tenth of a short verb (measured)
    sys.exit(code)


def run(arguments: list[str], app: App) -> int:
    """Run one command and return its exit code; whatever it raises was printed."""
    as_json = "--json" in arguments
    try:  # click returns, and does not raise, the exit code that a command ends with
        code = deed.main(arguments, prog_name="deed", standalone_mode=False, obj=app)
    except click.Abort:
        click.echo("stopped", err=True)
        return stopped_by_user
    except SystemExit:  # so click ends a command whose reader has gone: that is no failure of ours
        return Exit.OK
    except click.UsageError as error:
        return _print_usage(error, arguments, as_json=as_json)
    except DeedbookError as error:
        return _print_error(error, as_json=as_json)
    except BrokenPipeError:
        raise
    except Exception as error:
        if wants_traceback():
            raise
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            return _print_error(_machine_error(error), as_json=as_json)
        message = f"{type(error).__name__}: {error} (run again with DEEDBOOK_TRACEBACK=1, and please report it)"
        return _print_error(DeedbookError("UNEXPECTED", message), as_json=as_json)
    return code if isinstance(code, int) else Exit.OK


def _give_up_output(error: OSError) -> int:
    """Return how a run ends whose reader has gone, or has a full disk; Python must not complain again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return Exit.OK
    try:
        return _print_error(_machine_error(error), as_json=False)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
        return Exit.UNAVAILABLE


def _machine_error(error: OSError) -> Unavailable:
    message = f"{error}: a disk is full or failing; look what is there before you call again: it may have been done"
    return Unavailable("STORE_UNAVAILABLE", message)


def _print_usage(error: click.UsageError, given: Sequence[str], *, as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not as_json and error.ctx is not None:
            click.echo(error.ctx.get_help(), err=True)
            return Exit.USAGE
        error = click.UsageError("a verb is missing", error.ctx)
    hint = "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"
    message = without_secrets(error.format_message().rstrip("."), given)
    is_text = any(one[:1] == "-" and (one[1:2] != "-" or " " in one) for one in given)
    if isinstance(error, click.NoSuchOption) and is_text:
        message += ": before a text that begins with a dash goes `--`"
    return _print_error(Refused("USAGE", message + hint), as_json=as_json)


def without_secrets(message: str, given: Sequence[str]) -> str:
    """Return what is said of a wrong call without the secrets among its arguments, and with long ones cut short.

    A terminal, a log of a build and a transcript keep what is printed.
    """
    for word in sorted({part for one in given for part in (one, one.partition("=")[2]) if part}, key=len, reverse=True):
        shown = word if len(word) <= argument_shown_max else f"{word[:argument_shown_max]}…"
        if scan(word) is not None:
            shown = "(not repeated: it looks like a secret)"
        for form in {word, repr(word)[1:-1]}:
            message = message.replace(form, shown) if shown != word else message
    # What no argument spells as it is printed, as one that was cut at its end or stands in an error of another library.
    return message if scan(message) is None else "an argument looks like a secret and is not repeated here"


def _print_error(error: DeedbookError, *, as_json: bool) -> int:
    if as_json:
        App().line(error_document(error))
        return error.exit_code
    click.secho(f"{error.code}: ", err=True, nl=False, bold=True)
    click.echo(sanitize_text(error.message), err=True)  # a server, a remote of git or an id may have worded it
    events = error.details.get("events", [])
    for event in events if len(events) > 1 else []:  # the message is that of the first
        click.echo(sanitize_text(f"  event {event['position'] + 1}: {event['code']}: {event['message']}"), err=True)
    return error.exit_code
