"""`deed kind`: declares a project's own kinds of events, and shows the declared ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

import click
from blake3 import blake3
from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli.app import App, Command, parse_json
from deedbook.consumers.interfaces.cli.commands.agents import admin_author
from deedbook.consumers.interfaces.cli.output import list_page, page_options, print_table, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup
from deedbook.consumers.sdk.text import counted, quote_text
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.declared import KindDeclared, OwnKind, OwnStream, PublisherRole, check_schema
from deedbook.ledger.format.codec import converted, encode_sorted

ROLES: Final[tuple[PublisherRole, ...]] = get_args(PublisherRole)

_VERBS: Final = {
    "declare": Lazy("kinds:declare", "Declare a kind of events, as an admin."),
    "list": Lazy("kinds:list_", "List the declared kinds."),
    "show": Lazy("kinds:show", "Show a declared kind with its schema."),
}


@click.group(cls=LazyGroup, lazy=_VERBS)
def kind() -> None:
    """Kinds of events of your own: an admin declares them, and agents publish them with `deed emit`."""


@click.command(cls=Command)
@click.argument("name", metavar="x.NAME.NAME")
@click.option("--schema", required=True, metavar="JSON|@FILE|-", help="The JSON Schema of the events' data.")
@click.option("--stream", required=True, metavar='"x.TYPE/*"', help="The streams that the events are on.")
@click.option(
    "--by", "roles", multiple=True, type=click.Choice(ROLES), required=True, help="Who may publish. Repeatable."
)
@click.option("--title", default="", help="What happened, in words (default: that of the schema, or of the name).")
@click.option("--description", default="", help="What it means (default: that of the schema).")
def declare(app: App, name: str, *, schema: str, stream: str, roles: tuple[str, ...], **texts: str) -> None:
    """Declare a kind of events, which never changes: a new version is a new kind.

    NAME begins with x. and has at least two more words. The schema lists every field: the page "Your own events" in
    docs/ says what it may contain. The call `deed kind declare x.honey.harvested --schema @harvested.json --stream
    "x.hive/*" --by agent` takes for example this harvested.json:

    \b
    {"type": "object", "additionalProperties": false, "required": ["hive"],
     "properties": {
       "hive": {"type": "string", "maxLength": 100},
       "state": {"type": "string", "enum": ["calm", "swarming"]},
       "jars": {"type": "integer", "minimum": 1},
       "kilograms": {"type": "number", "minimum": 0},
       "is_sold": {"type": "boolean"},
       "flowers": {"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 40}}}}
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with backslash b
    for value, of, field in ((name, OwnKind, "name"), (stream.removesuffix("/*"), OwnStream, "stream")):
        converted(value, of, f"$.data.{field}")
    form = parse_json(schema, "--schema")
    check_schema(form)
    fields = {name: text or str(form.get(name, "")) for name, text in texts.items()}
    values = {"name": name, "stream": stream.removesuffix("/*"), "roles": sorted({*roles}), "schema": form}
    data = converted(values | {name: text for name, text in fields.items() if text}, KindDeclared, "$.data")
    # The same declaration again is a repeat; a different one with this name is refused.
    draft = Draft(
        stream=f"kind/{name}", data=data, idem=f"declare:{blake3(encode_sorted(values | fields)).hexdigest()}"
    )
    (accepted,) = admin_author(app).emit(draft)
    answer = {"name": name, "accepted": asdict(accepted)}
    again = " already" if accepted.is_repeat else ""
    by = " or ".join(data.roles)
    app.show(
        "kind",
        answer,
        f"{name} is{again} declared (entry {accepted.index}): publish with the role {by}, on {data.stream}/ID",
    )


@click.command("list", cls=Command, looks_back=True)
@click.option("--stream", "stream_type", metavar="x.TYPE", help="Only kinds on streams of this type.")
@click.option("--role", type=click.Choice(ROLES), help="Only kinds that this role may publish.")
@page_options()
def list_(app: App, **filters: Any) -> None:
    """List the declared kinds, newest first."""
    list_page(
        app,
        "kinds.list",
        filters,
        lambda row: {
            "kind": row["name"],
            "streams": f"{row['stream_type']}/ID",
            "by": ", ".join(row["roles"]),
            "events": row["events"],
            "declared": when(row["declared_ms"]),
            "title": row["phrase"],
        },
    )


@click.command(cls=Command, looks_back=True)
@click.argument("name", metavar="KIND")
def show(app: App, name: str) -> None:
    """Show a declared kind: its fields, its streams, and who may publish."""
    answer = app.query("kinds.show", id=name)
    app.show("kinds.show", answer, lambda: _print(answer))


def _print(row: dict[str, Any]) -> None:
    echo(quote_text(row["phrase"]), bold=True)
    by, number = " or ".join(row["roles"]), counted(row["events"], "event")
    echo(f"{row['name']} on {row['stream_type']}/ID, published by {by}: {number}")
    echo(f"declared by {row['author']} {when(row['declared_ms'])} (entry {row['declared_index']})")
    if row["description"]:
        echo(quote_text(row["description"]))
    print_table(("field", "type", "", "title"), list(_fields(row["schema"])))


def _fields(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each field. The fields of an inner object follow it; those of a list's objects have ``[]``."""
    required = {*schema.get("required", ())}
    for name, part in schema["properties"].items():
        path, needed = f"{above}{name}", "needed" if name in required else ""
        yield path, _form(part), needed, quote_text(part.get("title", ""))
        inner = part
        while inner["type"] == "array":
            path, inner = f"{path}[]", inner["items"]
        if inner["type"] == "object":
            yield from _fields(inner, f"{path}.")


def _form(part: dict[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return quote_text(" | ".join(map(str, part.get("enum", [part.get("const")]))))
    if part["type"] == "array":
        return f"list of {_form(part['items'])}"
    bounds = [f"{word} {part[word]}" for word in ("minimum", "maximum", "maxLength") if word in part]
    return " ".join([part["type"], *bounds, *(["sealable"] if part.get("sealable") else [])])
