"""The long texts of reports, which are stored as blobs: reads them in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from deedbook.ledger.errors import or_none
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reports.markdown import with_texts
from deedbook.projections.reports.report import read_report

Blobs = Callable[[str], bytes]
# Texts that the report has shortened to fewer tokens than this are read in full from their blobs before packing.
restored_below_tokens: Final = 160


def restored(fields: Mapping[str, Any], get_blob: Blobs, below: int | None = restored_below_tokens) -> dict[str, Any]:
    """Return a report's fields with the long texts in full: all, or those shortened to fewer tokens than ``below``."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fields))
    left = []
    for long in copy["long_texts"]:
        holder, key = _target(copy, long["path"])
        is_long = below is not None and count_tokens(holder[key]) >= below
        if (content := None if is_long else or_none(get_blob, long["ref"])) is None:
            left.append(long)
        else:
            holder[key] = content.decode("utf-8", "replace")
    return copy | {"long_texts": left}


def whole(fields: Mapping[str, Any], get_blob: Blobs) -> dict[str, Any]:
    """Return a report of ``reports.show`` with its long texts in full, in its fields, Markdown and compressed JSON."""
    return with_texts(read_report(restored(fields, get_blob, below=None))).to_dict()


def _target(fields: dict[str, Any], path: str) -> tuple[Any, Any]:
    """Return the container of the text at a JSON pointer, and its key there."""
    *parents, last = path.split("/")[1:]
    holder: Any = fields
    for part in parents:
        holder = holder[int(part) if isinstance(holder, list) else part]
    return holder, int(last) if isinstance(holder, list) else last
