"""The command line: its verbs, imported only when they are called, and the entry point.

A start should cost little more than a start of Python: the help of a group is printed from its table, without importing
any command. The entry point prints an error in the form that was asked for and exits with its code.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup, Options
from deedbook.consumers.sdk.text import clean, error_document, json_text
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
from deedbook.ledger.home.settings import wants_colour, wants_traceback
from deedbook.ledger.secrets.scanner import scan

SECTIONS: Final = {
    "Every day": {
        "next": Lazy("handoff_show:next_", "Show what waits for you, and the command with which it goes on."),
        "handoff": Lazy("handoff:handoff", "Hand work over: create, approve, claim, complete."),
        "session": Lazy("sessions:session", "Keep what you do and learn, from start to end."),
        "report": Lazy("reports:report", "Make, find and resume from reports of what sessions learned."),
        "reasoning": Lazy("reasoning:reasoning", "Record reasoning, brief it, fetch it."),
        "search": Lazy("search:search", "Find text in all that was written."),
        "log": Lazy("log:log_", "List events, or follow them as they come."),
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
        "hook": Lazy("hook:hook", "Answer what a harness calls at an event of its session."),
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
    cls=LazyGroup,
    lazy=VERBS,
    sections=SECTIONS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="deedbook", message="%(version)s")
@click.pass_context
def deed(context: click.Context) -> None:
    """Deedbook: a signed, append-only ledger for AI agents that hand work to each other."""
    context.ensure_object(Options)
    if sys.stdout.isatty():
        context.color = None if wants_colour() else False


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 ok, 1 unexpected, 2 usage or malformed input, 3 not found, 4 conflict, 5 gated, 6 verification
    failed, 7 store or bus unavailable.
    """
    try:
        code = run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        code = _give_up_output(error)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; whatever it raises was printed."""
    as_json = "--json" in arguments
    try:  # click returns, and does not raise, the exit code that a command ends with
        code = deed.main(arguments, prog_name="deed", standalone_mode=False, obj=Options())
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
        click.echo(json_text(error_document(error), order="deterministic"))
        return error.exit_code
    click.secho(f"{error.code}: ", err=True, nl=False, bold=True)
    click.echo(clean(error.message), err=True)  # a server, a remote of git or an id may have worded it
    events = error.details.get("events", [])
    for event in events if len(events) > 1 else []:  # the message is that of the first
        click.echo(clean(f"  event {event['position'] + 1}: {event['code']}: {event['message']}"), err=True)
    return error.exit_code
