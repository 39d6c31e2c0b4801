"""The command line: its verbs, imported only when they are called, and the entry point.

A start should cost little more than a start of Python: the help of a group is printed from its table, without importing
any command; families (``ledger.families``) add theirs. The entry point prints an error as text or JSON, and exits with
its code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup, Options, VerbsWithFamilies, load
from deedbook.ledger.errors import Exit
from deedbook.ledger.home.environment import wants_colour

SECTIONS: Final = {
    "Every day": {
        "next": Lazy("queue:next_", "Show what waits for you, each with the next command."),
        "unread": Lazy("unread:unread", "Show once what others did that concerns you."),
        "handoff": Lazy("handoff:handoff", "Hand work over: create, approve, claim, complete.", is_group=True),
        "ask": Lazy("questions:ask", "Ask another agent, about a handoff, a file or nothing."),
        "answer": Lazy("questions:answer", "Answer a question to you."),
        "settle": Lazy("questions:settle", "Accept the answers to your questions, or withdraw them."),
        "questions": Lazy("question_list:questions", "List questions that are about no handoff, or show one."),
        "decide": Lazy("decisions:decide", "Tell everybody what was decided about which files."),
        "decisions": Lazy("decision_list:decisions", "List the decisions in force, for example by --path."),
        "withdraw": Lazy("decisions:withdraw", "Withdraw a decision."),
        "session": Lazy("sessions:session", "Record a session: what you do, find and learn.", is_group=True),
        "report": Lazy(
            "reports:report", "Make, find and compare reports of sessions; resume from them.", is_group=True
        ),
        "reasoning": Lazy("reasoning:reasoning", "Record reasoning, brief it, fetch it.", is_group=True),
        "search": Lazy("search:search", "Search the text of handoffs, reasoning, sessions and reports."),
        "log": Lazy("log:log_", "List events, or follow them as they come."),
        "show": Lazy("events:show", "Show one event, by index or reference."),
        "why": Lazy("events:why", "Show what an event rests on, and what rests on it."),
        "dashboard": Lazy("dashboard:dashboard", "Supervise agents and decide on a page in the browser."),
        "watch": Lazy("watch:watch", "Run a command for each new event of a kind."),
        "prime": Lazy("prime:prime", "Print what an agent should know before it starts work."),
    },
    "Check and prove": {
        "verify": Lazy("audit:verify", "Verify the ledger, or an exported bundle."),
        "doctor": Lazy("doctor:doctor", "Check the installation, the ledger and its keys."),
        "fsck": Lazy("audit:fsck", "Check every stored byte of the ledger in this folder."),
        "checkpoint": Lazy("audit:checkpoint", "Print a signed checkpoint."),
        "export": Lazy("audit:export", "Export the log to a bundle that anyone can verify."),
        "receipt": Lazy("receipts:receipt_", "Print or check the proof that an event is in the log.", is_group=True),
        "snapshot": Lazy("snapshots:snapshot", "Take and receive snapshots of what an agent knows.", is_group=True),
        "review": Lazy("snapshots:review", "List requests that need a human, and answer them.", is_group=True),
        "notes": Lazy("notes:notes", "Copy reports to git notes and files; push and fetch them.", is_group=True),
        "backup": Lazy("backup:backup", "Write the ledger to one file, while it is in use."),
        "restore": Lazy("backup:restore", "Verify a backup and restore the ledger from it."),
        "redact": Lazy("redact:redact", "Erase the texts of entries for good; every proof still holds."),
        "seal": Lazy("seals:seal", "Make and share the keys of subjects, whose content is sealed.", is_group=True),
        "erase": Lazy("seals:erase", "Erase all that is sealed for a subject, for ever."),
        "recover": Lazy("recover:recover", "Recover lost entries from the bus, or continue without them."),
    },
    "Set up": {
        "init": Lazy("init:init", "Begin here: a ledger, you as its reviewer, and your harnesses."),
        "uninstall": Lazy("uninstall:uninstall", "Undo `deed setup` in this project; name what stays."),
        "agent": Lazy("agents:agent", "Register, invite and remove agents; change roles.", is_group=True),
        "join": Lazy("join:join", "Join a ledger on another machine with an invitation code."),
        "key": Lazy("keys:key", "List signing keys; delegate, rotate and revoke them.", is_group=True),
        "trust": Lazy("trust:trust", "Trust a ledger's folder: its settings, chains and keys."),
        "clock": Lazy("clock:clock", "Compare the ledger's clock with this machine's, or set it.", is_group=True),
        "setup": Lazy("harness:setup", "Set up Claude Code, Codex or Gemini, or undo that."),
        "mcp": Lazy("mcp:mcp", "Serve eight tools to agents over MCP, on stdio or HTTP."),
        "serve": Lazy("serve:serve", "Serve the ledger to agents over NATS."),
        "node": Lazy("nodes:node", "List the nodes of this ledger.", is_group=True),
        "token": Lazy("tokens:token", "Create, list and revoke tokens for reading over HTTP.", is_group=True),
        "notify": Lazy("notify:notify", "Notify agents and people once when something waits for them.", is_group=True),
        "router": Lazy("router:router", "Create follow-up handoffs by rules, and announce ready ones.", is_group=True),
        "import": Lazy("imports:import_", "Import records of other tools. They grant no rights.", is_group=True),
        "deploy": Lazy("deploy:deploy", "Write configuration files for separate nats-servers.", is_group=True),
        "completion": Lazy("harness:completion", "Print the script that completes verbs and options in a shell."),
        "demo": Lazy("demo:demo", "Play a handoff from start to audit with real processes."),
    },
    "Under the hood": {
        "spool": Lazy("spool:spool", "List, send or drop reports that wait for a server.", is_group=True),
        "kind": Lazy("kinds:kind", "Declare kinds of events of your own; list and show them.", is_group=True),
        "emit": Lazy("emission:emit", "Sign and append one event, also of a declared kind."),
        "submit": Lazy("emission:submit", "Append events that were signed elsewhere."),
        "blob": Lazy("blobs:blob", "Store large content outside events: put, get, list, stat.", is_group=True),
        "project": Lazy("views:project", "Update the views from the log, or rebuild them."),
        "hook": Lazy("hook:hook", "Answer a harness (Claude Code, Codex, Gemini) at a session event."),
    },
}
"""The verbs by topic, in the order of the help."""

VERBS: Final = VerbsWithFamilies({name: verb for section in SECTIONS.values() for name, verb in section.items()})

# The exit code of a command that SIGINT ended, as shells report it.
stopped_by_user: Final = 130

ALIASES: Final = {
    "audit": "verify",
    "tail": "log",
    "events": "log",
    "append": "emit",
    "ready": "next",
    "status": "next",
    "new": "unread",
    "inbox": "next",
    "todo": "next",
    "grep": "search",
    "reply": "answer",
    "find": "search",
}


_VERSION: Final = "Show the version, and the commit of the sources, and exit."


def _show_version(context: click.Context, _option: click.Parameter, is_wanted: bool) -> None:  # noqa: FBT001 - click's form
    if is_wanted:
        load("terminal:echo")(load("..sdk.version:version_text")())
        context.exit()


@click.command(
    "deed",
    cls=LazyGroup,
    lazy=VERBS,
    sections=SECTIONS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help=_VERSION)
@click.pass_context
def deed(context: click.Context) -> None:
    """Deedbook: a signed, append-only ledger for AI agents that hand work to each other."""
    context.ensure_object(Options)
    if sys.stdout.isatty():
        context.color = None if wants_colour() else False


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 ok, 1 unexpected, 2 usage or malformed input, 3 not found, 4 conflict, 5 gated, 6 verification
    failed, 7 store or bus unavailable, 8 not installed, 9 spooled.
    """
    code: int = Exit.OK
    try:
        code = run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        code = load("failures:give_up_output")(error, code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command, print its error if there is one, and return its exit code."""
    options = Options()
    try:  # click returns the exit code of a command and does not raise it
        code = deed.main(arguments, prog_name="deed", standalone_mode=False, obj=options)
    except click.Abort as abort:
        # click takes the end of any file, also of a damaged module, for the end of our input
        if isinstance(abort.__cause__, EOFError):
            failed: int = load("failures:print_failure")(abort.__cause__, arguments)
            return failed
        load("terminal:echo")("stopped", err=True)
        return stopped_by_user
    except SystemExit:  # click ends a command in this way if its reader has gone; this is not our failure
        return Exit.OK
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the code of a family may raise anything
        exit_code: int = load("failures:print_failure")(error, arguments, options.home)
        return exit_code
    return code if isinstance(code, int) else Exit.OK
