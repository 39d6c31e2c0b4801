"""Which originals stand in the ledger already, whoever imported them; asked in questions that a server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.codec import encode_sorted
from projections.query import page_rows_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.client import Ask

question_size_max_bytes: Final = 48 * 1024


def standing_records(answer: Ask, places: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the record of each original and source that stands already, of several as ``records.standing`` says."""
    asked: list[dict[str, str]] = []
    size = 0
    for original, source in places:
        place = {"original": original, "source": source}
        more = len(encode_sorted(place)) + 1
        if asked and (size + more > question_size_max_bytes or len(asked) == page_rows_max):
            yield from answer("records.standing", {"places": asked})["standing"]
            asked, size = [], 0
        asked.append(place)
        size += more
    if asked:
        yield from answer("records.standing", {"places": asked})["standing"]
