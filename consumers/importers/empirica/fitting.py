"""Making a record fit an entry: shortened at words, and every shortening listed as dirty. Pure.

The original stands whole in its blob, so nothing is lost; and a long text that is shortened is found and read, where a
note kept aside for its size would be seen by nobody. First the texts are shortened, all to one length, the greatest
that fits; where there are too many of them, fewer of each list are kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from consumers.importers.empirica.values import shown
from consumers.sdk.tokens import cut_to_chars, greatest
from ledger.codec import encode_canonical
from ledger.events.imported import DirtyValue, RecordImported
from ledger.limits import data_size_max_bytes

text_min_chars: Final = 24
text_max_chars: Final = 40_000
_items_kept: Final = (1_000, 200, 40)
_told_max: Final = 12
_claims_max_chars: Final = 40


def fitted(data: RecordImported) -> RecordImported | None:
    """Return a record that fits an entry; None when even its beginnings do not.

    Raises:
        Refused: ``INVALID_FORMAT`` for what has no canonical form.
    """
    if _fits(data):
        return data
    items = next((items for items in _items_kept if _fits(_shortened(data, text_min_chars, items))), None)
    if items is None:
        return None
    chars = greatest(text_min_chars, text_max_chars, lambda chars: _fits(_shortened(data, chars, items)))
    return _shortened(data, chars, items)


def _fits(data: RecordImported) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: RecordImported, chars: int, items: int) -> RecordImported:
    told: list[DirtyValue] = []
    mapped = _cut(data.mapped, "", chars, items, told)
    if len(told) > _told_max:
        why = f"{len(told) - _told_max} more were shortened: the original has the whole"
        told[_told_max:] = [DirtyValue(path="$", value="…", why=why)]
    claims = _claims(data.claims)
    claims["dirty"] = [*claims.get("dirty", []), *msgspec.to_builtins(told)]
    return msgspec.structs.replace(data, mapped=mapped, claims=claims)


def _claims(claims: dict[str, Any]) -> dict[str, Any]:
    """Return what is said with its values shortened: every name stays."""
    said = {name: shown(text, 2 * _claims_max_chars) for name, text in claims.get("said", {}).items()}
    dirty = [one | {"value": shown(one["value"], _claims_max_chars)} for one in claims.get("dirty", [])]
    return {"said": said, "dirty": dirty}


def _cut(value: Any, path: str, chars: int, items: int, told: list[DirtyValue]) -> Any:
    if isinstance(value, str) and len(value) > chars:
        why = f"shortened from {len(value)} characters to fit an event: the original has the whole"
        told.append(DirtyValue(path=path[:200] or "$", value=shown(value, _claims_max_chars), why=why))
        return cut_to_chars(value, chars)
    if isinstance(value, list):
        if len(value) > items:
            why = f"only the first {items} fit an event: the original has all"
            told.append(DirtyValue(path=path[:200] or "$", value=str(len(value)), why=why))
        return [_cut(one, f"{path}[{number}]", chars, items, told) for number, one in enumerate(value[:items])]
    if isinstance(value, dict):
        return {name: _cut(one, f"{path}.{name}".lstrip("."), chars, items, told) for name, one in value.items()}
    return value
