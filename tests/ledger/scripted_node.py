"""A node that sends the entries that a test chooses, with valid paths in the tree of these entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec

from deedbook.ledger.client.stream_reader import StreamReader
from deedbook.ledger.format.envelope import decode_entry, entry_leaf
from deedbook.ledger.format.merkle import (
    consistency_proof,
    inclusion_path,
    inclusion_proof,
    root_of,
    subtrees_of,
)
from deedbook.ledger.trust.history import ConsistencyProof, ProvenEntry, StreamPage, StreamRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

AUTHORITY = ("agent.", "role.", "key.", "ledger.", "checkpoint_key.")


class ScriptedNode:
    """Answers ``stream`` from ``entries``, which no gate admitted. It leaves out the indexes in ``hides``.

    ``edits`` changes a page before it is sent; ``page_entries_max`` limits its entries.
    """

    def __init__(self, ledger: str, entries: Sequence[bytes], *, hides: Sequence[int] = ()) -> None:
        self.ledger = ledger
        self.entries = list(entries)
        self.hides = frozenset(hides)
        self.edits: Callable[[StreamPage], StreamPage] = lambda page: page
        self.page_entries_max = 1_000
        self.requests: list[StreamRequest] = []
        self.trust_store = SimpleNamespace(checkpoint_keys={})

    def reader(self, file: Path | None = None) -> StreamReader:
        """Return a reader of this node."""
        return StreamReader(self, file)  # type: ignore[arg-type]  # a reader calls only the methods of this class

    def stream(self, request: StreamRequest) -> StreamPage:
        self.requests.append(request)
        start, authority_start = request.start, request.authority_start
        name, known_size = request.stream, request.known_size
        size = len(self.entries) if request.size is None else request.size
        subtree = subtrees_of([entry_leaf(data) for data in self.entries[:size]])
        matching = []
        for index, data in enumerate(self.entries[:size]):
            head = msgspec.json.decode(decode_entry(data).body)
            is_own = head["stream"] == name and index >= start
            is_authority = head["kind"].startswith(AUTHORITY) and index >= authority_start
            if (is_own or is_authority) and index not in self.hides:
                matching.append(index)
        sent = matching[: self.page_entries_max]
        return self.edits(
            StreamPage(
                consistency_proof=ConsistencyProof(size, root_of(map(entry_leaf, self.entries[:size])).hex()),
                known_path=consistency_proof(known_size, size, subtree) if known_size <= size else [],
                entries=[self._proven(index, size) for index in sent],
                last=self._proven(size - 1, size),
                next_index=matching[len(sent)] if len(sent) < len(matching) else None,
            )
        )

    def consistency(self, old_size: int, new_size: int) -> ConsistencyProof:
        """Return the consistency proof between two sizes, as ``Client.consistency`` does."""
        leaves = [entry_leaf(data) for data in self.entries[:new_size]]
        return ConsistencyProof(
            new_size, root_of(leaves).hex(), consistency_proof(old_size, new_size, subtrees_of(leaves))
        )

    def _proven(self, index: int, size: int) -> ProvenEntry:
        data, entry = self.entries[index], decode_entry(self.entries[index])
        subtree = subtrees_of([entry_leaf(data) for data in self.entries[:size]])
        first, batch = index - entry.batch_index, []
        if entry.batch_size > 1:
            members = self.entries[first : first + entry.batch_size]
            batch = inclusion_path([decode_entry(member).commitment for member in members], entry.batch_index)
        return ProvenEntry(index, data, inclusion_proof(index, size, subtree), batch)
