"""The gate's records of declared kinds: who may publish which fields on which streams."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.declared import KindDeclared, check_value, plain_data
from deedbook.ledger.format.codec import encode_sorted, read_json
from deedbook.ledger.limits import kinds_declared_max


class KindRecord(msgspec.Struct, frozen=True, array_like=True):
    """A declared kind and the index of its declaration.

    ``stream`` is the type of its streams, ``schema`` the schema of its data as canonical JSON.
    """

    name: str
    index: int
    stream: str
    roles: tuple[str, ...]
    schema: str


def record_of(event: Event[KindDeclared]) -> KindRecord:
    """Return the record of the kind that an event declares."""
    data = event.data
    schema = encode_sorted(data.schema).decode()
    return KindRecord(data.name, event.index, data.stream, tuple(sorted({*data.roles})), schema)


def check_published(kind: KindRecord, event: Event) -> None:
    """Check the stream and the fields of an event of a declared kind. An erased event has no fields to check.

    Raises Refused: ``INVALID_FIELD``, ``UNKNOWN_FIELD``.
    """
    if event.stream.partition("/")[0] != kind.stream:
        message = f"{event.kind} must be on a stream {kind.stream}/ID, at $.stream"
        raise Refused("INVALID_FIELD", message, path="$.stream")
    if event.erased is None:
        check_value(plain_data(event.data), schema_of(kind.schema))


@lru_cache(kinds_declared_max)
def schema_of(text: str) -> dict[str, Any]:
    """Return a schema from its JSON. The result is shared, so nobody may change it."""
    schema: dict[str, Any] = read_json(text, dict[str, Any])
    return schema
