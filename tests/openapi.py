"""The OpenAPI 3.1 description of the HTTP API, generated from the types of the arguments and answers of queries.

An event in an answer is described only as an object: the schemas of events are published separately (``schemas``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
import openapi_writes

from deedbook.consumers.interfaces.web.api import BYTES, EVENTS, JSON, NDJSON, TEXT
from deedbook.consumers.interfaces.web.app import DESCRIPTION, HEALTH, METRICS
from deedbook.consumers.interfaces.web.questions import AS_OF, ROOT, Form, form_of, path_of
from deedbook.consumers.interfaces.web.stream import EVENT_STREAM
from deedbook.consumers.sdk.text import error_document
from deedbook.ledger.errors import CODES, Refused
from deedbook.projections.views.registry import QUERIES, kind_of

OPEN: Final = (ROOT, DESCRIPTION, HEALTH)
_REF: Final = "#/components/schemas/{name}"
_SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}]
_ERRORS: Final = {
    "400": "The request is invalid: an argument, or the cursor of another query.",
    "401": "The token is missing or no longer valid.",
    "403": "The token's role does not allow this request.",
    "404": "The requested item does not exist (yet).",
    "405": "Only GET, HEAD and OPTIONS are allowed.",
    "406": "The resource is not available in a media type that Accept names.",
    "409": "The name matches several items.",
    "413": "The request has a body, or the answer is too large.",
    "414": "The address is too long.",
    "500": "Stored data failed verification, or an unexpected error occurred.",
    "503": "Too many requests, or the views are being built: try again after the time in `Retry-After`.",
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
    ROOT: ("The list of all paths.", "api", (JSON,)),
    DESCRIPTION: ("This description.", "", (JSON,)),
    f"{ROOT}/events": (
        "Events in log order: as a page, as JSON lines up to the end of the log, or live as server-sent events.",
        "events",
        (JSON, NDJSON, EVENT_STREAM),
    ),
    f"{ROOT}/events/{{ref}}": ("One event, by its index, its id, or at least 12 digits of its id.", "event", (JSON,)),
    f"{ROOT}/receipts/{{ref}}": ("The C2SP tlog-proof that an event is in the log.", "receipt", (JSON, TEXT)),
    f"{ROOT}/blobs/{{ref}}": ("The content of a blob.", "", (BYTES,)),
    f"{ROOT}/checkpoint": ("The signed checkpoint for outside readers, as a document.", "checkpoint", (JSON, TEXT)),
    "/checkpoint": ("The signed checkpoint in C2SP tlog-tiles format.", "", (TEXT,)),
    "/tile/{path}": ("A tile of the log in C2SP tlog-tiles format.", "", (BYTES,)),
    METRICS: ("The metrics of the node, for Prometheus.", "", (TEXT,)),
    HEALTH: ("The health of the node: whether the log can be read.", "health", (JSON,)),
}


def description() -> dict[str, Any]:
    """Return the document."""
    schemas: dict[str, Any] = {}
    paths = {path_of(name): {"get": _question(name, schemas)} for name in sorted(QUERIES)}
    paths |= {path: {"get": _other(path, schemas)} for path in _OTHERS} | openapi_writes.paths()
    schemas |= _portable(_ANSWERS[1])
    schemas |= openapi_writes.schemas()
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
    errors = openapi_writes.ERRORS | _ERRORS
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Deedbook: a ledger over HTTP",
            "version": "1",
            "description": "Every query of the views, with the JSON documents of the command line, and submissions.",
        },
        "servers": [{"url": "http://127.0.0.1:8080"}],
        "security": _SECURITY,
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {status: {"description": meaning, "content": content} for status, meaning in errors.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "`deed token create`"}},
        },
    }


def _question(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    form = form_of(name)
    summary = (QUERIES[name].run.__doc__ or "").partition("\n")[0].replace("``", "`")
    moment = {
        "type": "string",
        "maxLength": 64,
        "description": "Answer as of an entry's index or a time: `1200`, `2026-02-12T09:30Z` or `yesterday`.",
    }
    parameters = [*_parameters(form, schemas), _parameter(AS_OF, moment)]
    media = (JSON,) if form.cursor is None else (JSON, NDJSON)
    return _operation(name.replace(".", "_"), summary, parameters, kind_of(name), media, _ANSWERS[0][name])


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
    """Yield the parameters of a query; referenced types are added to ``schemas``."""
    (schema,), components = msgspec.json.schema_components([form.type], ref_template=_REF)
    own = components.pop(schema["$ref"].rpartition("/")[2])
    schemas |= components
    for name, described in own["properties"].items():
        if name == form.cursor:
            described = {"type": "string", "description": "The `next` of the previous page of the same query."}  # noqa: PLW2901
        elif isinstance(form.items[name], type) and issubclass(form.items[name], msgspec.Struct):
            described = {"type": "array", "items": {"type": "string", "contentMediaType": JSON}}  # noqa: PLW2901
        yield _parameter(name, _without_null(described), is_required=name in own.get("required", ()))


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null, which a URL cannot express, and with patterns in JSON Schema's dialect."""
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
    name: str,
    summary: str,
    parameters: list[dict[str, Any]],
    kind: str,
    media: tuple[str, ...],
    data: Mapping[str, Any] = MappingProxyType({"type": "object"}),
) -> dict[str, Any]:
    answers: dict[str, Any] = {one: {"schema": {"type": "string"}} for one in media}
    if media[0] == JSON:
        answers[JSON] = _document_of(kind, data) if kind else {"schema": {"type": "object"}}
    responses = {
        "200": {"description": summary, "content": answers},
        "304": {"description": "Not modified: the client has this answer (If-None-Match)."},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in _ERRORS},
    }
    return {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}


def _document_of(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "schema_version": {"const": 1},
        "kind": {"const": kind},
        "data": dict(data),
        "next": {"type": "string", "description": "The address of the next page."},
    }
    schema = {"type": "object", "required": ["schema_version", "kind", "data"], "properties": properties}
    return {"schema": schema}


def _portable(schema: Any) -> Any:
    """Return a schema with its patterns in JSON Schema's dialect."""
    if isinstance(schema, dict):
        return {
            name: part.replace(r"\Z", "$") if name == "pattern" and isinstance(part, str) else _portable(part)
            for name, part in schema.items()
        }
    return [_portable(part) for part in schema] if isinstance(schema, list) else schema


def _answers() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the schema of each query's answer, and the schemas that these refer to."""
    schemas, components = msgspec.json.schema_components([QUERIES[name].returns for name in QUERIES], ref_template=_REF)
    return dict(zip(QUERIES, schemas, strict=True)), components


_ANSWERS: Final = _answers()
