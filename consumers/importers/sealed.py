"""Imports originals sealed: each is a sealed blob, and its record is unmapped, so nothing of its text is in the ledger.

The record keeps the source, the format and the claimed time, which are in clear. Each source has one record for a
subject. A later version of the same source is not imported again, because the ledger cannot compare sealed content.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from blake3 import blake3

from deedbook.consumers.importers.records import Counts, Record, Unmapped, import_records
from deedbook.consumers.sdk.sealer import Sealer
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.imported import UNMAPPED, RecordImported

_digits: Final = 32


class SealedImport:
    """Takes the originals and records of an importer, instead of the ledger."""

    def __init__(self, author: Author, ask: Ask, sealer: Sealer) -> None:
        self._author = author
        self._ask = ask
        self._sealer = sealer
        self._originals: dict[str, bytes] = {}

    def put_blob(self, content: bytes) -> str:
        """Remember an original, and return the ref that it would have if it were not sealed. Nothing is stored yet."""
        ref = "blake3:" + blake3(content).hexdigest()
        self._originals[ref] = content
        return ref

    def import_records(
        self,
        records: Sequence[Record],
        step: Callable[[int, int], None] = lambda _done, _total: None,
        *,
        unchanged: int = 0,
    ) -> Counts:
        """Append a sealed record for each new source among ``records`` (see ``records.import_records``)."""
        there: list[Unmapped] = []
        sealed = list(self._sealed(records, there))
        self._originals.clear()
        counts = import_records(self._author, sealed, step, unchanged=unchanged)
        counts.read += len(there)
        counts.unmapped_records = [*counts.unmapped_records, *there]
        return counts

    def _sealed(self, records: Sequence[Record], there: list[Unmapped]) -> Iterator[Record]:
        """Yield a sealed record of each new source; add the others to ``there``."""
        sources: set[str] = set()
        for record in records:
            data, subject = record.data, self._sealer.subject
            digest = hashlib.sha256(f"sealed\0{subject}\0{data.source}".encode()).hexdigest()[:_digits]
            stream = f"{UNMAPPED}/{digest}"
            if stream in sources or self._ask("catalog.find", {"stream": stream, "limit": 1})["items"]:
                there.append(Unmapped(data.source, f"sealed for {subject} before", data.original))
                continue
            sources.add(stream)
            content = self._originals.get(data.original)
            original = data.original if content is None else self._sealer.blob(io.BytesIO(content))
            made = RecordImported(
                original=original,
                source=data.source,
                format=data.format,
                claimed_at=data.claimed_at,
                reason=f"sealed for {subject}",
                only_digest=content is None,
            )
            yield Record(stream, made)
