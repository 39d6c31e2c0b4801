"""`baton completion`: what a shell runs so that it completes verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command, baton


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(app: App, shell: str) -> None:
    """Print what makes a shell complete verbs and options: put its output where the shell starts.

    bash: eval "$(baton completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: baton
    completion fish > ~/.config/fish/completions/baton.fish.
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has all three
    source = found(baton, {}, "baton", "_BATON_COMPLETE").source()
    app.show("completion", {"shell": shell, "source": source}, lambda: click.echo(source))
