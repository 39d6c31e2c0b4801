"""The rules of declared kinds: an admin declares a kind, and agents with one of the kind's roles publish its events.

Replayable, like all of ``admission.rules``. An erased event has no fields to check, and has the same effect as before.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.admission.authority import Rule, require_role, typed
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event, unknown_kind
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.lifecycle.declared import KindRecord, check_published, record_of
from deedbook.ledger.lifecycle.machine import check_roles
from deedbook.ledger.limits import kinds_declared_max
from deedbook.ledger.log import keys
from deedbook.ledger.log.records import StreamState


def _declared(event: Event, state: Layer, _: StreamState | None) -> None:
    """An admin declares a kind, once."""
    data = typed(event, KindDeclared)
    if event.name != data.name:
        message = f"{event.kind} of {data.name} must be on the stream kind/{data.name}"
        raise Refused("INVALID_FIELD", message, path="$.stream")
    require_role(event, state, "admin")
    before = state.record(keys.kind_key(data.name))
    if before is not None:
        message = f"{data.name} was declared at entry {before.index} and never changes: declare another name"
        raise Refused("KIND_EXISTS", message, kind=data.name, index=before.index)
    names = declared_names(state)
    if len(names) >= kinds_declared_max:
        message = f"a ledger has at most {kinds_declared_max} declared kinds: publish the events of an existing one"
        raise Refused("TOO_LARGE", message, limit=kinds_declared_max)
    state.put(keys.kind_key(data.name), record_of(event))
    state.put(keys.DECLARED_KINDS_KEY, (*names, data.name))


def published(event: Event, state: Layer, _: StreamState | None) -> None:
    """An agent with one of the kind's roles publishes an event that fits the declaration."""
    kind = known_kind(state, event.kind)
    check_published(kind, event)
    check_roles(frozenset(kind.roles), event, state)


def known_kind(state: Layer, name: str) -> KindRecord:
    """Return the record of a declared kind. Raises Refused: ``UNKNOWN_KIND`` with similar names."""
    kind = state.record(keys.kind_key(name))
    if kind is None:
        raise unknown_kind(name, declared_names(state))
    return kind


def declared_names(state: Layer) -> tuple[str, ...]:
    """Return the names of the declared kinds."""
    return state.record(keys.DECLARED_KINDS_KEY) or ()


OF_KIND: Final[dict[str, Rule]] = {"kind.declared": _declared}
