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
from typing import Any, NamedTuple, NoReturn

from blake3 import blake3

from ledger.bundle.standalone.proofs import EVENT, TREE_MAX, WrongError, need, pae

ENTRY_MAX = 48 * 1024
BODY_MAX = ENTRY_MAX - 160
BATCH_MAX = 256
STREAM_MAX = 400
DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1
CLOCK_MAX_MS = 253_402_300_799_999
KINDS_SHA256 = ""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    kind: str
    stream: str
    author: str
    body: dict[str, Any]
    data: dict[str, Any]


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Take bytes out of an entry."""
    need(at + size <= len(data), "the entry ends too soon")
    return data[at : at + size], at + size


def take_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a msgpack unsigned integer in its shortest form."""
    (first,), at = take(data, at, 1)
    if first < 0x80:
        return first, at
    need(0xCC <= first <= 0xCF, "a number was expected")
    size = 1 << (first - 0xCC)
    raw, at = take(data, at, size)
    number = int.from_bytes(raw, "big")
    need(number >= (0x80 if size == 1 else 1 << (4 * size)), "a number is not in its shortest form")
    return number, at


def take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read msgpack bytes in their shortest form."""
    (first,), at = take(data, at, 1)
    need(first in (0xC4, 0xC5), "bytes were expected")
    raw, at = take(data, at, first - 0xC3)
    size = int.from_bytes(raw, "big")
    need(first == 0xC4 or size > 0xFF, "bytes are not in their shortest form")
    return take(data, at, size)


def read_entry(data: bytes) -> Entry:
    """Return an entry in its one form."""
    need(len(data) <= ENTRY_MAX, "the entry is too large")
    need(data[:1] == b"\x9a", "the entry is no array of ten")
    version, at = take_number(data, 1)
    need(version == 1, "the entry is of an unknown version")
    body, at = take_bytes(data, at)
    key, at = take_bytes(data, at)
    algorithm, at = take_number(data, at)
    need(algorithm == 1, "the signature is of an unknown algorithm")
    signature, at = take_bytes(data, at)
    number, at = take_number(data, at)
    batch, at = take_number(data, at)
    accepted_ms, at = take_number(data, at)
    stream_version, at = take_number(data, at)
    authority_version, at = take_number(data, at)
    need(at == len(data), "there are bytes after the entry")
    need(len(key) == 32 and len(signature) == 64, "key or signature has the wrong length")
    need(number < batch <= BATCH_MAX, "its place in the batch is impossible")
    need(accepted_ms <= CLOCK_MAX_MS, "its time lies beyond the year 9999")
    need(len(body) <= BODY_MAX, "its body is too large")
    versions = (stream_version, authority_version)
    need(all(0 < one <= TREE_MAX for one in versions), "its place in its stream or among authority is impossible")
    return Entry(body, key, signature, number, batch, accepted_ms, versions)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a key twice."""
    need(len(dict(pairs)) == len(pairs), "a JSON key stands twice")
    return dict(pairs)


def integer(digits: str) -> int:
    """Refuse an integer that not every reader holds exactly."""
    need(len(digits) <= 17 and abs(int(digits)) <= INTEGER_MAX, f"the integer {digits[:24]} lies outside ±(2^53-1)")
    return int(digits)


def number(digits: str) -> float:
    """Refuse a number that is infinite for who reads it."""
    need(math.isfinite(float(digits)), f"the number {digits[:24]} is too large")
    return float(digits)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities."""
    raise WrongError(f"{name} is not JSON")


def read_json(text: bytes) -> Any:
    """Parse JSON that no two readers understand differently."""
    depth = 0
    for bracket in re.findall(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):  # a string is passed over whole
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(bracket, 0)
        need(depth <= DEPTH_MAX, f"the JSON is nested deeper than {DEPTH_MAX} levels")
    try:
        value = json.loads(
            text.decode("utf-8"), object_pairs_hook=unique, parse_int=integer, parse_float=number,
            parse_constant=no_constant,
        )  # fmt: skip
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
        return Event(index, identity, entry, kind, stream, body["author"], body, content)

    def imported(self, data: dict[str, Any], family: str) -> str:
        """Check what a record of another tool stands for; return the family of the streams that it belongs on."""
        kind, mapped, claims = data.get("mapped_kind"), data.get("mapped", {}), data.get("claims", {})
        if kind is None:
            need(not mapped and not claims, "a record that is kept aside maps to nothing")
            return family
        need(kind in self.mapped, f"{kind} cannot be imported")
        for value, name, path in zip((mapped, claims), self.mapped[kind], ("mapped", "claims"), strict=True):
            self.fit(value, {"$ref": name}, f"$.data.{path}")
        return self.kinds[kind][0]

    def fit(self, value: Any, schema: dict[str, Any], path: str) -> None:
        """Check a value against a schema of the table."""
        if "$ref" in schema:
            self.fit(value, self.types[schema["$ref"]], path)
        elif "anyOf" in schema:
            self.fit_any(value, schema["anyOf"], path)
        elif "enum" in schema:
            need(any(type(value) is type(wanted) and value == wanted for wanted in schema["enum"]), f"{path} is wrong")
        elif isinstance(value, dict):
            self.fit_object(value, schema, path)
        elif isinstance(value, list):
            self.fit_type("array", schema, path)
            self.fit_size(len(value), "Items", schema, path)
            for at, item in enumerate(value):
                self.fit(item, schema.get("items", {}), f"{path}[{at}]")
        elif isinstance(value, str):
            self.fit_type("string", schema, path)
            self.fit_size(len(value), "Length", schema, path)
            need("pattern" not in schema or re.search(schema["pattern"], value), f"{path} has another form")
        elif value is None or isinstance(value, bool):
            self.fit_type("null" if value is None else "boolean", schema, path)
        else:
            self.fit_type("integer" if isinstance(value, int) else "number", schema, path)
            need(schema.get("minimum", value) <= value <= schema.get("maximum", value), f"{path} is out of range")

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
        self.fit_type("object", schema, path)
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        missing = [name for name in schema.get("required", []) if name not in value]
        need(not missing, f"{path} lacks {', '.join(missing)}")
        for name, item in value.items():
            keys = schema.get("propertyNames", {})
            is_number = keys.get("type") == "integer" and re.fullmatch("0|-?[1-9][0-9]{0,15}", name)
            self.fit(int(name) if is_number else name, keys, path)
            need(name in known or others is not False, f"{path} has an unknown field {name[:60]}")
            self.fit(item, known.get(name, others), f"{path}.{name[:60]}")

    def fit_type(self, name: str, schema: dict[str, Any], path: str) -> None:
        """Check a value's type."""
        wanted = schema.get("type", name)
        need(wanted == name or (wanted, name) == ("number", "integer"), f"{path} is no {wanted}")

    def fit_size(self, size: int, unit: str, schema: dict[str, Any], path: str) -> None:
        """Check the length of a text or a list."""
        need(schema.get(f"min{unit}", 0) <= size <= schema.get(f"max{unit}", size), f"{path} is too short or too long")
