"""Takes redacted texts out of the files of handoffs: those in markdown, signed files, and the state of each watcher."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from deedbook.consumers.handoffs.files.folder import CONFLICT
from deedbook.consumers.handoffs.files.mapping import file_name, file_now, template_of
from deedbook.consumers.handoffs.files.signed import signed_name
from deedbook.consumers.handoffs.files.sync import FileState, SyncStore
from deedbook.consumers.handoffs.files.syntax.refuted_mark import without_marks
from deedbook.consumers.handoffs.files.syntax.remark import split_remark
from deedbook.consumers.sdk.erasure import ErasedCopy, erase_from_file
from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.ledger.bundle import signed_file_of
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import DeedbookError, Refused


def erase_handoff_files(
    client: Client, handoff: dict[str, Any], folder: Path, home: Path, texts: Collection[str]
) -> list[ErasedCopy]:
    """Write the files of a redacted handoff in a folder again; ``handoff`` is an answer of ``handoffs.show``.

    A file that has the edits of a person loses only the texts.
    """
    id_ = handoff["id"]
    now = _rendered(client, handoff)
    agreed = {state.base for state in _states(home, id_, now)}
    path, beside, signed = (folder / name for name in (file_name(id_), f"{id_}{CONFLICT}", signed_name(id_)))
    copies: list[ErasedCopy | None] = []
    content = read_file(path)
    if content is not None and now is not None and split_remark(without_marks(content))[0] in agreed:
        copies.append(_put(path, lambda: now))
    elif content is not None:
        copies.append(erase_from_file(path, texts))
    if read_file(beside) is not None:
        copies.append(erase_from_file(beside, texts) if now is None else _put(beside, lambda: now))
    if signed.exists():
        copies.append(_put(signed, lambda: signed_file_of(client, f"handoff/{id_}")))
    return [copy for copy in copies if copy is not None]


def _rendered(client: Client, handoff: dict[str, Any]) -> bytes | None:
    try:
        return file_now(handoff, template_of(handoff, client.get_blob))
    except Refused:
        return None  # no file can hold what is left


def _states(home: Path, id_: str, now: bytes | None) -> Iterator[FileState]:
    """Yield the states that watchers stored of a handoff's file; from now on they have what the ledger has."""
    for path in sorted((home / "subscribers").glob("files-*.db")):
        with closing(SyncStore(path)) as store:
            state = store.agreed(id_)
            if state is not None:
                yield state
                if now is not None:
                    store.agree(id_, FileState(now, state.position))


def _put(path: Path, make: Callable[[], bytes]) -> ErasedCopy:
    try:
        write_file(path, make())
    except DeedbookError as error:
        return ErasedCopy(str(path), "left", error.message)
    return ErasedCopy(str(path), "rewritten")
