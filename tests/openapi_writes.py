"""The two operations of the OpenAPI description that write: their bodies, answers and errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.web.api import BYTES, JSON
from deedbook.consumers.interfaces.web.questions import ROOT
from deedbook.consumers.interfaces.web.writes import INTENT_HEADER, MSGPACK
from deedbook.ledger import limits
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.format.envelope import DsseSignature
from deedbook.ledger.format.forms import REF_PATTERN

ERRORS: Final = {
    "400": "The body or the intent is malformed, or an event is invalid.",
    "401": "The token is missing or no longer valid.",
    "403": "The token may not write, is another agent's, or the gate refuses the event for its author or its state.",
    "404": "An agent, handoff or other thing that the event names does not exist.",
    "405": "Only POST and OPTIONS are allowed.",
    "408": "The body came too slowly.",
    "409": "The event conflicts with what the ledger contains.",
    "413": "The body is too large.",
    "415": "The body has another media type, or an encoding.",
    "500": "The content does not match its hash, or an unexpected error occurred.",
    "503": "The node is busy, has no leader, or does not know the result: send the same bytes again later.",
}
_BASE64: Final = {"type": "string", "contentEncoding": "base64"}


def paths() -> dict[str, Any]:
    """Return the operations by path."""
    envelope = {"$ref": "#/components/schemas/SignedEnvelope"}
    many = {"type": "array", "minItems": 1, "maxItems": limits.batch_events_max, "items": envelope}
    accepted = {"type": "array", "items": {"$ref": "#/components/schemas/AcceptedEvent"}}
    submission = {
        JSON: {"schema": {"oneOf": [envelope, many]}},
        MSGPACK: {"schema": {"type": "string", "maxLength": limits.request_size_max_bytes}},
    }
    ref = {"type": "string", "pattern": REF_PATTERN.replace(r"\Z", "$")}
    intent = {
        "name": INTENT_HEADER,
        "in": "header",
        "required": True,
        "description": "A submission of one `blob.stored` event, in base64.",
        "schema": _BASE64,
    }
    return {
        f"{ROOT}/entries": {
            "post": _operation(
                "v1_entries",
                "Submit 1 to 256 signed events; the gate accepts all or none.",
                submission,
                _document("entries", {"accepted": accepted}),
            )
        },
        f"{ROOT}/blobs": {
            "post": _operation(
                "v1_blobs_post",
                "Store a blob; without an entry that references it, it is deleted after a day.",
                {BYTES: {"schema": {"type": "string", "maxLength": limits.blob_size_max_bytes}}},
                _document("blob", {"ref": ref, "size": {"type": "integer", "minimum": 0}}),
                intent,
            )
        },
    }


def schemas() -> dict[str, Any]:
    """Return the schemas that the operations refer to."""
    _, components = msgspec.json.schema_components([DsseSignature, Accepted])
    signature = components["DsseSignature"]
    fields = zip(Accepted.__struct_fields__, components["Accepted"]["prefixItems"], strict=True)
    signature["properties"]["keyid"]["pattern"] = signature["properties"]["keyid"]["pattern"].replace(r"\Z", "$")
    envelope = {
        "payloadType": {"const": "application/vnd.deedbook.event.v1+json"},
        "payload": _BASE64 | {"description": "The body of the event (proto/README.md, section 1)."},
        "signatures": {"type": "array", "minItems": 1, "maxItems": 1, "items": signature},
    }
    return {"SignedEnvelope": _object(envelope), "AcceptedEvent": _object(dict(fields))}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [*properties], "properties": properties, "additionalProperties": False}


def _document(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return _object({"schema_version": {"const": 1}, "kind": {"const": kind}, "data": _object(data)})


def _operation(
    name: str, summary: str, content: dict[str, Any], schema: dict[str, Any], *parameters: dict[str, Any]
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [*parameters],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {"description": summary, "content": {JSON: {"schema": schema}}},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in ERRORS},
        },
    }
