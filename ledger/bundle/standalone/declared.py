"""Checks the schema of a declared kind: a ledger accepts only a subset of JSON Schema. Events must fit the schema."""

from __future__ import annotations

import json
import re
from typing import Any

from deedbook.ledger.bundle.standalone.proofs import need

OWN = "x."  # the prefix of declared kinds and of the types of their streams
PART = r"\.[a-z][a-z0-9_]{0,31}"
OWN_KIND = re.compile(f"x(?:{PART}){{2,5}}")
OWN_STREAM = re.compile(f"x(?:{PART}){{1,4}}")
PROPERTY = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")
LINE = re.compile("[^\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]*")
NAME_CHARS = 100
KINDS_MAX = 256
SCHEMA_BYTES = 16 * 1024
NESTED_MAX = 4
PROPERTIES_MAX = 128
ITEMS_MAX = 1000
TEXT_CHARS = 40_000
SEALABLE_CHARS = 200
SAFE = 2**53 - 1
FOR_PEOPLE = {"title": 200, "description": 2000}
KEYWORDS = {
    "string": {"minLength", "maxLength", "enum", "const", "sealable"},
    "integer": {"minimum", "maximum", "enum", "const"},
    "number": {"minimum", "maximum"},
    "boolean": set(),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}


def check_own_schema(schema: dict[str, Any]) -> None:
    """Check the schema of a declared kind: an object of the published subset, within its limits."""
    accept(schema.get("type") == "object", "$.data.schema")
    count = check_part(schema, 1, "$.data.schema")
    accept(count <= PROPERTIES_MAX, "$.data.schema")
    size = len(json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    need(size <= SCHEMA_BYTES, f"the schema of a kind has {size} bytes", "TOO_LARGE")


def accept(holds: object, path: str) -> None:
    """Refuse a schema whose part at a path is not in the published subset."""
    need(holds, f"{path} is not in the published subset of schemas", "INVALID_FIELD")


def check_part(schema: Any, level: int, path: str) -> int:
    """Check the schema of one value; return the number of properties in it. ``level`` counts objects and lists."""
    accept(isinstance(schema, dict), path)
    form = schema.get("type")
    accept(isinstance(form, str) and form in KEYWORDS, path)
    accept(set(schema) <= {"type", *FOR_PEOPLE} | KEYWORDS[form], path)
    for word, limit in FOR_PEOPLE.items():
        text = schema.get(word, "-")
        is_line = isinstance(text, str) and 0 < len(text) <= limit
        accept(is_line and (word == "description" or LINE.fullmatch(text)), f"{path}.{word}")
    accept(form not in ("array", "object") or level <= NESTED_MAX, path)
    if form == "object":
        return check_properties(schema, level, path)
    if form == "array":
        check_bounds(schema, "Items", ITEMS_MAX, path)
        return check_part(schema.get("items"), level + 1, f"{path}.items")
    if "enum" in schema or "const" in schema:
        check_choices(schema, form, path)
    elif form == "string":
        check_bounds(schema, "Length", TEXT_CHARS, path)
        is_long = schema["maxLength"] >= SEALABLE_CHARS
        accept("sealable" not in schema or (schema["sealable"] is True and is_long), path)
    else:
        least, most = schema.get("minimum", -SAFE), schema.get("maximum", SAFE)
        accept(is_safe(least) and is_safe(most) and least <= most, path)
    return 0


def check_properties(schema: dict[str, Any], level: int, path: str) -> int:
    """Check the schema of an object, which lists all its properties; return their number, with those inside."""
    accept(schema.get("additionalProperties") is False, path)
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        accept(holds=False, path=path)
        return 0
    accept(properties and all(PROPERTY.fullmatch(name) for name in properties), path)
    accept(all(isinstance(name, str) and name in properties for name in required), path)
    accept(len(required) == len(set(required)), path)
    inside = [check_part(part, level + 1, f"{path}.properties.{name}") for name, part in properties.items()]
    return len(properties) + sum(inside)


def check_choices(schema: dict[str, Any], form: str, path: str) -> None:
    """Check a schema that lists the values: integers, or short texts."""
    accept(len(set(schema) & KEYWORDS[form]) == 1, path)
    values = schema.get("enum", [schema.get("const")])
    accept(isinstance(values, list) and 1 <= len(values) <= 64, path)
    for value in values:
        is_text = isinstance(value, str) and 1 <= len(value) <= 200 and LINE.fullmatch(value)
        accept(is_text if form == "string" else is_safe(value), path)
    accept(len(values) == len(set(values)), path)


def check_bounds(schema: dict[str, Any], unit: str, limit: int, path: str) -> None:
    """Check the two bounds of a text or list. The upper one must be there."""
    most, least = schema.get(f"max{unit}"), schema.get(f"min{unit}", 0)
    accept(is_safe(most) and is_safe(least), path)
    accept(1 <= (most or 0) <= limit and 0 <= least <= (most or 0), path)


def is_safe(value: Any) -> bool:
    """Return whether a value is an integer that a double holds exactly."""
    return type(value) is int and abs(value) <= SAFE
