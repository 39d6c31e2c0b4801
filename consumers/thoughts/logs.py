"""Writes the log folder of a Tree-of-Thoughts task from its events alone.

All times are the ledger's (``accepted_ms``), ``seq`` is the order within a file, and the timeline is in the order of
the log. The line of an event is in the file of the agent that signed it; that of an answered
``decompose_task`` is in the decomposer's. An agent that never ran has no file, but the
numbers 01, 02 and 03 stay those of orchestrator, decomposer and explorer. A round is one generation and its evaluation;
file numbers continue over the rounds. The same events give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.sdk.files import read_file, remove_file, write_file
from deedbook.consumers.sdk.text import json_text, sanitize_line
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.task import Task, stats
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.system.files import as_unavailable

Line: TypeAlias = Callable[..., kinds.LogEntry]
line_chars_max: Final = 2_000

TASK_INFO: Final = "task-info.json"
TIMELINE: Final = "merged-timeline.log"
_OURS: Final = re.compile(
    r"[0-9]{2,}-(task-info\.json|merged-timeline\.log|(orchestrator|decomposer|explorer|synthesizer)\.log"
    r"|(generator|evaluator)-round[0-9]+\.log)"
)
_SEARCHED: Final = ("strategy", "max_depth", "branching_factor", "pruning_threshold")
_FIRST: Final = ("orchestrator", "decomposer", "explorer")
_IN_ROUNDS: Final = ("generator", "evaluator")
# Messages after the last round: they belong to no round, whatever their causes are.
_AFTER: Final = (kinds.SynthesizeSolution, kinds.FinalSolution, kinds.SearchComplete)


class _LogFile(NamedTuple):
    """The log file of an agent, in a round (0: not in rounds)."""

    role: str
    round: int = 0

    @property
    def name(self) -> str:
        return f"{self.role}-round{self.round}" if self.round else self.role


class _Line(NamedTuple):
    accepted_ms: int
    log_file: _LogFile
    entry: kinds.LogEntry


def write_logs(events: Iterable[Event], out: Path) -> Path:
    """Write the log folder of a task, ``tot-YYYYMMDD-HHMMSS-xxxxxx``, under ``out`` and return it.

    If we crash here, some files are those of an older export; exporting again corrects them. Files of an older export
    that have other numbers now are removed; nothing else in the folder is touched.
    """
    events = list(events)
    files = log_files(events)
    folder: Path = out / events[0].data.task_id
    with as_unavailable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        older = [path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name not in files]
    for path in older:
        remove_file(path)
    for name, content in files.items():
        with suppress(Refused):  # a link, or too large: it is replaced
            if read_file(folder / name) == content:
                continue
        write_file(folder / name, content)
    return folder


def log_files(events: Iterable[Event]) -> dict[str, bytes]:
    """Return the files of a task's log folder by name; ``events`` are those of its stream, in order."""
    events = list(events)
    if not events or not isinstance(events[0].data, kinds.TotStarted):
        raise Refused("NOT_FOUND", "these events are not a task: the first one must be tot.started")
    task = Task(events[0].name)
    for event in events:
        task.apply(event)
    lines = list(_lines(events, task))
    lines_of: dict[_LogFile, list[_Line]] = {}
    for line in lines:
        lines_of.setdefault(line.log_file, []).append(line)
    numbers = _numbers(lines_of)
    # From 98 files on, numbers have three digits, so that the timeline still sorts last.
    digits = max(2, len(str(max(numbers.values(), default=0) + 2)))
    names = {log_file: f"{number:0{digits}}-{log_file.name}" for log_file, number in numbers.items()}
    info = task_info(events, task)
    info_text = msgspec.json.format(json_text(info), indent=2)
    files = {f"{0:0{digits}}-{TASK_INFO}": f"{info_text}\n".encode()}
    for log_file in sorted(numbers, key=numbers.__getitem__):
        files[f"{names[log_file]}.log"] = _json_lines(lines_of[log_file])
    agent_calls = sum(isinstance(event.data, kinds.Question) for event in events)
    timeline = _timeline(info, lines, names, agent_calls, partial(phrase, task.language))
    return files | {f"{'9' * digits}-{TIMELINE}": timeline.encode()}


def task_info(events: Sequence[Event], task: Task) -> dict[str, Any]:
    """Return the content of ``00-task-info.json``; fields that are only known at the end are None before it."""
    started: kinds.TotStarted = events[0].data
    config = task.config if task.search else None
    first_ms, end = events[0].accepted_ms, next((event for event in events if ends(event)), None)
    search_fields = None if config is None else {name: getattr(config, name) for name in _SEARCHED}
    return {
        "task_id": started.task_id,
        "problem": started.problem,
        "task_type": started.task_type,
        "start_time": clock_text(first_ms),
        "end_time": None if end is None else clock_text(end.accepted_ms),
        "duration_ms": None if end is None else max(0, end.accepted_ms - first_ms),
        "search_config": search_fields,
        "final_stats": _stats(task),
    }


def _lines(events: Sequence[Event], task: Task) -> Iterable[_Line]:
    """Yield the lines of all agents in the order of the log; a line is derived for each event without its own."""
    rounds = _Rounds()
    config = task.config if task.search else None
    logs = [event for event in events if isinstance(event.data, kinds.TotLogWritten)]
    has_decomposed = any(isinstance(event.data, kinds.DecompositionResult) for event in events)
    written = {(event.author, cause) for event in logs for cause in event.causes}
    for event in events:
        role = "orchestrator" if isinstance(event.data, kinds.TotStarted) else getattr(event.data, "sender", "explorer")
        if isinstance(event.data, kinds.DecomposeTask) and has_decomposed:
            role = event.data.to  # the protocol's own timeline has this line in the receiver's file
        number = rounds.round_of(event)
        log_file = _LogFile(role, number if role in _IN_ROUNDS else 0)
        if (event.author, event.id) not in written:
            yield from (_Line(event.accepted_ms, log_file, entry) for entry in entries_of(event, task.language, config))


class _Rounds:
    """The rounds of events, of nodes and of each author's last event. An evaluation has the round of its last node."""

    def __init__(self) -> None:
        self._count = 0
        self._of_event: dict[str, int] = {}
        self._of_node: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def round_of(self, event: Event) -> int:
        """Return the round of the next event; if it has none of its own, its author's last round."""
        data = event.data
        if isinstance(data, kinds.GenerateThoughts):
            self._count += 1
            number = self._count
        elif isinstance(data, kinds.EvaluateThoughts):
            number = max((self._of_node.get(node.id, 0) for node in data.payload.candidates), default=0) or self._count
        elif isinstance(data, _AFTER):
            number = 0
        else:
            stated = data.round if isinstance(data, kinds.TotLogWritten) else 0
            number = next((self._of_event[cause] for cause in event.causes if cause in self._of_event), stated)
        if number:
            self._of_event[event.id] = self._last[event.author] = number
            if isinstance(data, kinds.TotNodesAdded):
                self._of_node |= dict.fromkeys((node.id for node in data.nodes), number)
        return number or self._last.get(event.author) or 1


def _numbers(log_files: Iterable[_LogFile]) -> dict[_LogFile, int]:
    """Return the number of each file: the first three are fixed, then the rounds, then the synthesizer."""
    distinct = set(log_files)
    numbers = {_LogFile(role): number for number, role in enumerate(_FIRST, 1) if _LogFile(role) in distinct}
    rounds = (log_file for log_file in distinct if log_file.role in _IN_ROUNDS)
    following = sorted(rounds, key=lambda log_file: (log_file.round, _IN_ROUNDS.index(log_file.role)))
    following += [log_file for log_file in distinct if log_file.role == "synthesizer"]
    return numbers | {log_file: number for number, log_file in enumerate(following, len(_FIRST) + 1)}


def _json_lines(lines: Sequence[_Line]) -> bytes:
    text = ""
    for seq, (accepted_ms, _, entry) in enumerate(lines, 1):
        fields = {"ts": clock_text(accepted_ms), "seq": seq, "level": entry.level, "msg": entry.msg}
        text += json_text(fields | ({"data": msgspec.Raw(_encoded(entry.data))} if entry.data else {})) + "\n"
    return text.encode()


def _timeline(
    info: dict[str, Any], lines: Sequence[_Line], names: dict[_LogFile, str], agent_calls: int, say: Callable[..., str]
) -> str:
    start = info["start_time"]
    text = [say("timeline", task_id=info["task_id"], problem=sanitize_line(info["problem"]), start=start)]
    for line in lines:
        clock = clock_text(line.accepted_ms)[len("2025-10-30T") : -1]
        text.append(f"[{clock}] [{names[line.log_file]}] {sanitize_line(line.entry.msg)}")
        if line.entry.data:
            text.append(say("timeline_data", data=sanitize_line(_encoded(line.entry.data).decode())))
    numbers = {"lines": len(lines), "agent_calls": agent_calls, "llm_calls": info["final_stats"]["llm_calls"]}
    duration = say("not_yet") if info["duration_ms"] is None else _duration(info["duration_ms"], say)
    return "\n".join([*text, say("timeline_end", end=info["end_time"] or say("not_yet"), duration=duration, **numbers)])


def _stats(task: Task) -> dict[str, Any]:
    """Return the three counts of a search: the explorer's final ones, else those of the events so far."""
    counts = kinds.SearchStats(total_nodes=0, total_backtracks=0, llm_calls=task.costs.total.requests)
    if task.search is not None:
        counts = stats(task) if task.complete is None else task.complete.data.payload.stats
    best = None if counts.best_score is None else float(counts.best_score)
    return {"total_nodes": counts.total_nodes, "llm_calls": counts.llm_calls, "best_score": best}


def _duration(milliseconds: int, say: Callable[..., str]) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    is_shown = {"hours": hours > 0, "minutes": hours > 0 or minutes > 0, "seconds": True}
    counts = {"hours": hours, "minutes": minutes, "seconds": seconds}
    return "".join(say(name, count=count) for name, count in counts.items() if is_shown[name])


def _encoded(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data, order="deterministic")


def ends(event: Event) -> bool:
    """Return whether ``event`` ends the search; agents may still append events after it."""
    is_failure = isinstance(event.data, kinds.TotError) and event.data.sender == "orchestrator"
    return is_failure or isinstance(event.data, kinds.SearchComplete)


def entries_of(
    event: Event, language: kinds.Language, config: kinds.SearchConfig | None = None
) -> list[kinds.LogEntry]:
    """Return the log lines of an event in this language: its author's own, or the derived one."""
    data, line = event.data, partial(_line, language)
    if isinstance(data, kinds.TotLogWritten):
        return list(data.entries)
    if isinstance(data, kinds.TotError | kinds.Message) and data.error is not None:
        derived: kinds.LogEntry | None = _failed(data.sender, data.error)
    elif isinstance(data, kinds.Message):
        derived = _request_line(data, line) or _answer_line(data, language)
    else:
        derived = _note_line(data, config, line)
    return [] if derived is None else [derived]


def _request_line(data: kinds.Message, line: Line) -> kinds.LogEntry | None:
    match data:
        case kinds.DecomposeTask():
            return line("progress", "decompose", {"problem": data.payload.problem})
        case kinds.InitializeSearch():
            config = data.payload.search_config
            about = {"strategy": config.strategy, "threshold": config.pruning_threshold, "depth": config.max_depth}
            return line("info", "config", **about, branching=config.branching_factor)
        case kinds.GenerateThoughts():
            parent, count = data.payload.parent_node, data.payload.num_candidates
            fields = {"parent_node": parent.id, "num_candidates": count}
            return line("progress", "expand", fields, level=parent.depth + 1, count=1)
        case kinds.EvaluateThoughts():
            nodes = data.payload.candidates
            fields = {"candidates": [node.id for node in nodes]}
            return line("progress", "evaluate", fields, level=nodes[0].depth, count=len(nodes))
        case kinds.SynthesizeSolution():
            path = [node.id for node in data.payload.best_path]
            return line("progress", "synthesize", {"best_path": path}, count=len(path))
        case _:  # any other message: an answer
            return None


def _answer_line(data: kinds.Message, language: kinds.Language) -> kinds.LogEntry | None:
    line = partial(_line, language)
    match data:
        case kinds.DecompositionResult(payload=kinds.Decomposition() as shape):
            shown = {"thought_granularity": shape.thought_granularity, "depth_estimate": shape.depth_estimate}
            return line("info", "decomposed", shown)
        case kinds.GeneratedThoughts(payload=kinds.GeneratedPayload() as made):
            contents = [candidate.content for candidate in made.candidates]
            if not contents:
                return line("warning", "generated_none")
            return line("progress", "generated", {"candidates": contents}, count=len(contents))
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as results):
            scores = {evaluation.node_id: evaluation.score for evaluation in results.evaluations}
            return line("progress", "evaluated", {"scores": scores}, count=len(scores))
        case kinds.FinalSolution(payload=kinds.Solution() as solution):
            about = {"answer": solution.answer, "by": phrase(language, f"by_{solution.verification.by}")}
            if solution.verification.is_valid or solution.verification.by == "nobody":
                return line("info", "answer", {"confidence": solution.confidence}, **about)
            errors = solution.verification.validation_errors
            return line("warning", "answer_invalid", {"validation_errors": errors}, **about)
        case kinds.SearchComplete():
            counts, path = data.payload.stats, [node.id for node in data.payload.best_path]
            numbers = {"count": counts.total_nodes, "backtracks": counts.total_backtracks}
            return line("info", "complete", {"best_path": path}, **numbers)
        case _:  # any other message: a request, or an answer that holds neither payload nor error
            return None


def _note_line(data: Any, config: kinds.SearchConfig | None, line: Line) -> kinds.LogEntry | None:
    match data:
        case kinds.TotStarted():
            return line("info", "problem_type", {"thinker": data.thinker}, task_type=data.task_type)
        case kinds.TotNodesAdded() if data.nodes[0].parent_id is None:
            about = {"strategy": config.strategy, "depth": config.max_depth} if config else {}
            return line("info", "initialized", about)
        case kinds.TotNodesAdded():
            ids = {temp_id: node.id for temp_id, node in zip(data.temp_ids, data.nodes, strict=False)}
            return line("progress", "added", {"ids": ids}, level=data.nodes[0].depth, count=len(data.nodes))
        case kinds.TotNodesMarked():
            level = "warning" if data.status == "pruned" else "info"  # a node that is not taken is no warning
            return line(level, data.status, {"nodes": data.node_ids}, count=len(data.node_ids), reason=data.reason)
        case kinds.TotBacktracked():
            return line("progress", "backtracked", node=data.node_id, to=data.to_node_id or "-", reason=data.reason)
        case kinds.TotPaused():
            shown = {"retry_after_s": data.error.retry_after_s, "recoverable": data.error.recoverable}
            return line("warning", "paused", shown, code=data.error.code, message=data.error.message)
        case kinds.TotResumed():
            return line("info", "resumed", thinker=data.thinker)
        case _:  # the data of any other kind
            return None


def _failed(sender: str, error: kinds.Failure) -> kinds.LogEntry:
    text = f"❌ [{sender.capitalize()}] {error.code}: {error.message.removeprefix(f'{error.code}: ')}"
    fields = {"code": error.code, "recoverable": error.recoverable}
    return kinds.LogEntry(level="error", msg=text[:line_chars_max], data=fields)


def _line(
    language: kinds.Language, level: Any, name: str, data: dict[str, Any] | None = None, /, **values: Any
) -> kinds.LogEntry:
    return kinds.LogEntry(level=level, msg=phrase(language, name, **values)[:line_chars_max], data=data or {})
