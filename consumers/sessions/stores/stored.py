"""What came of storing a report in one place."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

Status: TypeAlias = Literal["written", "unchanged", "skipped", "failed"]
Store: TypeAlias = Literal["git_notes", "files"]


class Stored(NamedTuple):
    """A store, the place in it (``git:REF`` or a path), what came of it, and why it is not there or not plainly so.

    ``skipped`` is as it is meant to be, ``failed`` is not; in neither case is the report lost: it is in the log, and
    ``repair`` writes it when the store can be written.
    """

    store: Store
    location: str
    status: Status
    reason: str = ""

    def answer(self) -> dict[str, Any]:
        """Return the form that is printed."""
        return dict(self._asdict())
