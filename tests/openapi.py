"""The OpenAPI 3.1 description of the HTTP API, generated from the types of arguments, answers and events.

The schemas of answers are closed: they allow no properties besides the described ones. The schemas of arguments allow
everything that the server accepts. Each event kind has a schema of its own, so that a generated client has a type for
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, get_origin

import msgspec

from deedbook.consumers.interfaces.web.api import (
    BYTES,
    EVENTS,
    JSON,
    NDJSON,
    PROBLEM,
    TEXT,
    CheckpointText,
    Health,
    PathList,
    Problem,
    ReceiptText,
)
from deedbook.consumers.interfaces.web.app import DESCRIPTION, HEALTH, METRICS
from deedbook.consumers.interfaces.web.questions import (
    AFTER,
    AS_OF,
    ROOT,
    Form,
    cursor_max_chars,
    form_of,
    is_struct,
    item_max_chars,
    items_max,
    path_of,
    text_max_chars,
)
from deedbook.consumers.interfaces.web.stream import EVENT_STREAM
from deedbook.consumers.interfaces.web.writes import INTENT_HEADER, MSGPACK
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.errors import CODES
from deedbook.ledger.events import KINDS, fields
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.envelope import BATCH_TYPE, DsseSignature
from deedbook.ledger.format.forms import OWN_KIND_PATTERN
from deedbook.ledger.limits import batch_events_max, blob_size_max_bytes, json_integer_max, request_size_max_bytes
from deedbook.projections.answers import answer
from deedbook.projections.answers.answer import Compromised, Redacted
from deedbook.projections.search.queries import families_with_text
from deedbook.projections.views.registry import QUERIES, kind_of

Schema = dict[str, Any]
OPEN: Final = (ROOT, DESCRIPTION, HEALTH)
_REF: Final = "#/components/schemas/{name}"
_ERRORS: Final = {
    "400": "The request is invalid: an argument, the body, or an event in it.",
    "401": "The token is missing or no longer valid.",
    "403": "The token does not allow this request, or the gate refuses an event for its author or its state.",
    "404": "An item that the request names does not exist (yet).",
    "405": "The path does not take this method; `Allow` names those that it takes.",
    "406": "The resource is not available in a media type that Accept names.",
    "408": "The body came too slowly.",
    "409": "The name matches several items, or an event conflicts with what the ledger contains.",
    "413": "The body or the answer is too large, or the path takes no body.",
    "414": "The address is too long.",
    "415": "The body has another media type, or an encoding.",
    "422": "The content differs from what the signed intent names.",
    "500": "Data failed verification, or an unexpected error occurred.",
    "503": "The node is busy, builds its views, lacks entries of others, or does not know the result: send the same "
    "request again after the time in `Retry-After`.",
}
_ALWAYS: Final = ("304", "405", "413", "414", "500", "503")
_OF_WRITES: Final = ("400", "401", "403", "404", "405", "408", "409", "413", "415", "500", "503")
_BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
_ABBREVIATED: Final = {"id", "have"}
"""Arguments that may be a prefix of an id, which may match several items."""
_DAY: Final = "(mon|tues|wednes|thurs|fri|satur|sun)day"
_TIMES: Final[list[Schema]] = [
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "date"},
]
_MOMENT: Final[Schema] = {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
        {"type": "string", "pattern": f"^(today|yesterday|this (week|month)|(last )?{_DAY})$"},
        {"type": "string", "pattern": "^[0-9]{1,9} (second|minute|hour|day|week)s? ago$"},
        *_TIMES,
    ]
}
_SHARED: Final[dict[str, Schema]] = {
    AS_OF: {
        "name": AS_OF,
        "in": "query",
        "schema": _MOMENT,
        "description": "Answer as of an entry's index or a time: `1200`, `2026-02-12T09:30:00Z` or `yesterday`.",
    },
    AFTER: {
        "name": AFTER,
        "in": "query",
        "schema": {"type": "string", "maxLength": cursor_max_chars, "pattern": r"^[A-Za-z0-9_-]+\.[0-9a-f]{12}$"},
        "description": "The `next` of the previous page of the same query.",
    },
}
# An example for each argument that has neither a default nor a fixed set of values.
_EXAMPLES: Final[dict[str, Any]] = {
    "agent": "kuro",
    "entry": 7,
    "at": "2026-02-12T10:00:00Z",
    "id": "event-bus",
    "ids": ["event-bus"],
    "path": "0/000",
    "places": [],
    "reasoning_ref": "sha256:" + "0" * 64,
    "task": "fix the login",
    "text": "login",
    "level": "standard",
}


def _named(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


_EVENT_PAGE: Final[Schema] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": _named("Event")},
        "next": {"type": ["integer", "null"], "description": "Pass it as `after`. Null: this was the last page."},
    },
    "required": ["items", "next"],
    "additionalProperties": False,
}
# By path: summary, kind of the document, type of its data, media types, and its statuses besides those of all paths.
_OTHERS: Final[dict[str, tuple[str, str, Any, tuple[str, ...], tuple[str, ...]]]] = {
    ROOT: ("The list of all paths.", "api", PathList, (JSON,), ()),
    DESCRIPTION: ("This description.", "", None, (JSON,), ()),
    f"{ROOT}/events": (
        "Events in log order: as a page, as JSON lines up to the end of the log, or live as server-sent events.",
        "events",
        _EVENT_PAGE,
        (JSON, NDJSON, EVENT_STREAM),
        ("400", "404", "406"),
    ),
    f"{ROOT}/events/{{id}}": (
        "One event, by its index, its id, or at least 12 digits of its id.",
        "event",
        _named("Event"),
        (JSON,),
        ("404", "406", "409"),
    ),
    f"{ROOT}/receipts/{{id}}": (
        "The C2SP tlog-proof that an event is in the log.",
        "receipt",
        ReceiptText,
        (JSON, TEXT),
        ("404", "406", "409"),
    ),
    f"{ROOT}/blobs/{{id}}": ("The content of a blob.", "", None, (BYTES,), ("400", "404", "406")),
    f"{ROOT}/checkpoint": (
        "The signed checkpoint for outside readers, as a document.",
        "checkpoint",
        CheckpointText,
        (JSON, TEXT),
        ("406",),
    ),
    "/checkpoint": ("The signed checkpoint in C2SP tlog-tiles format.", "", None, (TEXT,), ()),
    "/tile/{path}": ("A tile of the log in C2SP tlog-tiles format.", "", None, (BYTES,), ("404",)),
    METRICS: ("The metrics of the node, for Prometheus.", "", None, (TEXT,), ()),
    HEALTH: ("The health of the node: whether the log can be read.", "health", Health, (JSON,), ()),
}


class _Batch(msgspec.Struct, frozen=True):
    """The position of an event in its submission, from 0, and the number of events there."""

    index: int
    size: int


class _Shown(Event, frozen=True, kw_only=True):
    """An event of the log. The signature and the fields after it are only in the answer for one event."""

    compromised: Compromised | msgspec.UnsetType = msgspec.UNSET
    redacted: Redacted | msgspec.UnsetType = msgspec.UNSET
    skipped: str | msgspec.UnsetType = msgspec.UNSET
    sig: str | msgspec.UnsetType = msgspec.UNSET
    stream_version: int | msgspec.UnsetType = msgspec.UNSET
    authority_version: int | msgspec.UnsetType = msgspec.UNSET
    batch: _Batch | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType = msgspec.UNSET


def description() -> Schema:
    """Return the document."""
    types = {name: QUERIES[name].returns for name in sorted(QUERIES)}
    types |= {path: type_ for path, (_, _, type_, _, _) in _OTHERS.items() if isinstance(type_, type)}
    types |= {kind: KINDS[kind].data for kind in KINDS} | {"problem": Problem, "event": _Shown}
    types |= {"signature": DsseSignature, "accepted": Accepted}
    answers, components = msgspec.json.schema_components(types.values(), ref_template=_REF)
    shared = _shared_types()
    names = {json.dumps(schema): name for name, schema in shared.items()}
    schemas = {name: _closed(_referring(tidy(schema), names)) for name, schema in components.items()} | shared
    data = dict(zip(types, answers, strict=True))
    schemas |= _events(schemas.pop("_Shown"), data) | {"Batch": schemas.pop("_Batch")}
    schemas["Problem"]["properties"]["code"] = {"enum": list(CODES)}
    paths = {path_of(name): {"get": _question(name, data[name], schemas)} for name in sorted(QUERIES)}
    paths |= {path: {"get": _other(path, data.get(path), schemas)} for path in _OTHERS} | _writes()
    schemas |= _written(schemas.pop("DsseSignature"), schemas.pop("Accepted"))
    problem = {PROBLEM: {"schema": _named("Problem")}}
    responses = {status: {"description": meaning, "content": problem} for status, meaning in _ERRORS.items()}
    responses["304"] = {"description": "Not modified: the client has this answer (If-None-Match)."}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Deedbook: a ledger over HTTP",
            "version": "1",
            "description": "Every query of the views, with the JSON documents of the command line, and submissions. "
            "Errors are RFC 9457 documents: `code` names the error, and `type` is `urn:deedbook:error:` and the code. "
            "Server-sent events have the name of their kind and the id of their index. The event `position` "
            '(`{"index": N}`) says up to which index the log was read without a match.',
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "parameters": _SHARED,
            "schemas": dict(sorted(schemas.items())),
            "responses": responses,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "`deed token create`"}},
        },
    }


def _shared_types() -> dict[str, Schema]:
    """Return the schemas of the annotated types that have a name, by this name."""
    named = {name: type_ for module in (answer, fields) for name, type_ in vars(module).items() if is_annotated(type_)}
    return {name: tidy(msgspec.json.schema(type_)) for name, type_ in named.items() if type_ is not answer.Cursor}


def is_annotated(type_: Any) -> bool:
    """Return whether a value is a type with annotations, such as bounds or a description."""
    return get_origin(type_) is Annotated


def _referring(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema with references in place of shared types; ``names`` maps the JSON of a type to its name."""
    match schema:
        case dict():
            name = names.get(json.dumps(schema))
            return {key: _referring(part, names) for key, part in schema.items()} if name is None else _named(name)
        case list():
            return [_referring(part, names) for part in schema]
        case _:  # any other JSON: text, numbers, true, false, null
            return schema


def _events(shown: Schema, data: dict[str, Schema]) -> dict[str, Schema]:
    """Return the schema of any event, of the common fields, and of the events of each kind."""
    del shown["additionalProperties"]
    for name in ("kind", "data"):
        del shown["properties"][name]
        shown["required"].remove(name)
    shown["properties"]["batch"] = _named("Batch")
    shown["properties"]["index"] = _named("Index")
    kinds = {
        kind: {
            "allOf": [
                _named("EventFields"),
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, "data": data[kind]},
                    "required": ["kind", "data"],
                },
            ],
            "unevaluatedProperties": False,
        }
        for kind in KINDS
    }
    own = {
        "allOf": [
            _named("EventFields"),
            {
                "type": "object",
                "properties": {
                    "kind": tidy({"type": "string", "pattern": OWN_KIND_PATTERN}),
                    "data": {"type": "object"},
                },
                "required": ["kind", "data"],
            },
        ],
        "unevaluatedProperties": False,
        "description": "An event of a declared kind. Its data has the schema of the declaration (kinds.show).",
    }
    named = {f"{KINDS[kind].data.__name__}Event": schema for kind, schema in kinds.items()} | {"OwnEvent": own}
    # There is no discriminator: it would have to list every kind, and agents may declare any number of kinds.
    any_event = {"oneOf": [_named(name) for name in named]}
    return named | {"Event": any_event, "EventFields": shown}


def _question(name: str, data: Schema, schemas: dict[str, Schema]) -> Schema:
    form = form_of(name)
    summary = (QUERIES[name].answer.__doc__ or "").partition("\n")[0].replace("``", "`")
    parameters = [*_parameters(form, schemas), _shared(AS_OF)]
    media = (JSON, NDJSON) if form.has_pages else (JSON,)
    abbreviated = ("409",) if _ABBREVIATED & form.items.keys() else ()
    statuses = (*_ALWAYS, "400", "401", "403", "404", "406", *abbreviated)
    return _operation(name.replace(".", "_"), summary, parameters, kind_of(name), data, media, statuses)


def _other(path: str, data: Schema | None, schemas: dict[str, Schema]) -> Schema:
    summary, kind, type_, media, statuses = _OTHERS[path]
    places = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters: list[Schema] = [
        {
            "name": place,
            "in": "path",
            "required": True,
            "schema": _named("Ref") if "blobs" in path else {"type": "string"},
            "example": "blake3:" + "0" * 64 if "blobs" in path else "0" if place == "id" else _EXAMPLES[place],
        }
        for place in places
    ]
    if path == f"{ROOT}/events":
        last = {"type": "integer", "minimum": -1, "maximum": json_integer_max}
        parameters += [*_parameters(EVENTS, schemas), {"name": "Last-Event-ID", "in": "header", "schema": last}]
    name = re.sub(r"[{}]", "", path).strip("/").replace("/", "_").replace(".", "_")
    tokens = () if path in OPEN else ("401", "403")
    schema = data or type_ or {"type": "object"}
    operation = _operation(name, summary, parameters, kind, schema, media, (*_ALWAYS, *statuses, *tokens))
    return operation | ({"security": []} if path in OPEN else {})


def _parameters(form: Form, schemas: dict[str, Schema]) -> Iterator[Schema]:
    """Yield the parameters of a query; referenced types are added to ``schemas``."""
    (schema,), components = msgspec.json.schema_components([form.type], ref_template=_REF)
    own = components.pop(schema["$ref"].rpartition("/")[2])
    schemas |= {name: _closed(tidy(component)) for name, component in components.items()}
    if form is EVENTS:  # the server refuses an unknown kind of event
        own["properties"]["kinds"]["items"] = {"enum": list(KINDS)}
    if "text" in own.get("required", ()):  # a search needs a letter or digit in its text, and known families
        own["properties"]["text"]["pattern"] = r"[\p{L}\p{N}]"
        own["properties"]["family"]["anyOf"][0]["items"] = {"enum": families_with_text()}
    for name, described in own["properties"].items():
        described = _without_null(tidy(described))  # noqa: PLW2901
        meaning = described.pop("description", None)
        if name == AFTER and form is not EVENTS and form.has_pages:
            yield _shared(AFTER)
            continue
        holder: Schema = {"schema": _bounded(name, described)}
        if is_struct(form.items[name]):
            holder = {"content": {JSON: {"schema": described | {"maxItems": items_max}}}}
        made = {"name": name, "in": "query"} | holder
        if meaning is not None:
            made["description"] = meaning
        yield made | ({"required": True, "example": _EXAMPLES[name]} if name in own.get("required", ()) else {})


def _shared(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _without_null(schema: Schema) -> Schema:
    """Return a schema without null, because a URL cannot express null."""
    schema = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    if "anyOf" in schema:
        kept = [case for case in schema.pop("anyOf") if case != {"type": "null"}]
        schema |= kept[0] if len(kept) == 1 else {"anyOf": kept}
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    return schema


def _bounded(name: str, schema: Schema, chars_max: int = text_max_chars) -> Schema:
    """Return the schema of an argument, with the bounds that JSON and the API set for every argument."""
    if name == "at":
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": json_integer_max}, *_TIMES]}
    match schema.get("type"):
        case "integer":
            return {"minimum": -json_integer_max, "maximum": json_integer_max} | schema
        case "string":
            return schema | {"maxLength": min(schema.get("maxLength", chars_max), chars_max)}
        case "array":
            items_at_most = min(schema.get("maxItems", items_max), items_max)
            return schema | {"items": _bounded("", schema["items"], item_max_chars), "maxItems": items_at_most}
        case _:  # an enumeration or a boolean, which has no bounds
            return schema


def _operation(
    name: str,
    summary: str,
    parameters: list[Schema],
    kind: str,
    data: Schema,
    media: tuple[str, ...],
    statuses: tuple[str, ...],
) -> Schema:
    is_bytes = {"type": "string", "format": "binary"}
    answers: Schema = {form: {"schema": is_bytes if form == BYTES else {"type": "string"}} for form in media}
    if media[0] == JSON:
        answers[JSON] = {"schema": _document_of(kind, data, has_pages=NDJSON in media) if kind else data}
    refs = {status: {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}
    responses = {"200": {"description": summary, "content": answers}} | refs
    return {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}


def _writes() -> Schema:
    """Return the operations that write, by path."""
    envelope = _named("SignedEnvelope")
    packed = {"type": "string", "maxLength": request_size_max_bytes}
    submission = {JSON: {"schema": envelope}, MSGPACK: {"schema": packed}}
    accepted = _object({"accepted": {"type": "array", "items": _named("AcceptedEvent")}})
    summary = "Submit 1 to 256 signed events; the gate accepts all or none."
    entries = _operation("v1_entries", summary, [], "entries", accepted, (JSON,), _OF_WRITES)
    intent = {
        "name": INTENT_HEADER,
        "in": "header",
        "required": True,
        "description": "A submission of one `blob.stored` event, in base64.",
        "schema": _BASE64,
    }
    content = {BYTES: {"schema": {"type": "string", "maxLength": blob_size_max_bytes}}}
    stored = _object({"ref": _named("Ref"), "size": {"type": "integer", "minimum": 0}})
    summary = "Store a blob; without an entry that references it, it is deleted after a day."
    blobs = _operation("v1_blobs_post", summary, [intent], "blob", stored, (JSON,), (*_OF_WRITES, "422"))
    return {
        f"{ROOT}/entries": {"post": entries | {"requestBody": {"required": True, "content": submission}}},
        f"{ROOT}/blobs": {"post": blobs | {"requestBody": {"required": True, "content": content}}},
    }


def _written(signature: Schema, accepted: Schema) -> dict[str, Schema]:
    """Return the schemas of submitted and accepted events. In HTTP, an accepted event is an object, not an array."""
    envelope = {
        "payloadType": {"const": BATCH_TYPE},
        "payload": _BASE64 | {"description": "The number of events and their root (proto/README.md, section 5.1)."},
        "signatures": {"type": "array", "minItems": 1, "maxItems": 1, "items": signature},
        "bodies": {
            "type": "array",
            "minItems": 1,
            "maxItems": batch_events_max,
            "items": _BASE64 | {"description": "The body of an event (proto/README.md, section 1)."},
        },
    }
    fields = zip(Accepted.__struct_fields__, accepted["prefixItems"], strict=True)
    return {"SignedEnvelope": _object(envelope), "AcceptedEvent": _object(dict(fields))}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "required": [*properties], "properties": properties, "additionalProperties": False}


def _document_of(kind: str, data: Schema, *, has_pages: bool) -> Schema:
    document = _object({"schema_version": {"const": 1}, "kind": {"const": kind}, "data": data})
    if has_pages:
        document["properties"]["next"] = {"type": "string", "description": "The address of the next page."}
    return document


def _closed(schema: Schema) -> Schema:
    """Return the schema of a struct as HTTP has it: without other properties, and with a text as cursor."""
    if "properties" in schema:
        schema |= {"additionalProperties": False}
        if "pass it as `after`" in schema["properties"].get("next", {}).get("description", ""):
            schema["properties"]["next"] = {"type": ["string", "null"], "description": "Pass it as `after`."}
        del schema["title"]
    return schema


def tidy(schema: Any) -> Any:
    """Return a schema with portable patterns, and descriptions of one line without markup."""
    match schema:
        case dict():
            tidied = {name: tidy(value) for name, value in schema.items()}
            if isinstance(tidied.get("pattern"), str):
                tidied["pattern"] = portable(tidied["pattern"])
            if isinstance(tidied.get("description"), str):
                tidied["description"] = re.sub(r"\s+", " ", tidied["description"]).replace("``", "`").strip()
            return tidied
        case list():
            return [tidy(value) for value in schema]
        case _:  # any other JSON: text, numbers, true, false, null
            return schema


def portable(pattern: str) -> str:
    r"""Return a pattern in the dialect of JSON Schema (ECMA 262), in which ``$`` means Python's ``\\Z``."""
    return pattern.replace(r"\Z", "$")
