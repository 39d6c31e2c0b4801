"""The log folder of a Tree-of-Thoughts task, from its events alone (seed 003, "日志规范").

Rules kept: every time is the ledger's (``accepted_ms``), ``seq`` is the order within a file, and the timeline stands in
the order of the log; an agent has a file only if it said something, but orchestrator, decomposer and explorer keep
01, 02 and 03; a round is one generation with the evaluation of what it gave; numbers run on over the rounds, with three
digits from 98 files on. Nothing depends on when or where the folder is written: the same events give the same bytes.
``consumers.thoughts.log_folder`` writes them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from consumers.sdk.text import one_line
from consumers.thoughts.log_lines import derived_line
from consumers.thoughts.tree import advance, stats
from ledger.errors import Refused
from ledger.events import tot as kinds
from projections.thoughts.rounds import Rounds, round_of_file, seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.events.body import Event

TASK_INFO: Final = "task-info.json"
TIMELINE: Final = "merged-timeline.log"
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
    """A line and where it stands."""

    accepted_ms: int
    place: _Place
    entry: kinds.LogEntry


def log_files(events: Iterable[Event]) -> dict[str, bytes]:
    """Return the files of a task's log folder by name; ``events`` are those of its stream, in order.

    Raises:
        Refused: ``NOT_FOUND`` when they do not begin with ``tot.started``.
    """
    told = list(events)
    if not told or not isinstance(told[0].data, kinds.TotStarted):
        raise Refused("NOT_FOUND", "a task's log begins with tot.started: these events do not")
    lines = list(_lines(told))
    of_place: dict[_Place, list[_Line]] = {}
    for line in lines:
        of_place.setdefault(line.place, []).append(line)
    numbers = _numbers(of_place)
    digits = _digits(max(numbers.values(), default=0))
    names = {place: f"{number:0{digits}}-{place.name}" for place, number in numbers.items()}
    info = task_info(told)
    shown = msgspec.json.format(_escaped(msgspec.json.encode(info).decode()), indent=2)
    files = {f"{0:0{digits}}-{TASK_INFO}": f"{shown}\n".encode()}
    for place in sorted(numbers, key=numbers.__getitem__):
        files[f"{names[place]}.log"] = _json_lines(of_place[place])
    timeline = _timeline(info, lines, names, _calls(told))
    return files | {f"{'9' * digits}-{TIMELINE}": timeline.encode()}


def task_info(events: Sequence[Event]) -> dict[str, Any]:
    """Return what ``00-task-info.json`` holds; what is not known before the end is None until then."""
    started: kinds.TotStarted = events[0].data
    config = _config(events)
    first_ms, end = events[0].accepted_ms, _end(events)
    return {
        "task_id": started.task_id,
        "problem": started.problem,
        "task_type": started.task_type,
        "start_time": _time(first_ms),
        "end_time": None if end is None else _time(end.accepted_ms),
        "duration_ms": None if end is None else end.accepted_ms - first_ms,
        "search_config": None
        if config is None
        else {
            "strategy": config.strategy,
            "max_depth": config.max_depth,
            "branching_factor": config.branching_factor,
            "pruning_threshold": float(config.pruning_threshold),
        },
        "final_stats": _stats(events),
    }


def _lines(events: Sequence[Event]) -> Iterable[_Line]:
    """Yield the lines of all agents in the order of the log: their own, and derived ones where they wrote none."""
    rounds = Rounds()
    config = _config(events)
    told = {
        (event.author, cause)
        for event in events
        if isinstance(event.data, kinds.TotLogWritten)
        for cause in event.causes
    }
    for event in events:
        rounds = seen(rounds, event)
        role = "orchestrator" if isinstance(event.data, kinds.TotStarted) else getattr(event.data, "sender", "explorer")
        place = _Place(role, round_of_file(rounds, event) if role in _IN_ROUNDS else 0)
        if isinstance(event.data, kinds.TotLogWritten):
            for entry in event.data.entries:
                yield _Line(event.accepted_ms, place, entry)
        elif (event.author, event.id) not in told and (derived := derived_line(event, config)) is not None:
            yield _Line(event.accepted_ms, place, derived)


def _numbers(places: Iterable[_Place]) -> dict[_Place, int]:
    """Return the number of each file: the first three are fixed, the rounds follow, the synthesizer is last."""
    found = set(places)
    numbers = {_Place(role): number for number, role in enumerate(_FIRST, 1) if _Place(role) in found}
    following = sorted(
        (place for place in found if place.role in _IN_ROUNDS),
        key=lambda place: (place.round, _IN_ROUNDS.index(place.role)),
    )
    following += [place for place in found if place.role == "synthesizer"]
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
        said: dict[str, Any] = {
            "ts": _time(line.accepted_ms),
            "seq": seq,
            "level": line.entry.level,
            "msg": line.entry.msg,
        }
        if line.entry.data:
            said["data"] = msgspec.Raw(_encoded(line.entry.data))
        text += _escaped(msgspec.json.encode(said).decode()).encode() + b"\n"
    return bytes(text)


def _timeline(info: dict[str, Any], lines: Sequence[_Line], names: dict[_Place, str], agent_calls: int) -> str:
    text = [
        "# ToT 执行时间线",
        "",
        f"任务 ID: {info['task_id']}",
        f"问题: {one_line(info['problem'])}",
        "",
        f"任务开始: {info['start_time']}",
        "",
    ]
    for line in lines:
        clock = _time(line.accepted_ms)[len("2025-10-30T") : -1]
        text.append(f"[{clock}] [{names[line.place]}] {one_line(line.entry.msg)}")
        if line.entry.data:
            text.append(f"         数据: {one_line(_encoded(line.entry.data).decode())}")
    text += [
        "",
        f"任务结束: {info['end_time'] or '尚未结束'}",
        f"总耗时: {'尚未结束' if info['duration_ms'] is None else _duration(info['duration_ms'])}",
        "",
        "---",
        "",
        "统计信息:",
        f"- 总日志条目: {len(lines)} 条",
        f"- Agent 调用次数: {agent_calls}",
        f"- LLM 调用次数: {info['final_stats']['llm_calls']} 次",
    ]
    return "\n".join(text) + "\n"


def _config(events: Sequence[Event]) -> kinds.SearchConfig | None:
    return next(
        (event.data.payload.search_config for event in events if isinstance(event.data, kinds.InitializeSearch)), None
    )


def _calls(events: Sequence[Event]) -> int:
    return sum(isinstance(event.data, kinds.REQUESTS) for event in events)


def _end(events: Sequence[Event]) -> Event | None:
    """Return the event after which nothing is searched; agents may still have something to say after it."""
    for event in events:
        match event.data:
            case kinds.SearchComplete() | kinds.TotError(sender="orchestrator"):
                return event
            case _:
                pass  # the search goes on
    return None


def _stats(events: Sequence[Event]) -> dict[str, Any]:
    """Return the seed's three counts: as the explorer closed them, else as far as the events go."""
    closed = next((event.data.payload.stats for event in events if isinstance(event.data, kinds.SearchComplete)), None)
    counts = closed or _so_far(events)
    best = None if counts.best_score is None else float(counts.best_score)
    return {"total_nodes": counts.total_nodes, "llm_calls": counts.llm_calls, "best_score": best}


def _so_far(events: Sequence[Event]) -> kinds.SearchStats:
    tree = None
    for event in events:
        tree = advance(tree, event)
    return kinds.SearchStats(total_nodes=0, total_backtracks=0, llm_calls=0) if tree is None else stats(tree)


def _time(milliseconds: int) -> str:
    """Return the ledger's time as the seed writes it: ISO 8601, UTC, to the millisecond."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}小时" if hours else "") + (f"{minutes}分" if hours or minutes else "") + f"{seconds}秒"


def _encoded(data: dict[str, Any]) -> bytes:
    """Return data in one form, whatever order its keys came in."""
    return msgspec.json.encode(data, order="deterministic")


def _escaped(encoded: str) -> str:
    """Return JSON whose strings end no line and move no terminal's cursor, whoever prints it; its values are the same.

    JSON itself escapes no more than the first 32 characters of Unicode.
    """
    return encoded if encoded.isprintable() else "".join(map(_escaped_one, encoded))


def _escaped_one(one: str) -> str:
    if one.isprintable():
        return one
    units = one.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
