"""Finding credentials before they enter a log that forgets nothing (DESIGN §5).

Three places look: the author before signing, so that a secret never leaves its process; the gate, for authors in
other languages; and whoever stores a blob that is text. What is found is told by its place and its sort, never by
itself, not even in part. What *looks like* a secret may be judged better tomorrow, so this is no rule of the format:
replay and audits do not ask.

Not looked at: blobs that are binary (compressed and sealed ones are) or longer than ``blob_scan_max_bytes``, text in
another encoding (base64 of a key), and passwords in prose, which no form tells from words. There is no switch. What
only shows the form of a secret passes: masked with ``x``, ``*`` or ``0``, cut short, or words in a token's place.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ledger.errors import Refused
from ledger.limits import blob_scan_max_bytes
from ledger.secret_patterns import IN_URL, JWT, KEY_FILE, PATTERNS, patterns, placeholders, traces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

harmless_max: Final = 1000
"""So many placeholders in one text are looked into; a text with more is refused, which bounds the work."""

_masked_tail_bytes: Final = 12
_name_max_chars: Final = 64
_seed_digits: Final = 64
_MASKS: Final = frozenset(b"xX*0.-_#")


class Secret(NamedTuple):
    """Where something that looks like a secret stands (as ``$.data.finding``), and what sort of secret it is."""

    path: str
    sort: str


def scan(value: Any, path: str = "$") -> Secret | None:
    """Return the first secret in the strings and keys of plain decoded JSON; ``path`` is the value's own.

    Each string is read with the key it stands under, because some credentials are only known by their name.
    """
    waiting: list[tuple[str, str, Any]] = [(path, "", value)]
    while waiting:
        here, name, one = waiting.pop()
        if isinstance(one, str):
            sort = _sort_of(f"{name}={one}".encode(errors="replace") if name else one.encode(errors="replace"))
            if sort is not None:
                return Secret(here, sort)
        elif isinstance(one, dict):
            for key in one:
                sort = _sort_of(str(key).encode(errors="replace"))
                if sort is not None:
                    return Secret(f"{here}[...]", sort)  # the key is the secret, so it is not told
            if _is_key_file(one):
                return Secret(here, KEY_FILE)
            waiting += reversed(list(_fields(here, one)))
        elif isinstance(one, list):
            waiting += reversed([(f"{here}[{place}]", name, item) for place, item in enumerate(one)])
    return None


def scan_bodies(bodies: Sequence[bytes]) -> dict[int, Secret]:
    """Return the first secret of each event's body that holds one, by position: head and data are looked at.

    Bodies must be JSON. Those without a trace of a secret, which are nearly all, cost one search over all of them.
    """
    search = traces().search
    if search(b"\n".join(bodies)) is None:
        return {}
    found = {position: scan(msgspec.json.decode(body)) for position, body in enumerate(bodies) if search(body)}
    return {position: secret for position, secret in found.items() if secret is not None}


def refusal(found: Secret) -> Refused:
    """Return what an author is told: where it stands and what to write instead."""
    return Refused(
        "SECRET_DETECTED",
        f"{found.path} holds what looks like a secret ({found.sort}), and a ledger forgets nothing: write where it is "
        "kept (the name of a variable, a path in a vault), or mask it with x",
        path=found.path,
        secret=found.sort,
    )


def check_text(content: bytes) -> None:
    """Refuse a blob that is text, of at most ``blob_scan_max_bytes``, and holds a secret.

    Raises:
        Refused: ``SECRET_DETECTED``.
    """
    if len(content) > blob_scan_max_bytes or not _is_text(content):
        return
    sort = _sort_of(content)
    if sort is not None:
        raise refusal(Secret("the blob", sort))


def _fields(path: str, fields: dict[Any, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in fields.items():
        name = str(key)
        is_name = len(name) <= _name_max_chars and name.isascii() and name.replace("-", "_").isidentifier()
        yield (f"{path}.{name}" if is_name else f"{path}[...]", name if is_name else "", value)


def _is_key_file(fields: dict[Any, Any]) -> bool:
    """Tell whether these are the fields of ``ledger.identity.KeyFile``, which no string of them shows by itself."""
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


def _sort_of(text: bytes) -> str | None:
    for count, match in enumerate(patterns().finditer(text), 1):
        sort = PATTERNS[int(match.lastgroup[1:])].sort
        if count > harmless_max or not _is_harmless(sort, match.group()):
            return sort
    return None


def _is_harmless(sort: str, found: bytes) -> bool:
    """Tell whether what has the form of a secret only shows the form."""
    if sort == IN_URL:
        user, _, password = found[: found.rindex(b"@")].rpartition(b"/")[2].partition(b":")
        return password == user or placeholders().password.fullmatch(password) is not None
    if sort == JWT and not _names_its_algorithm(found[found.index(b"eyJ") : found.index(b".")]):
        return True
    tail = set(found[-_masked_tail_bytes - 1 : -1])  # the last character may be what ended the match
    return (len(tail) == 1 and tail <= _MASKS) or placeholders().words.fullmatch(found) is not None


def _names_its_algorithm(header: bytes) -> bool:
    """Tell whether this is the header of a JSON Web Token: an object with ``alg`` (RFC 7515 §4.1.1)."""
    try:
        fields = msgspec.json.decode(base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False
    return isinstance(fields, dict) and "alg" in fields
