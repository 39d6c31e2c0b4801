"""`deed ask`, `answer`, `settle`: questions about a handoff, about a file, or about neither."""

from __future__ import annotations

import re
from shlex import quote
from typing import NoReturn

import click
from msgspec.structs import asdict

from deedbook.consumers.handoffs.questions import answering, asking, emitted, read_ref, settling
from deedbook.consumers.interfaces.cli.app import App, Command, read_text
from deedbook.consumers.interfaces.cli.output import print_next, warn
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.format.forms import ID_PATTERN, NAME_PATTERN


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.argument("text", metavar="TEXT|@FILE")
@click.option(
    "--about", multiple=True, metavar="HANDOFF|PATH[:LINE]", help="A handoff, a file, or both (give it twice)."
)
def ask(app: App, name: str, text: str, about: tuple[str, ...]) -> None:
    """Ask the agent NAME. Only NAME answers; you settle it, or a reviewer or human does.

    A question about a handoff to its receiver must be settled before they can complete the handoff.
    """
    if not re.fullmatch(NAME_PATTERN, name) and re.fullmatch(NAME_PATTERN, text):
        _turned("the name comes first", text, name)
    _emit(app, [asking(app.query_with, name, read_text(text, "TEXT"), about)])


@click.command(cls=Command)
@click.argument("ref", metavar="QUESTION")
@click.argument("text", metavar="TEXT|@FILE")
def answer(app: App, ref: str, text: str) -> None:
    """Answer a question to you. It stays open until it is settled.

    QUESTION is health:2 for question 2 about the handoff health, or the id of a question about no handoff.
    """
    try:
        drafts = answering(app.query_with, app.author(), ref, read_text(text, "TEXT"))
    except Refused as refusal:
        if refusal.code == "NOT_FOUND" and _is_question(app, text):
            _turned("the question comes first", text, ref)
        raise
    _emit(app, drafts)


@click.command(cls=Command)
@click.argument("refs", metavar="QUESTION...", nargs=-1, required=True)
@click.option("--comment", metavar="TEXT|@FILE", help="A comment for the log.")
def settle(app: App, refs: tuple[str, ...], comment: str | None) -> None:
    """Settle questions: accept their answers, or withdraw them.

    The agent that asked may do it; for one about a handoff also the handoff's reviewer, for others any reviewer or
    human. QUESTION is health:2 for question 2 about the handoff health, or the id of a question about no handoff.
    """
    _emit(app, settling(app.query_with, app.author(), refs, read_text(comment, "--comment")))


def _turned(rule: str, first: str, text: str) -> NoReturn:
    context = click.get_current_context()
    context.fail(f"{rule}: `{context.command_path} {quote(first)} {quote(text)}`")


def _is_question(app: App, word: str) -> bool:
    ref = read_ref(word)
    if not re.fullmatch(ID_PATTERN, ref.name):
        return False
    return ref.number is not None or or_none(app.query_with, "questions.show", {"id": ref.name}) is not None


def _emit(app: App, drafts: list[Draft]) -> None:
    answered = emitted(app.query_with, app.author(), drafts)
    entries = ", ".join(str(entry.index) for entry in answered["accepted"])
    following = answered["next"]
    data = {
        **answered,
        "accepted": [asdict(entry) for entry in answered["accepted"]],
        "next": [command for _, command in following],
    }

    def text() -> None:
        for question in answered["questions"]:
            echo(f"{question['id']} is {question['status']} (entry {entries})")
        warn(answered["warnings"])
        print_next(following, app.acting())

    app.show("question", data, text, following=next(iter(data["next"]), None))
