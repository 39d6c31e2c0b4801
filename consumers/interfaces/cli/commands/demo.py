"""`deed demo`: plays a complete story, on the terminal or as one JSON document."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from deedbook.consumers.interfaces.cli.app import App, Command, extra
from deedbook.consumers.interfaces.demo.story import Line, Stage, Story
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import FOLDER
from deedbook.projections.briefs.prompt import fidelity_text


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Keep the ledger, its sample project and the bundle.")
@click.option("--dashboard", "has_dashboard", is_flag=True, help="Open the dashboard, and run until ^C.")
def demo(app: App, *, keep: bool, has_dashboard: bool) -> None:
    """Make a ledger, start a server and four agents, hand work over, and audit all of it.

    Each agent is a process with its own key, and signs events over NATS. With --dashboard the ledger starts with
    thirty hours of history of six agents. The link and the human's passphrase are printed, and the agents continue
    with what you approve.
    """
    with extra("server", "demo"):
        import nats  # noqa: F401, PLC0415 - extra `server`: fail before the story, not in its middle
    folder = Path(tempfile.mkdtemp(prefix="deedbook-demo-"))
    try:
        with signals_as_interrupts():
            if has_dashboard:
                with contextlib.suppress(KeyboardInterrupt):  # this is how the user ends it
                    play(folder, quiet=app.as_json, show=partial(_show_dashboard, app))
                return
            data = play(folder, quiet=app.as_json)
        if not keep:
            data |= {"bundle": None, "home": None}
        app.show("demo", data, lambda: summary(data))
    finally:
        if not keep:
            # Otherwise each demo would leave an entry in the list of trusted folders.
            with contextlib.suppress(DeedbookError):
                trust.forget(folder.resolve() / FOLDER)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo like ^C, so that it first ends its processes.

    A shell makes a program in the background ignore ^C (SIGINT); this undoes that, too.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_dashboard(app: App, story: Story) -> None:
    data = story.open_dashboard(is_opened=sys.stdout.isatty() and not app.as_json)
    text = f"{data['link']}\ndecide there as {data['human']} with the passphrase {data['passphrase']}"
    app.show("demo_dashboard", data, text)
    sys.stdout.flush()


def play(folder: Path, *, quiet: bool, show: Callable[[Story], None] | None = None) -> dict[str, Any]:
    """Play the story in ``folder`` and return its data; the terminal sees each line as it happens.

    With ``show``, the ledger has a past, and the story continues until interrupted. ``show`` is called once all agents
    run.
    """
    console = Console(stderr=True, quiet=quiet, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    if show is None:
        scene = "A ledger, a server and four agents hand work over, each a process with its own key: about 15 seconds."
    else:
        scene = "A ledger gets a past of thirty hours; then come a server, four agents and pages: about 30 seconds."
    console.print(scene, soft_wrap=True)
    with Progress(*columns, console=console, transient=True) as bar, Stage(folder, has_past=bool(show)) as stage:

        def tell(line: Line) -> None:
            console.print(f"[bold]{line.who:<12}[/] {line.did}", soft_wrap=True)
            console.print(f"{'':<12} [dim]{line.came_of_it}[/]", soft_wrap=True)

        story = Story(stage, tell)
        task = bar.add_task("the story", total=len(story.acts))
        for number, act in enumerate(story.acts):
            act()
            bar.advance(task)
            if number == 0 and show is not None:
                show(story)
        if show is not None:
            bar.stop()
            story.go_on()
    return story.data


def summary(data: dict[str, Any]) -> None:
    """Print the table at the end."""
    console = Console(highlight=False)
    table = Table(title="What an auditor can prove", show_header=False, title_justify="left")
    table.add_row("events", f"{data['events']} of {len(data['kinds'])} kinds")
    for name, agent in data["agents"].items():
        table.add_row(name, f"pid {agent['pid']}, key {agent['key'][:16]}…")
    table.add_row("refused", ", ".join(f"{refusal['code']} ({refusal['by']})" for refusal in data["refusals"]))
    reaction = data["reaction"]
    table.add_row("reaction", f"{reaction['by']}: {reaction['event']} after entry {reaction['after_index']}")
    for brief in data["brief"]:
        kept = f"fidelity {fidelity_text(brief['fidelity'])}, {brief['rule_fired']}"
        came = f"{brief['tokens']} of {brief['budget']} tokens, {kept}"
        table.add_row(f"{brief['level']} brief", came)
    table.add_row("fetched", f"{data['fetch']['ref'][:23]}… verified")
    audit = data["audit"]
    table.add_row("audit", f"{audit['signatures']} signatures, tree and views {'ok' if audit['ok'] else 'BROKEN'}")
    if data["home"]:
        table.add_row("kept", f"DEEDBOOK_HOME={data['home']}")
        table.add_row("bundle", data["bundle"])
    console.print(table)
    _print_next_steps(console)


def _print_next_steps(console: Console) -> None:
    """Print the commands that a newcomer may call next."""
    steps = []
    if shutil.which("deed") is None:
        steps.append((f'export PATH="{Path(sys.executable).parent}:$PATH"', "so that your shell finds deed"))
    steps.append(("deed demo --dashboard", "the same in your browser, where agents wait for your decision"))
    steps.append(("deed init --trial", "a ledger of your own: run it in a folder of your project"))
    console.print("\nNext:")
    for command, purpose in steps:
        console.print(f"  {command}  [dim]# {purpose}[/]", soft_wrap=True)
