r"""The name of a session or agent as one component of a git ref and of a path.

A session's id is any text (``session/ID``), a component is not: ``git check-ref-format`` refuses spaces, ``..``,
``~^:?*[\``, ``@{``, a dot in front, ``.lock`` at the end; a slash would begin another component, and a session ``a``
could not live beside a session ``a/b``. So bytes that cannot stand are written ``%XX``, as in a URL, and so is ``%``
itself: then no two ids have one name. An id that is legal and has no ``%`` stands as it is, Chinese too, so that the
seed's ref ``empirica/handoff/ID`` is found under the id (seed 004, "Git Notes"). No text at all is a single ``%``. What
is longer than a file system takes ends in ``%-`` and the SHA-256 of the whole; that alone cannot be read back.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import unquote

# A ref is a file too, and its lock is called `NAME.lock`: 255 bytes, the limit nearly everywhere, hold both.
name_size_max_bytes: Final = 200
_EMPTY: Final = "%"
_CUT: Final = "%-"
# What no ref may hold, and %; control characters of Latin-1, separators of lines and lone surrogates neither.
_ILLEGAL: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0~^:?*\[\\/%\u2028\u2029\ud800-\udfff]|^\.|(?<=\.)\.|\.\Z|\.(?=lock\Z)|@(?=\{)"
)


def name_of(text: str) -> str:
    """Return ``text`` as a name that is legal in a git ref and on a file system, and no other text's name."""
    if not text:
        return _EMPTY
    name = _ILLEGAL.sub(_escaped, text)
    encoded = name.encode()
    if len(encoded) <= name_size_max_bytes:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    room = name_size_max_bytes - len(_CUT) - len(digest)
    start = re.sub(r"%[0-9A-F]?\Z", "", encoded[:room].decode("utf-8", "ignore"))
    return f"{start}{_CUT}{digest}"


def text_of(name: str) -> str | None:
    """Return the text that ``name_of`` named so; None when the name is cut, or no name of ours."""
    if name == _EMPTY:
        return ""
    try:
        text = unquote(name, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if name_of(text) == name and _CUT not in name else None


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
