"""Bad data of handoffs that change or come from files: code, kind, stream, text of ``data`` (see ``bad_inputs``)."""

from __future__ import annotations

from typing import Final

REF: Final = b"sha256:" + b"0" * 64
HANDOFF: Final = b'"mapped_kind":"handoff.created"'


def _record(*parts: bytes) -> bytes:
    """Return the data of an imported record with these fields."""
    fields = [*parts, b'"format":"f"', b'"original":"%b"' % REF, b'"source":"s"']
    return b"{" + b",".join(sorted(fields)) + b"}"


BAD_HANDOFFS: Final[dict[str, tuple[str, str, str, bytes]]] = {
    "amending no handoff": (
        "NOT_FOUND",
        "handoff.amended",
        "handoff/h0",
        b'{"reviewer":"rita","title":"t","to":"bob"}',
    ),
    "amending what cannot be amended": (
        "UNKNOWN_FIELD",
        "handoff.amended",
        "handoff/h0",
        b'{"reviewer":"rita","status":"approved","title":"t","to":"bob"}',
    ),
    "superseding by a path": ("INVALID_FIELD", "handoff.superseded", "handoff/h0", b'{"by":"../h1"}'),
    "announcing to nobody": ("INVALID_FIELD", "handoff.ready", "handoff/h0", b'{"to":"","version":"%b"}' % REF),
    "importing what is no kind": (
        "INVALID_FIELD",
        "record.imported",
        "record/r1",
        _record(b'"mapped_kind":"handoff.dreamt"'),
    ),
    "importing what stands for itself": (
        "INVALID_FIELD",
        "record.imported",
        "handoff/h2",
        _record(b'"mapped_kind":"handoff.verified"'),
    ),
    "importing onto another stream": (
        "INVALID_FIELD",
        "record.imported",
        "session/s1",
        _record(b'"mapped":{"title":"t"}', HANDOFF),
    ),
    "importing a state": (
        "UNKNOWN_FIELD",
        "record.imported",
        "handoff/h2",
        _record(b'"mapped":{"status":"verified","title":"t"}', HANDOFF),
    ),
    "importing a tick beyond the list": (
        "INVALID_FIELD",
        "record.imported",
        "handoff/h2",
        _record(b'"claims":{"tasks":[1]}', b'"mapped":{"tasks":["one"],"title":"t"}', HANDOFF),
    ),
    "importing 2^60": (
        "INTEGER_OUT_OF_RANGE",
        "record.imported",
        "handoff/h2",
        _record(b'"mapped":{"size":1152921504606846976,"title":"t"}', HANDOFF),
    ),
    "importing a key twice": (
        "DUPLICATE_KEY",
        "record.imported",
        "handoff/h2",
        _record(b'"mapped":{"title":"t","title":"u"}', HANDOFF),
    ),
    "importing what waits for itself": (
        "DEPENDENCY_CYCLE",
        "record.imported",
        "handoff/h2",
        _record(b'"mapped":{"depends_on":["h2"],"title":"t"}', HANDOFF),
    ),
    "an unmapped record that maps to something": (
        "INVALID_FIELD",
        "record.imported",
        "record/r1",
        _record(b'"mapped":{"title":"t"}'),
    ),
}
