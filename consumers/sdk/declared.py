"""Events of declared kinds for programs: finds the kind of an event, and converts its data to a type of the program."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from deedbook.consumers.sdk.kinds import kinds_of
from deedbook.consumers.sdk.own_event import OwnEvent
from deedbook.ledger.client.client import Ask, every_row
from deedbook.ledger.errors import Refused, Unavailable, did_you_mean, near
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.declared import DeclaredData
from deedbook.ledger.format.codec import check_strict, converted
from deedbook.ledger.format.forms import is_own

_log: Final = logging.getLogger("deedbook")


def plain_values(data: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event of a declared kind as plain values."""
    plain: dict[str, Any] = data if isinstance(data, dict) else msgspec.to_builtins(data, str_keys=True)
    return plain


def only_kind_on(ask: Ask, stream: str) -> str:
    """Return the only declared kind for such streams. Raises Refused: ``USAGE`` if there is none, or several."""
    type_ = stream.partition("/")[0]
    names = sorted(row["name"] for row in every_row(ask, "kinds.list", {"stream_type": type_}))
    if len(names) == 1:
        return str(names[0])
    which = f"pass kind, one of {', '.join(names)}" if names else "an admin declares one with `deed kind declare`"
    message = f"{len(names) or 'no'} declared kinds are on streams {type_}/ID: {which}"
    raise Refused("USAGE", message, kinds=names)


def as_types(event: Event, types: Iterable[type[OwnEvent]]) -> Event[Any]:
    """Return an event with its data as the type of its kind, if one of the ``types`` fits.

    An erased event stays as it is.
    """
    form = next((form for form in types if form.kind == event.kind), None)
    if form is None or event.erased is not None or not isinstance(event.data, DeclaredData):
        return event
    return replace(event, data=converted(event.data.fields, form, "$.data"))


def own_types(kinds: Sequence[Any]) -> list[type[OwnEvent]]:
    """Return the kinds that a program passed as types (``OwnEvent``), not as names."""
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, OwnEvent)]


def unknown_kinds(ask: Ask, kinds: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that have the form of a declared kind but that nobody has declared, with similar names."""
    own = [kind for kind in kinds if is_own(kind)]
    names = [str(row["name"]) for row in every_row(ask, "kinds.list", {})] if own else []
    return {kind: near(kind, names) for kind in own if kind not in names}


def check_subscribed(ask: Ask, kinds: Sequence[Any]) -> None:
    """Compare a subscriber's own types with the declared schemas, and warn of kinds that nobody has declared yet.

    If the query gets no answer, nothing is checked: a subscriber waits for its server, and ``as_types`` checks each
    event. Raises Refused: ``INVALID_FIELD`` for a type that has other fields than the schema.
    """
    with suppress(Unavailable):
        missing = unknown_kinds(ask, kinds_of(kinds))
        for kind, alike in missing.items():
            _log.warning("nobody has declared the kind %s yet%s", kind, did_you_mean(alike))
        for form in own_types(kinds):
            if form.kind not in missing:
                _check_type(form, schema_of(ask, form.kind))


def _check_type(form: type[OwnEvent], schema: Mapping[str, Any]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(form)]
    lacking = [name for name in schema["properties"] if name not in names]
    unknown = [name for name in names if name not in schema["properties"]]
    if lacking or unknown:
        lacks, has = f"lacks {', '.join(lacking)}", f"has {', '.join(unknown)}, which the schema does not have"
        faults = " and ".join([lacks] * bool(lacking) + [has] * bool(unknown))
        message = f"{form.__qualname__} {faults}: list every field in the schema of {form.kind}, also the optional ones"
        raise Refused("INVALID_FIELD", message, kind=form.kind, missing=lacking, unknown=unknown)


def check_declared(ask: Ask, kind: str) -> None:
    """Refuse a declared kind that nobody has declared. Raises Refused: ``UNKNOWN_KIND`` with similar names."""
    if (alike := unknown_kinds(ask, [kind]).get(kind)) is not None:
        hint = did_you_mean(alike) or ": `deed kind list` shows those that there are"
        raise Refused("UNKNOWN_KIND", f"no kind {kind} is declared here{hint}", kind=kind, near=alike)


def schema_of(ask: Ask, kind: str) -> dict[str, Any]:
    """Return the schema of a declared kind. Raises Refused: ``UNKNOWN_KIND``."""
    check_declared(ask, kind)
    schema: dict[str, Any] = ask("kinds.show", {"id": kind})["schema"]
    return schema


def values_by_schema(values: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return texts as the values that a schema wants: a text stays, everything else is JSON.

    The ledger checks the values; a field that is not in the schema stays a text. Raises Refused: ``INVALID_FIELD``,
    ``INTEGER_OUT_OF_RANGE``.
    """
    return {name: _value_by(name, text, schema["properties"].get(name, {})) for name, text in values.items()}


def _value_by(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type", "string") == "string":
        return text
    try:
        return check_strict(text.encode())
    except Refused as refusal:
        if refusal.code == "INTEGER_OUT_OF_RANGE":
            raise Refused(refusal.code, f"{name}: {refusal.message}", path=f"$.data.{name}") from refusal
        how = ": write true or false" if schema["type"] == "boolean" else ""
        message = f"{name} has the type {schema['type']}, and {text[:40]!r} is not written as one in JSON{how}"
        raise Refused("INVALID_FIELD", message, path=f"$.data.{name}") from refusal


def sealable_texts(data: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the texts of an event whose places in the schema are marked as sealable."""
    if isinstance(data, str):
        return [data] if schema.get("sealable") is True else []
    return [text for part, form in _parts(data, schema) for text in sealable_texts(part, form)]


def with_sealed(data: Any, schema: Mapping[str, Any], texts: Iterator[str]) -> Any:
    """Return the event with its sealable texts replaced by ``texts``, in their order."""
    if isinstance(data, str):
        return next(texts) if schema.get("sealable") is True else data
    changed = [with_sealed(part, form, texts) for part, form in _parts(data, schema)]
    if isinstance(data, dict):
        return dict(zip(data, changed, strict=True))
    return changed if isinstance(data, list) else data


def _parts(data: Any, schema: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    if isinstance(data, dict):
        known = schema.get("properties", {})
        return [(value, known.get(name, {})) for name, value in data.items()]
    return [(item, schema.get("items", {})) for item in data] if isinstance(data, list) else []
