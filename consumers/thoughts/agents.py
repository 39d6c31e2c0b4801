"""One agent of a task: follow the stream, recompute, say what is to be said, until the task is over.

Nothing is kept beside the stream. Whatever is refused because it was said already (by the process that was here before,
or by one that is thought dead and is not) means: read again. A refusal after which there is nothing new to read is a
fault of ours and is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.thoughts.answering import answer, refused
from consumers.thoughts.exploring import explore, given_up
from consumers.thoughts.orchestrating import not_begun, orchestrate
from consumers.thoughts.remembering import remembered
from consumers.thoughts.task import Task, drafts
from ledger.client import read_event
from ledger.errors import Refused

if TYPE_CHECKING:
    import threading

    from consumers.thoughts.task import Say
    from consumers.thoughts.thinking import Thinker
    from ledger.author import Author
    from ledger.events import tot as kinds

wait_s: Final = 1.0

# Somebody else said it, or said something before it.
_SAID_ALREADY: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY", "STREAM_CONFLICT", "ALREADY_RECORDED"}
)
# What a thinker thought does not fit into an event.
_NO_EVENT: Final = frozenset(
    {"TOO_LARGE", "INVALID_FIELD", "INVALID_FORMAT", "NESTING_TOO_DEEP", "INTEGER_OUT_OF_RANGE", "UNKNOWN_FIELD"}
)


class Agent:
    """One role of one task, played by ``author`` with ``thinker``."""

    def __init__(
        self,
        role: kinds.Role,
        task_id: str,
        author: Author,
        thinker: Thinker,
        *,
        opening: kinds.TotStarted | None = None,
    ) -> None:
        """Play ``role``; the orchestrator of a task that is not there yet begins it with ``opening``."""
        self._role = role
        self._author = author
        self._thinker = thinker
        self._opening = opening
        self._task = Task(task_id)

    def run(self, stop: threading.Event, start: int = 0) -> bool:
        """Play until the task is over, or ``stop`` is set; return whether it is over. ``start`` is where to read from.

        Raises:
            Refused: the ledger does not take what is to be said, and nobody said it before.
            Unavailable: the ledger cannot be used; whoever starts the agent again goes on.
        """
        position, wait, has_news, refusal = start, 0.0, False, None
        client, stream = self._author.client, f"tot/{self._task.id}"
        while not stop.is_set():
            page = client.entries(position, stream=stream, wait_s=wait)
            for index, data in page.entries:
                self._task.apply(read_event(index, data))
            position, has_news = page.next_index, has_news or bool(page.entries)
            if position < page.size:
                continue  # an agent that has not read everything would answer what is answered
            if refusal is not None and not has_news:
                raise refusal
            refusal = self._say(self._next())
            if self._task.is_over:
                self._end()
                return True
            wait, has_news = wait_s, False
        return False

    def _next(self) -> list[Say]:
        match self._role:
            case "orchestrator":
                return orchestrate(self._task, self._opening)
            case "explorer":
                return explore(self._task, self._thinker, self._author.client.put_blob)
            case _:
                return answer(self._role, self._task, self._thinker)

    def _end(self) -> None:
        """Keep what the task came to; said again by whoever resumes it, it is taken once."""
        if self._role == "orchestrator":
            refusal = self._say(remembered(self._task))
            if refusal is not None:
                raise refusal

    def _say(self, says: list[Say], *, is_last_try: bool = False) -> Refused | None:
        """Append one submission; return the refusal that says that somebody was faster."""
        if not says:
            return None
        try:
            self._author.emit(*drafts(self._task.id, says))
        except Refused as refusal:
            if refusal.code in _SAID_ALREADY:
                return refusal
            if refusal.code not in _NO_EVENT or is_last_try or self._has_no_other_words():
                raise
            return self._say(self._instead(refusal.message), is_last_try=True)
        return None

    def _has_no_other_words(self) -> bool:
        """Return whether there is no task yet, or none any more, that could end with what went wrong."""
        return self._role == "orchestrator" and (self._task.started is None or self._task.is_over)

    def _instead(self, message: str) -> list[Say]:
        if self._role == "orchestrator":
            return not_begun(self._task, message)
        if self._role == "explorer":
            return given_up(self._task, message, self._author.client.put_blob)
        return refused(self._role, self._task, message)
