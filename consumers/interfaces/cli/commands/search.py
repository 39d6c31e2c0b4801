"""`deed search`: finds events by their text."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.text import counted, sanitize_text
from deedbook.projections.search.queries import Term, families_with_text, hits_max, matches_in, terms_of

_TAG: Final = r"[a-z0-9]+(?:_[a-z0-9]+)+"


@click.command(cls=ReadingCommand, looks_back=True, unseals=True)
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option(
    "--type",
    "family",
    cls=ListOption,
    type=click.Choice(families_with_text()),
    help="Only streams of this family, such as handoff. Repeatable.",
)
@click.option("--kind", "kinds", cls=ListOption, help="Only events of this kind, such as finding.logged.")
@click.option("--author", metavar="NAME", help="Only what this agent signed.")
@click.option("--agent", metavar="NAME", help="Only what this agent signed, or imported records claim of it.")
@output.period_options("Only events at or after this time")
@output.route_options
@click.option("--limit", type=click.IntRange(1, hits_max), default=20, show_default=True, help="Rows of a page.")
@click.option("--after", type=click.IntRange(0), help="Continue after an earlier page.")
def search(app: ReadingApp, words: tuple[str, ...], limit: int, after: int | None, **options: Any) -> None:
    r"""Search the text of handoffs, reasoning, sessions, reports and all other records.

    Each result contains all words but function words (the, of). Upper and lower case are equal, and so are the forms
    of an English word (expire, expires). You can search any script. '"two words"' is a phrase, 'hand*' a prefix. The
    best matches come first. If nothing contains all words, the most similar results are shown with their similarity.
    Results that are far and contain none of the words are only in the answer of --json.
    """
    text = " ".join(words)
    check_kinds(options["kinds"], app.query_with)
    filters = {name: list(values) or None if isinstance(values, tuple) else values for name, values in options.items()}
    answer = app.query("search.find", text=text, limit=limit, after=after, **filters)

    tagged = 0
    if answer["holds"] == "some" and re.fullmatch(_TAG, text):
        tagged = app.query("reasoning.list", tag=text, limit=1)["total"]

    def show() -> None:
        terms = terms_of(text)
        if tagged:
            echo(f"{counted(tagged, 'reasoning')} with this tag: `deed reasoning list --tag {text}`")
        hits = answer["items"]
        if hits and answer["holds"] == "some":
            is_far = all(hit["near"] == "far" for hit in hits)
            hits = [hit for hit in hits if hit["matches"]] if is_far else hits
            rest = " These hold a word of it:" if hits else " Nothing is similar."
            echo(f"Nothing holds all of that.{rest if is_far else ' The nearest:'}")
        for hit in hits:
            _print_hit(hit, terms)
        if not answer["items"]:
            echo("(none)")
        if answer["holds"] == "some" and (field := re.search(r"\w=(\S+)", text)):
            echo(f"search has words and no fields: `deed search {shlex.quote(field[1])}`", err=True)

    output.show_page(app, "search.find", answer, show)


def _print_hit(hit: dict[str, Any], terms: list[Term]) -> None:
    columns = (
        hit["event_index"],
        output.when(hit["accepted_ms"]),
        hit["author"],
        hit["stream"],
        hit["kind"],
        output.marks_cell(hit),
        f"{hit['near']} ({hit['score']:.2f})" if hit["near"] else "",
    )
    output.print_lines("  ".join(str(part) for part in columns if part != ""))
    excerpt, line, position = sanitize_text(hit["excerpt"]), "", 0
    for start, end in matches_in(excerpt, terms):
        line += excerpt[position:start] + click.style(excerpt[start:end], bold=True)
        position = end
    line += excerpt[position:]
    done = hit["correction"]
    echo_exact(f"    {line}" if done is None else f"    ~~{line}~~")
    if done is not None:
        echo(f"      {output.corrected(done)}")
    if hit["is_refuted"]:
        echo("      it rests on a refuted assumption", fg="red")
