"""Verifying the signature of a stored entry, which covers all events of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from deedbook.ledger.format.envelope import Entry, signed_root
from deedbook.ledger.format.identity import verify
from deedbook.ledger.format.merkle import root_of_path

batches_known_max: Final = 256


def is_signed(entry: Entry, path: Sequence[bytes] = ()) -> bool:
    """Return whether the signature of a stored entry fits; ``path`` leads from its commitment to its batch's root."""
    root = root_of_path(entry.commitment, entry.batch_index, entry.batch_size, list(path))
    return root is not None and _is_signed(entry.key, entry.batch_size, root, entry.sig)


@lru_cache(batches_known_max)  # entries of one batch are mostly read together
def _is_signed(key: bytes, size: int, root: bytes, sig: bytes) -> bool:
    return verify(key, signed_root(size, root), sig)
