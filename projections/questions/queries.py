"""Queries about questions that are about no handoff: a list, and one with its answer."""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import ById, ListArguments, Listing, QueryContext, Where, list_of
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.questions.answers import AskedQuestion, QuestionStatus, ShownQuestion
from deedbook.projections.questions.fold import QuestionRow

LISTING: Final = Listing("SELECT * FROM questions", "questions", "asked_index")


class QuestionList(ListArguments, frozen=True, rename={"receiver": "to"}):
    """The filters of a list, newest first."""

    status: QuestionStatus | None = None
    author: str | None = None
    receiver: str | None = None
    settled: bool | None = None


def list_questions(context: QueryContext, args: QuestionList) -> Page[AskedQuestion]:
    """Return questions that are about no handoff, newest first."""
    where = Where(args, "status", "author", "receiver")
    if args.settled is not None:
        where.add(f"status {'=' if args.settled else '<>'} 'settled'")
    return list_of(context, LISTING, where, args, lambda row: AskedQuestion(**row))


def show_question(source: RowSource, args: ById) -> ShownQuestion:
    """Return a question that is about no handoff, with its answer if there is one."""
    name = source.id_of("question", args.id)
    return ShownQuestion(**msgspec.structs.asdict(source.states("questions", QuestionRow, [name])[name]))
