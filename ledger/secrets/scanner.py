"""Finds credentials before they enter the log, from which nothing can be deleted.

Three callers scan: the author before signing, so that a secret never leaves its process; the gate, for authors in
other languages; and the store of blobs, for text. A report names the path and the kind of a secret, never the secret
itself, not even in part.

``credentials`` finds secrets by their form, ``named`` by the name beside them. Not scanned: binary blobs (also
compressed and sealed ones) and blobs longer than ``blob_scan_max_bytes``, text in another encoding (except base64 of
private keys, and of a user and password in known positions), and passwords in prose, which look like words. The scan
cannot be switched off. Text that only has the form of a secret passes: masked with ``x``, ``*`` or ``0``, cut short,
marked as an example, or words in place of a token. Invisible and full-width characters do not hide a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import blob_scan_max_bytes
from deedbook.ledger.secrets.credentials import (
    BEARER,
    KEY_FILE,
    PATTERNS,
    is_harmless,
    patterns,
    traces,
    value_of,
)
from deedbook.ledger.secrets.disguise import revealed
from deedbook.ledger.secrets.named import named_secrets
from deedbook.ledger.secrets.secret import Secret, refusal

# The scan checks at most this many placeholders in one text. It refuses a text with more, which limits the work.
harmless_max: Final = 1000
_name_max_chars: Final = 64
_seed_digits: Final = 64


class Match(NamedTuple):
    """The kind of a secret, and the bytes of a text that contain at least its beginning."""

    kind: str
    start: int
    end: int


def scan(value: Any, path: str = "$") -> Secret | None:
    """Return the first secret in the strings and keys of plain decoded JSON; ``path`` is the path of ``value``.

    Each string is scanned alone and with its key, because some credentials can be recognised only by their name.
    """
    waiting: list[tuple[str, str, Any]] = [(path, "", value)]
    while waiting:
        here, name, node = waiting.pop()
        if isinstance(node, str):
            # Alone, too: a text that begins with an option, such as ``--password …``, has a boundary before it.
            texts = (node, f"{name}={node}") if name else (node,)
            kind = next(filter(None, (_kind_of(text.encode(errors="replace")) for text in texts)), None)
            if kind is not None:
                return Secret(here, kind)
        elif isinstance(node, dict):
            for key in node:
                kind = _kind_of(str(key).encode(errors="replace"))
                if kind is not None:
                    return Secret(f"{here}[...]", kind)  # the key is the secret, so it is not shown
            if _is_key_file(node):
                return Secret(here, KEY_FILE)
            waiting += reversed(list(_fields(here, node)))
        elif isinstance(node, list):
            waiting += reversed([(f"{here}[{position}]", name, item) for position, item in enumerate(node)])
    return None


def scan_bodies(bodies: Sequence[bytes]) -> dict[int, Secret]:
    """Return the first secret in each event's body, head and data, by position. Bodies without one are left out.

    Bodies must be JSON. Nearly all have no trace of a secret, and then one search covers all of them.
    """
    search = traces().search
    if search(b"\n".join(bodies)) is None:
        return {}
    secrets = {position: scan(msgspec.json.decode(body)) for position, body in enumerate(bodies) if search(body)}
    return {position: secret for position, secret in secrets.items() if secret is not None}


def check_text(content: bytes) -> None:
    """Refuse a blob that is text of at most ``blob_scan_max_bytes`` and contains a secret.

    Raises Refused: ``SECRET_DETECTED``.
    """
    kind = _kind_of(content) if len(content) <= blob_scan_max_bytes and _is_text(content) else None
    if kind is not None:
        raise refusal(Secret("the blob", kind))


def scanned_text(file: BinaryIO) -> bytes:
    """Return the content of a file, or enough of it for ``check_text`` to see that it is too long."""
    file.seek(0)
    return file.read(blob_scan_max_bytes + 1)


def is_secret_text(content: bytes) -> bool:
    """Return whether ``check_text`` refuses this blob."""
    try:
        check_text(content)
    except Refused:
        return True
    return False


def _fields(path: str, fields: dict[Any, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in fields.items():
        name = str(key)
        is_name = len(name) <= _name_max_chars and name.isascii() and name.replace("-", "_").isidentifier()
        yield (f"{path}.{name}" if is_name else f"{path}[...]", name if is_name else "", value)


def _is_key_file(fields: dict[Any, Any]) -> bool:
    """Return whether these are the fields of a key file. No single string among them shows that."""
    hidden = fields.get("seed") or fields.get("sealed")
    return "public" in fields and isinstance(hidden, str) and len(hidden) >= _seed_digits


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind_of(text: bytes) -> str | None:
    """Return the kind of the first secret in a text, in its original form or without disguising characters."""
    kind = _kind_in(text)
    if kind is None and (plain := revealed(text)) != text:
        return _kind_in(plain)
    return kind


def _kind_in(text: bytes) -> str | None:
    return next((match.kind for match in matches_in(text)), None)


def matches_in(text: bytes) -> Iterator[Match]:
    """Yield the secrets with a form of their own, then those with a name beside them."""
    for count, match in enumerate(patterns().finditer(text), 1):
        kind = PATTERNS[int(match.lastgroup[1:])].kind
        if kind == BEARER and (issued := _kind_in(value_of(match.group()))) is not None:
            yield Match(issued, match.start(), match.end())  # report the more precise kind: that of the token's issuer
        elif count > harmless_max or not is_harmless(kind, text, match.start(), match.end()):
            yield Match(kind, match.start(), match.end())
    yield from (Match(*found) for found in named_secrets(text))
