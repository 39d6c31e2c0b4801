"""Making a report fit an entry: texts that it cannot hold are shortened at a word and stand whole as blobs.

Nothing is shortened that fits. Where the whole report is too large for an entry, its longest texts are shortened to
one length, the greatest that fits; so a few texts of 10 KB do not cost the short ones beside them a word. Each
shortened text is named by its JSON pointer in ``long_texts``. Equal texts share a blob, so making a report again adds
none. What happens if we crash after the blobs were put: blobs that nothing names yet, and the next try finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from consumers.sdk.tokens import cut_to_chars, greatest
from ledger.codec import converted, encode_canonical, encode_utf8
from ledger.errors import Refused
from ledger.events.report import ReportGenerated
from ledger.limits import data_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

text_min_chars: Final = 24

_LISTS: Final = {
    "key_findings": 40_000,
    "remaining_unknowns": 40_000,
    "recommended_next_steps": 40_000,
    "accomplished": 40_000,
    "artifacts_created": 2_000,
    "investigation_tools": 200,
}
_TEXTS: Final = {"task_summary": 40_000, "next_session_context": 40_000, "ai_id": 200}
_whole_chars: Final = 40_000


def fit_entry(data: dict[str, Any], put_blob: Callable[[bytes], str]) -> ReportGenerated:
    """Return the report whose plain fields are ``data``, shortened where needed, with its long texts in blobs.

    Raises:
        Refused: ``TOO_LARGE`` when there are so many texts that their beginnings alone fit no entry;
            ``INVALID_FORMAT`` for a text without a UTF-8 form. Unavailable: the store's codes.
    """
    made, cut = _shortened(data, 2 * _whole_chars)
    if not _fits(made):
        chars = greatest(text_min_chars, data_size_max_bytes, lambda chars: _fits(_shortened(data, chars)[0]))
        made, cut = _shortened(data, chars)
        if not _fits(made):
            raise Refused(
                "TOO_LARGE",
                f"a report holds {data_size_max_bytes} bytes, and these are too many texts for it: give the 3 to 5"
                " key findings, and fewer unknowns and artifacts",
                limit=data_size_max_bytes,
            )
    for text in dict.fromkeys(cut.values()):
        put_blob(encode_utf8(text, "a text of the report"))
    return converted(made, ReportGenerated)


def blob_ref(text: str) -> str:
    """Return the ref under which a text stands as a blob."""
    return f"blake3:{blake3(encode_utf8(text, 'a text of the report')).hexdigest()}"


def _fits(data: dict[str, Any]) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: dict[str, Any], chars_max: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the report with no text longer than ``chars_max``, and the whole texts by their JSON pointers."""
    cut: dict[str, str] = {}

    def keep(text: str, path: str, field_max: int) -> str:
        kept = cut_to_chars(text, chars_max)
        if len(kept) > field_max:
            kept = cut_to_chars(text, field_max)
        if kept != text.strip():
            cut[path] = text
        return kept

    made = dict(data)
    for name, field_max in _TEXTS.items():
        if name in made:
            made[name] = keep(made[name], f"/{name}", field_max)
    for name, field_max in _LISTS.items():
        if name in made:
            made[name] = [keep(one, f"/{name}/{place}", field_max) for place, one in enumerate(made[name])]
    gaps = made.get("knowledge_gaps_filled", [])
    made["knowledge_gaps_filled"] = [
        gap | {"after": keep(gap["after"], f"/knowledge_gaps_filled/{place}/after", _whole_chars)}
        for place, gap in enumerate(gaps)
    ]
    made["long_texts"] = [{"path": path, "ref": blob_ref(text)} for path, text in cut.items()]
    return made, cut
