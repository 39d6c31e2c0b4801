"""Random changes to the bodies of events: other values, other keys, other spellings, other bytes."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from building import body_fields
from event_examples import EXAMPLES

from deedbook.ledger.events import CORE_KINDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**53,
    -(2**53),
    10**30,
    1.5,
    1.0,
    0.0,
    -0.0,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\n",
    "x" * 201,
    "x" * 2001,
    "x" * 40_001,
    [],
    {},
    [1],
    {"a": 1},
    ["x"],
    [None],
    [[]],
    "root",
    "1",
    "01",
    "2026-02-30",
    "2026-02-12T10:00:00Z",
    "2026-02-30T10:00:00Z",
    "blake3:" + "1" * 64,
    "\u2028",
    "\ud800",
    "\x00",
    100_001,
    1_000_001,
)
KEYS: Final = ("0", "1", "01", "-1", "1000001", "1.0", " 1", "+1", "x", "", "9" * 20, "1e3", "٣")
LETTERS: Final = "\n A0z/é\u2028\t.-"
BYTES: Final = b'{}[]",:0123456789.eE+-\\u \n\t\x00ntf'


def bodies() -> list[dict[str, Any]]:
    """Return a good body of each kind."""
    made = []
    for kind, data in ((kind, EXAMPLES[kind]) for kind in CORE_KINDS):
        family = CORE_KINDS[data.get("mapped_kind") or kind if kind == "record.imported" else kind].stream
        made.append(body_fields(kind, family if family == "ledger" else f"{family}/x", data))
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within a value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def mutated(value: Any, chance: random.Random) -> Any:
    """Return a value with something in it changed."""
    value = copy.deepcopy(value)
    *path, last = chance.choice([path for path in places(value) if path])
    holder = value
    for key in path:
        holder = holder[key]
    other = copy.deepcopy(chance.choice(VALUES))
    held = holder[last]
    match chance.randrange(6):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, dict):
            holder[chance.choice((*KEYS, *holder)) + chance.choice(("", "", "x"))] = other
        case 2 if isinstance(holder, list):
            holder.append(chance.choice((other, held)))
        case 3 if isinstance(held, str):
            at = chance.randrange(len(held) + 1)
            holder[last] = held[:at] + chance.choice(LETTERS) + held[at + chance.randrange(2) :]
        case 4 if isinstance(held, list):
            holder[last] = held * chance.choice((0, 2, 70))
        case _:  # any other change replaces the value
            holder[last] = other
    return value


def mutated_text(body: dict[str, Any], chance: random.Random) -> bytes:
    """Return the text of a body with something changed, in its values or in its spelling."""
    text = json.dumps(
        mutated(body, chance),
        ensure_ascii=chance.random() < 0.3,
        sort_keys=chance.random() < 0.7,
        separators=(",", ":") if chance.random() < 0.7 else None,
    )
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if chance.random() < 0.3:
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at]
            case 2:
                data.insert(at, chance.choice(BYTES))
            case _:  # repeat a part of the text
                data[at:at] = data[at : at + chance.randrange(30)]
    return bytes(data)
