"""One agent of a task: it follows the stream, computes its next step and appends it, until the task ends or pauses.

An agent stores nothing outside the stream. If a step is refused because another process of the agent already appended
it, the agent reads again. A refusal with nothing new to read is our bug.

The orchestrator opens a task, requests its decomposition and then the search. The explorer appends
``search.next_step``, and pauses a task whose request waits too long for a bound agent. The other four answer all
pending requests to their role, ``at_once_max`` at a time, each in a thread; a failure of the thinker becomes the
message's ``error``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, TypeAlias, assert_never

import msgspec

from deedbook.consumers.thoughts import answers
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.conclusion import remembered
from deedbook.consumers.thoughts.search import calls_needed, next_step, search_complete
from deedbook.consumers.thoughts.settings import Overrides, read_overrides, search_config
from deedbook.consumers.thoughts.task import AGENTS, PAUSING, PendingRequest, Step, Task, attempts_max, drafts
from deedbook.consumers.thoughts.thinkers import ModelAnswer, PaidThinker, Thinker
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import encode_canonical

Progress: TypeAlias = "Callable[[Event], None]"

wait_s: Final = 1.0
at_once_max: Final = 8
answer_wait_s: Final = 600
tree_inline_max_bytes: Final = 32 * 1024
message_max_chars: Final = 1_000

# Codes of a refusal that means that another process appended the step, or an event before it.
_TAKEN: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY", "STREAM_CONFLICT", "ALREADY_RECORDED"}
)
# Codes of a refusal that means that a thinker's answer does not fit into an event.
_NO_EVENT: Final = frozenset(
    {"TOO_LARGE", "INVALID_FIELD", "INVALID_FORMAT", "NESTING_TOO_DEEP", "INTEGER_OUT_OF_RANGE", "UNKNOWN_FIELD"}
)


class TaskReader:
    """Reads the stream of a task into its fold, from the index ``start`` on; ``progress`` gets each event."""

    def __init__(self, client: Client, task_id: str, start: int = 0, progress: Progress | None = None) -> None:
        self.task = Task(task_id)
        self._client = client
        self._position = start
        self._progress = progress

    def read(self, wait_s: float = 0.0) -> None:
        """Read to the end; wait for news if there are none."""
        while True:
            page = self._client.entries(self._position, stream=f"tot/{self.task.id}", wait_s=wait_s)
            for index, data in page.entries:
                event = read_event(index, data)
                self.task.apply(event)
                if self._progress is not None:
                    self._progress(event)
            self._position = page.next_index
            if self._position >= page.size:
                return


class Agent:
    """One role of one task, played by ``author`` with ``thinker``."""

    def __init__(self, role: kinds.Role, author: Author, thinker: Thinker, opening: kinds.TotStarted) -> None:
        """Play ``role``; the orchestrator opens a new task with ``opening``."""
        self._role = role
        self._author = author
        self._thinker = thinker
        self._opening = opening
        self._reader = TaskReader(author.client, opening.task_id)
        self._task = self._reader.task
        self._threads = ThreadPoolExecutor(at_once_max)
        self._works: dict[str, Future[Refused | None]] = {}
        self._since_s: dict[str, float] = {}

    def run(self, stop: threading.Event, start: int = 0) -> bool:
        """Play from ``start`` until the task is over or pauses (return True), or ``stop`` is set (return False).

        Raises ``Refused`` for a new step that the ledger does not accept, and ``Unavailable``; an agent that is started
        again continues.
        """
        position, wait, has_news, refusal = start, 0.0, False, None
        client, stream = self._author.client, f"tot/{self._task.id}"
        while not stop.is_set():
            ended = [id_ for id_, work in self._works.items() if work.done()]
            page = client.entries(position, stream=stream, wait_s=wait)
            for index, data in page.entries:
                self._task.apply(read_event(index, data))
            position, has_news = page.next_index, has_news or bool(page.entries)
            if position < page.size:
                continue  # an agent that has not read everything would answer requests twice
            for id_ in ended:
                failed = self._works.pop(id_).result()
                if failed is not None and id_ in self._task.waiting and not self._task.is_over:
                    raise failed  # no other process answered it
            if refusal is not None and not has_news:
                raise refusal
            refusal, wait, has_news = None, wait_s, False
            if self._task.is_over:
                self._keep()
                return True
            if self._task.paused is None:
                refusal = self._act(self._role)
                continue
            # Wait for the answers to calls that are already paid for; start nothing else.
            self._works = {id_: work for id_, work in self._works.items() if not work.cancel()}
            if not self._works:
                return True
        return False

    def advance(self) -> Task:
        """Act until the log requires no further step, and return the task, for callers who answer requests.

        Raises Refused: the ledger does not accept a step. Unavailable.
        """
        while True:
            self._reader.read()
            if self._task.is_over:
                self._keep()
            if self._task.is_over or self._task.paused is not None:
                return self._task
            last_id, refusal = self._task.last_id, self._act(self._role)
            self._reader.read()
            if self._task.last_id == last_id:
                if refusal is not None:
                    raise refusal
                return self._task

    def say(self, steps: list[Step]) -> None:
        """Append steps as this role. Raises Refused: the ledger does not accept a step. Unavailable."""
        if (refusal := self._append(steps)) is not None:
            raise refusal

    @property
    def is_idle(self) -> bool:
        """Whether no thread works on a request and uses the author's client."""
        return all(work.done() for work in self._works.values())

    def _act(self, role: kinds.Role) -> Refused | None:
        match role:
            case "orchestrator":
                return self._append(orchestrate(self._task, self._opening), partial(not_begun, self._task))
            case "explorer":
                steps = explore(self._task, self._thinker, self._author.put_blob) or self._late()
                return self._append(steps, partial(given_up, self._task, store=self._author.put_blob))
            case "decomposer" | "generator" | "evaluator" | "synthesizer":
                for id_, pending in self._task.waiting.items():
                    is_needed = not self._task.takes_best_path or role == "synthesizer"
                    if pending.event.data.to == role and id_ not in self._works and is_needed:
                        self._works[id_] = self._threads.submit(self._answer, pending)
                return None
            case _:
                assert_never(role)

    def _answer(self, pending: PendingRequest) -> Refused | None:
        # If we crash here, the request waits. The next process finds the paid answers in the log, and answers under the
        # same key.
        return self._append([answer(pending, self._thinker, self._task, self._author)], partial(refused, pending))

    def _keep(self) -> None:
        # A process that resumes the task appends it again; its key makes it one event.
        if self._role == "orchestrator" and (refusal := self._append(remembered(self._task))) is not None:
            raise refusal

    def _late(self) -> list[Step]:
        """Return the pause of a task if a bound agent did not answer in time.

        The time begins when this process first saw the request.
        """
        task = self._task
        if task.started is None:
            return []
        others = {bound.role: bound.agent for bound in task.started.roles if bound.agent != AGENTS[bound.role]}
        limit_s, now_s = float(task.started.options.get("answer_wait_s", answer_wait_s)), time.monotonic()
        for id_, pending in task.waiting.items():
            role: kinds.Role = pending.event.data.to
            if role in others and now_s - self._since_s.setdefault(id_, now_s) >= limit_s:
                message = (
                    f"{others[role]}, the {role}, has not answered entry {pending.event.index} within {limit_s:g} s"
                )
                failure = kinds.Failure(code="EVALUATION_TIMEOUT", message=message, recoverable=True)
                return [paused("explorer", task, failure, id_)]
        return []

    def _append(self, steps: list[Step], instead: Callable[[str], list[Step]] = lambda _: []) -> Refused | None:
        """Append steps together, or ``instead`` if no event can hold them; return the refusal if another was faster."""
        if not steps:
            return None
        try:
            self._author.emit(*drafts(self._task.id, steps))
        except Refused as refusal:
            if refusal.code in _TAKEN:
                return refusal
            other = instead(refusal.message) if refusal.code in _NO_EVENT else []
            if not other:
                raise
            return self._append(other)
        return None


def orchestrate(task: Task, opening: kinds.TotStarted) -> list[Step]:
    """Return the orchestrator's next submission; nothing while it waits."""
    if task.started is None:
        # Without a key: if a task with this id exists, the step must be refused, even if it is the same.
        return [Step(opening)]
    if task.search is not None or task.waiting:
        return []
    last = task.decompositions[-1] if task.decompositions else None
    if last is None:
        return [_decompose(task, task.started)]
    failure, shape = last.data.error, last.data.payload
    if shape is None:
        failed = [event for event in task.decompositions if event.data.error.code not in PAUSING]
        if failure.code in PAUSING and last.id not in task.paused_for:
            return [paused("orchestrator", task, failure, last.id)]
        if failure.code in PAUSING or (failure.recoverable and len(failed) < attempts_max):
            return [_decompose(task, task.started)]
        return [_error(task, failure, last.id)]
    try:
        config = search_config(task.started.task_type, shape, read_overrides(task.started.options))
    except Refused as refusal:
        return not_begun(task, refusal.message)
    about = {"problem": task.started.problem, "task_type": task.started.task_type}
    payload = kinds.InitializePayload(**about, search_config=config, decomposition_result=shape)
    request = answers.message(kinds.InitializeSearch, task.id, payload)
    return [Step(request, [last.id], f"ask:initialize_search:{last.id}")]


def not_begun(task: Task, message: str) -> list[Step]:
    """Return the end of a task whose search request the ledger refused; nothing if the task is not running."""
    if task.started is None or task.is_over:
        return []
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return [_error(task, kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False), cause)]


def explore(task: Task, thinker: Thinker, store: Callable[[bytes], str]) -> list[Step]:
    """Return the explorer's next step; its key is the step's number, so two explorers of one task never diverge."""
    if task.search is None:
        return []
    try:
        step = next_step(task, thinker)
    except Exception as error:  # noqa: BLE001 - a family's own code decides what is a solution
        return given_up(task, _failed(thinker, error), store=store)
    match step:
        case None:
            return []
        case Step(kinds.TotPaused()):
            return [step]
        case Step(kinds.SearchComplete() as complete):
            return [step._replace(data=_fitted(complete, store), key=f"answer:{task.search_id}")]
        case _:  # any other step of a search
            return [step._replace(key=f"step:{task.steps + 1}")]


def given_up(task: Task, message: str, *, store: Callable[[bytes], str]) -> list[Step]:
    """Return the end of a search whose next step the ledger refused because it was too large for one event."""
    if task.is_over or task.search is None:
        return []
    failure = kinds.Failure(code="INVALID_FORMAT", message=message[:message_max_chars], recoverable=False)
    data = search_complete(task, failure)
    data = msgspec.structs.replace(data, payload=msgspec.structs.replace(data.payload, best_path=[]))
    return [Step(_fitted(data, store), [task.search_id], f"answer:{task.search_id}")]


def answer(pending: PendingRequest, thinker: Thinker, task: Task, author: Author) -> Step:
    """Return the answer of ``thinker`` to a request; an exception of the thinker becomes the ``error``."""
    request, id_ = pending.event.data, pending.event.id
    thinker.language = task.language
    if isinstance(thinker, PaidThinker):
        limits = read_overrides(task.started.options if task.started else {})
        recorder = _Recorder(author, task, pending.event, limits)
        thinker = thinker.at_work(deadline=limits.deadline, recorder=recorder)
    try:
        reply = answers.respond(pending.nodes, request, thinker, task.language)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its errors must not end a search
        return refused(pending, _failed(thinker, error))[0]
    if isinstance(thinker, PaidThinker):
        reply = msgspec.structs.replace(reply, usage=reply.usage + thinker.usage)
    return Step(reply, [id_], f"answer:{id_}")


@dataclass
class _Recorder:
    """Records a model's answers to the questions of one request in the log; see ``thinkers.Recorder``."""

    _author: Author
    _task: Task
    _request: Event
    _limits: Overrides

    def may_ask_again(self) -> bool:
        task, total = self._task, self._task.paid.total
        if isinstance(self._request.data, kinds.SynthesizeSolution):
            return True  # otherwise all earlier costs would be wasted
        task.asked_again.append(self._request.id)  # before the check, so that parallel threads count each other
        calls_max = task.config.calls_max if task.search else self._limits.calls_max or inf
        return calls_needed(task) <= calls_max and total.tokens_in + total.tokens_out < (self._limits.tokens_max or inf)

    def recall(self, prompt_sha256: str) -> ModelAnswer | None:
        # Only answers that this role paid for: a bound agent could have prepared an answer to our next question.
        if (event := self._task.answers.get((self._request.data.to, prompt_sha256))) is None:
            return None
        data, is_ours = event.data, self._request.id in event.causes
        return ModelAnswer(data.answer, data.fault or "", data.usage if is_ours else kinds.Usage())

    def record(self, prompt_sha256: str, model: str, answered: ModelAnswer) -> None:
        data = kinds.TotModelAnswered(
            sender=self._request.data.to,
            task_id=self._task.id,
            prompt_sha256=prompt_sha256,
            model=model,
            answer=answered.answer,
            fault=answered.fault or None,
            usage=answered.usage,
        )
        try:
            key = f"paid:{self._task.resumptions}:{prompt_sha256}"
            self._author.emit(*drafts(self._task.id, [Step(data, [self._request.id], key)]))
        except Refused as refusal:
            # Another process asked at the same time, or the search has ended. In both cases this answer is not used.
            if refusal.code not in _TAKEN:
                raise


def _failed(thinker: Thinker, error: BaseException) -> str:
    return f"the thinker {thinker.name} failed: {type(error).__name__}: {error}"


def refused(pending: PendingRequest, message: str) -> list[Step]:
    """Return an answer to a request with the error that prevented a result."""
    request = pending.event.data
    code = "GENERATION_FAILED" if isinstance(request, kinds.GenerateThoughts) else "INVALID_FORMAT"
    failure = kinds.Failure(code=code, message=message[:message_max_chars], recoverable=True)
    reply = answers.message(answers.ANSWERS[type(request)], request.task_id, None, error=failure)
    return [Step(reply, [pending.event.id], f"answer:{pending.event.id}")]


def _decompose(task: Task, started: kinds.TotStarted) -> Step:
    payload = kinds.DecomposePayload(problem=started.problem, task_type=started.task_type)
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return Step(answers.message(kinds.DecomposeTask, task.id, payload), [cause], f"ask:decompose_task:{cause}")


def paused(role: kinds.Role, task: Task, failure: kinds.Failure, cause: str) -> Step:
    """Return the pause of a task for an answer or request; without a key, because a second pause may be needed."""
    return Step(kinds.TotPaused(sender=role, task_id=task.id, error=failure), [cause])


def _error(task: Task, failure: kinds.Failure, cause: str) -> Step:
    final = msgspec.structs.replace(failure, recoverable=False)
    return Step(kinds.TotError(sender="orchestrator", task_id=task.id, error=final), [cause], f"error:{cause}")


def _fitted(data: kinds.SearchComplete, store: Callable[[bytes], str]) -> kinds.SearchComplete:
    """Return the message, with its tree as a blob if the tree is too large."""
    if len(encode_canonical(data.payload)) <= tree_inline_max_bytes:
        return data
    tree = encode_canonical(data.payload.tree)
    # If we crash after this line, a blob is left that nobody references.
    payload = msgspec.structs.replace(data.payload, tree=None, tree_ref=store(tree))
    return msgspec.structs.replace(data, payload=payload)
