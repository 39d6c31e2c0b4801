"""The kinds of events that callers name: by the kind's name, or by the class of its data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from deedbook.consumers.sdk.own_event import OwnEvent
from deedbook.ledger.client.client import Ask, every_row
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.format.forms import OWN, OWN_KIND_PATTERN

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData

_is_own_kind: Final = re.compile(OWN_KIND_PATTERN).match


def kinds_of(kinds: Sequence[str | type[EventData]]) -> tuple[str, ...]:
    """Return the names of kinds. Raises Refused: ``UNKNOWN_KIND``."""
    names = tuple(kind if isinstance(kind, str) else _kind_of(kind) for kind in kinds)
    check_kinds(names)
    return names


def _kind_of(data: type[EventData]) -> str:
    if issubclass(data, OwnEvent):
        return data.kind
    if (kind := KIND_OF.get(data)) is not None:
        return kind
    raise Refused("UNKNOWN_KIND", f"no event kind has data of the class {data.__qualname__}", near=[])


def check_kinds(kinds: Sequence[str], ask: Ask | None = None) -> None:
    """Refuse a kind that does not exist, and name similar kinds or all. Raises Refused: ``UNKNOWN_KIND``.

    A declared kind need only have the form of its name: it may be declared later. With ``ask``, the similar kinds
    include declared ones: ``x.deploy.finished`` for ``deploy.finished``, ``x.deploy`` and ``x.deploy.*``.
    """
    for kind in kinds:
        if kind not in KINDS and _is_own_kind(kind) is None:
            family = [name for name in KINDS if name.startswith(f"{kind.rstrip('.*s')}.")]
            alike = (_declared_like(kind, ask) if ask is not None else []) or ([] if family else near(kind, KINDS))
            listed = "" if alike else f". The kinds are: {', '.join(sorted(family or KINDS))}"
            message = f"there is no kind {kind!r}{did_you_mean(alike)}{listed}"
            raise Refused("UNKNOWN_KIND", message, kind=kind, near=alike)


def _declared_like(kind: str, ask: Ask) -> list[str]:
    names = [str(row["name"]) for row in every_row(ask, "kinds.list", {})]
    words = kind.removesuffix("*").removesuffix(".")
    beginnings = tuple(f"{words.removeprefix(OWN)}{end}" for end in ("", "."))
    own = [name.removeprefix(OWN) for name in names]
    alike = [name for name in own if name == beginnings[0] or name.startswith(beginnings[1])]
    return [f"{OWN}{name}" for name in alike or near(words.removeprefix(OWN), own)]
