"""Questions about a handoff or about none: the meaning of a reference, and the events that ask, answer and settle.

`health:2` is question 2 about the handoff `health`. It is in the handoff's stream, because it may block the completion.
A question about no handoff has a stream and an id of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, cast

from deedbook.consumers.handoffs.content import events_of_step
from deedbook.consumers.handoffs.operations import NextCommand, Verb, command_of, next_on, saying_way_on
from deedbook.consumers.handoffs.short_ids import by_whole_id, short_id
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import question as kinds
from deedbook.ledger.events.handoff import HandoffQuestionAsked
from deedbook.projections.answers.checked import ask

_PATH_MARKS: Final = "/.:"


class QuestionRef(NamedTuple):
    """A question by its number in a handoff, or by its id (``number`` is None)."""

    name: str
    number: int | None

    @property
    def stream(self) -> str:
        """The stream that contains the question."""
        return f"question/{self.name}" if self.number is None else f"handoff/{self.name}"


def read_ref(text: str) -> QuestionRef:
    """Return the question that a text names.

    >>> read_ref("health:2"), read_ref("question/which-route")
    (QuestionRef(name='health', number=2), QuestionRef(name='which-route', number=None))
    """
    name, _, number = text.rpartition(":")
    if name and number.isdecimal():
        return QuestionRef(name.removeprefix("handoff/"), int(number))
    return QuestionRef(text.removeprefix("question/"), None)


def asking(view: Ask, to: str, text: str, about: Sequence[str] = ()) -> Draft:
    """Return the event that asks. Each item of ``about`` is a handoff, or PATH or PATH:LINE.

    Raises Refused: ``USAGE`` for two of a kind; ``NOT_FOUND`` for a handoff that does not exist.
    """
    handoffs, places = [], []
    for subject in about:
        name = subject.removeprefix("handoff/")
        is_handoff = bool(view("handoffs.existing", {"ids": [name]})["handoffs"])
        if is_handoff or not set(subject) & set(_PATH_MARKS):
            handoffs.append(
                name if is_handoff else by_whole_id(view("handoffs.facts", {"id": subject}), "handoff", subject)["id"]
            )
        else:
            places.append(subject)
    if len(handoffs) > 1 or len(places) > 1:
        raise Refused("USAGE", "a question is about one handoff and one file: ask again for the other", field="about")
    place = places[0] if places else None
    if handoffs:
        return Draft(stream=f"handoff/{handoffs[0]}", data=HandoffQuestionAsked(to=to, question=text, place=place))
    name = short_id(view, "question", text)
    return Draft(stream=f"question/{name}", data=kinds.QuestionAsked(to=to, question=text, place=place))


def answering(view: Ask, author: Author, ref: str, text: str) -> list[Draft]:
    """Return the event that answers a question. Raises Refused: as the query that shows it."""
    question = read_ref(ref)
    if question.number is not None:
        return _of_handoff("answer", author, question.name, {"question_numbers": [question.number], "text": text})
    return [Draft(stream=f"question/{_id_of(view, question)}", data=kinds.QuestionAnswered(answer=text))]


def settling(view: Ask, author: Author, refs: Sequence[str], comment: str = "") -> list[Draft]:
    """Return the events that settle questions. Raises Refused: as the queries that show them."""
    numbers: dict[str, list[int]] = {}
    drafts: list[Draft] = []
    for question in dict.fromkeys(map(read_ref, refs)):
        if question.number is None:
            data = kinds.QuestionSettled(comment=comment)
            drafts.append(Draft(stream=f"question/{_id_of(view, question)}", data=data))
        else:
            numbers.setdefault(question.name, []).append(question.number)
    for name, of in numbers.items():
        drafts += _of_handoff("settle", author, name, {"question_numbers": of, "comment": comment})
    return drafts


def _of_handoff(verb: Verb, author: Author, name: str, values: dict[str, Any]) -> list[Draft]:
    handoff = by_whole_id(ask(author.client, "handoffs.show", {"id": name}), "handoff", name)
    events = events_of_step(verb, handoff, values, author)
    return [Draft(stream=f"handoff/{handoff['id']}", data=data) for data in events]


def _id_of(view: Ask, question: QuestionRef) -> str:
    try:
        return cast("str", by_whole_id(view("questions.show", {"id": question.name}), "question", question.name)["id"])
    except Refused as refusal:
        is_handoff = refusal.code == "NOT_FOUND" and view("handoffs.existing", {"ids": [question.name]})["handoffs"]
        if not is_handoff:
            raise
        how = f"name one of its questions, for example {question.name}:1; `deed handoff show {question.name}` has them"
        raise Refused("NOT_FOUND", f"{question.name} is a handoff: {how}", **refusal.details) from refusal


def emitted(view: Ask, author: Author, drafts: Sequence[Draft]) -> dict[str, Any]:
    """Append the events; return ``{"questions", "accepted", "next"}``: the questions now, and the next commands.

    A refusal names the commands that the handoff waits for.
    """
    family, _, name = drafts[0].stream.partition("/")
    with saying_way_on(view, name) if family == "handoff" else nullcontext():
        accepted = author.emit(*drafts)
    questions: list[dict[str, Any]] = []
    following: list[NextCommand] = []
    for stream in dict.fromkeys(draft.stream for draft in drafts):
        family, _, name = stream.partition("/")
        if family == "question":
            row = view("questions.show", {"id": name})
            questions.append({field: row[field] for field in ("id", "status", "author", "to", "question", "answer")})
            following += _next_of(row)
            continue
        handoff = view("handoffs.show", {"id": name})
        positions = [getattr(draft.data, "position", None) for draft in drafts if draft.stream == stream]
        rows = [handoff["questions"][len(handoff["questions"]) - 1 if at is None else at] for at in positions]
        questions += [
            {"id": f"{name}:{row['position'] + 1}", "status": row["mark"], "author": row["by"], "to": row["to"]}
            | {"question": row["text"], "answer": row["answer"]}
            for row in rows
        ]
        following += next_on(handoff["why"])
    return {"questions": questions, "accepted": accepted, "next": list(dict.fromkeys(following))}


def _next_of(question: dict[str, Any]) -> list[NextCommand]:
    waits = {"open": ("answer", question["to"]), "answered": ("settle", question["author"])}
    if (wait := waits.get(question["status"])) is None:
        return []
    act, agent = wait
    wait_item = {"kind": "question", "id": question["id"], "act": act, "agent": agent, "arguments": {}}
    return [NextCommand(agent, command_of(wait_item))]
