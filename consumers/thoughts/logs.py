"""The log folder of a Tree-of-Thoughts task, from its events alone.

Rules kept: every time is the ledger's (``accepted_ms``), ``seq`` is the order within a file, and the timeline stands in
the order of the log; an agent has a file only if it said something, but orchestrator, decomposer and explorer keep
01, 02 and 03; a round is one generation with the evaluation of what it gave; numbers run on over the rounds, with three
digits from 98 files on. Nothing depends on when or where the folder is written: the same events give the same bytes.

An event's line stands in the file of the agent that signed it: an agent that never ran has none. Each file is replaced
whole, so that whoever reads sees the old one or the new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from consumers.sdk.files import read_file, remove_file, write_file
from consumers.sdk.text import one_line
from consumers.thoughts.task import Task, stats
from ledger.errors import Refused
from ledger.events import tot as kinds
from ledger.events.body import Event
from ledger.files import as_unavailable
from projections.thoughts.messages import Rounds, round_of_file, rounds_after

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


class _Place(NamedTuple):
    """Which agent's file, in which round (0: not in rounds)."""

    role: str
    round: int = 0

    @property
    def name(self) -> str:
        return f"{self.role}-round{self.round}" if self.round else self.role


class _Line(NamedTuple):
    accepted_ms: int
    place: _Place
    entry: kinds.LogEntry


def write_logs(events: Iterable[Event], out: Path) -> Path:
    """Write the log folder of a task, ``tot-YYYYMMDD-HHMMSS-xxxxxx``, under ``out`` and return it.

    If we crash here, some files are of the older export; exporting again makes them what they should be. Files of an
    older export that have other numbers now are removed; nothing else in the folder is touched.
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
        path = folder / name
        if not _is(path, content):
            write_file(path, content)
    return folder


def _is(path: Path, content: bytes) -> bool:
    try:
        return read_file(path) == content
    except Refused:
        return False  # a link, or too large: it is replaced


def log_files(events: Iterable[Event]) -> dict[str, bytes]:
    """Return the files of a task's log folder by name; ``events`` are those of its stream, in order."""
    events = list(events)
    if not events or not isinstance(events[0].data, kinds.TotStarted):
        raise Refused("NOT_FOUND", "a task's log begins with tot.started: these events do not")
    lines = list(_lines(events))
    of_place: dict[_Place, list[_Line]] = {}
    for line in lines:
        of_place.setdefault(line.place, []).append(line)
    numbers = _numbers(of_place)
    digits = _digits(max(numbers.values(), default=0))
    names = {place: f"{number:0{digits}}-{place.name}" for place, number in numbers.items()}
    info = task_info(events)
    info_text = msgspec.json.format(_escaped(msgspec.json.encode(info).decode()), indent=2)
    files = {f"{0:0{digits}}-{TASK_INFO}": f"{info_text}\n".encode()}
    for place in sorted(numbers, key=numbers.__getitem__):
        files[f"{names[place]}.log"] = _json_lines(of_place[place])
    agent_calls = sum(isinstance(event.data, kinds.Question) for event in events)
    timeline = _timeline(info, lines, names, agent_calls)
    return files | {f"{'9' * digits}-{TIMELINE}": timeline.encode()}


def task_info(events: Sequence[Event]) -> dict[str, Any]:
    """Return what ``00-task-info.json`` holds; what is not known before the end is None until then."""
    started: kinds.TotStarted = events[0].data
    config = _config(events)
    first_ms, end = events[0].accepted_ms, next((event for event in events if ends(event)), None)
    return {
        "task_id": started.task_id,
        "problem": started.problem,
        "task_type": started.task_type,
        "start_time": _time(first_ms),
        "end_time": None if end is None else _time(end.accepted_ms),
        "duration_ms": None if end is None else max(0, end.accepted_ms - first_ms),
        "search_config": None if config is None else {name: getattr(config, name) for name in _SEARCHED},
        "final_stats": _stats(events),
    }


def _lines(events: Sequence[Event]) -> Iterable[_Line]:
    """Yield the lines of all agents in the order of the log: their own, and derived ones where they wrote none."""
    rounds = Rounds()
    config = _config(events)
    logs = [event for event in events if isinstance(event.data, kinds.TotLogWritten)]
    written = {(event.author, cause) for event in logs for cause in event.causes}
    for event in events:
        rounds = rounds_after(rounds, event)
        role = "orchestrator" if isinstance(event.data, kinds.TotStarted) else getattr(event.data, "sender", "explorer")
        place = _Place(role, round_of_file(rounds, event) if role in _IN_ROUNDS else 0)
        if isinstance(event.data, kinds.TotLogWritten):
            for entry in event.data.entries:
                yield _Line(event.accepted_ms, place, entry)
        elif (event.author, event.id) not in written and (derived := derived_line(event, config)) is not None:
            yield _Line(event.accepted_ms, place, derived)


def _numbers(places: Iterable[_Place]) -> dict[_Place, int]:
    """Return the number of each file: the first three are fixed, the rounds follow, the synthesizer is last."""
    distinct = set(places)
    numbers = {_Place(role): number for number, role in enumerate(_FIRST, 1) if _Place(role) in distinct}
    rounds = (place for place in distinct if place.role in _IN_ROUNDS)
    following = sorted(rounds, key=lambda place: (place.round, _IN_ROUNDS.index(place.role)))
    following += [place for place in distinct if place.role == "synthesizer"]
    return numbers | {place: number for number, place in enumerate(following, len(_FIRST) + 1)}


def _digits(files: int) -> int:
    """Return how many digits the numbers of so many files have: three from 98 on, so that 99 is the timeline's."""
    digits = 2
    while files > 10**digits - 3:
        digits += 1
    return digits


def _json_lines(lines: Sequence[_Line]) -> bytes:
    text = bytearray()
    for seq, line in enumerate(lines, 1):
        entry = line.entry
        fields: dict[str, Any] = {"ts": _time(line.accepted_ms), "seq": seq, "level": entry.level, "msg": entry.msg}
        if line.entry.data:
            fields["data"] = msgspec.Raw(_encoded(line.entry.data))
        text += _escaped(msgspec.json.encode(fields).decode()).encode() + b"\n"
    return bytes(text)


def _timeline(info: dict[str, Any], lines: Sequence[_Line], names: dict[_Place, str], agent_calls: int) -> str:
    about = f"任务 ID: {info['task_id']}\n问题: {one_line(info['problem'])}"
    text = [f"# ToT 执行时间线\n\n{about}\n\n任务开始: {info['start_time']}\n"]
    for line in lines:
        clock = _time(line.accepted_ms)[len("2025-10-30T") : -1]
        text.append(f"[{clock}] [{names[line.place]}] {one_line(line.entry.msg)}")
        if line.entry.data:
            text.append(f"         数据: {one_line(_encoded(line.entry.data).decode())}")
    text += [
        f"\n任务结束: {info['end_time'] or '尚未结束'}",
        f"总耗时: {'尚未结束' if info['duration_ms'] is None else _duration(info['duration_ms'])}",
        "\n---\n\n统计信息:",
        f"- 总日志条目: {len(lines)} 条",
        f"- Agent 调用次数: {agent_calls}",
        f"- LLM 调用次数: {info['final_stats']['llm_calls']} 次",
    ]
    return "\n".join(text) + "\n"


def _config(events: Sequence[Event]) -> kinds.SearchConfig | None:
    asked = (event.data for event in events if isinstance(event.data, kinds.InitializeSearch))
    return next((request.payload.search_config for request in asked), None)


def _stats(events: Sequence[Event]) -> dict[str, Any]:
    """Return the three counts of a search: as the explorer closed them, else as far as the events go."""
    counts = next((event.data.payload.stats for event in events if isinstance(event.data, kinds.SearchComplete)), None)
    if counts is None:
        task = Task(events[0].name)
        for event in events:
            task.apply(event)
        none = kinds.SearchStats(total_nodes=0, total_backtracks=0, llm_calls=task.costs.total.requests)
        counts = none if task.tree is None else stats(task.tree)
    best = None if counts.best_score is None else float(counts.best_score)
    return {"total_nodes": counts.total_nodes, "llm_calls": counts.llm_calls, "best_score": best}


def _time(milliseconds: int) -> str:
    """Return the ledger's time in ISO 8601, UTC, to the millisecond."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}小时" if hours else "") + (f"{minutes}分" if hours or minutes else "") + f"{seconds}秒"


def _encoded(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data, order="deterministic")


def _escaped(encoded: str) -> str:
    """Return JSON whose strings end no line and move no terminal's cursor, whoever prints it; its values are the same.

    JSON itself escapes no more than the first 32 characters of Unicode.
    """
    return encoded if encoded.isprintable() else "".join(map(_escaped_sign, encoded))


def _escaped_sign(sign: str) -> str:
    if sign.isprintable():
        return sign
    units = sign.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def ends(event: Event) -> bool:
    """Return whether nothing is searched after ``event``; agents may still have something to say after it."""
    is_failure = isinstance(event.data, kinds.TotError) and event.data.sender == "orchestrator"
    return is_failure or isinstance(event.data, kinds.SearchComplete)


def derived_line(event: Event, config: kinds.SearchConfig | None) -> kinds.LogEntry | None:
    """Return the line of an event of a task; None for one that is no step of it."""
    data = event.data
    if isinstance(data, kinds.TotError):
        return _failed(data.sender, data.error)
    if isinstance(data, kinds.Message):
        if data.error is not None:
            return _failed(data.sender, data.error)
        return _request_line(data) or _answer_line(data)
    return _note_line(data, config)


def _request_line(data: kinds.Message) -> kinds.LogEntry | None:
    match data:
        case kinds.DecomposeTask():
            return _line("progress", "📋 开始分解问题...", problem=data.payload.problem)
        case kinds.InitializeSearch():
            config = data.payload.search_config
            text = f"配置: {config.strategy}, 分支={config.branching_factor}, 深度={config.max_depth}"
            return _line("info", f"🔍 {text}, 阈值={config.pruning_threshold:g}")
        case kinds.GenerateThoughts():
            parent, count = data.payload.parent_node, data.payload.num_candidates
            text = f"⏳ [Explorer - 第{parent.depth + 1}层] 准备扩展 1 个节点"
            return _line("progress", text, parent_node=parent.id, num_candidates=count)
        case kinds.EvaluateThoughts():
            nodes = data.payload.candidates
            text = f"⏳ [Explorer - 第{nodes[0].depth}层] 准备评估 {len(nodes)} 个候选"
            return _line("progress", text, candidates=[node.id for node in nodes])
        case kinds.SynthesizeSolution():
            path = [node.id for node in data.payload.best_path]
            return _line("progress", f"⏳ [Explorer] 传递最佳路径: {len(path)} 个节点", best_path=path)
        case _:  # any other message: an answer
            return None


def _answer_line(data: kinds.Message) -> kinds.LogEntry | None:
    match data:
        case kinds.DecompositionResult(payload=kinds.Decomposition() as shape):
            granularity, depth = shape.thought_granularity, shape.depth_estimate
            return _line("info", "✅ 分解完成", thought_granularity=granularity, depth_estimate=depth)
        case kinds.GeneratedThoughts(payload=kinds.GeneratedPayload() as made):
            text = f"[Generator] 已生成 {len(made.candidates)} 个候选"
            if not made.candidates:
                return _line("warning", f"⚠️ {text}")
            return _line("progress", f"✓ {text}", candidates=[candidate.content for candidate in made.candidates])
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as results):
            scores = {evaluation.node_id: evaluation.score for evaluation in results.evaluations}
            return _line("progress", f"✓ [Evaluator] 已评估 {len(scores)} 个候选", scores=scores)
        case kinds.FinalSolution(payload=kinds.Solution() as solution):
            if solution.verification.is_valid:
                return _line("info", f"✅ [Synthesizer] 答案: {solution.answer}", confidence=solution.confidence)
            errors = solution.verification.validation_errors
            return _line("warning", f"⚠️ [Synthesizer] 验证未通过: {solution.answer}", validation_errors=errors)
        case kinds.SearchComplete():
            stats_ = data.payload.stats
            text = f"✅ [Explorer] 搜索完成: {stats_.total_nodes} 个节点, 回溯 {stats_.total_backtracks} 次"
            return _line("info", text, best_path=[node.id for node in data.payload.best_path])
        case _:  # any other message: a request, or an answer that holds neither payload nor error
            return None


def _note_line(data: Any, config: kinds.SearchConfig | None) -> kinds.LogEntry | None:
    match data:
        case kinds.TotStarted():
            return _line("info", f"📋 问题类型: {data.task_type}", thinker=data.thinker)
        case kinds.TotNodesAdded() if data.nodes[0].parent_id is None:
            about = {"strategy": config.strategy, "depth": config.max_depth} if config else {}
            return _line("info", "🔍 [Explorer] 初始化完成", **about)
        case kinds.TotNodesAdded():
            ids = {temp_id: node.id for temp_id, node in zip(data.temp_ids, data.nodes, strict=False)}
            return _line("progress", f"✓ [Explorer - 第{data.nodes[0].depth}层] 加入 {len(data.nodes)} 个节点", ids=ids)
        case kinds.TotNodesMarked(status="pruned"):
            text = f"✂️ [Explorer] 剪枝 {len(data.node_ids)} 个节点: {data.reason}"
            return _line("warning", text, nodes=data.node_ids)
        case kinds.TotNodesMarked():
            text = f"🎯 [Explorer] {len(data.node_ids)} 个终端节点: {data.reason}"
            return _line("info", text, nodes=data.node_ids)
        case kinds.TotBacktracked():
            to = data.to_node_id or "-"
            return _line("progress", f"↩️ [Explorer] 回溯: {data.node_id} → {to}: {data.reason}")
        case _:  # the data of any other kind
            return None


def _failed(sender: str, error: kinds.Failure) -> kinds.LogEntry:
    text = f"❌ [{sender.capitalize()}] {error.code}: {error.message}"
    return _line("error", text, code=error.code, recoverable=error.recoverable)


def _line(level: Any, msg: str, **data: Any) -> kinds.LogEntry:
    return kinds.LogEntry(level=level, msg=msg[:line_chars_max], data=data)
