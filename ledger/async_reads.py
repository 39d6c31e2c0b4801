"""What a subscription on an event loop asks of a ledger, and how its questions about the past are answered there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ledger.client import epoch_in

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from ledger.client import HeadView, Page
    from ledger.history import Epoch, Growth, Question


class AsyncReads(Protocol):
    """What an ``AsyncReactor`` asks of a ledger."""

    async def head(self) -> HeadView:  # noqa: D102 - as ``Client.head``
        ...

    async def entry(self, index: int) -> bytes:  # noqa: D102 - as ``Client.entry``
        ...

    async def index_of(self, stream: str, event_id: str) -> int | None:  # noqa: D102 - as ``Client.index_of``
        ...

    async def consistency(self, old_size: int) -> Growth:  # noqa: D102 - as ``Client.consistency``
        ...

    async def entries(  # noqa: D102 - as ``Client.entries``
        self,
        start: int,
        *,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
        old_size: int | None = None,
    ) -> Page: ...


async def answers_of(reads: AsyncReads, questions: Generator[Question, Any, int]) -> int:
    """Return what comes of the questions that a past asks of the log, as ``history.answered`` does."""
    answer: Growth | Epoch | None = None
    while True:
        try:
            question = questions.send(answer)
        except StopIteration as end:
            return int(end.value)
        if isinstance(question, int):
            answer = await reads.consistency(question)
        else:
            index = await reads.index_of("ledger", question)
            answer = epoch_in(index, b"" if index is None else await reads.entry(index), question)
