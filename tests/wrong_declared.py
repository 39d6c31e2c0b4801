"""Logs with valid signatures but a wrong declaration of a kind, or a wrong event of a declared kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forged_steps import WrongLog, then

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.authority import RoleRevoked
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.limits import kinds_declared_max

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge import Forge

KIND: Final = "x.deploy.finished"
STREAM: Final = "x.deploy/42"
TEXT: Final = {"type": "string", "maxLength": 20}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["service"],
    "properties": {
        "service": TEXT,
        "version": {"type": "integer", "minimum": 1, "maximum": 1000},
        "load": {"type": "number", "minimum": 0, "maximum": 1},
        "outcome": {"type": "string", "enum": ["healthy", "rolled back"]},
        "is_forced": {"type": "boolean"},
        "hosts": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2},
        "by": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": TEXT, "level": {"type": "integer", "const": 3}},
        },
        "notes": {"type": "string", "maxLength": 2000, "sealable": True},
    },
}
GOOD: Final[dict[str, Any]] = {
    "service": "api",
    "version": 7,
    "load": 0.5,
    "outcome": "healthy",
    "is_forced": False,
    "hosts": ["a"],
    "by": {"name": "kim", "level": 3},
}


def declares(forge: Forge, author: str = "ada", name: str = KIND, *, stream: str = "", **changes: Any) -> None:
    """Declare a kind."""
    fields: dict[str, Any] = {"name": name, "stream": "x.deploy", "roles": ["agent"], "schema": SCHEMA}
    forge.emit(author, stream or f"kind/{name}", KindDeclared(**(fields | changes)))


def publishes(forge: Forge, data: Any = None, author: str = "alice", *, kind: str = KIND, stream: str = STREAM) -> None:
    """Publish an event of a declared kind without checking its data."""
    draft = Draft(kind=kind, stream=stream, data=GOOD if data is None else data)
    forge.submit(forge.sign(author, draft))


def of_schema(rule: str, change: dict[str, Any], *, at: str = "service", code: str = "INVALID_FIELD") -> WrongLog:
    """Return the case of a schema with a property outside the supported subset of JSON Schema."""
    schema = SCHEMA | {"properties": SCHEMA["properties"] | {at: change}}
    return WrongLog(rule, code, lambda forge: declares(forge, schema=schema))


def top(rule: str, **changes: Any) -> WrongLog:
    """Return the case of a schema whose top level is changed; a value of None removes its keyword."""
    schema = {word: value for word, value in (SCHEMA | changes).items() if value is not None}
    return WrongLog(rule, "INVALID_FIELD", lambda forge: declares(forge, schema=schema))


def of_data(rule: str, change: dict[str, Any], code: str = "INVALID_FIELD") -> WrongLog:
    """Return the case of an event that does not fit the declared schema."""
    return published(rule, code, data=GOOD | change)


def published(rule: str, code: str, *before: Callable[[Forge], Any], **event: Any) -> WrongLog:
    """Return the case of an event that is published after the declaration and other steps."""
    return WrongLog(rule, code, then(declares, *before, lambda forge: publishes(forge, **event)))


def nested(levels: int) -> dict[str, Any]:
    """Return a schema of lists within lists, ``levels`` deep."""
    schema: dict[str, Any] = {"type": "boolean"}
    for _ in range(levels):
        schema = {"type": "array", "maxItems": 1, "items": schema}
    return schema


def large() -> dict[str, Any]:
    """Return a schema that is within every limit except its size in bytes."""
    text = {"type": "boolean", "description": "d" * 1_800}
    return SCHEMA | {"required": [], "properties": {f"p{number}": text for number in range(10)}}


def raw_schema(rule: str, code: str, old: str, new: str) -> WrongLog:
    """Return the case of a declaration whose signed bytes have ``new`` in place of ``old``."""

    def make(forge: Forge) -> None:
        data = KindDeclared(name=KIND, stream="x.deploy", roles=["agent"], schema=SCHEMA)
        text = forge.body("ada", f"kind/{KIND}", data)
        assert old.encode() in text
        forge.raw("ada", text.replace(old.encode(), new.encode(), 1))

    return WrongLog(rule, code, make)


def spelled_data(rule: str, code: str, old: str, new: str) -> WrongLog:
    """Return the case of an event of a declared kind whose signed bytes have ``new`` in place of ``old``."""

    def make(forge: Forge) -> None:
        declares(forge)
        text = forge.body("alice", STREAM, GOOD, kind=KIND)
        assert old.encode() in text
        forge.raw("alice", text.replace(old.encode(), new.encode(), 1))

    return WrongLog(rule, code, make)


def role_lost(forge: Forge, name: str) -> None:
    """Revoke the role ``agent`` of an agent."""
    forge.emit(ROOT, f"agent/{name}", RoleRevoked(agent=name, role="agent"))


NOTE: Final = SessionStarted(task="x")

WHO_DECLARES: Final = (
    WrongLog("an agent declares no kind", "NOT_AUTHORIZED", lambda f: declares(f, "alice")),
    WrongLog("a kind is declared once", "KIND_EXISTS", then(declares, declares)),
    WrongLog("a declared kind never changes", "KIND_EXISTS", then(declares, lambda f: declares(f, roles=["human"]))),
    WrongLog(
        "a declaration stands on the stream of its kind",
        "INVALID_FIELD",
        lambda f: declares(f, stream="kind/x.deploy.failed"),
    ),
    WrongLog(
        "an admin without the role declares nothing",
        "NOT_AUTHORIZED",
        then(lambda f: f.emit(ROOT, "agent/ada", RoleRevoked(agent="ada", role="admin")), declares),
    ),
    WrongLog(
        "a ledger has so many declared kinds",
        "TOO_LARGE",
        lambda f: [declares(f, name=f"x.many.k{number}") for number in range(kinds_declared_max + 1)],
    ),
)
WHICH_SCHEMAS: Final = (
    WrongLog("a kind has two words after x", "INVALID_FIELD", lambda f: declares(f, name="x.deploy")),
    WrongLog("a kind's name is in lower case", "INVALID_FIELD", lambda f: declares(f, name="x.deploy.Finished")),
    WrongLog("a kind's name is short", "INVALID_FIELD", lambda f: declares(f, name="x" + ".abcdefghijklmnopqrst" * 5)),
    raw_schema("a kind has streams of its own", "INVALID_FIELD", '"stream":"x.deploy"', '"stream":"handoff"'),
    raw_schema("a kind names roles", "INVALID_FIELD", '["agent"]', "[]"),
    raw_schema("a kind names no role of nodes", "INVALID_FIELD", '["agent"]', '["node"]'),
    raw_schema("a schema has each key once", "DUPLICATE_KEY", '"schema":{', '"schema":{"type":"object",'),
    raw_schema("a schema's integers are exact", "INTEGER_OUT_OF_RANGE", '"minimum":1', '"minimum":9007199254740993'),
    raw_schema("a schema's bounds are integers", "INVALID_FIELD", '"minimum":1', '"minimum":1.0'),
    top("a kind's data is an object", type="string"),
    top("a schema lists all fields", additionalProperties=True),
    top("a schema says that it lists all fields", additionalProperties=None),
    top("a schema has a property", properties={}, required=[]),
    top("a schema has properties", properties=None, required=[]),
    top("a required field is a property", required=["nobody"]),
    top("a required field is named once", required=["service", "service"]),
    top("required fields are a list", required="service"),
    top("a keyword of schemas is known", patternProperties={}),
    top("a schema's title is a line", title="two\nlines"),
    top("a schema's description is a text", description=""),
    of_schema("a property's name is a word", TEXT, at="two words"),
    of_schema("a property's name is ASCII", TEXT, at="dienstüber"),
    of_schema("a type is known", {"type": "null"}),
    of_schema("a type is one", {"type": ["string", "null"]}),
    of_schema("a property has a schema", {}),
    of_schema("a text is bounded", {"type": "string"}),
    of_schema("a text's bound is in range", {"type": "string", "maxLength": 40_001}),
    of_schema("a text's bounds are in order", {"type": "string", "maxLength": 2, "minLength": 3}),
    of_schema("a text has no pattern", TEXT | {"pattern": "(a+)+"}),
    of_schema("a text has no format", TEXT | {"format": "email"}),
    of_schema("a sealable text has room for its reference", TEXT | {"sealable": True}),
    of_schema("a text is sealable or not", {"type": "string", "maxLength": 200, "sealable": False}),
    of_schema("a listed value is a text", {"type": "string", "enum": ["a", 1]}),
    of_schema("a listed value is listed once", {"type": "string", "enum": ["a", "a"]}),
    of_schema("a value is listed", {"type": "string", "enum": []}),
    of_schema("so many values are listed", {"type": "string", "enum": [str(n) for n in range(65)]}),
    of_schema("a listed value is short", {"type": "string", "const": "a" * 201}),
    of_schema("listed values have no other bounds", TEXT | {"enum": ["a"]}),
    of_schema("a value is listed in one way", {"type": "string", "enum": ["a"], "const": "a"}),
    of_schema("an integer is no Boolean", {"type": "integer", "const": True}),
    of_schema("an integer's bounds are in order", {"type": "integer", "minimum": 2, "maximum": 1}),
    of_schema("a number lists no values", {"type": "number", "enum": [1]}),
    of_schema("a Boolean has no bounds", {"type": "boolean", "const": True}),
    of_schema("a list is bounded", {"type": "array", "items": TEXT}),
    of_schema("a list's bound is in range", {"type": "array", "items": TEXT, "maxItems": 1001}),
    of_schema("a list has items", {"type": "array", "maxItems": 1}),
    of_schema("a list's items have a schema", {"type": "array", "maxItems": 1, "items": [TEXT]}),
    of_schema("a schema is no deeper than its limit", nested(4)),
    of_schema("an inner object lists all fields", {"type": "object", "properties": {"a": TEXT}}),
    top(
        "a schema has so many properties",
        properties={f"p{number}": {"type": "boolean"} for number in range(129)},
        required=[],
    ),
    WrongLog("a schema has so many bytes", "TOO_LARGE", lambda f: declares(f, schema=large())),
)
WHO_PUBLISHES: Final = (
    WrongLog("a kind is declared before its first event", "UNKNOWN_KIND", publishes),
    WrongLog("a kind that is declared later was not there", "UNKNOWN_KIND", then(publishes, declares), index=-2),
    published("a declared kind is another than one like it", "UNKNOWN_KIND", kind="x.deploy.finish"),
    published("a name of a kind has its form", "UNKNOWN_KIND", kind="x.deploy"),
    published("an event is on a stream of its kind", "INVALID_FIELD", stream="x.release/42"),
    published("an event is on no stream of another family", "INVALID_FIELD", stream="handoff/42"),
    published("an event of a declared kind names its stream", "INVALID_FIELD", stream="x.deploy"),
    published("an author has a role of the kind", "NOT_AUTHORIZED", author="ada"),
    published("an author still has the role", "NOT_AUTHORIZED", lambda f: role_lost(f, "alice"), author="alice"),
    WrongLog("nothing else stands on such a stream", "INVALID_FIELD", lambda f: f.emit("alice", STREAM, NOTE)),
)
WHAT_IS_PUBLISHED: Final = (
    spelled_data("an event of a declared kind has an object", "INVALID_FIELD", encode_canonical(GOOD).decode(), "[1]"),
    of_data("a field is declared", {"nobody": 1}, "UNKNOWN_FIELD"),
    published("a required field is there", "INVALID_FIELD", data={"version": 1}),
    of_data("a declared text is a text", {"service": 7}),
    of_data("a declared text is not null", {"service": None}),
    of_data("a declared text is short", {"service": "a" * 21}),
    of_data("a declared integer is an integer", {"version": "7"}),
    of_data("a declared integer is no fraction", {"version": 1.5}),
    of_data("a declared integer is no Boolean", {"version": True}),
    of_data("a declared integer is in its range", {"version": 0}),
    of_data("a declared number is in its range", {"load": 1.5}),
    of_data("a declared value is listed", {"outcome": "sick"}),
    of_data("a declared Boolean is a Boolean", {"is_forced": 0}),
    of_data("a declared list is a list", {"hosts": "a"}),
    of_data("a declared list is not too short", {"hosts": []}),
    of_data("a declared list is not too long", {"hosts": ["a", "b", "c"]}),
    of_data("an item of a declared list is of its type", {"hosts": ["a", 1]}),
    of_data("an inner field is declared", {"by": {"name": "kim", "x": 1}}, "UNKNOWN_FIELD"),
    of_data("an inner required field is there", {"by": {"level": 3}}),
    of_data("an inner value is the constant", {"by": {"name": "kim", "level": 4}}),
    spelled_data("a declared integer is written as one", "INVALID_FIELD", '"version":7', '"version":7.0'),
    spelled_data("a declared integer is exact", "INTEGER_OUT_OF_RANGE", '"version":7', '"version":9007199254740993'),
    spelled_data("a declared field stands once", "DUPLICATE_KEY", '"version":7', '"version":7,"version":7'),
    spelled_data("a declared number is finite", "INVALID_FORMAT", '"load":0.5', '"load":1e999'),
    spelled_data("a declared text is whole Unicode", "INVALID_FORMAT", '"api"', '"\\ud800"'),
)
WRONG_DECLARED: Final = (*WHO_DECLARES, *WHICH_SCHEMAS, *WHO_PUBLISHES, *WHAT_IS_PUBLISHED)
