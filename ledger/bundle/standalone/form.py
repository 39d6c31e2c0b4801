"""The form of entries and events: strict msgpack and JSON, and the fields of each kind.

``schemas.json`` in the bundle lists the fields of each kind, in a subset of JSON Schema, and the rules of each family
of streams. These tables are data, so this program needs no type for each kind. The program accepts the tables only if
their hash is KINDS_SHA256: the maker of the bundle, who may hold the keys of node and checkpoint, must not choose what
an event may contain.

An entry whose body was erased has a *remnant* in its place: the id of the event, and the body without its texts. The
tables list the fields with texts, so a remnant that still has one is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from deedbook.ledger.bundle.standalone.declared import NAME_CHARS, OWN, OWN_KIND, OWN_STREAM, check_own_schema
from deedbook.ledger.bundle.standalone.proofs import (
    EVENT,
    TREE_MAX,
    WrongError,
    is_signed,
    leaf_hash,
    need,
    pae,
    path_root,
    signed_bytes,
)

ENTRY_MAX = 48 * 1024
REMNANT_MAX = ENTRY_MAX - 160
BODY_MAX = REMNANT_MAX - 192
BATCH_MAX = 256
BATCH_BYTES_MAX = 900 * 1024
STREAM_MAX = 400
DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1
CLOCK_MAX_MS = 253_402_300_799_999
KINDS_SHA256 = ""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A string (an unterminated one extends to the end of the text), or a bracket outside of strings.
TOKENS = re.compile(rb'(?s:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))|[\[\]{}]')
REMNANT_START = b'{"redacted":"event:'
REMNANT = re.compile(
    rb'(?s:\{"redacted":"event:([0-9a-f]{64})"(?:,"version":"(sha256:[0-9a-f]{64})")?,"body":(\{.*\})\})'
)
NO_SALT = "A" * 22
MARKS = ("[redacted]", "*")  # the second one is for a remnant that the first one would make too large
PACKAGE_FAMILY = re.compile(r"[a-z][a-z0-9_]{1,30}")
KEPT = re.compile(r"kept: ((?:blake3|sha256):[0-9a-f]{64})\)?\Z")
SEALED = re.compile(r"sealed:[a-z0-9][a-z0-9_-]{0,62}:(blake3:[0-9a-f]{64})/(?:0|[1-9][0-9]{0,3})")
NAMES = {str: "string", dict: "object", list: "array", bool: "boolean", int: "integer", float: "number"}
NAMES |= {type(None): "null"}


class Entry(NamedTuple):
    """A stored event: the author's bytes, key and signature, and the values that the ledger added.

    The signature and the entry's leaf hash (``leaf``) cover ``commitment`` instead of the body. If the body was erased,
    ``stored`` is the remnant that replaces it, and ``body`` is the part of the body that the remnant keeps: it has no
    texts. ``version`` is then the version of the handoff that the erased body set.
    """

    commitment: bytes
    leaf: bytes
    body: bytes
    key: bytes
    signature: bytes
    position: int
    batch_size: int
    accepted_ms: int
    versions: tuple[int, int]
    stored: bytes
    version: str | None = None

    @property
    def is_erased(self) -> bool:
        """Whether the body was erased."""
        return self.stored is not self.body

    def is_signed_over(self, root: bytes) -> bool:
        """Return whether the signature is valid for a batch with this root."""
        return is_signed(self.key, signed_bytes(self.batch_size, root), self.signature)

    def is_signed_in_batch(self, path: list[bytes]) -> bool:
        """Return whether the signature is valid for the batch whose root is computed from the path."""
        try:
            root = path_root(self.commitment, self.position, self.batch_size, path)
        except WrongError:  # the path is invalid, so it connects the event to no signed batch
            return False
        return self.is_signed_over(root)


@dataclass(frozen=True)
class Event:
    """An event with its index in the log."""

    index: int
    id: str
    entry: Entry
    body: dict[str, Any]
    kind: str
    stream: str
    author: str
    data: dict[str, Any]


def take_item(data: bytes, at: int) -> tuple[int | bytes, int]:
    """Return a msgpack unsigned integer, or bytes, and the offset after it. The form must be the shortest."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    need(0xCC <= first <= 0xCF or first in (0xC4, 0xC5), "a number or bytes were expected", "INVALID_FORMAT")
    width = 1 << (first - 0xCC) if first >= 0xCC else first - 0xC3
    number, at = int.from_bytes(data[at : at + width], "big"), at + width
    least = (0x80 if width == 1 else 1 << (4 * width)) if first >= 0xCC else 0x100 * (width - 1)
    need(number >= least, "a number or bytes are not in their shortest form", "INVALID_FORMAT")
    return (number, at) if first >= 0xCC else (data[at : at + number], at + number)


def read_entry(data: bytes) -> Entry:
    """Return an entry. It must be a minimal msgpack array of ten."""
    need(len(data) <= ENTRY_MAX, "the entry is too large", "TOO_LARGE")
    need(data[:1] == b"\x9a", "the entry is not an array of ten", "INVALID_FORMAT")
    items: list[Any] = []
    ends = [1]
    while len(items) < 10:
        item, at = take_item(data, ends[-1])
        items.append(item)
        ends.append(at)
    need(at == len(data), "the entry ends too soon, or bytes follow it", "INVALID_FORMAT")
    version, body, key, algorithm, signature, position, batch_size, accepted_ms, *versions = items
    bytes_at = [at for at, item in enumerate(items) if isinstance(item, bytes)]
    is_typed = bytes_at == [1, 2, 4]
    need(is_typed, "the entry has a number where bytes belong, or bytes where a number belongs", "INVALID_FORMAT")
    need((version, algorithm) == (1, 1), "the entry has an unknown version or algorithm", "UNSUPPORTED_VERSION")
    need(len(key) == 32 and len(signature) == 64, "its key or signature has the wrong length", "INVALID_FORMAT")
    need(position < batch_size <= BATCH_MAX, "its position in the batch is out of range", "INVALID_FORMAT")
    need(accepted_ms <= CLOCK_MAX_MS, "its time is after the year 9999", "INVALID_FORMAT")
    is_counted = all(0 < version <= TREE_MAX for version in versions)
    need(is_counted, "its stream or authority version is out of range", "INVALID_FORMAT")
    commitment, raw = leaf_hash(pae(EVENT, body)), body
    handoff_version: str | None = None
    if body.startswith(REMNANT_START):
        match = REMNANT.fullmatch(body)
        need(match is not None, "the remnant of its erased body is not in its one encoding", "INVALID_FORMAT")
        digits, named, raw = match.groups() if match else (b"", None, b"")
        commitment, handoff_version = bytes.fromhex(digits.decode()), named.decode() if named else None
    leaf = leaf_hash(data[: ends[1]] + b"\xc4\x20" + commitment + data[ends[2] :])
    added = (position, batch_size, accepted_ms, (versions[0], versions[1]))
    return Entry(commitment, leaf, raw, key, signature, *added, body, handoff_version)


def take_text(data: bytes, at: int) -> tuple[bytes, int]:
    """Return an item of a tile, which is stored after its length, and the offset after the item."""
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 : end], end


def with_body(bare: bytes, body: bytes) -> bytes:
    """Return an entry from its bare form and its body. A bare form that cannot be read is returned as it is."""
    is_bare = bare[2:4] == b"\xc4\x20" and len(bare) > 36
    size = len(body)
    head = bytes([0xC4, size]) if size < 0x100 else b"\xc5" + size.to_bytes(2, "big")
    return bare[:2] + head + body + bare[36:] if is_bare else bare


def entry_leaf(data: bytes) -> bytes:
    """Return the leaf hash of an entry; for bytes that are no entry, a hash that no tree has."""
    try:
        return read_entry(data).leaf
    except (WrongError, IndexError):
        return leaf_hash(data)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; refuse duplicate keys."""
    need(len(dict(pairs)) == len(pairs), "a JSON object contains a key twice", "DUPLICATE_KEY")
    return dict(pairs)


def bounded_integer(digits: str) -> int:
    """Return an integer; refuse one that a double cannot hold exactly."""
    is_exact = len(digits) <= 17 and abs(int(digits)) <= INTEGER_MAX
    need(is_exact, f"the integer {digits[:24]} is outside ±(2^53-1)", "INTEGER_OUT_OF_RANGE")
    return int(digits)


def finite_number(digits: str) -> float:
    """Return a number; refuse infinity, NaN and numbers that overflow a double."""
    is_finite = math.isfinite(float(digits))
    need(is_finite, f"the number {digits[:24]} is too large, or not a number", "INVALID_FORMAT")
    return float(digits)


def read_json(text: bytes) -> Any:
    """Parse strict JSON, so that all readers understand it in the same way."""
    depth = 0
    for match in TOKENS.finditer(text):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(match[0], 0)
        need(depth <= DEPTH_MAX, f"the JSON is nested deeper than {DEPTH_MAX} levels", "NESTING_TOO_DEEP")
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique_keys,
            parse_int=bounded_integer,
            parse_float=finite_number,
            parse_constant=finite_number,
        )
        json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate, which has no UTF-8 form
    except (ValueError, RecursionError) as error:
        raise WrongError(f"this is not JSON: {error}", "INVALID_FORMAT") from error
    return value


class Number(str):
    """A number of JSON as its author wrote it."""

    __slots__ = ()


def written(value: Any) -> str:
    """Return JSON without white space, with sorted keys, the shortest escapes, and each ``Number`` as it was."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def replaced(value: Any, mark: str, *, is_emptied: bool) -> Any:
    """Return a value with ``mark`` in place of each text that is not empty; ``is_emptied``: objects become empty."""
    if isinstance(value, dict):
        items = {} if is_emptied else value
        return {key: replaced(item, mark, is_emptied=is_emptied) for key, item in items.items()}
    if isinstance(value, list):
        return [replaced(item, mark, is_emptied=is_emptied) for item in value]
    return mark if value and isinstance(value, str) and not isinstance(value, Number) else value


def to_ms(time: str) -> int:
    """Return the Unix milliseconds of an RFC 3339 time."""
    try:
        return (datetime.fromisoformat(time) - EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        raise WrongError(f"the time {time} does not exist", "INVALID_FIELD") from error


def texts_in(value: Any) -> list[str]:
    """Return the texts in a value, in order."""
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def texts_at(path: list[str] | None, data: Any) -> list[str]:
    """Return the texts of the field at a path, which may lead through lists; none without a path."""
    values: list[Any] = [] if path is None else [data]
    for name in path or []:
        values = [value.get(name) for value in values if isinstance(value, dict)]
        values = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [value for value in values if isinstance(value, str)]


def blobs_in(tables: Any, kind: str, data: dict[str, Any], raw: bytes) -> list[str]:
    """Return the blobs that data names in the fields of ``tables``: ``blobs``, kept ``artifacts``, ``sealable`` texts.

    An imported record may say that only the digest of its original is here. In an event of a declared kind, each text
    may be sealed. ``raw`` is the stored body: if it has no ref, the fields are not read.
    """
    # An escape such as \u0062 may stand for a letter of a ref.
    if not (b"blake3:" in raw or b"sha256:" in raw or b"\\u" in raw):
        return []
    refs = [] if data.get("only_digest") is True else texts_at(tables.blobs.get(kind), data)
    kept = [KEPT.search(text) for text in texts_at(tables.artifacts.get(kind), data)]
    paths = tables.sealable.get(kind, [])
    texts = texts_in(data) if kind.startswith(OWN) else [text for path in paths for text in texts_at(path, data)]
    sealed = [SEALED.fullmatch(text) for text in texts]
    return refs + [match[1] for match in kept if match] + list(dict.fromkeys(match[1] for match in sealed if match))


class Kinds:
    """The kinds of events and their fields, from ``schemas.json``."""

    def __init__(self, table: bytes) -> None:
        """Read the table. Its hash must be KINDS_SHA256."""
        is_ours = hashlib.sha256(table).hexdigest() == KINDS_SHA256
        need(is_ours, "schemas.json has another hash than KINDS_SHA256", "CORRUPTED")
        tables = json.loads(table)
        self.types: dict[str, Any] = tables["types"]
        self.kinds: dict[str, list[str]] = tables["kinds"]
        self.blobs: dict[str, list[str]] = tables["blobs"]
        self.artifacts: dict[str, list[str]] = tables["artifacts"]
        self.sealable: dict[str, list[list[str]]] = tables["sealable"]
        self.texts: dict[str, dict[str, str]] = tables["texts"]
        self.erasable: list[str] = tables["erasable"]
        self.mapped: dict[str, list[str]] = tables["mapped"]
        self.ids: dict[str, Any] = tables["ids"]
        self.rules: dict[str, Any] = tables["rules"]
        self.reserved: list[str] = tables["reserved"]

    def is_of_package(self, kind: str, stream: str) -> bool:
        """Return whether an event is of a family that a package brings, whose fields and rules are not known here.

        All names of such a family begin with its own name, which no family of the core has.
        """
        family, _, name = stream.partition("/")
        is_family = PACKAGE_FAMILY.fullmatch(family) is not None and family not in self.reserved
        return is_family and bool(name) and kind.startswith(f"{family}.")

    def read(self, index: int, entry: Entry) -> Event:
        """Return the event in an entry after a check of all its fields."""
        limit = REMNANT_MAX if entry.is_erased else BODY_MAX
        need(len(entry.stored) <= limit, "its body is too large", "TOO_LARGE")
        body = read_json(entry.body)
        self.check(body, {"$ref": "Body"}, "$")
        kind, stream, content = body["kind"], body["stream"], body["data"]
        if self.is_of_package(kind, stream):
            return self.read_of_package(index, entry, body)
        family = self.check_data(kind, content)
        need(len(stream.encode()) <= STREAM_MAX, "the name of its stream is too long", "TOO_LARGE")
        stream_family, _, name = stream.partition("/")
        id_type = self.ids.get(stream_family, {"type": "string"})
        is_own = family == OWN and OWN_STREAM.fullmatch(stream_family)
        belongs = (is_own or stream_family == family) and bool(name) == (id_type is not None)
        need(belongs, f"{kind} does not belong on {stream}", "INVALID_FIELD")
        if id_type is not None:
            self.check(name, id_type, "$.stream")
        to_ms(f"{body['at'][:10]}T00:00:00Z")
        if entry.is_erased:
            self.check_erased(entry, kind, content)
        return Event(index, f"event:{entry.commitment.hex()}", entry, body, kind, stream, body["author"], content)

    def read_of_package(self, index: int, entry: Entry, body: dict[str, Any]) -> Event:
        """Return an event of a family of a package, without a check of its data."""
        kind, stream, content = body["kind"], body["stream"], body["data"]
        need(isinstance(content, dict), "its data is no object", "INVALID_FIELD")
        need(len(stream.encode()) <= STREAM_MAX, "the name of its stream is too long", "TOO_LARGE")
        to_ms(f"{body['at'][:10]}T00:00:00Z")
        return Event(index, f"event:{entry.commitment.hex()}", entry, body, kind, stream, body["author"], content)

    def check_data(self, kind: str, data: Any) -> str:
        """Check the fields of a kind; return the family of its streams, or ``OWN`` for a declared kind.

        The fields of a declared kind are compared with its schema later, because an earlier entry has that schema.
        """
        if kind.startswith(OWN):
            is_named = OWN_KIND.fullmatch(kind) and len(kind) <= NAME_CHARS
            need(is_named, f"no kind can have the name {kind[:NAME_CHARS]}", "UNKNOWN_KIND")
            self.check(data, {"type": "object"}, "$.data")
            return OWN
        need(kind in self.kinds, f"the kind {kind} is unknown", "UNKNOWN_KIND")
        self.check(data, {"$ref": self.kinds[kind][1]}, "$.data")
        if kind == "record.imported":
            return self.check_imported(data, self.kinds[kind][0])
        if kind == "kind.declared":
            check_own_schema(data["schema"])
        return self.kinds[kind][0]

    def check_erased(self, entry: Entry, kind: str, data: dict[str, Any]) -> None:
        """Check the form of a remnant, that it has no text, and that its kind may be erased.

        It has a version if and only if the erased body set one.

        Nobody erases an event that names the key of root or of a checkpoint, or resets the history: the signatures that
        confirm an erasure must not rest on the remnant of the erased event.
        """
        is_erased = entry.body.decode() in [self.without_texts(entry.body, kind, mark) for mark in MARKS]
        message = "the remnant of its erased body still has a text, or is not in its one form"
        need(is_erased, message, "INVALID_FORMAT")
        sets_content = kind in ("handoff.created", "handoff.amended") or data.get("mapped_kind") == "handoff.created"
        message = "the remnant of its erased body must have a version only if the body set one"
        need((entry.version is not None) == sets_content, message, "INVALID_FORMAT")
        is_root_rotation = kind == "key.rotated" and data["agent"] == "root"
        may_be_erased = kind.startswith(OWN) or (kind in self.erasable and not is_root_rotation)
        need(may_be_erased, f"the body of such a {kind} is never erased", "INVALID_FORMAT")

    def without_texts(self, text: bytes, kind: str, mark: str) -> str:
        """Return a checked body without its salt, and with ``mark`` in place of the texts in its data."""
        body = json.loads(text, parse_int=Number, parse_float=Number)
        data = body["data"]
        if kind.startswith(OWN):
            return written(body | {"salt": NO_SALT, "data": {}})
        erased = self.erase(data, {"$ref": self.kinds[kind][1]}, mark)
        if kind == "record.imported" and data.get("mapped_kind") is not None:
            for name, form in zip(("mapped", "claims"), self.mapped[data["mapped_kind"]], strict=True):
                erased |= {name: self.erase(data[name], {"$ref": form}, mark)} if name in data else {}
        return written(body | {"salt": NO_SALT, "data": erased})

    def erase(self, value: Any, schema: dict[str, Any], mark: str) -> Any:
        """Return a value of a schema with ``mark`` in place of the texts in the fields that the tables name."""
        texts: dict[str, str] = {}
        while "$ref" in schema or "anyOf" in schema:
            if "$ref" in schema:
                texts, schema = self.texts.get(schema["$ref"], {}), self.types[schema["$ref"]]
            else:
                schema = next(form for form in schema["anyOf"] if form.get("type") != "null")
        if isinstance(value, list):
            return [self.erase(item, schema.get("items", {}), mark) for item in value]
        if not isinstance(value, dict):
            return value
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return {
            name: replaced(item, mark, is_emptied=texts[name] == "empty")
            if name in texts
            else self.erase(item, known.get(name, others), mark)
            for name, item in value.items()
        }

    def blobs_of(self, event: Event) -> list[str]:
        """Return the blobs that an event needs."""
        return blobs_in(self, event.kind, event.data, event.entry.stored)

    def check_imported(self, data: dict[str, Any], family: str) -> str:
        """Check the mapping of a record of another tool; return the family of the streams that it belongs on."""
        kind, mapped, claims = data.get("mapped_kind"), data.get("mapped", {}), data.get("claims", {})
        if kind is None:
            need(not mapped and not claims, "an unmapped record has no mapped data and no claims", "INVALID_FIELD")
            return family
        need(kind in self.mapped, f"{kind} cannot be imported", "INVALID_FIELD")
        for value, name, path in zip((mapped, claims), self.mapped[kind], ("mapped", "claims"), strict=True):
            self.check(value, {"$ref": name}, f"$.data.{path}")
        return self.kinds[kind][0]

    def check(self, value: Any, schema: dict[str, Any], path: str) -> None:
        """Check a value against a schema of the table; ``path`` names it in the error."""
        if "$ref" in schema:
            return self.check(value, self.types[schema["$ref"]], path)
        if "anyOf" in schema:
            return self.check_any(value, schema["anyOf"], path)
        if "enum" in schema or "const" in schema:
            choices = schema.get("enum", [schema.get("const")])
            is_listed = any(type(value) is type(item) and value == item for item in choices)
            return need(is_listed, f"{path} is not one of {choices}", "INVALID_FIELD")
        name, wanted = NAMES[type(value)], schema.get("type", NAMES[type(value)])
        is_typed = wanted == name or (wanted, name) == ("number", "integer")
        need(is_typed, f"{path} is not of the type {wanted}", "INVALID_FIELD")
        if isinstance(value, str | list):
            size, unit = len(value), "Length" if isinstance(value, str) else "Items"
            is_sized = schema.get(f"min{unit}", 0) <= size <= schema.get(f"max{unit}", size)
            need(is_sized, f"{path} is too short or too long", "INVALID_FIELD")
        if isinstance(value, str):
            need(re.search(schema.get("pattern", ""), value), f"{path} does not match its pattern", "INVALID_FIELD")
        elif isinstance(value, list):
            for at, item in enumerate(value):
                self.check(item, schema.get("items", {}), f"{path}[{at}]")
        elif isinstance(value, dict):
            self.check_object(value, schema, path)
        elif value is not None:
            is_in_range = schema.get("minimum", value) <= value <= schema.get("maximum", value)
            need(is_in_range, f"{path} is out of range", "INVALID_FIELD")
        return None

    def check_any(self, value: Any, schemas: list[dict[str, Any]], path: str) -> None:
        """Check that a value matches one of several schemas. If not, raise the unknown field, or the last error."""
        faults: list[WrongError] = []
        for schema in schemas:
            try:
                return self.check(value, schema, path)
            except WrongError as fault:
                faults.append(fault)
        raise next((fault for fault in faults if fault.code == "UNKNOWN_FIELD"), faults[-1])

    def check_object(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        """Check the keys and values of an object."""
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, item in value.items():
            keys = schema.get("propertyNames", {})
            is_number = keys.get("type") == "integer" and re.fullmatch("0|-?[1-9][0-9]{0,15}", name)
            self.check(int(name) if is_number else name, keys, path)
            need(name in known or others is not False, f"{path} has an unknown field {name[:60]}", "UNKNOWN_FIELD")
            self.check(item, known.get(name, others), f"{path}.{name[:60]}")
        missing = [name for name in schema.get("required", []) if name not in value]
        need(not missing, f"{path} lacks {', '.join(missing)}", "INVALID_FIELD")

    def fill(self, value: Any, schema: dict[str, Any]) -> Any:
        """Return a checked value in which every absent field has its default."""
        if "$ref" in schema:
            return self.fill(value, self.types[schema["$ref"]])
        if "anyOf" in schema:
            return self.fill(value, self.matching(value, schema["anyOf"]))
        if isinstance(value, list):
            return [self.fill(item, schema.get("items", {})) for item in value]
        if not isinstance(value, dict):
            return value
        known = schema.get("properties", {})
        defaults = {name: field["default"] for name, field in known.items() if "default" in field}
        return {name: self.fill(item, known.get(name, {})) for name, item in (defaults | value).items()}

    def matching(self, value: Any, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the first of several schemas that a value matches."""
        for schema in schemas:
            try:
                self.check(value, schema, "$")
            except WrongError:
                continue
            return schema
        return {}
