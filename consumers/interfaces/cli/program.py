"""The command line: its verbs, imported only when they are called, and the entry point.

A start should cost little more than a start of Python: the help of a group is printed from its table, without importing
any command. The entry point prints an error in the form that was asked for and exits with its code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup, Options, load
from deedbook.ledger.errors import Exit
from deedbook.ledger.home.environment import wants_colour

SECTIONS: Final = {
    "Every day": {
        "next": Lazy("handoff_show:next_", "Show what waits for you, and the command with which it goes on."),
        "handoff": Lazy("handoff:handoff", "Hand work over: create, approve, claim, complete.", is_group=True),
        "session": Lazy("sessions:session", "Keep what you do and learn, from start to end.", is_group=True),
        "report": Lazy("reports:report", "Make, find and resume from reports of what sessions learned.", is_group=True),
        "reasoning": Lazy("reasoning:reasoning", "Record reasoning, brief it, fetch it.", is_group=True),
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
        "receipt": Lazy("receipts:receipt_", "Prove that an event is in the log; check such a proof.", is_group=True),
        "snapshot": Lazy("snapshots:snapshot", "Take what you know along; receive it with a decision.", is_group=True),
        "review": Lazy("snapshots:review", "See what waits for a human, and answer it.", is_group=True),
        "notes": Lazy("notes:notes", "Keep reports as git notes and files; push, fetch.", is_group=True),
        "backup": Lazy("backup:backup", "Write the ledger to one file, while it is in use."),
        "restore": Lazy("backup:restore", "Make the ledger of a backup, after all of it was verified."),
        "recover": Lazy("backup:recover", "Bring lost entries back from the stream, or go on without them."),
    },
    "Set up": {
        "init": Lazy("ledger:init", "Make a new ledger in this folder."),
        "agent": Lazy("agents:agent", "Register, invite, list and remove agents.", is_group=True),
        "join": Lazy("join:join", "Join a ledger that is elsewhere, by an invitation."),
        "key": Lazy("keys:key", "Delegate, replace, revoke and list signing keys.", is_group=True),
        "trust": Lazy("trust:trust", "Let this ledger's folder run, send and sign what it says."),
        "clock": Lazy("clock:clock", "Compare the ledger's clock with this machine's; set it, as root.", is_group=True),
        "setup": Lazy("harness:setup", "Put Deedbook into Claude Code, Codex or Gemini, or remove it."),
        "mcp": Lazy("mcp:mcp", "Serve eight tools to agents over MCP, on stdio or HTTP."),
        "serve": Lazy("serve:serve", "Serve the ledger to agents over NATS."),
        "node": Lazy("nodes:node", "See the nodes of this ledger; let another one lead.", is_group=True),
        "token": Lazy("tokens:token", "Let programs read the ledger over HTTP, for as long as you say.", is_group=True),
        "notify": Lazy("notify:notify", "Tell agents and people once that something waits for them.", is_group=True),
        "router": Lazy("router:router", "Hand work on by declared chains; tell what became ready.", is_group=True),
        "import": Lazy("imports:import_", "Import the history of other tools; it grants nothing.", is_group=True),
        "deploy": Lazy("deploy:deploy", "Write the configuration of nats-servers beside the node.", is_group=True),
        "completion": Lazy("harness:completion", "Print what makes a shell complete verbs and options."),
        "demo": Lazy("demo:demo", "Tell the whole story with real processes, in under a minute."),
    },
    "Under the hood": {
        "spool": Lazy("spool:spool", "What waits here because no server answered: list, send, drop.", is_group=True),
        "emit": Lazy("emission:emit", "Sign and append one event."),
        "submit": Lazy("emission:submit", "Append events that were signed elsewhere."),
        "blob": Lazy("blobs:blob", "Keep what is too large for an event: put, get, list, stat.", is_group=True),
        "project": Lazy("views:project", "Bring the views up to date, or rebuild them."),
        "hook": Lazy("harness:hook", "Answer what a harness calls at an event of its session."),
        "tot": Lazy("tot:tot", "Let six agents search a tree of thoughts; show and prove it.", is_group=True),
    },
}
"""The verbs by what they are for, in the order in which help shows them."""

VERBS: Final = {name: verb for section in SECTIONS.values() for name, verb in section.items()}

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
        code = load("failures:give_up_output")(error)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; whatever it raises was printed."""
    try:  # click returns, and does not raise, the exit code that a command ends with
        code = deed.main(arguments, prog_name="deed", standalone_mode=False, obj=Options())
    except click.Abort:
        click.echo("stopped", err=True)
        return stopped_by_user
    except SystemExit:  # so click ends a command whose reader has gone: that is no failure of ours
        return Exit.OK
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - another's code says what is a solution
        exit_code: int = load("failures:print_failure")(error, arguments)
        return exit_code
    return code if isinstance(code, int) else Exit.OK
