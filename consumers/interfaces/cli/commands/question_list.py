"""`deed questions`: lists questions that are about no handoff, or shows one."""

from __future__ import annotations

from typing import Any

import click

from deedbook.consumers.handoffs.operations import with_commands
from deedbook.consumers.interfaces.cli.output import list_page, page_options, print_command, when
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import quote_text, sanitize_line


@click.command(cls=ReadingCommand, looks_back=True)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--all", "is_all", is_flag=True, help="Also questions that are settled.")
@click.option("--to", metavar="NAME", help="Only questions to this agent.")
@click.option("--author", metavar="NAME", help="Only questions of this agent.")
@page_options()
def questions(app: ReadingApp, id_: str | None, *, is_all: bool, **filters: Any) -> None:
    """List questions that are not settled: those about no handoff, newest first, or show one.

    Questions about handoffs follow, as far as somebody must act: `deed handoff show` has all of one.
    """
    if id_ is not None:
        question = app.query("questions.show", id=id_)
        app.show("questions.show", question, lambda: print_question(question))
        return
    filters["settled"] = None if is_all else False
    list_page(
        app,
        "questions.list",
        filters,
        lambda row: {
            "id": row["id"],
            "status": row["status"],
            "asked": when(row["asked_ms"]),
            "by": row["author"],
            "to": row["to"],
            "question": row["question"],
        },
    )
    if not app.as_json and filters["author"] is None:
        _print_about_handoffs(app, filters["to"])


def _print_about_handoffs(app: ReadingApp, to: str | None) -> None:
    """Print the questions about handoffs that wait for an answer, or for the agent that settles them."""
    for action in ("answer", "settle"):
        page = app.query("handoffs.next", agent=to, action=action)
        for item in with_commands({"items": [item for item in page["items"] if item["kind"] == "handoff"]})["items"]:
            echo(f"{action:8}  {item['agent']}: {quote_text(item['why'])}")
            print_command(sanitize_line(item["command"]), " " * 10)


def print_question(question: dict[str, Any]) -> None:
    """Print one question."""
    echo(quote_text(question["question"]), bold=True)
    parties = f"{question['author']} asks {question['to']} {when(question['asked_ms'])}"
    echo(f"{question['id']}  [{question['status']}]  {parties}")
    if question["place"]:
        echo(f"  about {quote_text(question['place'])}")
    if question["answer"]:
        echo(f"  answer: {quote_text(question['answer'])}")
    if question["settled_by"]:
        comment = quote_text(f": {question['comment']}") if question["comment"] else ""
        echo(f"  settled by {question['settled_by']} {when(question['settled_ms'])}{comment}")
