"""A search in which the calling agent thinks: each call answers one request, and returns the next one as a question.

No process runs between two calls. The log has the whole state, so a call can come at any time, from any process of the
agent. A call appends what the orchestrator and the explorer do until a request waits for the thinker. The four roles
that think sign their answers with their own keys, as for any other thinker; ``thinker`` in ``tot.started`` names the
agent whose thoughts they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from deedbook.consumers.thoughts import answers
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import Agent
from deedbook.consumers.thoughts.processes import author_of
from deedbook.consumers.thoughts.run import locked_task, prepare, read_task
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.consumers.thoughts.task import AGENTS, PendingRequest, Step, Task
from deedbook.consumers.thoughts.thinkers.calling_agent import AGENT, Asked, CallingAgent
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Settings

_THINKING: Final = frozenset({"decomposer", "generator", "evaluator", "synthesizer"})


class AgentQuestion(NamedTuple):
    """A question to the calling agent: the id of its request, its text with the form of the answer, and its data."""

    id: str
    text: str
    about: dict[str, Any]


class Dialogue:
    """One task that ``agent`` thinks about; methods raise Refused as ``run_task``."""

    def __init__(self, settings: Settings, client: Client, agent: str, task_id: str) -> None:
        """Talk about a task, which need not exist yet."""
        self._settings = settings
        self._client = client
        self._name = f"{AGENT}:{agent}"
        self._task_id = task_id

    def begin(self, problem: str, options: TaskOptions) -> AgentQuestion | None:
        """Start the task, and return its first question."""
        options = options._replace(thinker=self._name)
        opening = prepare(self._settings, self._client, problem, options, self._task_id).opening
        with locked_task(self._settings, self._task_id):
            return self._question(self._advance(opening))

    def ask(self) -> AgentQuestion | None:
        """Return the question that waits; None if the search has ended or is paused."""
        with locked_task(self._settings, self._task_id):
            return self._question(self._advance(self._opening()))

    def answer(self, question_id: str, answer: dict[str, Any]) -> AgentQuestion | None:
        """Answer a question, and return the next one.

        Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE`` if the answer cannot be used, and nothing is recorded;
        ``TRANSITION_NOT_ALLOWED`` if the question does not wait; ``NOT_AUTHORIZED`` if another agent thinks.
        """
        opening = self._opening()
        with locked_task(self._settings, self._task_id):
            task = self._advance(opening)
            pending = task.waiting.get(question_id)
            if pending is None or pending.event.data.to not in _THINKING:
                message = f"no question {question_id} of {self._task_id} waits for an answer: ask for its state"
                raise Refused("TRANSITION_NOT_ALLOWED", message)
            reply = self._respond(task, pending, answer)
            role: kinds.Role = pending.event.data.to
            with self._played(role, opening) as agent:
                agent.say([Step(reply, [question_id], f"answer:{question_id}")])
            return self._question(self._advance(opening))

    def _opening(self) -> kinds.TotStarted:
        opening: kinds.TotStarted = read_task(self._client, self._task_id)[0].data
        if opening.thinker != self._name:
            message = f"{opening.thinker} thinks about {self._task_id}, not {self._name}"
            raise Refused("NOT_AUTHORIZED", message, task=self._task_id)
        return opening

    def _respond(self, task: Task, pending: PendingRequest, answer: dict[str, Any] | None) -> kinds.Reply:
        thinker = CallingAgent(self._name, answer)
        reply = answers.respond(pending.nodes, pending.event.data, thinker, task.language)
        if reply.error is not None:
            raise Refused("INVALID_FORMAT", reply.error.message)
        return reply

    def _question(self, task: Task) -> AgentQuestion | None:
        for id_, pending in task.waiting.items():
            if not task.is_over and task.paused is None and pending.event.data.to in _THINKING:
                try:
                    self._respond(task, pending, None)
                except Asked as asked:
                    return AgentQuestion(id_, asked.text, asked.about)
        return None

    def _advance(self, opening: kinds.TotStarted) -> Task:
        """Let the orchestrator and the explorer act until a request waits for the thinker; return the task."""
        with self._played("orchestrator", opening) as orchestrator, self._played("explorer", opening) as explorer:
            while True:
                task = orchestrator.advance()
                if explorer.advance().last_id == task.last_id:
                    return task

    @contextmanager
    def _played(self, role: kinds.Role, opening: kinds.TotStarted) -> Iterator[Agent]:
        own: AbstractContextManager[Client] = nullcontext(self._client)
        if self._settings.server is not None:
            own = open_client(replace(self._settings, agent=AGENTS[role]))
        with own as client:
            yield Agent(role, author_of(role, self._settings, client), CallingAgent(self._name), opening)
