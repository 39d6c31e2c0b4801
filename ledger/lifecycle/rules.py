"""The rules of ``proto/rules``, and those of families, as types. ``proto/rules/README.md`` defines every field.

The state machines (``lifecycle.machine``) find the row that decides an event here. The check of keys reads here what a
session key must not sign. The views and interfaces read which operations are possible in a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from deedbook.ledger.families import Family, file_of, find
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.format.forms import is_own

FAMILIES: Final = ("decision", "handoff", "question", "reasoning", "record", "review", "session", "snapshot", "subject")
NONE: Final = "none"
"""The state of a stream without any event that counts."""
ADMIN: Final = "admin"
"""The party of every agent with the role ``admin``."""


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_marks": "from"}):
    """The change of the mark of one item in ``list``, such as a task from ``open`` to ``done``.

    An item whose mark is not in ``from_marks`` is refused with its code in ``refused_as``, else ``NOTHING_CHANGED``.
    """

    list: str
    from_marks: frozenset[str]
    to: str
    refused_as: dict[str, str] = {}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_states": "from"}):
    """One operation: who may append an event of ``kind`` in which states, and what it changes."""

    kind: str
    from_states: frozenset[str]
    when: dict[str, Any] = {}
    by: tuple[str, ...] = ()
    not_by: tuple[str, ...] = ()
    roles: frozenset[str] | None = None
    refused_as: dict[str, str] = {}
    mark: Mark | None = None
    needs: tuple[str, ...] = ()
    to: str | None = None
    records: frozenset[str] = frozenset()
    identity_key: bool = False

    def matches(self, data: Any) -> bool:
        """Return whether ``when`` matches the data of an event, a struct or a dict."""
        return all(_value(data, name) == value for name, value in self.when.items())


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A state, for people: the displayed status (if it has another name), its meaning, and the possible operations.

    Only states of a handoff that is not over have a ``stage``.
    """

    status: str | None = None
    stage: Literal["waiting", "working", "completed"] | None = None
    meaning: str = ""
    next: str = ""
    is_final: bool = False


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one family of streams. ``acts`` says for people what the author of each kind does."""

    family: str
    roles: frozenset[str]
    parties: tuple[str, ...]
    states: dict[str, State]
    conditions: dict[str, str]
    rows: tuple[Row, ...]
    acts: dict[str, str] = {}
    advice: str = ""

    def act(self, kind: str) -> str:
        """Return what the author of a kind does, such as "claim it"."""
        return self.acts.get(kind, f"sign {kind}")

    def rows_of(self, kind: str) -> Sequence[Row]:
        """Return the rows of a kind, in order."""
        return _rows_by_kind(self.family).get(kind, ())

    def row(self, kind: str, data: Any) -> Row | None:
        """Return the row that decides an event of ``kind`` with ``data``, or None."""
        for row in self.rows_of(kind):
            if not row.when or row.matches(data):
                return row
        return None

    def status_after(self, row: Row) -> str | None:
        """Return the status that a row sets, or None."""
        return None if row.to is None else self.states[row.to].status or row.to


def _value(data: Any, name: str) -> Any:
    """Return a field; None if it is absent or empty."""
    value = data.get(name) if isinstance(data, dict) else getattr(data, name, None)
    return None if value in ("", [], ()) else value


def has_table(family: str) -> bool:
    """Return whether the rules of a family of streams are a table."""
    return family in FAMILIES or bool(_table_of(family))


def _table_of(family: str) -> str:
    found = find(family)
    return found.table if isinstance(found, Family) else ""


def read_rules(family: str) -> bytes:
    """Return the file ``proto/rules/FAMILY.json``, or that of a package's family."""
    if table := _table_of(family):
        return file_of(table).read_bytes()
    # Not importlib.resources: its import takes a twelfth of the time of `deed handoff list`. Its support for packages
    # in zip files would be of no use, because LMDB needs real files.
    return (Path(__file__).parents[2] / "proto" / "rules" / f"{family}.json").read_bytes()


@cache
def rules_of(family: str) -> Rules:
    """Return the rules of a family."""
    return read_json(read_rules(family), Rules)


@cache
def _rows_by_kind(family: str) -> Mapping[str, Sequence[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in rules_of(family).rows:
        rows.setdefault(row.kind, []).append(row)
    return rows


def roles_for(family: str, kind: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the roles that suffice for every event of a kind, and those that suffice for some of them.

    Some events of a kind need less: any agent may publish that a validation failed. For streams of authority, both sets
    are admin and node. The roles of a declared kind are known only in the log, so the second set has all roles that may
    suffice.
    """
    if is_own(family):
        return frozenset(), rules_of("handoff").roles | {ADMIN}
    if not has_table(family):
        granting = frozenset({ADMIN, "node"}) if family in ("agent", "kind", "ledger") else rules_of("handoff").roles
        return granting, granting
    rules = rules_of(family)
    needed = [row.roles or rules.roles for row in rules.rows_of(kind)] or [rules.roles]
    return frozenset.intersection(*needed), frozenset[str]().union(*needed)


def needs_identity_key(family: str, kind: str, data: Any) -> bool:
    """Return whether the author of such an event must sign with their identity key; ``data`` may be a dict."""
    row = rules_of(family).row(kind, data) if has_table(family) else None
    return row is not None and row.identity_key
