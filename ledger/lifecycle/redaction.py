"""The redaction of one entry: proposed by a human, done by root or by another human, and found in the log.

A log may hold an erased entry long before the event that names it. Until a replay reaches that event, the entry is
*unconfirmed*. A log with an unconfirmed entry at its end is not valid.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import EntryRedacted, Redaction
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.authority import ROOT, Agents, compromised_at, voided


class Erasure(msgspec.Struct, frozen=True, array_like=True):
    """An erased entry: the id of its event, the digest of its remnant, and the blobs that are erased with it.

    ``versions`` maps version numbers of its reasoning to the refs of these versions before the erasure.
    """

    event: str
    remnant: str
    blobs: tuple[str, ...] = ()
    versions: tuple[tuple[int, str], ...] = ()


class FoundRemnant(msgspec.Struct, frozen=True, array_like=True):
    """A remnant in the log that no event has named yet. Only root names that of an entry of authority."""

    erasure: Erasure
    is_of_authority: bool


class SignedErasure(msgspec.Struct, frozen=True, array_like=True):
    """An erasure that the entry ``index`` proposes or orders, with the entry's author and key (hex)."""

    erasure: Erasure
    index: int
    by: str
    key: str


class RedactionRecord(msgspec.Struct, frozen=True, array_like=True):
    """The facts about the redaction of one entry.

    ``found`` is a remnant in the log that no event has named. If ``done`` is also set, ``done`` names another remnant.
    """

    found: FoundRemnant | None = None
    proposal: SignedErasure | None = None
    done: SignedErasure | None = None


def after(before: RedactionRecord | None, event: Event[Redaction], agents: Agents | None = None) -> RedactionRecord:
    """Return the record after a proposal or a redaction by root or a human.

    ``agents`` say which keys are compromised. Without them, the event is one that was admitted before.

    Raises Refused: ``NOTHING_CHANGED`` if the entry is erased already; ``INVALID_FIELD`` if it is not an earlier one;
    ``NOT_AUTHORIZED`` if a human redacts what no other human has proposed.
    """
    data, record = event.data, before or RedactionRecord()
    if data.entry >= event.index:
        message = f"entry {data.entry} is not an earlier entry of this log"
        raise Refused("INVALID_FIELD", message, path="$.data.entry")
    if record.done is not None:
        message = f"the body of entry {data.entry} was already erased by entry {record.done.index}"
        raise Refused("NOTHING_CHANGED", message, index=record.done.index)
    erasure = Erasure(data.event, data.remnant, tuple(data.blobs), tuple(sorted(data.versions.items())))
    signed = SignedErasure(erasure, event.index, event.author, event.key)
    if not isinstance(data, EntryRedacted):
        return replace(record, proposal=signed)
    if event.author != ROOT:
        _check_proposed(record.proposal, signed, data.entry, agents)
    is_confirmed = record.found is None or names(signed, record.found)
    return replace(record, found=None if is_confirmed else record.found, done=signed)


def erased_blobs(records: Iterable[RedactionRecord]) -> set[str]:
    """Return the blobs that were erased with entries."""
    return {ref for record in records if record.done is not None for ref in record.done.erasure.blobs}


def names(signed: SignedErasure, found: FoundRemnant) -> bool:
    """Return whether a redaction confirms a remnant in the log."""
    is_same = (signed.erasure.event, signed.erasure.remnant) == (found.erasure.event, found.erasure.remnant)
    return is_same and (signed.by == ROOT or not found.is_of_authority)


def _counts(proposal: SignedErasure, agents: Agents) -> bool:
    """Return whether neither the signature of a proposal nor the role of its author rests on a compromised key."""
    is_signed = compromised_at(agents.key, proposal.key, proposal.index) is None
    return is_signed and voided(agents, proposal.by, {"human"}, proposal.index) is None


def _check_proposed(proposal: SignedErasure | None, signed: SignedErasure, entry: int, agents: Agents | None) -> None:
    if proposal is None or (agents is not None and not _counts(proposal, agents)):
        message = (
            f"no other human has proposed to erase the body of entry {entry}: propose it yourself (without --second)"
        )
        raise Refused("NOT_AUTHORIZED", message, name=signed.by)
    if proposal.by == signed.by:
        message = f"{proposal.by} proposed to erase the body of entry {entry}: another human must do it"
        raise Refused("NOT_AUTHORIZED", message, name=signed.by)
    if proposal.erasure != signed.erasure:
        message = f"{proposal.by} proposed something else in entry {proposal.index}: propose it again"
        raise Refused("NOT_AUTHORIZED", message, name=signed.by, index=proposal.index)
