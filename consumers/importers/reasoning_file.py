"""Reading reasoning graphs from a file: one JSON object, a JSON array of them, or JSON Lines (seed 001).

A graph may have any fields beside the seed's (``id``, ``source``, ``answer``, ``critical_steps``, …): they are kept
aside and reported by path. Of these ``id``, ``domain`` and ``session`` belong to the events that record the graph and
are handed back as hints; they stay in ``kept_aside`` too, because whoever records may decide otherwise.

The file is strict JSON. It is read whole or refused whole: the refusal has the code of the first fault, and names each
faulty graph with its line (``problems_shown_max`` of them).
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec

from ledger.codec import check_strict
from ledger.errors import Refused
from projections.reasoning.memory import ReasoningMemory, memory_from_dict

file_size_max_bytes: Final = 64 * 1024**2
graphs_max: Final = 10_000
problems_shown_max: Final = 20

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_REF_PREFIX: Final = "sha256:"


class Hints(msgspec.Struct, frozen=True):
    """What a file says of a graph that is no part of it; ``line`` is where the graph begins (None inside an array)."""

    id: str = ""
    domain: str = ""
    session: str = ""
    line: int | None = None
    position: int = 0


class ReadGraph(NamedTuple):
    """A graph of the file, its fields that the graph has no place for (by path), and hints for recording it."""

    memory: ReasoningMemory
    kept_aside: dict[str, Any]
    hints: Hints


class _Found(NamedTuple):
    value: Any
    line: int | None
    place: str  # how an error names it


def read_reasoning_file(content: bytes) -> list[ReadGraph]:
    """Return the graphs of a file in order, at least one.

    Raises:
        Refused: ``TOO_LARGE``, the strict JSON codes, or as ``memory_from_dict``; the message and ``details`` name the
            line, or the position in an array, and ``problems`` lists every graph that was refused.
    """
    if len(content) > file_size_max_bytes:
        message = f"the file has {len(content)} bytes; at most {file_size_max_bytes} are read"
        raise Refused("TOO_LARGE", message, size=len(content))
    text = content.removeprefix(_BYTE_ORDER_MARK)
    found = _read_lines(text) if _is_json_lines(text) else _read_whole(text)
    if not found:
        raise Refused("INVALID_FORMAT", "the file holds no reasoning graph")
    if len(found) > graphs_max:
        raise Refused("TOO_LARGE", f"the file holds {len(found)} graphs; at most {graphs_max} are read")
    graphs: list[ReadGraph] = []
    problems: list[tuple[_Found, Refused]] = []
    for position, one in enumerate(found):
        try:
            graphs.append(_graph(one, position))
        except Refused as refusal:
            problems.append((one, refusal))
    if problems:
        raise _all_refused(problems, len(found))
    return graphs


def _is_json_lines(text: bytes) -> bool:
    """Tell whether the first line is an object by itself and others follow: in a printed object it never is."""
    first, _, rest = text.strip().partition(b"\n")
    first, rest = first.strip(), rest.strip()
    if not rest:
        return False
    if first.startswith(b"{") and first.endswith(b"}") and rest.startswith(b"{"):
        return True  # whether or not the first is well-formed
    try:
        check_strict(first)
    except Refused:
        return False
    return True


def _read_lines(text: bytes) -> list[_Found]:
    found: list[_Found] = []
    problems: list[tuple[_Found, Refused]] = []
    count = 0
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        count += 1
        one = _Found(None, number, f"line {number}")
        try:
            found.append(one._replace(value=check_strict(line)))
        except Refused as refusal:
            problems.append((one, refusal))
    if problems:
        raise _all_refused(problems, count)
    return found


def _read_whole(text: bytes) -> list[_Found]:
    try:
        value = check_strict(text)
    except Refused as refusal:
        line = _line_of(refusal, text)
        if line is None:
            raise
        raise _all_refused([(_Found(None, line, f"line {line}"), refusal)], 1) from refusal
    if isinstance(value, list):
        return [_Found(item, None, f"graph {position} of the array") for position, item in enumerate(value, start=1)]
    start = len(text) - len(text.lstrip())
    line = 1 + text.count(b"\n", 0, start)
    return [_Found(value, line, f"line {line}")]


def _line_of(refusal: Refused, text: bytes) -> int | None:
    match refusal.__cause__:
        case json.JSONDecodeError() as error:
            return error.lineno
        case UnicodeDecodeError() as error:
            return 1 + text.count(b"\n", 0, error.start)
        case _:
            # A fault without a place (NaN, a key given twice): only where there is one line is it known.
            return None if b"\n" in text.strip() else 1 + text.count(b"\n", 0, len(text) - len(text.lstrip()))


def _graph(found: _Found, position: int) -> ReadGraph:
    memory, kept_aside = memory_from_dict(found.value)
    # A reasoning_id that is a ref (as in the seed's example) names the content, not the stream.
    name = "" if memory.reasoning_id.startswith(_REF_PREFIX) else memory.reasoning_id
    hints = Hints(
        id=_first_text(kept_aside, ("id",)) or name,
        domain=_first_text(kept_aside, ("domain",)),
        session=_first_text(kept_aside, ("session", "session_id")),
        line=found.line,
        position=position,
    )
    return ReadGraph(memory, kept_aside, hints)


def _first_text(fields: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((fields[name] for name in names if isinstance(fields.get(name), str) and fields[name]), "")


def _all_refused(problems: list[tuple[_Found, Refused]], count: int) -> Refused:
    """Return one refusal for the file: that of its first faulty graph, naming the others."""
    first, refusal = problems[0]
    others = f" (and {len(problems) - 1} more of {count})" if len(problems) > 1 else ""
    shown = [
        {"line": one.line, "place": one.place, "code": fault.code, "message": fault.message}
        for one, fault in problems[:problems_shown_max]
    ]
    details = refusal.details | {"line": first.line, "problems": shown}
    return Refused(refusal.code, f"{first.place}: {refusal.message}{others}", **details)
