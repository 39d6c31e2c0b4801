"""Compares the blobs in a bundle with those that its entries reference.

If an entry needs a blob that the bundle lacks, the bundle is PARTIAL. A blob that a redaction names is erased, not
missing, and must not be here. A blob that no entry references is refused: nobody signed it, so the maker of the bundle
could show any file as part of the ledger. A blob that was missing at the export may be added to the unpacked folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.ledger.admission.replay import read_entry
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.format.envelope import head_of
from deedbook.ledger.log.expiry import find_refs, refs_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from deedbook.ledger.admission.candidate import Candidate
    from deedbook.ledger.bundle.archive import Bundle


class BundleBlobs:
    """The blobs of one bundle: those that it has, and those that the observed entries reference.

    ``unreferenced`` are blobs in the bundle that no observed entry references.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._present, self._added = frozenset(bundle.blobs), frozenset(bundle.added)
        self._needed: dict[str, int] = {}
        self.unreferenced = {*self._present}

    def missing(self, erased: Collection[str]) -> dict[str, int]:
        """Return the blobs that the bundle does not have, each with the first entry that needs it.

        Blobs that were ``erased`` are not missing.
        """
        return {ref: index for ref, index in self._needed.items() if ref not in self._present and ref not in erased}

    def wrong(self, erased: Collection[str]) -> dict[str, str]:
        """Return the blobs that must not be here, and why, in order."""
        unreferenced = dict.fromkeys(sorted(self.unreferenced), "no entry references")
        return unreferenced | dict.fromkeys(sorted(self._present.intersection(erased)), "a redaction erased")

    def may_be_of_missing_entry(self, ref: str, erased: Collection[str]) -> bool:
        """Return whether a blob in ``wrong`` may be right after all, because a missing entry may reference it."""
        return ref not in erased and ref not in self._added

    def observe(self, index: int, candidate: Candidate) -> None:
        """Take note of the refs in an entry."""
        for ref in blobs_of(candidate.data):
            self._needed.setdefault(ref, index)
        if self.unreferenced:
            self.unreferenced -= {*refs_in(bytes(head_of(candidate.raw).data))}

    def observe_bytes(self, index: int, data: bytes) -> None:
        """Take note of the refs in the bytes of an entry. An unreadable entry counts as one without refs."""
        if not find_refs(data):
            return  # the usual case, in which the entry need not be decoded
        try:
            _, candidate = read_entry(data)
        except Refused:
            return
        self.observe(index, candidate)
