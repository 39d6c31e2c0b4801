"""Questions about a handoff or about none: the meaning of a reference, and the events that ask, answer and settle.

`health:2` is question 2 about the handoff `health`. It is in the handoff's stream, because it may block the completion.
A question about no handoff has a stream and an id of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple, cast

from deedbook.consumers.handoffs.content import events_of_step
from deedbook.consumers.handoffs.operations import NextCommand, Verb, command_of, next_on, saying_way_on
from deedbook.consumers.handoffs.short_ids import by_whole_id, short_id
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean
from deedbook.ledger.events import question as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffQuestionAnswered, HandoffQuestionAsked
from deedbook.projections.answers.checked import ask

_PATH_MARKS: Final = "/.:"
answer_shown_max: Final = 80


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

    Raises Refused: ``USAGE`` for two handoffs or two paths; ``NOT_FOUND`` for a handoff that does not exist.
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
    return [Draft(stream=f"question/{_id_of(view, question, author.name)}", data=kinds.QuestionAnswered(answer=text))]


def settling(view: Ask, author: Author, refs: Sequence[str], comment: str = "") -> list[Draft]:
    """Return the events that settle questions. Raises Refused: as the queries that show them."""
    numbers: dict[str, list[int]] = {}
    drafts: list[Draft] = []
    for question in dict.fromkeys(map(read_ref, refs)):
        if question.number is None:
            data = kinds.QuestionSettled(comment=comment)
            drafts.append(Draft(stream=f"question/{_id_of(view, question, author.name)}", data=data))
        else:
            numbers.setdefault(question.name, []).append(question.number)
    for name, of in numbers.items():
        drafts += _of_handoff("settle", author, name, {"question_numbers": of, "comment": comment})
    return drafts


def _of_handoff(verb: Verb, author: Author, name: str, values: dict[str, Any]) -> list[Draft]:
    handoff = by_whole_id(ask(author.client, "handoffs.show", {"id": name}), "handoff", name)
    events = events_of_step(verb, handoff, values, author)
    return [Draft(stream=f"handoff/{handoff['id']}", data=data) for data in events]


def _id_of(view: Ask, question: QuestionRef, agent: str) -> str:
    try:
        return cast("str", by_whole_id(view("questions.show", {"id": question.name}), "question", question.name)["id"])
    except Refused as refusal:
        is_handoff = refusal.code == "NOT_FOUND" and view("handoffs.existing", {"ids": [question.name]})["handoffs"]
        if not is_handoff and refusal.code == "NOT_FOUND" and question.name.isdecimal():  # a number without its handoff
            page = view("handoffs.next", {"agent": agent})["items"]
            ids = [f"{item['id']}:{question.name}" for item in page if _is_of(item, int(question.name))]
            refusal.message = f"there is no question {question.name}{did_you_mean(ids)}"
        if not is_handoff:
            raise
        how = f"name one of its questions, for example {question.name}:1; `deed handoff show {question.name}` has them"
        raise Refused("NOT_FOUND", f"{question.name} is a handoff: {how}", **refusal.details) from refusal


def _is_of(item: dict[str, Any], number: int) -> bool:
    """Return whether an item of a queue waits for question ``number`` of its handoff."""
    return item["kind"] == "handoff" and number in item["arguments"].get("question_numbers", ())


def emitted(view: Ask, author: Author, drafts: Sequence[Draft]) -> dict[str, Any]:
    """Append the events; return the questions as they are now, the next commands, and warnings about the questions.

    These are ``{"questions", "accepted", "next", "warnings"}``. A refusal names the commands that the handoff waits
    for.
    """
    family, _, name = drafts[0].stream.partition("/")
    warnings = [warning for draft in drafts for warning in _warnings_without_handoff(view, draft)]
    way_on = saying_way_on(view, name, acting=author.name) if family == "handoff" else nullcontext()
    with _naming_handoff(view, drafts[0].data), way_on:
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
        for draft, entry in zip(drafts, accepted, strict=True):
            warnings += _warnings_on(handoff, draft.data, entry.index) if draft.stream == stream else []
    return {"questions": questions, "accepted": accepted, "next": list(dict.fromkeys(following)), "warnings": warnings}


@contextmanager
def _naming_handoff(view: Ask, data: EventData | dict[str, Any]) -> Iterator[None]:
    """Add to the refusal of a question to an unknown agent that a handoff has this name."""
    try:
        yield
    except Refused as refusal:
        to = getattr(data, "to", "")
        if refusal.code == "AGENT_UNKNOWN" and to and view("handoffs.existing", {"ids": [to]})["handoffs"]:
            refusal.message = f"{to} is a handoff: `deed ask NAME TEXT --about {to}` asks an agent about it"
        raise


def _warnings_without_handoff(view: Ask, draft: Draft) -> list[str]:
    """Return the warnings about a question that is about no handoff, before it is signed."""
    if isinstance(draft.data, kinds.QuestionAnswered):
        return _replaces(view("questions.show", {"id": draft.stream.partition("/")[2]})["answer"])
    if isinstance(draft.data, kinds.QuestionAsked):
        page = view("questions.list", {"to": draft.data.to, "settled": False})
        return _asked_before(row["id"] for row in page["items"] if row["question"] == draft.data.question)
    return []


def _warnings_on(handoff: dict[str, Any], data: EventData | dict[str, Any], index: int) -> list[str]:
    """Return the warnings about a question in a handoff as it is after the event ``index``."""
    if isinstance(data, HandoffQuestionAnswered):
        begins = f"answers question {data.position + 1}: "
        earlier = [line["text"] for line in handoff["log"] if line["event_index"] < index]
        return _replaces(next((text.removeprefix(begins) for text in earlier[::-1] if text.startswith(begins)), ""))
    if isinstance(data, HandoffQuestionAsked):
        same = (data.to, data.question)
        rows = [row for row in handoff["questions"][:-1] if row["mark"] != "settled"]
        return _asked_before(
            f"{handoff['id']}:{row['position'] + 1}" for row in rows if (row["to"], row["text"]) == same
        )
    return []


def _replaces(answer: str | None) -> list[str]:
    return [f"this replaces the answer {cut(answer, answer_shown_max)!r}"] if answer else []


def _asked_before(ids: Iterable[str]) -> list[str]:
    return [f"the same question is open already: {id_}" for id_ in ids][:1]


def _next_of(question: dict[str, Any]) -> list[NextCommand]:
    waits = {"open": ("answer", question["to"]), "answered": ("settle", question["author"])}
    if (wait := waits.get(question["status"])) is None:
        return []
    act, agent = wait
    wait_item = {"kind": "question", "id": question["id"], "act": act, "agent": agent, "arguments": {}}
    return [NextCommand(agent, command_of(wait_item))]
