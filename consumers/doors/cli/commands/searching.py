"""`baton search TEXT`: find what people and agents wrote, wherever in the ledger it stands (DESIGN §13)."""

from __future__ import annotations

from shlex import join
from typing import Any

import click

from consumers.doors.cli.app import App, command_line
from consumers.doors.cli.output import when
from consumers.doors.cli.program import Command
from consumers.sdk.text import clean
from projections.search.queries import SORTS, Term, matches_in, terms_of

rows_max = 200


@click.command(cls=Command)
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option("--sort", "sorts", multiple=True, type=click.Choice(SORTS), help="Only these; may be given repeatedly.")
@click.option("--author", metavar="NAME", help="Only what this agent signed.")
@click.option("--limit", type=click.IntRange(1, rows_max), default=20, show_default=True)
@click.option("--cursor", type=click.IntRange(0), help="Go on where an earlier page ended.")
@click.pass_obj
def search(
    app: App, words: tuple[str, ...], sorts: tuple[str, ...], author: str | None, *, limit: int, cursor: int | None
) -> None:
    r"""Find text in handoffs, reasoning, sessions, reports and all else that was written.

    All words must occur, in any case and any script: '"two words"' finds a phrase, 'hand*' a beginning. Best matches
    come first, the newest among equals.
    """
    text = " ".join(words)
    answer = app.query("search.find", text=text, sort=list(sorts) or None, author=author, limit=limit, after=cursor)

    def show() -> None:
        terms = terms_of(text)
        for hit in answer["hits"]:
            _print_hit(hit, terms)
        if not answer["hits"]:
            click.echo("(none)")
        if answer["next"] is not None:
            click.echo(f"{answer['total']} in all; go on with --cursor {answer['next']}")

    following = None
    if answer["next"] is not None:
        repeated = join([word for sort in sorts for word in ("--sort", sort)])
        options = command_line("", {"author": author, "limit": limit, "cursor": answer["next"]})
        # Leading dashes are no part of a word, but would make an option of it.
        following = " ".join(part for part in ("baton search", repeated, options, join([text.lstrip("- ")])) if part)
    app.show("hits", answer, show, following=following)


def _print_hit(hit: dict[str, Any], terms: list[Term]) -> None:
    """Print where a hit stands, and under it what it says, the matches emphasised where colours are."""
    place = (hit["event_index"], when(hit["accepted_ms"]), hit["author"], clean(hit["stream"]), hit["kind"])
    click.echo("  ".join(map(str, place)))
    excerpt, shown, position = clean(hit["excerpt"]), "", 0
    for start, end in matches_in(excerpt, terms):
        shown += excerpt[position:start] + click.style(excerpt[start:end], bold=True)
        position = end
    click.echo(f"    {shown}{excerpt[position:]}")
