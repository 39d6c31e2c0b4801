"""Decides a submission: its candidates become entries, or the whole submission is refused and leaves no trace.

Pure: a decision depends only on its layer and the ledger's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
from blake3 import blake3

from deedbook.ledger.admission.candidate import Candidate, CheckedSubmission, refusal_of
from deedbook.ledger.admission.rules import AUTHORITY_KINDS, rule_of, unread
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRegistered, ClockSet, HistoryReset, Redaction
from deedbook.ledger.events.body import Body, make_event
from deedbook.ledger.events.fields import EventData, UnreadData
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry, Submission, head_of
from deedbook.ledger.lifecycle.authority import ROOT, KeyRecord, check_allows_secret, check_key, to_ms
from deedbook.ledger.lifecycle.clock import check_set, ledger_now, next_ms
from deedbook.ledger.log.keys import idempotency_key, key_key, stream_key
from deedbook.ledger.log.records import IdempotencyRecord, StreamRecord, StreamState
from deedbook.ledger.secrets.secret import refusal as secret_refusal

FinalCheck: TypeAlias = "Callable[[CheckedSubmission, Layer, int], None]"
# The stream version and the authority version that an entry states.
Versions: TypeAlias = tuple[int, int]


class Accepted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The position of an event in the log. ``is_repeat``: an earlier submission appended the event."""

    index: int
    id: str
    accepted_ms: int
    is_repeat: bool = False


class Decision(msgspec.Struct, frozen=True):
    """The result of a submission: its entries (none for a repeat) with their leaf hashes, and the answers."""

    entries: list[bytes]
    leaves: list[bytes]
    accepted: list[Accepted]


def decide(checked: CheckedSubmission, group: Layer, system_ms: int, final_check: FinalCheck | None = None) -> Decision:
    """Decide a submission on a layer of its own. If it is accepted, its changes are merged into ``group``.

    ``system_ms`` is the system's time; the ledger's clock derives the entries' time from it (``lifecycle.clock``).
    ``final_check`` runs only in a gate, after all other checks. It may refuse the submission, and may put records.
    Raises Refused: the code of the first bad event; ``details["events"]`` lists every bad event, and those that were
    not decided because they follow one (``DEPENDS_ON_REFUSED``). ``CLOCK_JUMPED`` concerns the whole submission.
    """
    repeats = _repeats(checked, group, ledger_now(group.now_ms or 0, system_ms))
    if repeats is not None:
        return Decision([], [], repeats)
    accepted_ms = _accepted_ms(checked, group, system_ms)
    layer = Layer(group)
    first_index = layer.size
    versions: list[Versions] = []
    refusals: dict[int, Refused] = {}
    tainted: set[str] = set()
    for position, candidate in enumerate(checked.candidates):
        body = candidate.body
        if tainted and (body.stream in tainted or not tainted.isdisjoint(body.causes)):
            refusals[position] = (
                Refused("DEPENDS_ON_REFUSED", "not checked, because an event before it was refused")
                if candidate.secret is None or body.allow_secret
                # Report a secret even in an event that follows a refused one: it is in the event's own bytes.
                else secret_refusal(candidate.secret)
            )
            tainted |= {body.stream, candidate.id}
            continue
        try:
            versions.append(_apply_new(candidate, checked.submission.key, layer, accepted_ms))
        except Refused as refusal:
            refusals[position] = refusal
            tainted |= {body.stream, candidate.id}
    if refusals:
        raise refusal_of(refusals, len(checked.candidates))
    layer.now_ms = accepted_ms
    if final_check is not None:
        final_check(checked, layer, accepted_ms)
    layer.merge_down()
    numbered = enumerate(checked.candidates, first_index)
    accepted = [Accepted(index, candidate.id, accepted_ms) for index, candidate in numbered]
    entries = _entries(checked.submission, accepted_ms, versions)
    leaves = [entry.leaf(candidate.commitment) for entry, candidate in zip(entries, checked.candidates, strict=True)]
    return Decision([entry.encode() for entry in entries], leaves, accepted)


def _accepted_ms(checked: CheckedSubmission, group: Layer, system_ms: int) -> int:
    """Return the time of a new submission's entries: the ledger's clock, or the time that root sets.

    Raises Refused: ``CLOCK_JUMPED``; ``INVALID_FIELD`` when one event of several must be alone.
    """
    if group.now_ms is not None and isinstance(checked.candidates[0].data, HistoryReset):
        # A restored copy may be old. By signing the history reset, root also confirms the clock.
        return ledger_now(group.now_ms, next_ms(None, system_ms))
    for candidate in checked.candidates:
        check_alone(candidate.data, len(checked.candidates))
    setting = checked.candidates[0].data
    if not isinstance(setting, ClockSet):
        return next_ms(group.now_ms, system_ms)
    set_ms = to_ms(setting.time)
    if checked.candidates[0].body.author == ROOT:  # the rule refuses any other author anyway
        check_set(set_ms, system_ms)
    return set_ms


def check_alone(data: EventData, count: int) -> None:
    """Refuse to set the clock or erase a body in a submission with other events. Raises Refused: ``INVALID_FIELD``."""
    if count > 1 and isinstance(data, ClockSet):
        raise Refused("INVALID_FIELD", "submit ledger.clock_set alone: all events of a batch have one time")
    if count > 1 and isinstance(data, Redaction):
        raise Refused("INVALID_FIELD", "submit a redaction alone: what it erases must be in the log before it")


def apply(candidate: Candidate, key: bytes, layer: Layer, accepted_ms: int) -> Versions:
    """Decide one event, leave its changes on ``layer``, and return its versions. A replay calls this for each entry.

    Gate-only checks do not run: they need the results of ``check``, which a replay's candidates do not have. Raises
    Refused: ``PARTIAL_RETRY`` when it is already in the log, and as ``_apply_new``.
    """
    if layer.index_of(candidate.body.stream, candidate.id) is not None:
        raise _twice(candidate)
    return _apply_new(candidate, key, layer, accepted_ms)


def _apply_new(candidate: Candidate, key: bytes, layer: Layer, accepted_ms: int) -> Versions:
    """Decide one event that is known not to be in the log below ``layer``; return its versions.

    Raises Refused: ``AUTHOR_MISMATCH``, the key codes, ``WRONG_LEDGER``, ``IDEMPOTENCY_CONFLICT``, ``STREAM_CONFLICT``,
    ``NOT_AUTHORIZED`` for ``allow_secret``, ``SECRET_DETECTED`` (only at the gate), and the codes of the kind's rule.
    """
    body = candidate.body
    event = make_event(
        body,
        candidate.data,
        index=layer.size,
        event_id=candidate.id,
        key=key,
        accepted_ms=accepted_ms,
        remnant=candidate.remnant,
    )
    if candidate.id in layer.indexes:
        raise _twice(candidate)
    if not (event.index == 0 and event.kind == "ledger.created"):
        _check_author(candidate, key, layer, accepted_ms)
    if body.idem is not None:
        _remember(candidate, body.idem, layer)
    before = layer.stream(body.stream)
    version = 0 if before is None else before.version
    if body.expect is not None and body.expect != version:
        message = f"{body.stream} is at version {version}, and the event expects {body.expect}: read the stream again"
        raise Refused("STREAM_CONFLICT", message, expected=body.expect, version=version)
    if candidate.secret is not None and not body.allow_secret:  # gate-only: not replayed
        raise secret_refusal(candidate.secret)
    rule = unread if isinstance(candidate.data, UnreadData) else rule_of(body.kind)
    if rule is None:
        raise Refused("UNKNOWN_KIND", f"no rule admits {body.kind}", kind=body.kind)
    state = rule(event, layer, None if before is None else before.state)
    layer.indexes[candidate.id] = (body.stream, event.index)
    layer.signers[event.index] = key
    layer.size += 1
    return _count(body, layer, event.index, version, state)


def _check_author(candidate: Candidate, key: bytes, layer: Layer, accepted_ms: int) -> None:
    """Check the signing key, and that the event is for this ledger.

    Raises Refused: ``AUTHOR_MISMATCH``, the key codes, ``NOT_AUTHORIZED`` for ``allow_secret``, ``WRONG_LEDGER``.
    """
    body = candidate.body
    is_joining = isinstance(candidate.data, AgentRegistered) and candidate.data.token_proof is not None
    # The key of a joining agent is not registered yet; the rule checks it.
    if not is_joining and layer.signer != (key, body.author):
        record = check_signer(body, candidate.data, key.hex(), layer, accepted_ms)
        layer.signer = (key, body.author) if record.is_identity else None
        if record.max_events is not None:
            layer.put(key_key(key.hex()), record)
    if body.allow_secret:
        check_allows_secret(layer, key.hex(), body.author)
    if body.ledger != layer.ledger:
        message = f"the event is for ledger {body.ledger}, and this is ledger {layer.ledger}"
        raise Refused("WRONG_LEDGER", message, ledger=layer.ledger)


def count_refused(candidate: Candidate, layer: Layer, index: int) -> Versions:
    """Count an entry that a rule refuses, and return its versions. It is in the log, but changes nothing else."""
    body = candidate.body
    if layer.index_of(body.stream, candidate.id) is None:
        layer.indexes[candidate.id] = (body.stream, index)
    before = layer.stream(body.stream)
    return _count(body, layer, index, *((0, None) if before is None else (before.version, before.state)))


def check_versions(entry: Entry, stream: str, counted: Versions) -> None:
    """Compare the versions that an entry of a stream states with those that a replay counted.

    Raises Refused: ``VERIFICATION_FAILED``.
    """
    claimed = (entry.stream_version, entry.authority_version)
    if claimed != counted:
        message = f"it claims version {claimed[0]} of {stream} and version {claimed[1]} of authority, but these are \
{counted[0]} and {counted[1]}"
        raise Refused("VERIFICATION_FAILED", message, expected=list(counted))


def go_on_from(entry: Entry, stream: str, layer: Layer) -> None:
    """Continue counting from the versions that an entry states."""
    record = layer.stream(stream)
    if record is not None:
        layer.put(stream_key(stream), msgspec.structs.replace(record, version=entry.stream_version))
    layer.authority_version = entry.authority_version


def _count(body: Body, layer: Layer, index: int, version: int, state: StreamState | None) -> Versions:
    layer.put(stream_key(body.stream), StreamRecord(version + 1, index, state))
    if body.kind in AUTHORITY_KINDS:
        layer.authority_version += 1
        layer.forget_authority()
    return version + 1, layer.authority_version


def check_signer(body: Body, data: EventData, public_key: str, layer: Layer, now_ms: int) -> KeyRecord:
    """Return the record of the signing key with this use counted, if the key may sign this event now.

    Raises Refused: ``AUTHOR_MISMATCH`` and the key codes.
    """
    record = layer.key(public_key)
    delegator = layer.key(record.delegated_by) if record is not None and record.delegated_by else None
    return check_key(
        record, delegator, author=body.author, kind=body.kind, stream=body.stream, data=data, now_ms=now_ms
    )


def idempotency_digest(raw: bytes) -> bytes:
    """Return a digest of a body's kind, stream and data bytes. A retry under the same key must have the same digest."""
    head = head_of(raw)
    return blake3(f"{head.kind}\0{head.stream}\0".encode() + bytes(head.data)).digest(length=16)


def _twice(candidate: Candidate) -> Refused:
    return Refused("PARTIAL_RETRY", f"the submission contains event {candidate.id} twice", id=candidate.id)


def _remember(candidate: Candidate, idem: str, layer: Layer) -> None:
    body = candidate.body
    if layer.record(idempotency_key(body.author, idem)) is not None:
        message = f"the idempotency key {idem!r} was already used for different content: choose another"
        raise Refused("IDEMPOTENCY_CONFLICT", message, idem=idem)
    layer.put(idempotency_key(body.author, idem), IdempotencyRecord(idempotency_digest(candidate.raw), layer.size))


def _repeats(checked: CheckedSubmission, layer: Layer, accepted_ms: int) -> list[Accepted] | None:
    """Return the first answers if the whole submission is already in the log; None if no event of it is."""
    indexes: list[int | None] = []
    refusals: dict[int, Refused] = {}
    streams = {candidate.body.stream for candidate in checked.candidates}
    known = {stream for stream in streams if layer.stream(stream) is not None}
    for position, candidate in enumerate(checked.candidates):
        if candidate.body.idem is None and candidate.body.stream not in known:
            indexes.append(None)
            continue
        try:
            indexes.append(_first_index(candidate, checked.submission.key, layer, accepted_ms))
        except Refused as refusal:
            refusals[position] = refusal
    if refusals:
        raise refusal_of(refusals, len(checked.candidates))
    if all(index is None for index in indexes):
        return None
    accepted = [
        Accepted(index, candidate.id, accepted_ms, is_repeat=True)
        for index, candidate in zip(indexes, checked.candidates, strict=True)
        if index is not None
    ]
    if len(accepted) == len(indexes):
        return accepted
    message = f"{len(accepted)} of {len(indexes)} events are already in the ledger: submit only the others"
    raise Refused("PARTIAL_RETRY", message, accepted=[{"index": event.index, "id": event.id} for event in accepted])


def _first_index(candidate: Candidate, key: bytes, layer: Layer, accepted_ms: int) -> int | None:
    """Return the index of an event that is already in the log, by its id or its idempotency key, or None."""
    body = candidate.body
    index = layer.index_of(body.stream, candidate.id)
    if index is not None:
        # The same bytes under another key are not a retry: only the first signer gets the first answer.
        if layer.key_at(index) != key:
            message = f"event {candidate.id} is already entry {index}, signed with another key"
            raise Refused("ALREADY_RECORDED", message, index=index)
        return index
    if body.idem is None or body.ledger != layer.ledger:
        return None
    record = layer.record(idempotency_key(body.author, body.idem))
    if record is None or record.digest != idempotency_digest(candidate.raw):
        return None
    try:
        check_signer(body, candidate.data, key.hex(), layer, accepted_ms)
    except Refused:
        # the bytes differ from the first time, so the key must be valid now; ``apply`` gives the reason if it is not
        return None
    return record.index


def _entries(submission: Submission, accepted_ms: int, versions: list[Versions]) -> list[Entry]:
    return [
        Entry(
            version=ENTRY_VERSION,
            body=raw,
            key=submission.key,
            alg=ED25519,
            sig=submission.sig,
            batch_index=position,
            batch_size=len(submission.bodies),
            accepted_ms=accepted_ms,
            stream_version=stream_version,
            authority_version=authority_version,
        )
        for position, (raw, (stream_version, authority_version)) in enumerate(
            zip(submission.bodies, versions, strict=True)
        )
    ]
