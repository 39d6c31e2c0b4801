"""The paths of decisions: a decision about a folder is about each file in it, and the other way round.

Paths are those of the project, as people write them, with ``/``. Nothing here looks at a disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_LINES: Final = re.compile(r":[0-9]+(?:-[0-9]+)?$")


def path_key(text: str) -> str:
    """Return the file or folder that a path names, without lines and without the part after a pattern's first mark.

    The project itself is an empty text.

    >>> [path_key(text) for text in ("./src/api.py:12", "src/", "src/**", "src/*.py", "src/a?.py", ".")]
    ['src/api.py', 'src', 'src', 'src', 'src', '']
    """
    parts = [part for part in _LINES.sub("", text.strip()).split("/") if part not in ("", ".")]
    marked = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    return "/".join(parts[:marked])


def folders_of(key: str) -> list[str]:
    """Return a path and all folders that it is in.

    >>> folders_of("src/api.py")
    ['src/api.py', 'src', '']
    """
    parts = key.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)] + ([""] if key else [])


def keys_of(texts: Iterable[str]) -> list[str]:
    """Return the keys of paths, each once."""
    return list(dict.fromkeys(map(path_key, texts)))
