"""The OpenAPI 3.1 description of the read API, generated from the types that its arguments are decoded with.

An answer's ``data`` is described as an object, no further: what is in it, the query of each path says in a sentence,
and the events' own schemas are published beside it (``schemas``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.web.api import BYTES, EVENTS, JSON, NDJSON, TEXT
from deedbook.consumers.interfaces.web.app import DESCRIPTION, HEALTH, METRICS
from deedbook.consumers.interfaces.web.questions import AS_OF, ROOT, Form, form_of, path_of
from deedbook.consumers.interfaces.web.stream import EVENT_STREAM
from deedbook.consumers.sdk.text import document, error_document
from deedbook.ledger.errors import CODES, Refused
from deedbook.projections.views.registry import QUERIES, kind_of

OPEN: Final = (ROOT, DESCRIPTION, HEALTH)
_REF: Final = "#/components/schemas/{name}"
_SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}]
_ERRORS: Final = {
    "400": "The question is wrong: an argument, or the cursor of another question.",
    "401": "No token, or one that counts no more.",
    "403": "The token has another role, or what was asked for is not for it.",
    "404": "There is no such thing, or not yet.",
    "405": "Only GET, HEAD and OPTIONS are answered.",
    "406": "There is no answer in the form that Accept names.",
    "409": "The name fits several things.",
    "413": "The request has a body, or the answer is too large.",
    "414": "The address is too long.",
    "500": "What was read does not prove itself, or an error nobody foresaw.",
    "503": "Too many ask, or the views are being made: `Retry-After` says when to come back.",
}
# An example of each argument that has no default and no values of its own.
_EXAMPLES: Final[dict[str, Any]] = {
    "at": "2026-02-12T10:00:00Z",
    "id": "event-bus",
    "ids": ["event-bus"],
    "name": "alice",
    "path": "0/000",
    "places": [],
    "reasoning_ref": "event-bus",
    "ref": "0",
    "task": "fix the login",
    "text": "login",
    "level": "standard",
}
_OTHERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    ROOT: ("What there is to ask, as a list.", "api", (JSON,)),
    DESCRIPTION: ("This description.", "", (JSON,)),
    f"{ROOT}/events": (
        "Events in the order of the log, as a page, as lines up to its end, or followed as server-sent events.",
        "events",
        (JSON, NDJSON, EVENT_STREAM),
    ),
    f"{ROOT}/events/{{ref}}": ("One event, by its index, id, or 12 or more digits of it.", "event", (JSON,)),
    f"{ROOT}/receipts/{{ref}}": ("The C2SP tlog-proof that an event is in the log.", "receipt", (JSON, TEXT)),
    f"{ROOT}/blobs/{{ref}}": ("The content of a blob.", "", (BYTES,)),
    f"{ROOT}/checkpoint": ("The signed checkpoint that outsiders see.", "checkpoint", (JSON, TEXT)),
    "/checkpoint": ("The same, as C2SP tlog-tiles has it.", "", (TEXT,)),
    "/tile/{path}": ("A tile of the log, as C2SP tlog-tiles has it.", "", (BYTES,)),
    METRICS: ("What the node counts, for Prometheus.", "", (TEXT,)),
    HEALTH: ("Whether the log can be read.", "health", (JSON,)),
}


def description() -> dict[str, Any]:
    """Return the document."""
    schemas: dict[str, Any] = {}
    paths = {path_of(name): {"get": _question(name, schemas)} for name in sorted(QUERIES)}
    paths |= {path: {"get": _other(path, schemas)} for path in _OTHERS}
    schemas["Error"] = {
        "type": "object",
        "required": ["schema_version", "kind", "error"],
        "properties": {
            "schema_version": {"const": 1},
            "kind": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["code", "message", "recoverable", "details"],
                "properties": {
                    "code": {"enum": list(CODES)},
                    "message": {"type": "string"},
                    "recoverable": {"type": "boolean"},
                    "details": {"type": "object"},
                },
            },
        },
    }
    error = error_document(Refused("NOT_FOUND", "there is no handoff event-buss: did you mean event-bus?"))
    content = {JSON: {"schema": {"$ref": _REF.format(name="Error")}, "example": error}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Deedbook: reading a ledger",
            "version": "1",
            "description": "Every query of the views, with the JSON documents of the command line. Only reading.",
        },
        "servers": [{"url": "http://127.0.0.1:8080"}],
        "security": _SECURITY,
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {status: {"description": meaning, "content": content} for status, meaning in _ERRORS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "`deed token create`"}},
        },
    }


def _question(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    form = form_of(name)
    summary = (QUERIES[name].run.__doc__ or "").partition("\n")[0].replace("``", "`")
    moment = {
        "type": "string",
        "maxLength": 64,
        "description": "As of an entry's index, or a time: ISO 8601, or words as `yesterday`.",
    }
    parameters = [*_parameters(form, schemas), _parameter(AS_OF, moment)]
    media = (JSON,) if form.cursor is None else (JSON, NDJSON)
    return _operation(name.replace(".", "_"), summary, parameters, kind_of(name), media)


def _other(path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    summary, kind, media = _OTHERS[path]
    places = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [
        {
            "name": place,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "example": _EXAMPLES.get(place, "0/000"),
        }
        for place in places
    ]
    if path == f"{ROOT}/events":
        last = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer", "minimum": 0}}
        parameters += [*_parameters(EVENTS, schemas), last]
    name = path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_")
    operation = _operation(name, summary, parameters, kind, media)
    return operation | ({"security": []} if path in OPEN else {})


def _parameters(form: Form, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of a question; what they refer to is added to ``schemas``."""
    (schema,), components = msgspec.json.schema_components([form.type], ref_template=_REF)
    own = components.pop(schema["$ref"].rpartition("/")[2])
    schemas |= components
    for name, described in own["properties"].items():
        if name == form.cursor:
            described = {"type": "string", "description": "The `next` of the page before, of this very question."}  # noqa: PLW2901
        elif isinstance(form.items[name], type) and issubclass(form.items[name], msgspec.Struct):
            described = {"type": "array", "items": {"type": "string", "contentMediaType": JSON}}  # noqa: PLW2901
        yield _parameter(name, _without_null(described), is_required=name in own.get("required", ()))


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null, which a URL cannot say, and with patterns in JSON Schema's dialect."""
    schema = {name: one for name, one in schema.items() if not (name == "default" and one is None)}
    if "anyOf" in schema:
        kept = [one for one in schema["anyOf"] if one != {"type": "null"}]
        schema = {name: one for name, one in schema.items() if name != "anyOf"} | (
            kept[0] if len(kept) == 1 else {"anyOf": kept}
        )
    if "enum" in schema:
        schema["enum"] = [one for one in schema["enum"] if one is not None]
    if "pattern" in schema:
        schema["pattern"] = schema["pattern"].replace(r"\Z", "$")
    return schema


def _parameter(name: str, schema: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    made = {"name": name, "in": "query", "schema": schema}
    if (meaning := schema.pop("description", None)) is not None:
        made["description"] = meaning
    return made | ({"required": True, "example": _EXAMPLES[name]} if is_required else {})


def _operation(
    name: str, summary: str, parameters: list[dict[str, Any]], kind: str, media: tuple[str, ...]
) -> dict[str, Any]:
    answers: dict[str, Any] = {one: {"schema": {"type": "string"}} for one in media}
    if media[0] == JSON:
        answers[JSON] = _document_of(kind) if kind else {"schema": {"type": "object"}}
    responses = {
        "200": {"description": summary, "content": answers},
        "304": {"description": "It is what If-None-Match names."},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in _ERRORS},
    }
    return {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}


def _document_of(kind: str) -> dict[str, Any]:
    properties = {
        "schema_version": {"const": 1},
        "kind": {"const": kind},
        "data": {"type": "object"},
        "next": {"type": "string", "description": "The address of the page that follows."},
    }
    schema = {"type": "object", "required": ["schema_version", "kind", "data"], "properties": properties}
    return {"schema": schema, "example": document(kind, {})}
