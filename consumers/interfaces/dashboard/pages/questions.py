"""The form of a question in the queue: its answer, or the acceptance of the answer, signed by the human."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.decision import Choice
from deedbook.consumers.interfaces.dashboard.page import PageContext
from deedbook.consumers.interfaces.dashboard.pages.decisions import form_about

ACTIONS: Final = frozenset({"answer", "settle"})


def question_form(context: PageContext, item: Mapping[str, Any], note: str) -> dict[str, Any] | None:
    """Return the data of the form of an item that waits for an answer, or for the answer to be accepted.

    ``questions`` are those that the buttons are about; a button names its question if there are several.
    """
    kind, action = item["kind"], item["action"]
    row = context.ask(f"{kind}s.show", id=item["id"])
    questions = [_asked_alone(row)] if kind == "question" else _of_handoff(row, action, context.human)
    verb = "Sign the answer" if action == "answer" else "Accept the answer"
    choices = []
    for number in (question["position"] + 1 for question in questions):
        label = verb if len(questions) == 1 else f"{verb} to question {number}"
        choices.append(Choice(f"{action}.{number}", label, "yes", needs_note=action == "answer"))
    form = form_about(context, f"{kind}/{item['id']}", row, note, choices, questions=questions)
    return None if form is None else form | {"kind": "question"}


def _asked_alone(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question that is about no handoff, with the fields of a question about a handoff."""
    fields = {"position": 0, "by": row["author"], "text": row["question"]}
    return fields | {field: row[field] for field in ("to", "place", "answer")}


def _of_handoff(row: Mapping[str, Any], action: str, human: str | None) -> list[dict[str, Any]]:
    """Return the questions about a handoff that its item in the queue is about."""
    if action == "answer":
        return [question for question in row["questions"] if question["mark"] == "open" and question["to"] == human]
    return [
        question
        for question in row["questions"]
        if question["mark"] == "answered" and human in (question["by"], row["reviewer"])
    ]
