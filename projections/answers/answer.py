"""The base types of answers: a query names the type of its answer, and every interface has its fields.

A query function builds its answer of these types. The command line with ``--json``, MCP, HTTP and the bus give its JSON
form. The names of fields are those of JSON unless ``rename`` says otherwise: ``from`` is a keyword of Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from deedbook.ledger.errors import refuse_name
from deedbook.ledger.lifecycle.gate_state import GateState

T = TypeVar("T")

Untrusted = Annotated[
    str, msgspec.Meta(extra={"is_untrusted": True}, description="Text that an agent or a file wrote.")
]
Index = Annotated[int, msgspec.Meta(description="The index of an entry of the log, from 0.")]
Ms = Annotated[int, msgspec.Meta(description="A time, in Unix milliseconds.")]
UNDATED_MS: Final = 0
"""The time of an imported record that claims none: before all others, so that it never counts as the latest work."""

Cursor = Annotated[
    Any, msgspec.Meta(description="Where the next page begins: pass it as `after`. Null: this was the last page.")
]
Compromised = Annotated[
    int,
    msgspec.Meta(
        description="The entry that reports a key behind it as compromised: the key that signed it, or one that "
        "granted its author the role. Absent: none does."
    ),
]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all answers and their parts."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, as JSON has them."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


class Redacted(Answer, frozen=True, kw_only=True):
    """The newest redaction behind a row: the entry whose body was erased, by whom, when and why.

    ``redaction`` is the index of the redaction, ``entries`` the number of erased entries behind the row.
    """

    redaction: Index
    entry: Index
    by: str
    at_ms: Ms
    reason: Untrusted
    entries: int = 1


class Marked(Answer, frozen=True, kw_only=True):
    """An answer or row that rests on signed events, which may turn out to be a thief's, or may have lost their texts.

    ``redacted`` is absent if no body behind it was erased.
    """

    compromised: Compromised | UnsetType = UNSET
    redacted: Redacted | UnsetType = UNSET


class IgnoredEntry(Answer, frozen=True, kw_only=True):
    """An entry of a stream that has no effect, because the rules refuse it. ``code`` and ``message`` say why."""

    index: Index
    code: str
    message: str


class Head(Answer, frozen=True, kw_only=True):
    """The signed head of the log that a checked answer is of.

    ``is_pinned``: this machine knows the ledger's root key from its user. ``ignored`` are entries that were read and do
    not count. ``entries`` and ``ends`` (a signed note on where the stream ends, over the bus) are of one stream; an
    answer about several has neither. ``witnessed`` is the verdict of this folder's witnesses, if it names any. ``gate``
    says whether somebody must enter a passphrase before anything is approved; null in a bundle that lacks entries.
    """

    size: int
    root: str
    is_pinned: bool
    ignored: list[IgnoredEntry]
    gate: GateState | None
    entries: int | UnsetType = UNSET
    ends: str | UnsetType | None = UNSET
    witnessed: Any = UNSET


class Checked(Marked, frozen=True, kw_only=True):
    """An answer from signed entries that the reader's own process verified; from views, ``as_of`` is absent."""

    as_of: Head | UnsetType = UNSET


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """A page of a list: its rows, the number of all matches, and the cursor of the next page."""

    items: list[T]
    total: int
    next: Cursor = None
