"""Whether the signature of a stored entry fits: its own, or that of its batch by the path of the entry within it."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.envelope import Entry, batch_root_pae, pae
from ledger.merkle import hash_size_bytes, leaf_hash, root_of_path


def is_signed(entry: Entry, batch_path: Sequence[bytes] = ()) -> bool:
    """Return whether the signature fits; that of a batch by the path to the batch's root."""
    from ledger.identity import verify  # noqa: PLC0415 - loads keys, which reading does not need

    signed = pae(entry.body)
    if entry.batch_size == 1:
        return not batch_path and verify(entry.key, signed, entry.sig)
    root = root_of_path(leaf_hash(signed), entry.batch_index, entry.batch_size, list(batch_path))
    return root is not None and verify(entry.key, batch_root_pae(entry.batch_size, root), entry.sig)


def split_hashes(path: bytes) -> list[bytes]:
    """Return the hashes of a path that travels as one piece."""
    return [path[start : start + hash_size_bytes] for start in range(0, len(path), hash_size_bytes)]
