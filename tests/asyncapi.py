"""The AsyncAPI 3.0 description of the bus, for an agent: the messages it may send, and those it can receive.

The addresses come from the functions of ``ledger.bus.subjects``. Each is called with sample values, and the values in
its result are replaced by parameters, so this description follows every change of a subject. Each event kind is one
message; its payload is the schema of the event's body.
"""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.bus import message, subjects
from deedbook.ledger.errors import CODES
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.blob import BLOB_STORED

_LEDGER: Final = "0" * 32
_AGENT: Final = "sample-agent"
_VERB: Final = "sample_verb"
_KIND: Final = "sample.kind"
_STREAM: Final = "sample/stream"

_PARAMETERS: Final = {
    "ledger": "The ledger's id, 32 hex digits.",
    "agent": "The registered name of the agent that asks; the server lets only that agent publish there.",
    "verb": "What is asked for: see the table of verbs in README.md.",
    "kind": "The kind of the event, as two tokens of the subject: `x.a.b` is written `x.a-b`.",
    "token": "22 characters of base64url: the first 16 bytes of BLAKE3 over the stream's name.",
}

_HEADERS: Final = {
    message.INDEX: "The event's index in the log, decimal.",
    message.ID: "The event's id.",
    message.KEY: "The signing key in hex.",
    message.SIGNATURE: "The signature in base64: the event's own, or that of its batch.",
    message.ACCEPTED: "The ledger's clock when it was accepted, Unix milliseconds, decimal.",
    message.STREAM_VERSION: "How many entries its stream has, with this one, decimal.",
    message.AUTHORITY_VERSION: "How many of the log's entries are of authority, with this one, decimal.",
    message.BATCH: "Only of an event of a signed batch: its position and the batch's size, as 2/3.",
    message.PATH: "Only of an event of a signed batch: its path to the batch root, base64 hashes joined by commas.",
}
_ALWAYS: Final = [name for name in _HEADERS if name not in (message.BATCH, message.PATH)]
# The log has events of all kinds but ``blob.stored``, which announces an upload and is stored beside its blob.
_IN_THE_LOG: Final = [kind for kind in KINDS if kind != BLOB_STORED]


def document() -> dict[str, Any]:
    """Return the AsyncAPI document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Deedbook ledger",
            "version": "1",
            "description": "The bus of one ledger over NATS, as an agent sees it; README.md specifies it.",
        },
        "defaultContentType": "application/json",
        "channels": _channels(),
        "operations": _operations(),
        "components": {"messages": _messages(), "schemas": _schemas()},
    }


def _channels() -> dict[str, Any]:
    event = subjects.event_subject(_LEDGER, _KIND, _STREAM)
    live = subjects.live_subject(_LEDGER, _KIND, _STREAM)
    return {
        "submit": _channel(
            subjects.submit_subject(_LEDGER, _AGENT),
            "Requests to admit events; the answer says where they stand in the log, or why not.",
            ["submission", "submissionJson"],
        ),
        "read": _channel(
            subjects.read_subject(_LEDGER, _AGENT, _VERB), "Requests to read the ledger.", ["readRequest"]
        ),
        "event": _channel(event, "The log itself, in order: only nodes publish or read here.", _IN_THE_LOG),
        "live": _channel(live, "Stored events, republished for subscribers.", _IN_THE_LOG),
        "checkpoint": _channel(subjects.checkpoint_subject(_LEDGER), "The latest checkpoint.", ["checkpoint"]),
        "reply": {
            "address": None,
            "description": "The inbox that a request names.",
            "messages": _refs(["submitAnswer", "readAnswer", "errorAnswer"]),
        },
    }


def _channel(sample: str, description: str, messages: list[str]) -> dict[str, Any]:
    samples = {
        "ledger": _LEDGER,
        "agent": _AGENT,
        "verb": _VERB,
        "kind": _KIND,
        "token": subjects.stream_token(_STREAM),
    }
    address, parameters = sample, {}
    for name, value in samples.items():
        if value in address:
            address = address.replace(value, "{" + name + "}")
            parameters[name] = {"description": _PARAMETERS[name]}
    return {
        "address": address,
        "description": description,
        "parameters": parameters,
        "messages": _refs(messages),
    }


def _refs(messages: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in messages}


def _operations() -> dict[str, Any]:
    return {
        "submit": _request("submit", ["submission", "submissionJson"], ["submitAnswer", "errorAnswer"]),
        "read": _request("read", ["readRequest"], ["readAnswer", "errorAnswer"]),
        "subscribe": {"action": "receive", "channel": {"$ref": "#/channels/live"}},
        "followCheckpoints": {"action": "receive", "channel": {"$ref": "#/channels/checkpoint"}},
    }


def _request(channel: str, messages: list[str], answers: list[str]) -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
        "reply": {
            "address": {
                "location": "$message.header#/replyTo",
                "description": "The NATS message's reply subject.",
            },
            "channel": {"$ref": "#/channels/reply"},
            "messages": [{"$ref": f"#/channels/reply/messages/{name}"} for name in answers],
        },
    }


def _messages() -> dict[str, Any]:
    envelope = {"$ref": "schemas/dsse-envelope.json"}
    messages: dict[str, Any] = {
        "submission": {
            "summary": "Events in msgpack: [1, key, signature, bodies].",
            "contentType": "application/msgpack",
            "payload": {"type": "string", "format": "binary"},
        },
        "submissionJson": {
            "summary": "Events in JSON: a DSSE envelope with their bodies.",
            "payload": envelope,
        },
        "submitAnswer": {
            "summary": "Where each event stands, in the order of the submission.",
            "payload": {"$ref": "#/components/schemas/submitAnswer"},
        },
        "readRequest": {"summary": "Arguments, a JSON object; empty for none.", "payload": {"type": "object"}},
        "readAnswer": {
            "summary": "What was asked for. Bytes are base64.",
            "payload": {"type": "object", "not": {"required": ["error"]}},
        },
        "errorAnswer": {"summary": "Why not.", "payload": {"$ref": "#/components/schemas/errorAnswer"}},
        "checkpoint": {
            "summary": "A C2SP checkpoint: the text of a signed note.",
            "payload": _object(checkpoint={"type": "string"}),
        },
    }
    for kind in KINDS:
        messages[kind] = {
            "name": kind,
            "summary": f"The body of an event of the kind {kind}, byte for byte as its author signed it.",
            "headers": {"$ref": "#/components/schemas/eventHeaders"},
            "payload": {"$ref": f"schemas/{kind}.json"},
        }
    return messages


def _schemas() -> dict[str, Any]:
    accepted = {
        "index": {"type": "integer", "minimum": 0, "description": "The event's place in the log."},
        "id": {"type": "string", "description": "The event's id."},
        "accepted_ms": {"type": "integer", "description": "The ledger's clock, Unix milliseconds."},
        "is_repeat": {"type": "boolean", "description": "It stood there before this submission."},
    }
    error = {
        "code": {"enum": list(CODES)},
        "message": {"type": "string", "description": "For people; it may change."},
        "recoverable": {"type": "boolean", "description": "The same request may succeed later."},
        "details": {"type": "object", "description": "What a program needs to act on it."},
    }
    return {
        "eventHeaders": {
            "type": "object",
            "properties": {name: {"type": "string", "description": text} for name, text in _HEADERS.items()},
            "required": _ALWAYS,
        },
        "submitAnswer": _object(accepted=_array(_object(**accepted))),
        "errorAnswer": _object(error=_object(**error)),
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
