"""Generates the published contract: the files of ``proto/`` about types, codes, limits and addresses.

It also generates two modules of the Python interface (``python_queries``).

``generate`` is pure and deterministic: the same code gives the same bytes in every process. ``make contract`` writes
the files and ``make check`` compares them (``--check``), so they always match the types by which the gate decodes. Each
file is self-contained: a schema refers to nothing outside itself, and ids are URNs without a host. A published kind
never changes, so a changed schema of a kind in a diff is a mistake.

Not generated: ``README.md``, ``examples/`` and ``rules/`` are written by hand. ``vectors/`` are frozen, because a
generated vector proves only that the generator agrees with itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from asyncapi import document
from handoff_page import handoff_page
from msgspec import inspect
from openapi import description, portable, tidy
from operations_page import operations_page
from python_queries import python_modules
from sql_page import sql_page

from deedbook.ledger import limits
from deedbook.ledger.errors import CODES, Exit, remedy_of
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.body import Body
from deedbook.ledger.events.imported import MAPPED, RecordImported, mapped_types
from deedbook.ledger.events.remnant import is_kind_erasable, text_fields, types_in
from deedbook.ledger.format.envelope import DsseEnvelope
from deedbook.ledger.format.forms import ID, OF_ONE_SCRIPT

FOLDER: Final = Path(__file__).parent.parent / "proto"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
HAND_WRITTEN: Final = ("README.md", "cases/", "examples/", "rules/", "vectors/")

_REF_TEMPLATE: Final = "#/$defs/{name}"

# Each limit by its name, with its unit and meaning. Limits on a process's own work (queues, map size, waits at start)
# do not concern other programs and are not published.
_FORMAT_LIMITS: Final = {
    "entry_size_max_bytes": ("bytes", "An entry as it is stored."),
    "json_depth_max": ("levels", "Nesting of objects and arrays in a body."),
    "json_integer_max": ("value", "The largest integer, and its negative the smallest: 2^53-1."),
    "stream_name_max_bytes": ("UTF-8 bytes", "The name of a stream."),
    "causes_max": ("references", "The causes of one event."),
    "batch_events_max": ("events", "The events of one submission."),
    "batch_size_max_bytes": ("bytes", "The bodies of one submission together."),
    "body_size_max_bytes": ("bytes", "A body; what is larger goes into a blob."),
    "remnant_size_max_bytes": ("bytes", "The rest of an erased body, with its id."),
    "kinds_declared_max": ("kinds", "The declared kinds of a ledger."),
    "kind_name_max_chars": ("characters", "The name of a declared kind, and the type of its streams."),
    "kind_schema_max_bytes": ("bytes", "The schema of a declared kind, in canonical form."),
    "kind_depth_max": ("levels", "Objects and lists in such a schema, the schema itself included."),
    "kind_properties_max": ("properties", "All properties of such a schema together."),
    "kind_choices_max": ("values", "The values of enum."),
    "kind_choice_max_chars": ("characters", "A text in enum or const."),
    "kind_items_max": ("items", "The largest maxItems."),
    "kind_text_max_chars": ("characters", "The largest maxLength."),
    "kind_title_max_chars": ("characters", "A title of a kind or of a part of its schema."),
    "kind_description_max_chars": ("characters", "A description of a kind or of a part of its schema."),
    "sealable_text_min_chars": ("characters", "The smallest maxLength of a text that may be sealed."),
}
_NODE_LIMITS: Final = {
    "request_size_max_bytes": ("bytes", "A submission on the bus, its framing included."),
    "request_timeout_s": ("seconds", "How long a client waits for an answer before it asks again."),
    "range_events_max": ("events", "One answer of read.range."),
    "range_size_max_bytes": ("bytes", "The entries of one answer of read.range, unless the first alone is larger."),
    "poll_wait_max_s": ("seconds", "How long read.range waits for news."),
    "blob_size_max_bytes": ("bytes", "A blob."),
    "blob_chunk_bytes": ("bytes", "Every chunk of a blob but the last, which may be shorter."),
}


def generate() -> dict[str, bytes]:
    """Return the content of each generated file by its path below ``proto/``."""
    files: dict[str, Any] = {
        "asyncapi.json": document(),
        "erasure.json": erasure(),
        "errors.json": errors(),
        "limits.json": published_limits(),
        "schemas/body.json": body_schema(),
        "schemas/dsse-envelope.json": envelope_schema(),
    }
    files |= {f"schemas/{kind}.json": kind_schema(kind) for kind in KINDS}
    pages = {
        "HANDOFF.md": handoff_page().encode(),
        "OPERATIONS.md": operations_page().encode(),
        "SQL.md": sql_page().encode(),
    }
    encoded = {path: _encode(value) for path, value in sorted(files.items())}
    return encoded | pages | {"openapi.json": _lines(description(), 3).encode() + b"\n"}


def erasure() -> dict[str, Any]:
    """Return the kinds whose bodies may be erased, and for each type in the schemas its fields with texts."""
    types = {kind.data for kind in KINDS.values()} | {part for kind in MAPPED for part in mapped_types(kind)}
    parts = {part.__name__: part for kind in types for part in types_in(kind)}
    return {
        "description": "The kinds whose bodies may be erased (README.md, section 6.1). `texts` has the fields that are "
        "erased, by the names of the types in `$defs` of the schemas. `mark`: each text in the field, also in lists "
        "and objects, is replaced. `empty`: each object in the field becomes empty.",
        "erasable": sorted(name for name, kind in KINDS.items() if is_kind_erasable(kind.data)),
        "texts": {name: fields for name, part in sorted(parts.items()) if (fields := dict(text_fields(part)))},
    }


def write(folder: Path = FOLDER) -> None:
    """Write the generated files, and remove the schemas of kinds that no longer exist."""
    generated = generate()
    for path, content in generated.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for path in _generated_places(folder):
        if path not in generated and path.startswith("schemas/"):
            (folder / path).unlink()


def drift(folder: Path = FOLDER) -> list[str]:
    """Return one line for each file in ``folder`` that differs from the code; empty if none differs."""
    generated = generate()
    lines = []
    for path, content in generated.items():
        target = folder / path
        if not target.is_file():
            lines.append(f"missing: {path}")
        elif target.read_bytes() != content:
            lines.append(f"changed: {path}")
    lines += [f"extra: {path}" for path in _generated_places(folder) if path not in generated]
    return lines


def kind_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a whole body of one kind."""
    data = KINDS[kind].data
    definitions = _definitions(Body, data)
    body = definitions.pop("Body")
    properties = body["properties"]
    properties["kind"] = {"const": kind}
    properties["stream"] |= {"pattern": _stream_pattern(kind)}
    properties["data"] = {"$ref": _REF_TEMPLATE.format(name=data.__name__)}
    if data is RecordImported:
        definitions |= _mapped_definitions(definitions[data.__name__])
    summary = definitions[data.__name__].get("description", "")
    return _named(kind, body | {"description": summary}) | {"$defs": definitions}


def _mapped_definitions(record: dict[str, Any]) -> dict[str, Any]:
    """Give ``mapped`` and ``claims`` of an imported record types that depend on ``mapped_kind``; return these types."""
    nothing = {"type": "object", "maxProperties": 0}
    # If mapped_kind is absent or null, the record is unmapped and has no claims.
    cases: list[tuple[Any, Any, Any]] = [({"type": "null"}, nothing, nothing)]
    for kind, types in ((kind, mapped_types(kind)) for kind in MAPPED):
        mapped, claims = ({"$ref": _REF_TEMPLATE.format(name=data.__name__)} for data in types)
        cases.append(({"const": kind}, mapped, claims))
    record["allOf"] = [
        {
            "if": {"properties": {"mapped_kind": kind}} | ({} if mapped is nothing else {"required": ["mapped_kind"]}),
            "then": {"properties": {"mapped": mapped, "claims": claims}},
        }
        for kind, mapped, claims in cases
    ]
    record["properties"]["mapped_kind"]["anyOf"] = [{"enum": list(MAPPED)}, {"type": "null"}]
    return _definitions(*(data for kind in MAPPED for data in mapped_types(kind)))


def body_schema() -> dict[str, Any]:
    """Return the schema that every body fits, whatever its kind."""
    return _named("body", _definitions(Body)["Body"])


def envelope_schema() -> dict[str, Any]:
    """Return the schema of a DSSE JSON envelope."""
    definitions = _definitions(DsseEnvelope)
    return _named("dsse-envelope", definitions.pop("DsseEnvelope")) | {"$defs": definitions}


def errors() -> dict[str, Any]:
    """Return every error code that an answer may have, with the exit code of the command line."""
    return {
        "description": "Error codes. A code is stable: it is never renamed and never changes its meaning.",
        "exit_codes": {exit_code.name: exit_code.value for exit_code in Exit},
        "codes": {
            name: {
                "exit": code.exit.value,
                "recoverable": code.recoverable,
                "meaning": code.meaning,
                "remedy": remedy_of(name),
            }
            for name, code in CODES.items()
        },
    }


def published_limits() -> dict[str, Any]:
    """Return the limits that other programs must know: those of the format, and the defaults of a node."""
    return {
        "description": "Limits. Those of the format decide whether an event is valid and never change within it.",
        "format": _limits_of(_FORMAT_LIMITS),
        "node": _limits_of(_NODE_LIMITS),
    }


def _limits_of(table: dict[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    return {
        name: {"value": getattr(limits, name), "unit": unit, "meaning": meaning}
        for name, (unit, meaning) in table.items()
    }


def _generated_places(folder: Path) -> list[str]:
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not path.startswith(HAND_WRITTEN))


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"


def _lines(value: Any, levels: int) -> str:
    """Return a document with one line for each member of its outer ``levels``: half as long as if indented."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    members = ",\n".join(f"{json.dumps(name)}:{_lines(member, levels - 1)}" for name, member in value.items())
    return f"{{\n{members}\n}}"


def _named(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": f"urn:deedbook:schema:{name}"} | schema | {"title": name}


def _stream_pattern(kind: str) -> str:
    family = KINDS[kind].stream
    if family == "ledger":
        return "^ledger$"
    if kind == "record.imported":
        family = "(" + "|".join(sorted({family, *(KINDS[mapped].stream for mapped in MAPPED)})) + ")"
    return portable(rf"^{family}/{OF_ONE_SCRIPT}{ID}\Z")


def _definitions(*types: type[msgspec.Struct]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    definitions: dict[str, Any] = {name: tidy(schema) for name, schema in sorted(schemas.items())}
    if "Body" in definitions:
        definitions["Body"]["properties"]["data"] = {"type": "object"}
        definitions["Body"]["properties"]["stream"]["maxLength"] = limits.stream_name_max_bytes
    for struct in types:
        for name, field, keys in _integer_keys(inspect.type_info(struct)):
            definitions[name]["properties"][field]["propertyNames"] = {
                "pattern": "^[1-9][0-9]*$",
                "maxLength": len(str(keys.le)),
            }
    return definitions


def _integer_keys(info: inspect.Type) -> Iterator[tuple[str, str, inspect.IntType]]:
    """Yield (struct, field, key type) of every mapping with integer keys; msgspec's schemas omit key types."""
    match info:
        case inspect.StructType():
            for field in info.fields:
                held = _bare(field.type)
                keys = _bare(held.key_type) if isinstance(held, inspect.DictType) else None
                if isinstance(keys, inspect.IntType):
                    yield info.cls.__name__, field.encode_name, keys
                yield from _integer_keys(held)
        case inspect.ListType():
            yield from _integer_keys(_bare(info.item_type))
        case inspect.UnionType():
            for member in info.types:
                yield from _integer_keys(_bare(member))
        case _:  # any other type of msgspec, which contains no types
            return


def _bare(info: inspect.Type) -> inspect.Type:
    return info.type if isinstance(info, inspect.Metadata) else info


def main(arguments: list[str] | None = None) -> int:
    """Write the contract, or with ``--check`` print the differences; the exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(
        "python tests/published_contract.py", description="Write the generated files of proto/."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; list what differs and exit with 1")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="where it lies (default: proto/)")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder)
        for path, text in python_modules().items():
            path.write_text(text, "utf-8")
        return 0
    lines = drift(options.folder)
    lines += [f"changed: {path}" for path, text in python_modules().items() if path.read_text("utf-8") != text]
    if lines:
        sys.stderr.write("\n".join([f"{options.folder} is not what the code says: run `make contract`", *lines, ""]))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
