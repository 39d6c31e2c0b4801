"""One agent of a task: follow the stream, recompute, say what is to be said, until the task is over or pauses.

Nothing is kept beside the stream. What is refused because it was said already (by the process that was here before, or
one that is thought dead) means: read again. A refusal after which there is nothing new to read is a fault of ours.

The orchestrator opens a task, has it decomposed and asks for the search; the explorer appends ``search.next_step``, and
pauses a task whose request waits too long for another's agent. The other four answer every request that waits for their
role, ``at_once_max`` at a time, each in a thread; what the thinker cannot do becomes the message's ``error``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, assert_never

import msgspec

from deedbook.consumers.thoughts import answers
from deedbook.consumers.thoughts.conclusion import remembered
from deedbook.consumers.thoughts.search import calls_needed, next_step, search_complete
from deedbook.consumers.thoughts.settings import Overrides, read_overrides, search_config
from deedbook.consumers.thoughts.task import AGENTS, PAUSING, Asked, Step, Task, attempts_max, drafts
from deedbook.consumers.thoughts.thinkers import Answered, PaidThinker, Thinker
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import tot as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import encode_canonical

wait_s: Final = 1.0
at_once_max: Final = 8
answer_wait_s: Final = 600
tree_inline_max_bytes: Final = 32 * 1024
message_max_chars: Final = 1_000

# Somebody else said it, or said something before it.
_TAKEN: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT", "PARTIAL_RETRY", "STREAM_CONFLICT", "ALREADY_RECORDED"}
)
# What a thinker thought does not fit into an event.
_NO_EVENT: Final = frozenset(
    {"TOO_LARGE", "INVALID_FIELD", "INVALID_FORMAT", "NESTING_TOO_DEEP", "INTEGER_OUT_OF_RANGE", "UNKNOWN_FIELD"}
)


class Agent:
    """One role of one task, played by ``author`` with ``thinker``."""

    def __init__(self, role: kinds.Role, author: Author, thinker: Thinker, opening: kinds.TotStarted) -> None:
        """Play ``role``; the orchestrator of a task that is not there yet begins it with ``opening``."""
        self._role = role
        self._author = author
        self._thinker = thinker
        self._opening = opening
        self._task = Task(opening.task_id)
        self._threads = ThreadPoolExecutor(at_once_max)
        self._works: dict[str, Future[Refused | None]] = {}
        self._since_s: dict[str, float] = {}

    def run(self, stop: threading.Event, start: int = 0) -> bool:
        """Play from ``start`` until the task is over or pauses, or ``stop`` is set; return whether it needs nobody.

        Raises ``Refused`` for what nobody said before and the ledger does not take, and ``Unavailable``: whoever starts
        the agent again goes on.
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
                continue  # an agent that has not read everything would answer what is answered
            for id_ in ended:
                failed = self._works.pop(id_).result()
                if failed is not None and id_ in self._task.waiting and not self._task.is_over:
                    raise failed  # nobody was faster
            if refusal is not None and not has_news:
                raise refusal
            refusal, wait, has_news = None, wait_s, False
            if self._task.is_over:
                self._keep()
                return True
            if self._task.paused is None:
                refusal = self._act(self._role)
                continue
            # What is being paid for is answered first, and nothing else begun.
            self._works = {id_: work for id_, work in self._works.items() if not work.cancel()}
            if not self._works:
                return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being thought about, so that no thread uses the author's client."""
        return all(work.done() for work in self._works.values())

    def _act(self, role: kinds.Role) -> Refused | None:
        match role:
            case "orchestrator":
                return self._say(orchestrate(self._task, self._opening), partial(not_begun, self._task))
            case "explorer":
                steps = explore(self._task, self._thinker, self._author.put_blob) or self._late()
                return self._say(steps, partial(given_up, self._task, store=self._author.put_blob))
            case "decomposer" | "generator" | "evaluator" | "synthesizer":
                for id_, asked in self._task.waiting.items():
                    if asked.event.data.to == role and id_ not in self._works:
                        self._works[id_] = self._threads.submit(self._answer, asked)
                return None
            case _:
                assert_never(role)

    def _answer(self, asked: Asked) -> Refused | None:
        # If we crash here, the request waits; the next process recalls what was paid, and answers under the same key.
        return self._say([answer(asked, self._thinker, self._task, self._author)], partial(refused, asked))

    def _keep(self) -> None:
        # Said again by whoever resumes the task, it is taken once.
        if self._role == "orchestrator" and (refusal := self._say(remembered(self._task))) is not None:
            raise refusal

    def _late(self) -> list[Step]:
        """Return the pause of a task of which another agent did not answer in time, from when this process saw it."""
        task = self._task
        if task.started is None:
            return []
        others = {bound.role: bound.agent for bound in task.started.roles if bound.agent != AGENTS[bound.role]}
        limit_s, now_s = float(task.started.options.get("answer_wait_s", answer_wait_s)), time.monotonic()
        for id_, asked in task.waiting.items():
            role: kinds.Role = asked.event.data.to
            if role in others and now_s - self._since_s.setdefault(id_, now_s) >= limit_s:
                message = f"{others[role]}, the {role}, has not answered entry {asked.event.index} within {limit_s:g} s"
                failure = kinds.Failure(code="EVALUATION_TIMEOUT", message=message, recoverable=True)
                return [paused("explorer", task, failure, id_)]
        return []

    def _say(self, steps: list[Step], instead: Callable[[str], list[Step]] = lambda _: []) -> Refused | None:
        """Append one submission, or ``instead`` of what no event holds; return the refusal if another was faster."""
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
            return self._say(other)
        return None


def orchestrate(task: Task, opening: kinds.TotStarted) -> list[Step]:
    """Return what the orchestrator says next, one submission; nothing while it waits."""
    if task.started is None:
        # Without a key: a task of this id that is there already must be refused, even if it was opened in these words.
        return [Step(opening)]
    if task.search is not None or task.waiting:
        return []
    last = task.decompositions[-1] if task.decompositions else None
    if last is None:
        return [_decompose(task, task.started)]
    failure, shape = last.data.error, last.data.payload
    if shape is None:
        faults = [event for event in task.decompositions if event.data.error.code not in PAUSING]
        if failure.code in PAUSING and last.id not in task.paused_for:
            return [paused("orchestrator", task, failure, last.id)]
        if failure.code in PAUSING or (failure.recoverable and len(faults) < attempts_max):
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
    """Return the end of a task whose search the ledger did not let be asked for; before and after it there is none."""
    if task.started is None or task.is_over:
        return []
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return [_error(task, kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False), cause)]


def explore(task: Task, thinker: Thinker, store: Callable[[bytes], str]) -> list[Step]:
    """Return what the explorer says next, by the number of its step: two explorers of one task never walk two ways."""
    if task.search is None:
        return []
    try:
        step = next_step(task, thinker)
    except Exception as error:  # noqa: BLE001 - another's code says what is a solution
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
    """Return the end of a search that the ledger did not take the next step of: it was too much for one event."""
    if task.is_over or task.search is None:
        return []
    failure = kinds.Failure(code="INVALID_FORMAT", message=message[:message_max_chars], recoverable=False)
    data = search_complete(task, failure)
    data = msgspec.structs.replace(data, payload=msgspec.structs.replace(data.payload, best_path=[]))
    return [Step(_fitted(data, store), [task.search_id], f"answer:{task.search_id}")]


def answer(asked: Asked, thinker: Thinker, task: Task, author: Author) -> Step:
    """Return what ``thinker`` answers to a request; what it raises, as a package's may, becomes the ``error``."""
    request, id_ = asked.event.data, asked.event.id
    thinker.language = task.language
    if isinstance(thinker, PaidThinker):
        limits = read_overrides(task.started.options if task.started else {})
        recorder = _Recorder(author, task, asked.event, limits)
        thinker = thinker.at_work(deadline=limits.deadline, recorder=recorder)
    try:
        reply = answers.respond(asked.nodes, request, thinker, task.language)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - another's code: one that raises must not end a search
        return refused(asked, _failed(thinker, error))[0]
    if isinstance(thinker, PaidThinker):
        reply = msgspec.structs.replace(reply, usage=reply.usage + thinker.usage)
    return Step(reply, [id_], f"answer:{id_}")


@dataclass
class _Recorder:
    """What a model answered to the questions of one request, kept in the log; see ``thinkers.Recorder``."""

    _author: Author
    _task: Task
    _request: Event
    _limits: Overrides

    def may_ask_again(self) -> bool:
        task, total = self._task, self._task.paid.total
        if isinstance(self._request.data, kinds.SynthesizeSolution):
            return True  # or all that was paid before would come to nothing
        task.asked_again.append(self._request.id)  # first: of threads that ask at the same time, each counts the others
        calls_max = task.config.calls_max if task.search else self._limits.calls_max or inf
        return calls_needed(task) <= calls_max and total.tokens_in + total.tokens_out < (self._limits.tokens_max or inf)

    def recall(self, prompt_sha256: str) -> Answered | None:
        # Only what this role paid for: another's agent that is bound could have an answer ready to our next question.
        if (event := self._task.answers.get((self._request.data.to, prompt_sha256))) is None:
            return None
        data, is_ours = event.data, self._request.id in event.causes
        return Answered(data.answer, data.fault or "", data.usage if is_ours else kinds.Usage())

    def record(self, prompt_sha256: str, model: str, answered: Answered) -> None:
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
            self._author.emit(*drafts(self._task.id, [Step(data, [self._request.id], f"paid:{prompt_sha256}")]))
        except Refused as refusal:
            # Another process asked it at the same time, or the search has ended: then this answer is not taken either.
            if refusal.code not in _TAKEN:
                raise


def _failed(thinker: Thinker, error: BaseException) -> str:
    return f"the thinker {thinker.name} failed: {type(error).__name__}: {error}"


def refused(asked: Asked, message: str) -> list[Step]:
    """Return the answer to a request that says why there is none."""
    request = asked.event.data
    code = "GENERATION_FAILED" if isinstance(request, kinds.GenerateThoughts) else "INVALID_FORMAT"
    failure = kinds.Failure(code=code, message=message[:message_max_chars], recoverable=True)
    reply = answers.message(answers.ANSWERS[type(request)], request.task_id, None, error=failure)
    return [Step(reply, [asked.event.id], f"answer:{asked.event.id}")]


def _decompose(task: Task, started: kinds.TotStarted) -> Step:
    payload = kinds.DecomposePayload(problem=started.problem, task_type=started.task_type)
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return Step(answers.message(kinds.DecomposeTask, task.id, payload), [cause], f"ask:decompose_task:{cause}")


def paused(role: kinds.Role, task: Task, failure: kinds.Failure, cause: str) -> Step:
    """Return the pause of a task for an answer or request; without a key, because one may have to pause it again."""
    return Step(kinds.TotPaused(sender=role, task_id=task.id, error=failure), [cause])


def _error(task: Task, failure: kinds.Failure, cause: str) -> Step:
    return Step(kinds.TotError(sender="orchestrator", task_id=task.id, error=failure), [cause], f"error:{cause}")


def _fitted(data: kinds.SearchComplete, store: Callable[[bytes], str]) -> kinds.SearchComplete:
    """Return the message with its tree as a blob if it is too large to stand in it."""
    if len(encode_canonical(data.payload)) <= tree_inline_max_bytes:
        return data
    tree = encode_canonical(data.payload.tree)
    # If we crash after this line, there is a blob that nobody names.
    payload = msgspec.structs.replace(data.payload, tree=None, tree_ref=store(tree))
    return msgspec.structs.replace(data, payload=payload)
