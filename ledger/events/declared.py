"""Kinds that agents declare: ``kind.declared``, and the events of such kinds.

``kind.declared`` has the schema of the new kind's data, in a closed subset of JSON Schema (``proto/README.md``, 1.5).
It is checked when the event is decoded, because it depends on nothing else. The data of an event of a declared kind is
decoded as a free object under all strict rules of JSON. The rule of the gate compares it with the schema
(``admission.declared``), because only the log says which kinds are declared.

The subset has no ``pattern``: a stranger's regular expression could keep a verifier busy for any length of time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.format.forms import LINE_PATTERN, OWN, OWN_KIND_PATTERN, OWN_STREAM_PATTERN, PROPERTY_PATTERN
from deedbook.ledger.limits import (
    json_integer_max,
    kind_choice_max_chars,
    kind_choices_max,
    kind_depth_max,
    kind_description_max_chars,
    kind_items_max,
    kind_name_max_chars,
    kind_properties_max,
    kind_schema_max_bytes,
    kind_text_max_chars,
    kind_title_max_chars,
    sealable_text_min_chars,
)

OwnKind = Annotated[
    str,
    msgspec.Meta(
        pattern=OWN_KIND_PATTERN, max_length=kind_name_max_chars, description="The name of a declared kind: x.A.B."
    ),
]
OwnStream = Annotated[
    str,
    msgspec.Meta(
        pattern=OWN_STREAM_PATTERN, max_length=kind_name_max_chars, description="The type of a stream: x.A for x.A/ID."
    ),
]
KindTitle = Annotated[
    str, msgspec.Meta(pattern=LINE_PATTERN, max_length=kind_title_max_chars, description="One short line, or empty.")
]
KindDescription = Annotated[str, msgspec.Meta(max_length=kind_description_max_chars, description="Text, or empty.")]
PublisherRole: TypeAlias = Literal["agent", "reviewer", "human", "service", "admin"]
Roles = Annotated[list[PublisherRole], msgspec.Meta(min_length=1, max_length=5)]


class KindDeclared(EventData, frozen=True):
    """Declares a kind of events. Agents with one of the ``roles`` publish them on the streams ``STREAM/ID``.

    ``schema`` is the schema of their data. A declared kind never changes: a new version is a new kind. Nobody erases
    this event, because the events of its kind are checked with it.
    """

    is_free = True

    name: OwnKind
    stream: OwnStream
    roles: Roles
    schema: dict[str, Any]
    title: KindTitle = ""
    description: KindDescription = ""

    @property
    def phrase(self) -> str:
        """The event in words: the title, or the name's words without ``x``."""
        return self.title or phrase_of(self.name)


class DeclaredData(EventData, frozen=True):
    """The data of an event of a declared kind; ``event.data["service"]`` is a field."""

    is_free = True

    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def phrase_of(kind: str) -> str:
    """Return the name of a declared kind in words: "deploy finished" for ``x.deploy.finished``."""
    return kind.removeprefix(OWN).replace(".", " ").replace("_", " ")


def plain_data(data: EventData) -> Any:
    """Return an event's data as it is written in JSON."""
    return data.fields if isinstance(data, DeclaredData) else data


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a plain value, in order, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


# The schema.

schema_faults_shown_max: Final = 20
_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_SHARED: Final = frozenset({"type", "title", "description"})
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _SHARED | {"minLength", "maxLength", "enum", "const", "sealable"},
    "integer": _SHARED | {"minimum", "maximum", "enum", "const"},
    "number": _SHARED | {"minimum", "maximum"},
    "boolean": _SHARED,
    "array": _SHARED | {"items", "minItems", "maxItems"},
    "object": _SHARED | {"properties", "required", "additionalProperties"},
}
_INSTEAD: Final = {
    "pattern": "name the allowed texts with enum, or bound the text with maxLength",
    "format": "bound the text with maxLength",
    "default": "write the value in each event",
    "anyOf": "declare a kind for each form",
    "oneOf": "declare a kind for each form",
    "allOf": "write all properties in one object",
    "$ref": "write the schema in its place",
    "$schema": "leave it out: the ledger has one dialect",
    "exclusiveMinimum": "use minimum",
    "exclusiveMaximum": "use maximum",
    "nullable": "leave the property out of required",
    "patternProperties": "list the properties",
    "uniqueItems": "leave it out",
}


def check_schema(schema: dict[str, Any]) -> None:
    """Check that a schema is in the subset.

    Raises Refused: ``INVALID_FIELD`` with the path of the first fault, and a message that names every fault;
    ``TOO_LARGE``.
    """
    root = "$.data.schema"
    counted, message = _SchemaCheck(), 'the data of an event is an object: write "type": "object"'
    counted.collect(_need, schema.get("type") == "object", f"{root}.type", message)
    counted.collect(counted.check, schema | {"type": "object"}, root, 1)
    counted.finish()
    message = f"a schema has at most {kind_properties_max} properties, not {counted.properties}"
    _need(counted.properties <= kind_properties_max, root, message)
    size = len(encode_sorted(schema))
    if size > kind_schema_max_bytes:
        message = f"the schema has {size} bytes in canonical form, and the limit is {kind_schema_max_bytes}"
        raise Refused("TOO_LARGE", message, path=root, limit=kind_schema_max_bytes)


class _SchemaCheck:
    """The check of a schema, which collects its faults and counts its properties."""

    def __init__(self) -> None:
        self.properties = 0
        self._faults: list[Refused] = []

    def collect(self, check: Callable[..., None], *args: Any) -> None:
        """Call a check of a part; if it finds a fault, continue with the next part."""
        try:
            check(*args)
        except Refused as fault:
            self._faults.append(fault)

    def finish(self) -> None:
        """Refuse a schema with faults. Raises Refused: ``INVALID_FIELD``."""
        if self._faults:
            messages = [fault.message for fault in self._faults[:schema_faults_shown_max]]
            more = len(self._faults) - len(messages)
            messages += [f"and {more} more faults"] if more else []
            raise Refused("INVALID_FIELD", "; ".join(messages), **self._faults[0].details)

    def check(self, schema: Any, path: str, depth: int) -> None:
        """Check the schema of one value."""
        _need(isinstance(schema, dict), path, 'write an object, such as {"type": "boolean"}')
        kind = schema.get("type")
        known = _KEYWORDS.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise _wrong(f"{path}.type", f"write one of {', '.join(_KEYWORDS)}")
        for word in schema:
            instead = _INSTEAD.get(word, f"{kind} takes {', '.join(sorted(known))}")
            self.collect(
                _need, word in known, f"{path}.{word[:60]}", f"schemas here have no {word[:60]!r} of {kind}: {instead}"
            )
        self.collect(_check_line, schema, "title", kind_title_max_chars, path, LINE_PATTERN)
        self.collect(_check_line, schema, "description", kind_description_max_chars, path)
        if kind in ("array", "object"):
            message = f"objects and lists are nested at most {kind_depth_max} deep, the whole schema included"
            _need(depth <= kind_depth_max, path, message)
        self.collect(_CHECKS[kind], self, schema, path, depth)

    def check_object(self, schema: dict[str, Any], path: str, depth: int) -> None:
        """Check an object: every property is listed."""
        message = 'write "additionalProperties": false, because unlisted fields are refused'
        self.collect(_need, schema.get("additionalProperties") is False, f"{path}.additionalProperties", message)
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            raise _wrong(f"{path}.properties", "list at least one property")
        self.properties += len(properties)
        for name, part in properties.items():
            message = "a property's name has 1 to 64 letters, digits and _, and begins with a letter"
            self.collect(_need, re.search(PROPERTY_PATTERN, name), f"{path}.properties.{name[:60]}", message)
            self.collect(self.check, part, f"{path}.properties.{name}", depth + 1)
        required = schema.get("required", [])
        is_list = isinstance(required, list) and all(isinstance(name, str) for name in required)
        is_list = is_list and len({*required}) == len(required) and {*required} <= {*properties}
        _need(is_list, f"{path}.required", "list names of the properties, each once")

    def check_array(self, schema: dict[str, Any], path: str, depth: int) -> None:
        """Check a list: its length is bounded."""
        self.collect(_check_sizes, schema, "minItems", "maxItems", kind_items_max, path)
        _need("items" in schema, f"{path}.items", "add the schema of the items")
        self.check(schema["items"], f"{path}.items", depth + 1)

    def check_string(self, schema: dict[str, Any], path: str, _depth: int) -> None:
        """Check a text: its length is bounded, or its values are listed."""
        if _has_choices(schema, path):
            return
        _check_sizes(schema, "minLength", "maxLength", kind_text_max_chars, path)
        if "sealable" in schema:
            _need(schema["sealable"] is True, f"{path}.sealable", 'write "sealable": true, or leave it out')
            message = f"a sealable text needs a maxLength of at least {sealable_text_min_chars}, for its reference"
            _need(schema["maxLength"] >= sealable_text_min_chars, f"{path}.maxLength", message)

    def check_number(self, schema: dict[str, Any], path: str, _depth: int) -> None:
        """Check an integer or number: its bounds are integers."""
        if _has_choices(schema, path):
            return
        for word in ("minimum", "maximum"):
            message = f"write an integer within ±{json_integer_max}"
            _need(word not in schema or _is_integer(schema[word]), f"{path}.{word}", message)
        least, most = schema.get("minimum", -json_integer_max), schema.get("maximum", json_integer_max)
        _need(least <= most, f"{path}.minimum", "the minimum is larger than the maximum")

    def check_boolean(self, _schema: dict[str, Any], _path: str, _depth: int) -> None:
        """Check a Boolean, which has no bounds."""


_CHECKS: Final[Mapping[str, Callable[[_SchemaCheck, dict[str, Any], str, int], None]]] = {
    "string": _SchemaCheck.check_string,
    "integer": _SchemaCheck.check_number,
    "number": _SchemaCheck.check_number,
    "boolean": _SchemaCheck.check_boolean,
    "array": _SchemaCheck.check_array,
    "object": _SchemaCheck.check_object,
}


def _has_choices(schema: dict[str, Any], path: str) -> bool:
    """Check ``enum`` and ``const``, and return whether the schema has one of them."""
    if "enum" not in schema and "const" not in schema:
        return False
    others = {*schema} - _SHARED - {"enum"}
    word = "enum" if "enum" in schema else "const"
    _need(not (others - {word}), f"{path}.{word}", "beside enum or const, write no other bounds")
    choices = schema[word] if word == "enum" else [schema[word]]
    if not isinstance(choices, list) or not 1 <= len(choices) <= kind_choices_max:
        raise _wrong(f"{path}.{word}", f"list 1 to {kind_choices_max} values")
    check = _is_integer if schema["type"] == "integer" else _is_choice
    message = f"each value is a {schema['type']} of at most {kind_choice_max_chars} characters, in one line, once"
    is_listed = all(check(choice) for choice in choices) and len({*choices}) == len(choices)
    _need(is_listed, f"{path}.{word}", message)
    return True


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= json_integer_max


def _is_choice(value: Any) -> bool:
    is_short = isinstance(value, str) and 1 <= len(value) <= kind_choice_max_chars
    return is_short and re.search(LINE_PATTERN, value) is not None


def _check_sizes(schema: dict[str, Any], least: str, most: str, limit: int, path: str) -> None:
    high, low = schema.get(most), schema.get(least, 0)
    if not (_is_integer(high) and 1 <= (high or 0) <= limit):
        raise _wrong(f"{path}.{most}", f'write "{most}", from 1 to {limit}')
    _need(_is_integer(low) and 0 <= low <= (high or 0), f"{path}.{least}", f"write an integer from 0 to {most}")


def _check_line(schema: dict[str, Any], word: str, limit: int, path: str, pattern: str = "") -> None:
    if word in schema:
        text = schema[word]
        is_text = isinstance(text, str) and 1 <= len(text) <= limit and re.search(pattern, text) is not None
        where = "one line" if pattern else "a text"
        _need(is_text, f"{path}.{word}", f"write {where} of 1 to {limit} characters")


def _need(holds: object, path: str, message: str) -> None:
    if not holds:
        raise _wrong(path, message)


def _wrong(path: str, message: str) -> Refused:
    return Refused("INVALID_FIELD", f"{message}, at {path}", path=path)


# The data.


def check_value(value: Any, schema: dict[str, Any], path: str = "$.data") -> None:
    """Check a plain value by a schema that ``check_schema`` accepted.

    Raises Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` with the path of the first fault, in the order of the value.
    The details repeat the allowed values, so that MCP marks them as text of others.
    """
    wanted, actual = schema["type"], _NAMES[type(value)]
    if actual != wanted and (wanted, actual) != ("number", "integer"):
        raise Refused("INVALID_FIELD", f"Expected `{wanted}`, got `{actual}` at {path}", path=path)
    if "enum" in schema or "const" in schema:
        choices = schema.get("enum", [schema.get("const")])
        if value not in choices:
            message = f"the value must be one of {', '.join(map(str, choices[:20]))}, at {path}"
            raise Refused("INVALID_FIELD", message, path=path, choices=choices[:20])
    elif wanted in ("string", "array"):
        unit = "Length" if wanted == "string" else "Items"
        least, most = schema.get(f"min{unit}", 0), schema[f"max{unit}"]
        what = "characters" if wanted == "string" else "items"
        _need(least <= len(value) <= most, path, f"the {wanted} has {least} to {most} {what}, not {len(value)}")
    elif wanted in ("integer", "number"):
        _need(value >= schema.get("minimum", value), path, f"the {wanted} is at least {schema.get('minimum')}")
        _need(value <= schema.get("maximum", value), path, f"the {wanted} is at most {schema.get('maximum')}")
    if wanted == "array":
        for position, item in enumerate(value):
            check_value(item, schema["items"], f"{path}[{position}]")
    elif wanted == "object":
        _check_fields(value, schema, path)


def _check_fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
    known = schema["properties"]
    for name, item in value.items():
        if name not in known:
            message = f"unknown field {name[:60]!r} at {path}: it has {', '.join(known)}"
            raise Refused("UNKNOWN_FIELD", message, field=name[:60], path=path)
        check_value(item, known[name], f"{path}.{name}")
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise Refused("INVALID_FIELD", f"the field {missing[0]!r} is missing at {path}", path=path, field=missing[0])
