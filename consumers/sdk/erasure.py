"""Removes redacted texts from files that Deedbook wrote beside the log: text files, and SQLite files.

Files that are derived from the log are written again by the module that makes them. This module is for files that also
contain other content (a person's edits, a queue of messages): it removes only the texts.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.trust.store import TrustStore

line_min_chars: Final = 16
"""Shorter lines of a redacted text are not searched for: a file may contain the same line by chance."""
_busy_timeout_s: Final = 10.0


class ErasedCopy(NamedTuple):
    """A file or table that held a redacted text: what was done with it; if that failed, why; and what else to do."""

    place: str
    done: Literal["rewritten", "deleted", "left"]
    reason: str = ""


def spellings(texts: Collection[str]) -> list[str]:
    """Return the texts in the forms that files contain, the longest first: unchanged, in JSON, and line by line."""
    lines = [line.strip() for text in texts for line in text.splitlines() if len(line.strip()) >= line_min_chars]
    plain = [text for text in (*texts, *lines) if text.strip()]
    written = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in plain for is_ascii in (True, False)]
    return sorted({*plain, *written}, key=len, reverse=True)


def erase_from_file(path: Path, texts: Collection[str]) -> ErasedCopy | None:
    """Replace the texts in a text file by a mark; return None if it contains none of them."""

    def erase(content: bytes) -> bytes:
        for spelling in spellings(texts):
            content = content.replace(spelling.encode(), ERASED.encode())
        return content

    return _rewrite(path, erase)


def erase_lines(path: Path, lines: Mapping[bytes, bytes]) -> ErasedCopy | None:
    """Replace whole lines of a text file by their remnants; return None if it contains none of them."""

    def erased(line: bytes) -> bytes:
        plain = line.rstrip(b"\r\n")
        return lines.get(plain, plain) + line[len(plain) :]

    return _rewrite(path, lambda content: b"".join(map(erased, content.splitlines(keepends=True))))


def _rewrite(path: Path, erase: Callable[[bytes], bytes]) -> ErasedCopy | None:
    try:
        content = read_file(path)
        erased = erase(content or b"")
        if content is None or erased == content:
            return None
        if write_file(path, erased, expected=content):
            return ErasedCopy(str(path), "rewritten")
    except DeedbookError as error:
        return ErasedCopy(str(path), "left", error.message)
    return ErasedCopy(str(path), "left", "somebody saved this file just now: remove the text, or run this again")


def erase_from_database(path: Path, texts: Collection[str]) -> ErasedCopy:
    """Replace the texts in every column of a SQLite file by a mark, and rewrite the file without its freed pages."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_busy_timeout_s, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            for table, column in list(_columns(db)):
                for spelling in spellings(texts):
                    _replace(db, table, column, spelling)
            db.execute("COMMIT")
            # If we crash before the end, the next search over the folder finds the text again.
            db.execute("VACUUM")
            (is_busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        return ErasedCopy(str(path), "left", str(error))
    if is_busy:
        return ErasedCopy(str(path), "left", "another process reads it: stop it, and run this again")
    return ErasedCopy(str(path), "rewritten")


def delete_caches(store: TrustStore, home: Path) -> list[ErasedCopy]:
    """Delete the files that only save time for a ledger, because any of them may hold a redacted text."""
    caches = [*(home / "cache").rglob("*.json"), store.audit_file, store.authority_file]
    return [copy for path in caches if (copy := delete_copy(path)) is not None]


def delete_copy(path: Path) -> ErasedCopy | None:
    """Delete a file that only saves time; return None if there is none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        return ErasedCopy(str(path), "left", f"it cannot be deleted: {error.strerror}")
    return ErasedCopy(str(path), "deleted")


def _columns(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            yield table, row[1]


def _replace(db: sqlite3.Connection, table: str, column: str, text: str) -> None:
    # Each type needs its own expression: replace() of a blob would return a text.
    for kind, changed in (
        ("text", f'replace("{column}", ?1, ?2)'),
        ("blob", f'CAST(replace(CAST("{column}" AS TEXT), ?1, ?2) AS BLOB)'),
    ):
        sql = f"""UPDATE "{table}" SET "{column}" = {changed} WHERE typeof("{column}") = '{kind}' AND """  # noqa: S608
        db.execute(f"""{sql}instr(CAST("{column}" AS TEXT), ?1) > 0""", (text, ERASED))
