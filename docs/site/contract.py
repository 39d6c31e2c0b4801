"""The pages about kinds, rules, errors, limits, settings, HTTP and MCP, from ``proto/`` and tables of the source."""

from __future__ import annotations

import inspect
import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from page_parts import code, fields, plain, table, type_of

from deedbook.consumers.handoffs.operations import ToolVerb
from deedbook.consumers.interfaces.cli.settings_page import settings_page
from deedbook.consumers.interfaces.mcp.handoffs import HandoffTools
from deedbook.consumers.interfaces.mcp.lookup import LookupTools
from deedbook.consumers.interfaces.mcp.record import RecordTool
from deedbook.consumers.interfaces.mcp.reports import ReportTools
from deedbook.consumers.interfaces.mcp.server import TEXTS, make_tool
from deedbook.ledger.errors import CODES, Exit, remedy_of
from deedbook.ledger.home import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROTO: Final = Path(__file__).parents[2] / "proto"
_JSON_TYPES: Final = ("application/json", "application/x-ndjson", "text/event-stream")


def _read(name: str) -> Any:
    return json.loads((PROTO / name).read_text("utf-8"))


def events_page() -> Iterator[str]:
    """Yield the lines of the page about kinds of events."""
    yield from ("# Kinds of events", "")
    yield "Generated from `proto/schemas` and `proto/examples`. An event is a signed fact in a stream, such as"
    yield "`handoff/event-bus`. A table has the fields of the `data`; [the wire format](../../proto/README.md)"
    yield "describes the rest of an event, and [the rules](../../proto/rules/README.md) say who may sign it."
    names = sorted(path.stem for path in (PROTO / "examples").glob("*.json"))
    for family, kinds in groupby(names, key=lambda name: name.partition(".")[0]):
        yield from ("", f"## {family}")
        for kind in kinds:
            schema = _read(f"schemas/{kind}.json")
            data = schema["properties"]["data"]
            while "$ref" in data:
                data = schema["$defs"][data["$ref"].rpartition("/")[2]]
            yield from ("", f"### {kind}", "", plain(schema.get("description", "")), "")
            yield from fields(data)
            example = json.dumps(_read(f"examples/{kind}.json")["data"], indent=2, ensure_ascii=False)
            yield from ('??? example "Example of its data"', "", "    ```json")
            yield from (f"    {line}" for line in example.split("\n"))
            yield "    ```"


def rules_page() -> Iterator[str]:
    """Yield the lines of the page about states and rules."""
    yield from ("# States and rules", "")
    yield "Generated from `proto/rules`; [the rules](../../proto/rules/README.md) explain each column. A row says who"
    yield "may append a kind, in which states of its stream, and which state follows (none named: the same). The first"
    yield "row of a kind that fits decides. In any other state, the kind is refused with `TRANSITION_NOT_ALLOWED`,"
    yield "unless another code is named below the table."
    for path in sorted((PROTO / "rules").glob("*.json")):
        rules = json.loads(path.read_text("utf-8"))
        yield from ("", f"## {path.stem}")
        yield from table(
            ("state", "meaning", "next"),
            (
                (code(name), plain(state.get("meaning", "")), plain(state.get("next", "")))
                for name, state in rules.get("states", {}).items()
            ),
        )
        rows = rules.get("rows", ())
        yield from table(("kind", "who may sign", "from → to", "needs"), map(_row, rows))
        for row in rows:
            for error, states in groupby(row.get("refused_as", {}).items(), key=lambda item: item[1]):
                yield f"- {code(row['kind'])} in {_any_of([state for state, _ in states])}: {code(error)}"
        yield from table(
            ("condition", "code of its refusal"),
            ((code(name), code(error)) for name, error in rules.get("conditions", {}).items()),
        )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one operation."""
    fits = [f"{code(field)} is {code(json.dumps(value))}" for field, value in row.get("when", {}).items()]
    who = [_any_of(row["by"]) if "by" in row else "any agent"]
    if "not_by" in row:
        who.append(f"not {_any_of(row['not_by'])}")
    if "roles" in row:
        who.append(f"with the role {_any_of(row['roles'])}")
    if row.get("identity_key"):
        who.append("with the identity key")
    return (
        code(row["kind"]) + (f", if {' and '.join(fits)}" if fits else ""),
        ", ".join(who),
        ", ".join(map(code, row["from"])) + (f" → {code(row['to'])}" if "to" in row else ""),
        ", ".join(map(code, row.get("needs", ()))),
    )


def _any_of(names: list[str] | str) -> str:
    return " or ".join(map(code, [names] if isinstance(names, str) else names))


def errors_page() -> Iterator[str]:
    """Yield the lines of the page about errors."""
    yield from ("# Errors", "")
    yield "Generated from the table of codes (`proto/errors.json`). A code is the same on the command line, in"
    yield "Python, over HTTP and over MCP. *Recoverable*: the same request can succeed later, unchanged."
    for exit_code, rows in groupby(sorted(CODES.items(), key=lambda row: row[1].exit), key=lambda row: row[1].exit):
        yield from ("", f"## Exit code {int(exit_code)}: {Exit(exit_code).name.lower().replace('_', ' ')}")
        yield from table(
            ("code", "meaning", "what to do", "recoverable"),
            (
                (code(name), plain(row.meaning), plain(remedy_of(name)), "yes" if row.recoverable else "")
                for name, row in rows
            ),
        )


def limits_page() -> Iterator[str]:
    """Yield the lines of the page about limits."""
    limits = _read("limits.json")
    yield from ("# Limits", "", f"Generated from `proto/limits.json`. {plain(limits['description'])}")
    for part, rows in limits.items():
        if isinstance(rows, dict):
            yield from ("", f"## {part.capitalize()}")
            yield from table(
                ("limit", "value", "unit", "meaning"),
                (
                    (code(name), f"{row['value']:,}", plain(row["unit"]), plain(row["meaning"]))
                    for name, row in rows.items()
                ),
            )


def settings_reference() -> Iterator[str]:
    """Yield the lines of the page about settings."""
    yield from ("# Settings", "")
    yield "Generated from the types that read `config.toml`; `deed doctor --settings` prints the same. The file is in"
    yield "the ledger's folder, `.deedbook/config.toml`. After a change, run `deed trust`."
    yield from ("", "```toml", *settings_page(), "```")


def files_page() -> Iterator[str]:
    """Yield the lines of the page about the files of a ledger's folder."""
    _, _, files = inspect.cleandoc(home.__doc__ or "").partition("\n\n")
    yield from ("# Files", "")
    yield "Generated from the module that reads and writes the folder. [Uninstall](../how-to/uninstall.md) lists the"
    yield "files outside of it, and [Back up](../how-to/backup.md) says what a backup contains."
    yield from ("", "```text", *files.strip("\n").split("\n"), "```")


def mcp_page() -> Iterator[str]:
    """Yield the lines of the page about the MCP server."""
    yield from ("# MCP tools", "")
    yield "Generated from the tools of `deed mcp`. An error has a [code](errors.md)."
    for name in TEXTS:
        tool = make_tool(_tool(name))
        yield from ("", f"## {name}", "", plain(tool.description or ""), "")
        schema = tool.parameters
        yield from fields(schema)
        for inner, part in schema.get("$defs", {}).items():
            yield from ("", f"### {name}: {inner}", "", plain(part.get("description", "")))
            yield from fields(part)
    yield from ("", "`handoff_act` has the verbs " + ", ".join(map(code, get_args(ToolVerb))) + ".")


def _tool(name: str) -> Callable[..., Any]:
    groups: tuple[type, ...] = (ReportTools, RecordTool, LookupTools, HandoffTools)
    (function,) = (getattr(group(None), name) for group in groups if hasattr(group, name))
    tool: Callable[..., Any] = function
    return tool


def http_page() -> Iterator[str]:
    """Yield the lines of the page about the paths over HTTP."""
    document = _read("openapi.json")
    yield from ("# HTTP", "", f"Generated from `proto/openapi.json`. {plain(document['info']['description'])}")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from ("", f"## {method.upper()} {path}", "", plain(operation.get("summary", "")), "")
            parameters = [_resolved(document, parameter) for parameter in operation.get("parameters", ())]
            yield from table(
                ("parameter", "in", "type", "meaning"),
                (
                    (code(row["name"]), row["in"], type_of(row.get("schema")), plain(row.get("description", "")))
                    for row in parameters
                ),
            )
            answer = _answer(operation)
            if answer:
                yield f"`data` of the answer: {answer}."


def http_types_page() -> Iterator[str]:
    """Yield the lines of the page about the types of answers."""
    document = _read("openapi.json")
    yield from ("# Types of answers", "", "Generated from `proto/openapi.json`: the JSON of HTTP and of `--json`. In")
    yield "Python, answers have the same fields; [some names differ](../python-names.md)."
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from ("", f"## {name} {{#{name.lower()}}}", "", plain(schema.get("description", "")), "")
        yield from fields(schema, link="http-types.md")


def _resolved(document: Any, parameter: dict[str, Any]) -> Any:
    if "$ref" in parameter:
        parameter = document["components"]["parameters"][parameter["$ref"].rpartition("/")[2]]
    return parameter


def _answer(operation: Any) -> str:
    content = operation["responses"].get("200", {}).get("content", {})
    for media in _JSON_TYPES:
        data = content.get(media, {}).get("schema", {}).get("properties", {}).get("data")
        if data:
            return type_of(data, link="http-types.md")
    return ""
