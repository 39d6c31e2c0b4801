"""Counts how many texts of a folder the search for secrets refuses: `make bench-secrets FOLDERS=…`.

A text is a paragraph of a file, or a line of a JSON-lines file. The command prints where each refused text is and its
kind of secret, never the text. Look at each: a real secret is no false alarm. The command exits with 1 if more than one
text in 2,000 was refused. Give it folders with texts that people wrote: reports, notes, source, logs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from deedbook.ledger.errors import Refused
from deedbook.ledger.secrets.scanner import check_text

texts_per_alarm_min: Final = 2_000
file_max_bytes: Final = 4 * 1024**2
_SKIPPED: Final = frozenset({".git", ".venv", "node_modules", "__pycache__"})


class Alarm(NamedTuple):
    """The file of a refused text, the line where the text begins, and its kind of secret."""

    file: Path
    line: int
    kind: str


class Count(NamedTuple):
    """The number of files and texts, and the refused texts."""

    files: int
    texts: int
    alarms: list[Alarm]


def count(folders: Iterable[Path]) -> Count:
    """Search the texts of folders; skip links, build products and files that are not UTF-8."""
    files, texts, alarms = 0, 0, []
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if not _SKIPPED.isdisjoint(file.parts) or file.is_symlink() or not file.is_file():
                continue
            if (content := _text_of(file)) is None:
                continue
            files += 1
            for line, text in _texts(content, is_lines=file.suffix == ".jsonl"):
                texts += 1
                if (kind := _kind_of(text)) is not None:
                    alarms.append(Alarm(file, line, kind))
    return Count(files, texts, alarms)


def _text_of(file: Path) -> str | None:
    content = file.read_bytes()
    if len(content) > file_max_bytes or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _texts(content: str, *, is_lines: bool) -> Iterator[tuple[int, str]]:
    """Yield each text with the number of its first line."""
    line = 1
    for part in re.split(r"(\n)" if is_lines else r"(\n\s*\n)", content):
        if part.strip():
            yield line, part
        line += part.count("\n")


def _kind_of(text: str) -> str | None:
    try:
        check_text(text.encode())
    except Refused as refusal:
        return str(refusal.details["secret"])
    return None


def main(folders: list[str]) -> int:
    """Print the counts; return the exit code."""
    if not folders:
        print(__doc__)
        return 2
    result = count(Path(folder) for folder in folders)
    for alarm in result.alarms:
        print(f"{alarm.file}:{alarm.line}: {alarm.kind}")
    print(f"{len(result.alarms)} of {result.texts:,} texts in {result.files:,} files were refused")
    return int(len(result.alarms) * texts_per_alarm_min > result.texts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
