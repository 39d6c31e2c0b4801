"""The graphs that this folder has fetched before: what `baton reasoning fetch --have` needs to ask for a delta only.

``cache/graphs/HEX.json`` holds the bytes whose SHA-256 is HEX, as they were hashed when they were fetched. They are
hashed again when they are read, so a file that was changed counts as none. Everything here can be fetched again: the
folder may be deleted at any time, and a graph that cannot be written is not an error of the fetch it came from.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from consumers.reasoning.compressor.transfer import Fetched, fetch
from ledger.client import Ask
from ledger.codec import check_strict
from ledger.errors import Refused
from ledger.files import replacing
from ledger.limits import blob_size_max_bytes
from projections.query import prefix_range
from projections.reasoning.delta import Size
from projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

graphs_cached_max: Final = 256
graph_size_max_bytes: Final = blob_size_max_bytes


class GraphCache:
    """Graphs by their refs, in a ledger's folder; the oldest of more than ``graphs_cached_max`` are deleted."""

    def __init__(self, home: Path) -> None:
        """Keep graphs below the ledger's folder ``home``, here or on a remote agent's machine."""
        self._folder = home / "cache" / "graphs"

    def find(self, ref: str) -> ReasoningMemory | None:
        """Return the graph of a ref or of a beginning that fits one graph only; None when it is not here."""
        bounds = prefix_range(ref, "sha256")
        if bounds is None:
            return None
        files = list(self._folder.glob(f"{bounds[0].removeprefix('sha256:')}*.json"))
        if len(files) != 1:
            return None
        try:
            text = files[0].read_bytes()
            if hashlib.sha256(text).hexdigest() != files[0].stem:
                return None
            return read_graph(text)
        except (OSError, Refused):
            return None

    def keep(self, fetched: Fetched) -> bool:
        """Keep a graph that was fetched; return whether it could be written."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A crash within leaves a file without a graph's name, which is deleted as the oldest one day.
            with replacing(self._folder / f"{fetched.ref.removeprefix('sha256:')}.json") as file:
                file.write(fetched.canonical.encode())
            self._forget()
        except OSError:
            return False
        return True

    def _forget(self) -> None:
        entries = sorted(os.scandir(self._folder), key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in entries[graphs_cached_max:]:
            Path(entry.path).unlink(missing_ok=True)


class Base(msgspec.Struct, frozen=True):
    """The graph that a receiver has, where it came from, and what it cost if it had to be fetched for this."""

    memory: ReasoningMemory | None = None
    origin: Literal["file", "cache", "ledger"] | None = None
    transferred: Size | None = None


def find_base(view: Ask, cache: GraphCache, have: str | None, file: Path | None) -> Base:
    """Return the version that somebody has: from a file, from the cache, or fetched whole now; nothing for None.

    Raises:
        Refused: ``VERSION_MISMATCH`` when the file holds another version than ``have``; as ``read_graph_file`` and
            ``fetch``.
    """
    if file is not None:
        memory = read_graph_file(file)
        ref = compute_reasoning_ref(memory)
        bounds = (ref, ref + "g") if have is None else prefix_range(have, "sha256")
        if bounds is None or not bounds[0] <= ref < bounds[1]:
            raise Refused("VERSION_MISMATCH", f"{file} holds {ref}, not {have}", held=ref, wanted=have)
        return Base(memory, "file")
    if have is None:
        return Base()
    cached = cache.find(have)
    if cached is not None:
        return Base(cached, "cache")
    fetched = fetch(view, have)
    cache.keep(fetched)
    return Base(fetched.memory, "ledger", fetched.sent.transferred)


def read_graph_file(path: Path) -> ReasoningMemory:
    """Return the graph in a file, as `baton reasoning fetch` prints it.

    Raises:
        Refused: ``NOT_FOUND`` when it cannot be read, ``TOO_LARGE``, or the codes of ``memory_from_dict``.
    """
    try:
        with path.open("rb") as file:
            text = file.read(graph_size_max_bytes + 1)
    except OSError as error:
        raise Refused("NOT_FOUND", f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    if len(text) > graph_size_max_bytes:
        raise Refused("TOO_LARGE", f"{path} is larger than {graph_size_max_bytes} bytes", path=str(path))
    return read_graph(text)


def read_graph(text: bytes) -> ReasoningMemory:
    """Return the graph that its canonical bytes describe.

    Raises:
        Refused: the strict JSON codes, those of ``memory_from_dict``, or ``UNKNOWN_FIELD``.
    """
    memory, unknown = memory_from_dict(check_strict(text))
    if unknown:
        raise Refused("UNKNOWN_FIELD", f"a graph has no {', '.join(unknown)}", field=next(iter(unknown)))
    return memory
