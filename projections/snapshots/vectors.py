"""The vectors of a snapshot: looked up in any case, and only the assessed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import Vectors

VECTOR_NAMES: Final = Vectors.__struct_fields__


class AssessedVectors(Mapping[str, float]):
    """Vectors by name in any case: callers write ``UNCERTAINTY``, events hold ``uncertainty``."""

    def __init__(self, vectors: Mapping[str, float | None]) -> None:
        # None means not assessed.
        self._values = {name.lower(): value for name, value in vectors.items() if value is not None}

    def __getitem__(self, name: str) -> float:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def read_vectors(vectors: Mapping[str, Any]) -> Vectors:
    """Return the vectors under names of any case. Raises Refused: ``INVALID_FIELD``."""
    values: dict[str, float] = {}
    for name, value in vectors.items():
        own = name.strip().lower()
        if own not in VECTOR_NAMES:
            raise Refused(
                "INVALID_FIELD", f"there is no vector {name!r}. The vectors are {', '.join(VECTOR_NAMES)}", field=name
            )
        if own in values:
            raise Refused("INVALID_FIELD", f"the vector {own} is there twice", field=name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise Refused("INVALID_FIELD", f"the vector {own} is not between 0 and 1", field=name)
        values[own] = float(value)
    return Vectors(**values)
