"""A forge that knows the state of its streams, and the rows of ``proto/rules`` with data that each of them allows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from building import NO_EVENT
from event_examples import smallest
from forge import ORIGINAL_REF, Forge

from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.lifecycle.rules import FAMILIES, read_rules

TABLES: Final[dict[str, dict[str, Any]]] = {family: msgspec.json.decode(read_rules(family)) for family in FAMILIES}
CONTENT: Final[dict[str, Any]] = {
    "title": "the work",
    "to": "bob",
    "reviewer": "rita",
    "tasks": ["do it", "test it"],
    "criteria": ["it is checked", "it is fast"],
}
STEP: Final = {"type": "assumption", "content": "because"}
RECORD: Final = {"original": ORIGINAL_REF, "source": "x", "format": "x"}
WORKING: Final = ("agent", "reviewer", "human", "service")


class Row(NamedTuple):
    """A row of a table, with its family."""

    family: str
    row: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of its events."""
        return str(self.row["kind"])

    @property
    def when(self) -> dict[str, Any]:
        """The values that the data of an event must have for this row to apply."""
        return dict(self.row.get("when", {}))


ROWS: Final = [Row(family, row) for family in FAMILIES for row in TABLES[family]["rows"]]


class Stage(Forge):
    """A forge with more agents, which also stores the state of its streams."""

    def __init__(self) -> None:
        super().__init__()
        self.register("carl", "agent", "reviewer")
        self.register("dora", "agent")
        self.register("rick", "reviewer", "human")
        self.register("hugo", "agent", "human")
        self._part, self._fed = PartialReplay(), 0

    def state(self, stream: str) -> Any:
        """Return the state of a stream, or None."""
        for index in range(self._fed, len(self.entries)):
            self._part.feed(index, self.entries[index], is_verified=True)
        self._fed = len(self.entries)
        record = self._part.state.stream(stream)
        return None if record is None else record.state


def mapped(kind: str, data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the data of an imported record that is mapped to a kind."""
    return RECORD | {"mapped_kind": kind, "mapped": data} | fields


def handoff_data(row: Row, content: dict[str, Any], sender: str, present: Any) -> tuple[dict[str, Any], str]:
    """Return the data that a row allows now, and the party or agent that signs it."""
    version = NO_EVENT if present is None else present.version
    result = (None if present is None else present.result) or NO_EVENT
    alone = {field: value for field, value in content.items() if field != "reviewer"}
    is_approving = row.when == {"reviewer": None}
    amended = alone if is_approving else content | ({"reviewer": "rick", "hands_over": True} if row.when else {})
    imported = mapped("handoff.created", content | {"title": "again"}, claimed_author="eve", claims={"tasks": [0]})
    marked: dict[str, Any] = {"position": 0} | {key: value for key, value in row.when.items() if value is not None}
    evidence = {} if row.when else {"evidence": "see the log"}
    data = smallest(row.kind)
    special: dict[str, tuple[dict[str, Any], str]] = {
        "handoff.created": (alone if is_approving else content, "sender"),
        "record.imported": (imported, "sender"),
        "handoff.amended": (amended, "reviewer" if row.when == {"hands_over": True} else "sender"),
        "handoff.approved": ({"version": version}, "reviewer"),
        "handoff.criterion_checked": (marked | evidence, "receiver"),
        "handoff.changes_requested": ({"result": result, "reasons": ["slow"]}, "reviewer"),
        "handoff.verified": ({"result": result}, "reviewer"),
        "handoff.superseded": ({"by": "open"}, "sender"),
        "handoff.ready": ({"to": "bob", "version": version}, "router"),
    }
    return special.get(row.kind) or (data | marked if "position" in data else data, row.row.get("by", ["receiver"])[0])
