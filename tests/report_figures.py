"""Measures reports: the tokens of a resume against those of the whole history, and the questions that it answers.

The program answers a question by look-up: it takes the entry of the resume that shares most words with the question.
If the answer is in that entry, word for word, the question counts as answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from deedbook.consumers.sessions.packer import printed
from deedbook.consumers.sessions.report import publish_report
from deedbook.consumers.sessions.resume import resume
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.text import content_words
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from building import Ledger
    from session_cases import Case, Question

    from deedbook.ledger.client.local import LocalClient

BATCH = 200


class Figures(NamedTuple):
    """The figures of a session: the tokens of its history and of its resume, and the number of answered questions."""

    case: Case
    history: int
    tokens: int
    asked: int
    answered: int
    open: list[Question]

    @property
    def saved(self) -> float:
        """The share of the history's tokens that the resume saves."""
        return 1 - self.tokens / self.history


class Recorder:
    """Sessions recorded in a ledger and reported on by alice."""

    def __init__(self, ledger: Ledger, client: LocalClient, reader: Reader) -> None:
        self.client = client
        self.answer = reader.answer
        self.author = Author(client, "alice", lambda _: ledger.keys["alice"])

    def record(self, case: Case, *, report: bool = True) -> None:
        """Record a session and publish its report."""
        drafts = [Draft(stream=f"session/{case.id}", data=data) for data in case.events]
        for start in range(0, len(drafts), BATCH):
            self.author.emit(*drafts[start : start + BATCH])
        if report:
            publish_report(self.author, self.answer, case.id)

    def resume(self, case: Case, level: str) -> dict[str, Any]:
        """Return the resume of a session."""
        return resume(self.answer, self.client.get_blob, session_id=case.id, detail_level=level)

    def figures(self, case: Case, level: str, resumed: dict[str, Any] | None = None) -> Figures:
        """Measure the resume of a session, which is ``resumed`` or is made now."""
        resumed = resumed or self.resume(case, level)
        entries = list(entries_of(resumed))
        # A summary leaves out tools by definition.
        questions = [one for one in case.questions if level != "summary" or one.about != "tool"]
        open_ = [one for one in questions if not is_answered(one, entries)]
        asked = len(questions)
        return Figures(case, self.history(case), count_tokens(printed(resumed)), asked, asked - len(open_), open_)

    def history(self, case: Case) -> int:
        """Return the tokens of the signed bodies of a session's events, except reports."""
        total = start = 0
        while True:
            page = self.client.entries(start, stream=f"session/{case.id}")
            for index, data in page.entries:
                if read_event(index, data).kind != "report.generated":
                    total += count_tokens(decode_entry(data).body.decode())
            if page.next_index == start:
                return total
            start = page.next_index


def entries_of(resumed: dict[str, Any]) -> Iterator[str]:
    """Yield the entries of a resume as texts: each item of a list with the list's name, and each other value."""
    for holder in [*resumed["sessions"], {"dead_ends": resumed["dead_ends"]}]:
        for key, value in holder.items():
            name = key.replace("_", " ")
            if key == "investigation_tools" or not isinstance(value, list):
                yield f"{name} {value if isinstance(value, str) else printed(value)}"
            else:
                yield from (f"{name} {one if isinstance(one, str) else said(one)}" for one in value)


def said(value: dict[str, Any]) -> str:
    """Return the texts and numbers of an entry, joined into one text."""
    return " ".join(part if isinstance(part, str) else msgspec.json.encode(part).decode() for part in value.values())


def is_answered(question: Question, entries: Iterable[str]) -> bool:
    """Return whether the entry that fits a question best, or an equally good one, contains the answer."""
    wanted = set(content_words(f"{question.about} {question.asked}"))
    scored = [(len(wanted & set(content_words(entry))), entry) for entry in entries]
    best = max(score for score, _ in scored)
    return any(question.answer in entry for score, entry in scored if score == best)


def answered(found: Iterable[Figures]) -> float:
    """Return the share of all questions that were answered."""
    figures = list(found)
    return sum(one.answered for one in figures) / sum(one.asked for one in figures)
