"""Declared kinds: valid logs are VALID for both verifiers, and both agree on schemas and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from event_examples import PROTO
from faults import times
from forge import Forge
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import alone, ours, program
from wrong_declared import GOOD, SCHEMA, STREAM, TEXT, declares, publishes
from wrong_redactions import erased, redacted

from deedbook.ledger.bundle.program import schemas
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.declared import check_schema, check_value
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import encode_canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: Final = program().Kinds(schemas())
VALUES: Final[tuple[dict[str, Any], ...]] = (
    GOOD,
    {"service": "api"},
    {"service": ""},
    {"service": "\u202eapi\x00\U0001f680"},
    GOOD | {"load": 1, "version": 1000},
    GOOD | {"service": "a" * 20, "hosts": ["a", "b"], "notes": "n" * 2000},
)


@pytest.mark.parametrize("stream", [None, STREAM, "kind/x.deploy.finished"])
def test_events_of_a_declared_kind_are_valid_for_both(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    declares(forge)
    for data in VALUES:
        publishes(forge, data)
    path = forge.export(tmp_path / "log.tar", stream)
    assert (ours(path).word, alone(path).word) == ("VALID", "VALID"), (ours(path).text, alone(path).text)
    assert read_event(len(forge.entries) - 1, forge.entries[-1]).data["hosts"] == ["a", "b"]


@pytest.mark.parametrize("stream", [None, STREAM])
def test_what_is_left_of_an_erased_event_is_accepted_without_its_fields(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    declares(forge)
    publishes(forge)
    index = len(forge.entries) - 1
    erased(index)(forge)
    redacted(index=index)(forge)
    publishes(forge, {"service": "after"})
    path = forge.export(tmp_path / "log.tar", stream)
    mine, other = ours(path), alone(path)
    assert (mine.word, other.word) == ("VALID_WITH_ERASURES", "VALID_WITH_ERASURES"), (mine.text, other.text)
    assert encode_canonical(read_event(index, forge.entries[index]).data) == b'{"fields":{}}'


def code_of(check: Callable[..., Any], *arguments: Any) -> str:
    """Return the code with which a check refuses, or ``ok``."""
    try:
        check(*arguments)
    except (Refused, program().WrongError) as refusal:
        return str(refusal.code)
    return "ok"


BOUNDS: Final = st.integers(-2, 4) | st.sampled_from([-(2**53) + 1, 2**53 - 1, 2**53, True, 1.0, None, "1"])
WORDS: Final = st.text(max_size=3) | st.sampled_from(["a", "b", "line\nbreak", "\u2028"])
ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | BOUNDS | st.floats(-3, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)


def some(**words: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of objects with some of the keywords."""
    return st.fixed_dictionaries({}, optional=words)


def of_type(name: str, **words: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of schemas of a type, each of which may have a wrong or foreign keyword."""
    stray = some(title=WORDS, description=WORDS, pattern=WORDS, default=ANYTHING)
    rare = st.booleans().flatmap(lambda is_odd: stray if is_odd else st.just({}))
    return st.tuples(some(**words), rare).map(lambda parts: {"type": name, **parts[0], **parts[1]})


def of_object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of schemas of objects."""
    properties = st.dictionaries(st.sampled_from(["a", "b", "c", "A_1", "1", "two words"]), inner, max_size=3)
    return st.builds(
        lambda properties, required, closed: {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": closed,
        },
        properties,
        st.lists(st.sampled_from(["a", "b"]), max_size=2),
        st.sampled_from([False, False, False, True]),
    )


LEAVES: Final = st.one_of(
    of_type("string", maxLength=st.integers(1, 4)),
    of_type("string", minLength=BOUNDS, maxLength=BOUNDS),
    of_type("string", enum=st.lists(WORDS, max_size=3), const=WORDS),
    of_type("integer", minimum=BOUNDS, maximum=BOUNDS),
    of_type("integer", enum=st.lists(BOUNDS, max_size=3), const=BOUNDS),
    of_type("number", minimum=BOUNDS, maximum=BOUNDS),
    of_type("boolean"),
    ANYTHING,
)


def inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of schemas of objects and lists."""
    return of_object(inner) | of_type("array", items=inner, minItems=BOUNDS, maxItems=st.integers(1, 3))


SCHEMAS: Final = of_object(st.recursive(LEAVES, inside, max_leaves=8))


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Return a strategy of values that fit an accepted schema."""
    match schema["type"]:
        case "object":
            fields = {name: fitting(part) for name, part in schema["properties"].items()}
            needed = {name: fields.pop(name) for name in schema["required"]}
            return st.fixed_dictionaries(needed, optional=fields)
        case "array":
            return st.lists(fitting(schema["items"]), min_size=schema["minItems"], max_size=schema["maxItems"])
        case "boolean":
            return st.booleans()
        case "number":
            return st.floats(schema["minimum"], schema["maximum"]) | st.sampled_from([0, 1])
        case "string" if "enum" not in schema:
            return st.text("ab\u00fc\n", min_size=schema["minLength"], max_size=schema["maxLength"])
        case "integer" if "const" not in schema:
            return st.integers(schema["minimum"], schema["maximum"])
        case _:  # listed values
            return st.sampled_from(schema.get("enum", [schema.get("const")]))


NAMES: Final = st.sampled_from(["d", "type", "pattern", "two words"])


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw a value that is equal, or differs in one position: exchanged, removed or added."""
    if not isinstance(value, dict | list) or not value or draw(st.booleans()):
        return draw(st.just(value) | ANYTHING)
    copy = json.loads(json.dumps(value))
    at = draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    match draw(st.sampled_from(["within", "remove", "add"])):
        case "within":
            copy[at] = draw(changed(copy[at]))
        case "remove":
            del copy[at]
        case _:  # add
            copy = [*copy, draw(ANYTHING)] if isinstance(copy, list) else copy | {draw(NAMES): draw(ANYTHING)}
    return copy


def is_accepted(schema: Any) -> bool:
    """Return whether the gate accepts a schema."""
    return code_of(check_schema, schema) == "ok"


GOOD_LEAVES: Final = st.one_of(
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more + 1}, *[st.integers(0, 2)] * 2
    ),
    st.lists(st.sampled_from("abc"), min_size=1, unique=True).map(lambda words: {"type": "string", "enum": words}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, *[st.integers(-1, 2)] * 2
    ).filter(is_accepted),
    st.integers(-1, 2).map(lambda number: {"type": "integer", "const": number}),
    st.just({"type": "number", "minimum": 0, "maximum": 1}),
    st.just({"type": "boolean"}),
)


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return an accepted schema of an object."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": [name for name in properties if name in required]}


OBJECTS: Final = st.recursive(
    GOOD_LEAVES,
    lambda inner: (
        st.builds(closed, st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3), st.just(["a", "b"]))
        | st.builds(
            lambda items, low: {"type": "array", "items": items, "minItems": low, "maxItems": 2},
            inner,
            st.integers(0, 1),
        )
    ),
    max_leaves=5,
).map(lambda part: closed({"a": part, "b": {"type": "boolean"}}, ["a"]))


def is_object(value: Any) -> bool:
    """Return whether a value is an object."""
    return isinstance(value, dict)


@given(SCHEMAS | OBJECTS.flatmap(changed).filter(is_object))
@settings(max_examples=times(40, 40))
def test_gate_and_program_accept_the_same_schemas(schema: dict[str, Any]) -> None:
    assert code_of(check_schema, schema) == code_of(program().check_own_schema, schema)


@given(st.data())
@settings(max_examples=times(40, 40))
def test_gate_and_program_accept_the_same_values(data: st.DataObject) -> None:
    schema = data.draw(OBJECTS.filter(is_accepted))
    value = data.draw(fitting(schema).flatmap(changed))
    read = json.loads(json.dumps(value))
    assert code_of(check_value, read, schema) == code_of(KINDS.check, read, schema, "$.data")


def test_program_gives_the_published_codes() -> None:
    vectors = json.loads((PROTO / "vectors" / "declared_kinds.json").read_bytes())
    for case in vectors["schemas"]:
        assert code_of(program().check_own_schema, case["schema"]) == case["code"], case["name"]
    for case in vectors["values"]:
        assert code_of(KINDS.check, case["data"], vectors["schemas"][0]["schema"], "$.data") == case["code"], case[
            "name"
        ]


def test_refusals_name_the_path_and_what_to_write_instead() -> None:
    schema = SCHEMA | {"properties": {"service": TEXT | {"pattern": "(a+)+"}}}
    with pytest.raises(Refused) as refused:
        check_schema(schema)
    assert refused.value.details["path"] == "$.data.schema.properties.service.pattern"
    assert "enum" in refused.value.message
    with pytest.raises(Refused) as refused:
        check_value(GOOD | {"by": {"name": 1}}, SCHEMA)
    assert refused.value.details["path"] == "$.data.by.name"
