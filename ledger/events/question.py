"""The kinds of a question outside of handoffs. A question about a handoff is on the handoff's stream (``handoff``)."""

from __future__ import annotations

from deedbook.ledger.events.fields import EventData, Line, Name, OptionalText, Text


class QuestionAsked(EventData, frozen=True):
    """Asks another agent; ``place`` is a file, perhaps with a line. Only ``to`` answers."""

    to: Name
    question: Text
    place: Line | None = None


class QuestionAnswered(EventData, frozen=True):
    """The answer of the agent that was asked. The agent may answer again until the question is settled."""

    answer: Text


class QuestionSettled(EventData, frozen=True):
    """The agent that asked accepts the answer or withdraws the question; so may a reviewer or human."""

    comment: OptionalText = ""
