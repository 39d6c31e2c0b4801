"""Printing on the terminal: ``echo`` prints every text of a verb, so that no text can control the terminal.

``tests/house.py`` checks that no other module of the command line prints.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from deedbook.consumers.sdk.text import sanitize_text


def echo(text: str = "", *, err: bool = False, nl: bool = True, fg: str | None = None, bold: bool = False) -> None:
    """Print a text on standard output, or on standard error, with each misleading character replaced."""
    safe = sanitize_text(text)
    echo_exact(click.style(safe, fg=fg, bold=True if bold else None) if fg or bold else safe, err=err, nl=nl)


def echo_exact(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text as it is: a document that programs read, or a text that was sanitized and then coloured."""
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        if not err:
            raise
        discard(sys.stderr)  # a verb continues, and its exit code counts, although nobody reads its messages


def discard(stream: TextIO) -> None:
    """Connect a stream whose reader is gone to /dev/null, so that Python reports no second error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
