"""Verifying the signature of a stored entry, of its own or of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from deedbook.ledger.format.envelope import Entry, batch_root_pae, pae
from deedbook.ledger.format.identity import verify
from deedbook.ledger.format.merkle import leaf_hash, root_of_path

batches_known_max: Final = 256


def is_signed(entry: Entry, batch_path: Sequence[bytes] = ()) -> bool:
    """Return whether the signature of a stored entry fits; that of a batch by the path to the batch's root."""
    signed = pae(entry.body)
    if entry.batch_size == 1:
        return not batch_path and verify(entry.key, signed, entry.sig)
    root = root_of_path(leaf_hash(signed), entry.batch_index, entry.batch_size, list(batch_path))
    return root is not None and _is_batch_signed(entry.key, entry.batch_size, root, entry.sig)


@lru_cache(batches_known_max)  # entries of one batch are mostly read together
def _is_batch_signed(key: bytes, size: int, root: bytes, sig: bytes) -> bool:
    return verify(key, batch_root_pae(size, root), sig)
