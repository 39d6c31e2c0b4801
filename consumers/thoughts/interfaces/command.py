"""`deed tot`: searches a problem with six agents, shows the tree, and proves which agent had which thought."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Group, read_text
from deedbook.consumers.interfaces.cli.durations import parse_ttl
from deedbook.consumers.interfaces.cli.output import list_page, page_options, print_lines, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.consumers.thoughts.interfaces import text as tot_text
from deedbook.consumers.thoughts.logs import write_logs
from deedbook.consumers.thoughts.run import new_task_id, read_task, resume_task, run_task, stop_task
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable

STATUSES: Final = ("started", "searching", "paused", "solved", "failed", "unverified")

_SCORERS: Final = {"value": "game24", "exhaustive": "game24-exhaustive"}

_logs_option = click.option(
    "--logs",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the task's log folder into this folder (default: logs/ in the ledger's folder).",
)
_no_logs_option = click.option("--no-logs", is_flag=True, help="Do not write a log folder.")


@click.group(cls=Group, aliases={"solve": "run", "tree": "show", "ls": "list", "verify": "prove"})
def tot() -> None:
    """Search a tree of thoughts with six agents whose every message is signed."""


@tot.command()
@click.argument("argument", required=False, metavar="PROBLEM|@FILE|-")
@click.option("--problem", metavar="TEXT|@FILE|-", help="The problem, such as '4 9 10 13'.")
@click.option(
    "--task-type",
    default="math_reasoning",
    show_default=True,
    help="math_reasoning, creative_writing, planning, debugging, architecture_design, or a name of "
    "your own with --strategy and --depth. The type sets the defaults of the search.",
)
@click.option("--strategy", help="BFS (breadth first) or DFS (depth first).")
@click.option("--depth", type=int, help="The maximum depth of the tree.")
@click.option("--branching", type=int, help="The number of thoughts that follow each node.")
@click.option("--threshold", type=float, help="Prune nodes with a lower score (0 to 10).")
@click.option(
    "--beam", "beam_width", type=int, help="The number of nodes to keep at each level (default: --branching)."
)
@click.option("--generation", help="How thoughts are generated: independent_sampling or sequential_proposal.")
@click.option("--evaluation", help="How thoughts are judged: independent_scoring or comparative_voting.")
@click.option("--nodes", "nodes_max", type=int, help="The maximum number of nodes.")
@click.option(
    "--calls", "calls_max", type=int, help="The maximum number of requests to a model, including failed ones."
)
@click.option("--tokens", "tokens_max", type=int, help="The maximum number of tokens of a model.")
@click.option(
    "--answer-wait",
    "answer_wait_s",
    type=int,
    metavar="SECONDS",
    help="How long to wait for an answer of the agent of --generator or --evaluator.",
)
@click.option(
    "--deadline",
    metavar="10m|TIME",
    help="After this duration or at this time, stop and answer with the best path so far.",
)
@click.option(
    "--language",
    type=click.Choice(["en", "zh"]),
    help="The language of prompts and logs (default: en, or zh for a Chinese problem).",
)
@click.option(
    "--thinker",
    help="The program that proposes and judges thoughts: game24, game24-exhaustive, llm (the model of "
    "config.toml), or the name of an installed one. Default: a program that can read the problem,"
    " otherwise llm.",
)
@click.option(
    "--scorer",
    type=click.Choice(list(_SCORERS)),
    help="With the thinker game24: value looks one step ahead, exhaustive tries all continuations.",
)
@click.option(
    "--generator",
    metavar="NAME",
    help="A registered agent of yours that proposes thoughts instead of Deedbook's. It answers "
    "requests over the bus with its own key.",
)
@click.option(
    "--evaluator",
    metavar="NAME",
    help="A registered agent of yours that judges thoughts instead of Deedbook's, in the same way.",
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="NAME",
    help="What thoughts are judged by, instead of the criteria of the task type, such as cost. Repeatable.",
)
@_logs_option
@_no_logs_option
def run(
    app: App,
    /,
    argument: str | None,
    problem: str | None,
    *,
    task_type: str,
    deadline: str | None,
    language: Any,
    thinker: str | None,
    scorer: str | None,
    generator: str | None,
    evaluator: str | None,
    criteria: tuple[str, ...],
    logs: Path | None,
    no_logs: bool,
    **overrides: Any,
) -> None:
    """Solve a problem with six agents, each a process with a key of its own.

    A language model costs requests and tokens. Limit them with --calls, --tokens and --deadline.
    """
    if (argument is None) == (problem is None):
        raise Refused("USAGE", "give the problem, once: `deed tot run PROBLEM`, @FILE, or - for standard input")
    if scorer is not None and thinker not in (None, *_SCORERS.values()):
        raise Refused("USAGE", f"--scorer is of the thinker game24, and {thinker} judges in its own way: leave it out")
    text = read_text(argument if problem is None else problem, "the problem").strip()
    until = None if deadline is None else parse_deadline(deadline, datetime.now(UTC))
    bound = {role: name for role, name in (("generator", generator), ("evaluator", evaluator)) if name is not None}
    who = thinker if scorer is None else _SCORERS[scorer]
    options = TaskOptions(task_type, Overrides(**overrides, deadline=until), language, who, bound, criteria)
    task_id = new_task_id()
    folder = None if no_logs else logs or default_logs(app)
    progress = tot_text.progress(app)
    search(app, task_id, folder, lambda: run_task(app.settings(), text, options, task_id=task_id, progress=progress))


@tot.command()
@click.argument("task", metavar="TASK")
@click.option("--best-path", is_flag=True, help="Ask nothing more: the best path so far is the answer.")
@_logs_option
@_no_logs_option
def resume(app: App, task: str, logs: Path | None, *, best_path: bool, no_logs: bool) -> None:
    """Continue a task that is paused or was interrupted. Answered requests are not sent again.

    A task that `deed tot stop` ended cannot continue: start a new one.
    """
    folder, task_id, progress = None if no_logs else logs or default_logs(app), find(app, task), tot_text.progress(app)
    how: dict[str, Any] = {"best_path": best_path, "progress": progress, "client": app.client()}
    search(app, task_id, folder, lambda: resume_task(app.settings(), task_id, **how))


@tot.command()
@click.argument("task", metavar="TASK")
@click.option("--reason", required=True, help="Why you end it.")
def stop(app: App, task: str, reason: str) -> None:
    """End a task for good. Its results stay visible, and `deed tot resume` cannot continue it."""
    task_id = find(app, task)
    stopped = stop_task(app.settings(), task_id, reason, client=app.client())
    done = {"task_id": task_id, "error": stopped["error"], "answer": stopped["answer"]}
    status = app.query("tot.show", id=task_id)["status"]
    app.show("thought_stopped", done | {"status": status}, f"{task_id}  {status}")


@tot.command(looks_back=True)
@click.argument("task", metavar="TASK")
@click.option("--follow", "is_following", is_flag=True, help="Update the tree while the search runs.")
@web_option("tot", "task")
def show(app: App, task: str, *, is_following: bool) -> None:
    """Show the tree of a task: scores, statuses, the best path (*), and the outcome."""
    if is_following:
        tot_text.follow_task(app, find(app, task))
        return
    tree = app.query("tot.tree", id=task)

    def text() -> None:
        echo("\n".join(tot_text.tree_text(tree)))
        print_lines(*tot_text.criteria_text(tree))
        tot_text.print_end(app.query("tot.show", id=task))

    app.show("tot.tree", tree, text)


@tot.command()
@click.argument("task", metavar="TASK")
@_logs_option
def logs(app: App, task: str, logs: Path | None) -> None:
    """Write the log folder of a task from its events: one file for each agent and round, and the timeline."""
    folder = write_logs(read_task(app.client(), find(app, task)), logs or default_logs(app))
    files = sorted(path.name for path in folder.iterdir())
    app.show("thought_logs", {"folder": str(folder), "files": files}, [str(folder), *files])


@tot.command(looks_back=True)
@click.argument("task", metavar="TASK")
def prove(app: App, task: str) -> None:
    """Print the request, signer, key and index of each answer.

    The command fails if an agent answered its own request, or if an agent that was needed sent nothing.
    """
    proof = app.query("tot.prove", id=task)
    if not proof["passed"]:
        raise Corrupted("VERIFICATION_FAILED", tot_text.proof_verdict(proof), report=proof | {"ok": False})
    app.show("tot.prove", proof | {"ok": True}, lambda: tot_text.print_proof(proof))


@tot.command("list", looks_back=True)
@click.option("--status", type=click.Choice(STATUSES), help="Only this state.")
@click.option("--task-type", help="Only those of this type.")
@page_options()
def list_(app: App, **filters: Any) -> None:
    """List tasks, newest first."""
    list_page(
        app,
        "tot.list",
        filters,
        lambda row: {
            "id": row["id"],
            "started": when(row["started_ms"]),
            "status": row["status"],
            "type": row["task_type"],
            "nodes": row["stats"]["total_nodes"],
            "problem": row["problem"],
        },
    )


def default_logs(app: App) -> Path:
    """Return the default place of log folders: beside the ledger, and never in a checkout."""
    return app.settings().home / "logs"


def show_outcome(app: App, ran: dict[str, Any], logs_folder: Path | None) -> None:
    """Write the log folder and print the result of a search.

    For a failed or paused search, do this before the error.
    """
    task_id, failure = ran["task_id"], ran["error"]
    written = None if logs_folder is None else str(write_logs(read_task(app.client(), task_id), logs_folder))
    outcome = ran | {"logs": written}
    tree = app.query("tot.tree", id=task_id)

    def run_text() -> None:
        tot_text.print_run(outcome)
        print_lines(*tot_text.tree_text(tree), *tot_text.criteria_text(tree))

    if failure is not None or ran["answer"] is None:
        steps = [tree["nodes"][id_]["content"] for id_ in tree["search_state"]["best_path"][1:]]
        if not app.as_json:
            run_text()
            print_lines(*(f"best path {number}. {sanitize_line(step)}" for number, step in enumerate(steps, 1)))
        end = failure or {"code": "SEARCH_EXHAUSTED", "message": "the search ended without a solution"}
        known = ("task_id", "stats", "pids", "keys", "logs", "paused")
        details = {name: outcome[name] for name in known} | {"recoverable": end.get("recoverable", False)}
        message = f"{end['message']}{tot_text.resumption(ran['paused'])}".removeprefix(f"{end['code']}: ")
        raise DeedbookError.from_dict(
            {"code": end["code"], "message": message, "details": details | {"best_path": steps}}
        )
    del outcome["error"], outcome["paused"]

    def text() -> None:
        run_text()
        tot_text.print_outcome(outcome, outcome["language"])

    app.show("thought_solution", outcome, text, following=f"deed tot prove {task_id}")


def search(app: App, task_id: str, logs_folder: Path | None, play: Callable[[], dict[str, Any]]) -> None:
    """Run a search and show its outcome; if it is interrupted, write its logs and name the command that resumes it."""
    try:
        ran = play()
    except (DeedbookError, KeyboardInterrupt) as error:
        begun: dict[str, Any] = {}
        # no task was started, or its logs cannot be written; report only the first error
        with suppress(DeedbookError):
            events = read_task(app.client(), task_id)
            begun = {"task_id": task_id, "logs": None if logs_folder is None else str(write_logs(events, logs_folder))}
        is_told = isinstance(error, KeyboardInterrupt) or (isinstance(error, Unavailable) and not app.as_json)
        if begun and is_told:
            echo(f"continue with `deed tot resume {task_id}`", err=True)
        if isinstance(error, DeedbookError):
            raise error.with_details(**begun) from error
        raise
    show_outcome(app, ran, logs_folder)


def find(app: App, task: str) -> str:
    """Return the whole id of a task by the beginning of it."""
    return str(app.query("tot.tree", id=task)["task_id"])


def parse_deadline(text: str, now: datetime) -> str:
    """Return the UTC time of a deadline: a time, or a number of seconds, minutes, hours or days from now.

    Raises Refused: ``INVALID_FIELD`` if it is neither, or past.
    """
    try:
        deadline = now + parse_ttl(text.strip()) if text.strip()[-1:] in tuple("smhd") else datetime.fromisoformat(text)
        deadline = deadline.replace(tzinfo=UTC) if deadline.tzinfo is None else deadline.astimezone(UTC)
    except (ValueError, OverflowError, Refused):
        message = f"--deadline is no time: {text[:60]!r}; write 90s, 10m, 2h, 1d or 2026-02-12T10:00:00Z (UTC)"
        raise Refused("INVALID_FIELD", message, field="deadline") from None
    if deadline <= now:
        raise Refused("INVALID_FIELD", f"--deadline {text} is past: nothing could be searched", field="deadline")
    return f"{deadline:%Y-%m-%dT%H:%M:%SZ}"
