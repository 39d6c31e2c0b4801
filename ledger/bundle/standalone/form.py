"""The form of entries and events: msgpack and JSON of which there is one reading, and the fields of each kind.

Which fields a kind has is said by ``schemas.json`` in the bundle, a table in a part of JSON Schema. It is data, so
that this program need not hold a type for each kind; and it is believed only if its hash is the one that stands here:
whoever made the bundle, and holds the keys of node and checkpoint, must not choose what an event may be.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from blake3 import blake3

from deedbook.ledger.bundle.standalone.proofs import EVENT, TREE_MAX, WrongError, need, pae

ENTRY_MAX = 48 * 1024
BODY_MAX = ENTRY_MAX - 160
BATCH_MAX = 256
STREAM_MAX = 400
DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1
CLOCK_MAX_MS = 253_402_300_799_999
KINDS_SHA256 = ""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = {str: "string", dict: "object", list: "array", bool: "boolean", int: "integer", float: "number"}
NAMES |= {type(None): "null"}


class Entry(NamedTuple):
    """What the log stores of an event: the author's bytes, and what the ledger says of them."""

    body: bytes
    key: bytes
    signature: bytes
    place: int
    batch: int
    accepted_ms: int
    versions: tuple[int, int]


@dataclass(frozen=True)
class Event:
    """An event at its place in the log."""

    index: int
    id: bytes
    entry: Entry
    body: dict[str, Any]
    kind: str
    stream: str
    author: str
    data: dict[str, Any]


def take_item(data: bytes, at: int) -> tuple[int | bytes, int]:
    """Read a msgpack unsigned integer, or bytes, in its shortest form."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    need(0xCC <= first <= 0xCF or first in (0xC4, 0xC5), "a number or bytes were expected")
    width = 1 << (first - 0xCC) if first >= 0xCC else first - 0xC3
    number, at = int.from_bytes(data[at : at + width], "big"), at + width
    least = (0x80 if width == 1 else 1 << (4 * width)) if first >= 0xCC else 0x100 * (width - 1)
    need(number >= least, "a number or bytes are not in their shortest form")
    return (number, at) if first >= 0xCC else (data[at : at + number], at + number)


def read_entry(data: bytes) -> Entry:
    """Return an entry in its one form: an array of ten."""
    need(len(data) <= ENTRY_MAX and data[:1] == b"\x9a", "the entry is no array of ten, or too large")
    items: list[Any] = []
    at = 1
    while len(items) < 10:
        item, at = take_item(data, at)
        items.append(item)
    need(at == len(data), "the entry ends too soon, or bytes follow it")
    version, body, key, algorithm, signature, place, batch, accepted_ms, *versions = items
    bytes_at = [at for at, item in enumerate(items) if isinstance(item, bytes)]
    need(bytes_at == [1, 2, 4], "the entry has a number where bytes belong, or bytes where a number belongs")
    need((version, algorithm) == (1, 1), "the entry is of an unknown version or algorithm")
    need(len(key) == 32 and len(signature) == 64, "key or signature has the wrong length")
    need(place < batch <= BATCH_MAX, "its place in the batch is impossible")
    need(accepted_ms <= CLOCK_MAX_MS, "its time lies beyond the year 9999")
    need(len(body) <= BODY_MAX, "its body is too large")
    need(all(0 < one <= TREE_MAX for one in versions), "its place in its stream or among authority is impossible")
    return Entry(body, key, signature, place, batch, accepted_ms, (versions[0], versions[1]))


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a key twice."""
    need(len(dict(pairs)) == len(pairs), "a JSON key stands twice")
    return dict(pairs)


def integer(digits: str) -> int:
    """Refuse an integer that not every reader holds exactly."""
    need(len(digits) <= 17 and abs(int(digits)) <= INTEGER_MAX, f"the integer {digits[:24]} lies outside ±(2^53-1)")
    return int(digits)


def number(digits: str) -> float:
    """Refuse a number that is infinite for who reads it, and what is none."""
    need(math.isfinite(float(digits)), f"the number {digits[:24]} is too large, or none")
    return float(digits)


def read_json(text: bytes) -> Any:
    """Parse JSON that no two readers understand differently."""
    depth = 0
    for match in re.finditer(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', text):  # a string is passed over whole
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(match[0], 0)
        need(depth <= DEPTH_MAX, f"the JSON is nested deeper than {DEPTH_MAX} levels")
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique,
            parse_int=integer,
            parse_float=number,
            parse_constant=number,
        )
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair has no UTF-8
    except (ValueError, RecursionError) as error:
        raise WrongError(f"this is not JSON: {error}") from error
    return value


def to_ms(time: str) -> int:
    """Return a time of RFC 3339 in Unix milliseconds."""
    return (datetime.fromisoformat(time) - EPOCH) // timedelta(milliseconds=1)


class Kinds:
    """The kinds of events and their fields, as the table says."""

    def __init__(self, table: bytes) -> None:
        """Read the table, which must be the one that this program knows."""
        need(hashlib.sha256(table).hexdigest() == KINDS_SHA256, "schemas.json is not the table of this version")
        tables = json.loads(table)
        self.types: dict[str, Any] = tables["types"]
        self.kinds: dict[str, list[str]] = tables["kinds"]
        self.mapped: dict[str, list[str]] = tables["mapped"]
        self.ids: dict[str, Any] = tables["ids"]

    def read(self, index: int, data: bytes) -> Event:
        """Return the event in an entry, every field as its kind has it."""
        entry = read_entry(data)
        body = read_json(entry.body)
        self.fit(body, {"$ref": "Body"}, "$")
        kind, stream, content = body["kind"], body["stream"], body["data"]
        need(kind in self.kinds, f"there is no kind {kind}")
        self.fit(content, {"$ref": self.kinds[kind][1]}, "$.data")
        family = self.kinds[kind][0]
        if kind == "record.imported":
            family = self.imported(content, family)
        need(len(stream.encode()) <= STREAM_MAX, "its stream has too long a name")
        is_of, _, name = stream.partition("/")
        id_type = self.ids.get(is_of, {"type": "string"})
        need(is_of == family and bool(name) == (id_type is not None), f"{kind} does not belong on {stream}")
        if id_type is not None:
            self.fit(name, id_type, "$.stream")
        date.fromisoformat(body["at"][:10])
        identity = blake3(pae(EVENT, entry.body)).digest()
        return Event(index, identity, entry, body, kind, stream, body["author"], content)

    def imported(self, data: dict[str, Any], family: str) -> str:
        """Check what a record of another tool stands for; return the family of the streams that it belongs on."""
        kind, mapped, claims = data.get("mapped_kind"), data.get("mapped", {}), data.get("claims", {})
        if kind is None:
            need(not mapped and not claims, "an unmapped record has no mapped data and no claims")
            return family
        need(kind in self.mapped, f"{kind} cannot be imported")
        for value, name, path in zip((mapped, claims), self.mapped[kind], ("mapped", "claims"), strict=True):
            self.fit(value, {"$ref": name}, f"$.data.{path}")
        return self.kinds[kind][0]

    def fit(self, value: Any, schema: dict[str, Any], path: str) -> None:
        """Check a value against a schema of the table."""
        if "$ref" in schema:
            return self.fit(value, self.types[schema["$ref"]], path)
        if "anyOf" in schema:
            return self.fit_any(value, schema["anyOf"], path)
        if "enum" in schema:
            is_listed = any(type(value) is type(one) and value == one for one in schema["enum"])
            return need(is_listed, f"{path} is none of {schema['enum']}")
        name, wanted = NAMES[type(value)], schema.get("type", NAMES[type(value)])
        need(wanted == name or (wanted, name) == ("number", "integer"), f"{path} is no {wanted}")
        if isinstance(value, str | list):
            size, unit = len(value), "Length" if isinstance(value, str) else "Items"
            is_sized = schema.get(f"min{unit}", 0) <= size <= schema.get(f"max{unit}", size)
            need(is_sized, f"{path} is too short or too long")
        if isinstance(value, str):
            need(re.search(schema.get("pattern", ""), value), f"{path} has another form")
        elif isinstance(value, list):
            for at, item in enumerate(value):
                self.fit(item, schema.get("items", {}), f"{path}[{at}]")
        elif isinstance(value, dict):
            self.fit_object(value, schema, path)
        elif value is not None:
            need(schema.get("minimum", value) <= value <= schema.get("maximum", value), f"{path} is out of range")
        return None

    def fit_any(self, value: Any, schemas: list[dict[str, Any]], path: str) -> None:
        """Check that a value fits one of several schemas; the last one says why it does not."""
        for schema in schemas[:-1]:
            try:
                return self.fit(value, schema, path)
            except WrongError:
                continue
        return self.fit(value, schemas[-1], path)

    def fit_object(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        """Check the keys of an object, and what is under them."""
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        missing = [name for name in schema.get("required", []) if name not in value]
        need(not missing, f"{path} lacks {', '.join(missing)}")
        for name, item in value.items():
            keys = schema.get("propertyNames", {})
            is_number = keys.get("type") == "integer" and re.fullmatch("0|-?[1-9][0-9]{0,15}", name)
            self.fit(int(name) if is_number else name, keys, path)
            need(name in known or others is not False, f"{path} has an unknown field {name[:60]}")
            self.fit(item, known.get(name, others), f"{path}.{name[:60]}")
