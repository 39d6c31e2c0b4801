"""Removes redacted texts from markdown files, signed files and the stored states of watchers.

The erased texts may be unknown here, because somebody on another machine erased them. A watcher's state has the file
before the erasure. So the erased lines are those that the ledger's file lacks now, or that have a mark there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.consumers.handoffs.files.folder import CONFLICT
from deedbook.consumers.handoffs.files.mapping import file_name, file_now, marked, template_of
from deedbook.consumers.handoffs.files.signed import is_signed_folder
from deedbook.consumers.handoffs.files.sync import FileState, SyncStore
from deedbook.consumers.handoffs.files.syntax.marks import without_marks
from deedbook.consumers.handoffs.files.syntax.remark import split_remark
from deedbook.consumers.sdk.erasure import ErasedCopy, erase_from_file, erase_lines
from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.ledger.bundle import signed_file_of
from deedbook.ledger.bundle.signed_file import read_signed_entries, signed_file_size_max_bytes
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.format.envelope import decode_entry, is_remnant
from deedbook.ledger.home.location import SIGNED_FILE
from deedbook.projections.answers.checked import ask

_HANDOFF: Final = "handoff/"
WATCHER: Final = "files-"
"""The beginning of the name of a watcher's store."""
_MARK: Final = ERASED.encode()
_BEGINNING: Final = re.compile(rb"\s*(?:(?:[-*+]|#+|[0-9]+[.)])\s+)?(?:\[[ xX]\]\s+)?")


class ErasedFiles(NamedTuple):
    """The results for a folder of handoff files, and the erased lines that were still in the states of watchers."""

    copies: list[ErasedCopy]
    lines: set[str]


class HandoffFolder(NamedTuple):
    """A folder of handoff files, and the stores of its watchers."""

    path: Path
    stores: list[Path]

    def states(self, id_: str) -> Iterator[tuple[Path, FileState]]:
        """Yield the stores that have a state of a handoff's file, each with the state."""
        for path in self.stores:
            with closing(SyncStore(path)) as store:
                state = store.agreed(id_)
            if state is not None:
                yield path, state


def handoff_folders(home: Path, usual: Path) -> list[HandoffFolder]:
    """Return the usual folder of handoff files, and the project's folders that watchers of its ledger synchronise.

    Other folders are left to their own watchers, because a stranger's ledger may bring a store that names any folder.
    """
    folders = {usual.resolve(): HandoffFolder(usual.resolve(), [])}
    for path in sorted((home / "subscribers").glob(f"{WATCHER}*.db")):
        with closing(SyncStore(path)) as store:
            if (folder := store.folder()) is not None and folder.resolve().is_relative_to(home.parent.resolve()):
                folders.setdefault(folder, HandoffFolder(folder, [])).stores.append(path)
    return list(folders.values())


def erase_handoff_files(
    client: Client, folder: HandoffFolder, streams: dict[int, str], texts: Collection[str] = ()
) -> ErasedFiles:
    """Write the files of redacted handoffs in a folder again.

    If a person has edited a file, only the texts are removed. ``streams`` are those of the erased entries, by index.
    """
    copies: list[ErasedCopy | None] = []
    lines: set[str] = set()
    handoffs = (stream for stream in streams.values() if stream.startswith(_HANDOFF))
    for id_ in dict.fromkeys(stream.removeprefix(_HANDOFF) for stream in handoffs):
        if any((folder.path / name).exists() for name in _names(id_)) or any(True for _ in folder.states(id_)):
            copies += _erase_file(client, folder, id_, texts, lines)
    if folder.path.is_dir():
        copies += (_erase_signed(client, path, streams) for path in sorted(folder.path.glob(f"*{SIGNED_FILE}")))
    return ErasedFiles([copy for copy in copies if copy is not None], lines)


def mark_handoff_file(client: Client, folder: HandoffFolder, id_: str) -> Iterator[ErasedCopy]:
    """Mark the erased sealed texts in a handoff's file.

    A file beside a signed file gets no marks: it says only what is signed.
    """
    path, query = folder.path / file_name(id_), partial(ask, client)
    content = read_file(path)
    if content is None or is_signed_folder(folder.path):
        return
    try:
        new = marked(query, query("handoffs.show", {"id": id_}), without_marks(content))
        if new != content and write_file(path, new, expected=content):
            yield ErasedCopy(str(path), "rewritten")
    except DeedbookError as error:
        yield ErasedCopy(str(path), "left", error.message)


def _names(id_: str) -> tuple[str, str]:
    return file_name(id_), f"{id_}{CONFLICT}"


def _erase_file(
    client: Client, folder: HandoffFolder, id_: str, texts: Collection[str], lines: set[str]
) -> Iterator[ErasedCopy | None]:
    now = _rendered(client, ask(client, "handoffs.show", {"id": id_}))
    states = [state for _, state in folder.states(id_)]
    erased = {line: left for state in states for line, left in _erased_lines(state.base, now or b"")}
    lines |= {line.decode("utf-8", "replace").strip() for line in erased}
    path, beside = (folder.path / name for name in _names(id_))
    content = read_file(path)
    if content is not None and content != now:
        if now is not None and split_remark(without_marks(content))[0] in {state.base for state in states}:
            yield _put(path, lambda: now)  # a watcher marks it anew
        elif states or texts:
            yield erase_lines(path, erased)
            yield erase_from_file(path, texts)
        else:
            render = f"`deed handoff render {id_} --out FILE` writes the ledger's version to compare"
            yield ErasedCopy(str(path), "left", f"it may hold an erased text, and no watcher knew this file: {render}")
    if (other := read_file(beside)) is not None and other != now:
        yield erase_from_file(beside, texts) if now is None else _put(beside, lambda: now)
    # Last: if we crash before it, the file still equals the state or the ledger's version, so no watcher takes the old
    # text for a person's edit, and signs it.
    for store, state in folder.states(id_):
        if now is not None and state.base != now:
            with closing(SyncStore(store)) as opened:
                opened.agree(id_, FileState(now, state.position))


def _rendered(client: Client, handoff: dict[str, Any]) -> bytes | None:
    try:
        return file_now(handoff, template_of(handoff, client.get_blob))
    except Refused:
        return None  # no file can hold the remaining text


def _erased_lines(base: bytes, now: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each line of a synchronised file that ``now`` lacks or has with a mark, and the rest of it that remains.

    Lines that only changed, such as the status, are not among them.
    """
    before, after = base.splitlines(), now.splitlines()
    kept = set(after)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        marked = [line for line in after[first:last] if _MARK in line]
        if tag == "delete" or (tag == "replace" and marked):
            lines = (line for line in before[start:stop] if line.strip() and line not in kept)
            yield from ((line, _left(line, marked)) for line in lines)


def _left(line: bytes, marked: list[bytes]) -> bytes:
    """Return what replaces an erased line: the ledger's line, or if there is none, the line's beginning with a mark."""
    same = [other for other in marked if line.startswith(other.partition(_MARK)[0])]
    return max(same, key=lambda other: other.index(_MARK), default=_beginning(line) + _MARK)


def _beginning(line: bytes) -> bytes:
    """Return what makes a line of markdown a heading, an item of a list, or a box to tick."""
    beginning = _BEGINNING.match(line)
    return b"" if beginning is None else beginning[0]


def _erase_signed(client: Client, path: Path, streams: dict[int, str]) -> ErasedCopy | None:
    """Write a signed file again if it has a body that was erased."""
    try:
        content = read_file(path, size_max_bytes=signed_file_size_max_bytes)
        present = None if content is None else read_signed_entries(content)
    except DeedbookError as error:
        return ErasedCopy(str(path), "left", error.message)
    if present is None or present.ledger != client.ledger:
        return None
    held = (data for index, data in present.entries.items() if index in streams)
    if all(is_remnant(decode_entry(data).body) for data in held):
        return None
    return _put(path, lambda: signed_file_of(client, present.stream))


def _put(path: Path, make: Callable[[], bytes]) -> ErasedCopy:
    try:
        write_file(path, make())
    except DeedbookError as error:
        return ErasedCopy(str(path), "left", error.message)
    return ErasedCopy(str(path), "rewritten")
