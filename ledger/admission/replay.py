"""Deciding stored entries anew, by the very rules of the gate: those of a whole log, or a part of one.

A *part* is all of authority with some streams. By their versions its entries show what is left out between them, and
the rules themselves say which other streams they look at: so a part is shown to be right, or it is named what is
missing. What only the whole log shows is left out: that an idempotency key was used once, how many events a session
key has signed elsewhere, and that the clock did not jump.

Pure: whoever feeds entries has read them, and says that they stand in the log at these indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deedbook.ledger.admission.check import Candidate
from deedbook.ledger.admission.clock import Clock
from deedbook.ledger.admission.decide import apply, check_versions, count_refused, go_on_from
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.admission.state import Base, Layer
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.body import Body, Event, decode_body
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.envelope import Entry, decode_entry, event_id, pae
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.lifecycle.authority import suspect_at
from deedbook.ledger.limits import body_size_max_bytes
from deedbook.ledger.log.keys import stream_key
from deedbook.ledger.log.records import StreamRecord


class Judged(msgspec.Struct, frozen=True):
    """An entry that was decided anew: its event if it counts; what its rule refuses; what is wrong of its versions."""

    event: Event | None
    refused: Refused | None
    misplaced: Refused | None


def decide_again(index: int, candidate: Candidate, entry: Entry, layer: Layer, now_ms: int) -> Judged:
    """Decide the entry at ``index`` anew on an empty ``layer``, and leave its changes in the one below.

    What a rule refuses changes nothing, and is counted: it stands in the log all the same. Whoever decides on many
    entries gives the same layer each time, which knows what was read (one made for each took a tenth of a replay).
    """
    event, refused, misplaced = None, None, None
    layer.size = index
    try:
        event = apply(candidate, entry.key, layer, now_ms)
    except Refused as refusal:
        refused = refusal
        layer.forget()
        count_refused(candidate.body, layer, index)
    try:
        check_versions(entry, candidate.body.stream, layer)
    except Refused as refusal:
        misplaced = refusal
        go_on_from(entry, candidate.body.stream, layer)  # what one damaged entry shifts is said of the next one alone
    layer.merge_down()
    return Judged(event, refused, misplaced)


def read_entry(data: bytes) -> tuple[Entry, Candidate]:
    """Return an entry, and what rules decide on; its signature is not looked at.

    Raises Refused: the codes of its form and schema.
    """
    entry = decode_entry(data)
    if len(entry.body) > body_size_max_bytes:
        raise Refused("TOO_LARGE", f"its body has {len(entry.body)} bytes")
    body, content = decode_body(entry.body)
    return entry, Candidate(body, content, event_id(pae(entry.body)), entry.body)


class Missing(msgspec.Struct, frozen=True):
    """Entries ``first`` to ``last`` (None: and those after) of a stream, or of authority (None), that a part lacks.

    ``shown_by`` is the index of the entry that shows it; what rules refuse from the index ``since`` on may be for lack
    of them.
    """

    stream: str | None
    first: int
    last: int | None
    shown_by: int
    since: int

    def __str__(self) -> str:
        end = "on" if self.last is None else f"to {self.last}"
        which = f"entry {self.first}" if self.first == self.last else f"entries {self.first} {end}"
        return f"{which} of {'authority' if self.stream is None else self.stream}"


class Part:
    """A part of a log, decided anew. Feed it its entries in the order of their indexes, then call ``finish``.

    ``events`` are those that count, and ``state`` where they lead. Of each index ``refused`` says why it must not stand
    in a log like this; ``doubtful`` what a rule refuses after something that is missing, which may be the reason;
    ``suspects`` which entry calls its key compromised. ``missing`` is known after ``finish``.
    """

    def __init__(self) -> None:
        self._nothing = _Nothing()
        self.state = Layer(self._nothing)
        self._layer = Layer(self.state)
        self.events: list[Event] = []
        self.created: LedgerCreated | None = None
        self.authority: list[tuple[int, str, EventData]] = []
        self.kinds: Counter[str] = Counter()
        self.refused: dict[int, Refused] = {}
        self.doubtful: dict[int, Refused] = {}
        self.notes: dict[int, Refused] = {}
        self.missing: list[Missing] = []
        self.suspects: dict[int, int] = {}
        self._batches: dict[bytes, tuple[int, int]] = {}
        self._clock = Clock(self._refuse, self._note)

    def feed(self, index: int, data: bytes, batch_path: Sequence[bytes] = (), *, is_verified: bool = False) -> None:
        """Decide the next entry; ``is_verified``: whoever feeds it has seen that its signature fits."""
        try:
            entry, candidate = read_entry(data)
        except Refused as refusal:
            self.refused.setdefault(index, refusal)
            return
        if not (is_verified or is_signed(entry, batch_path)):
            self._refuse(index, "SIGNATURE_INVALID", "its signature does not fit")
            return
        body, content = candidate.body, candidate.data
        self.kinds[body.kind] += 1
        if body.kind in AUTHORITY_KINDS:
            self.authority.append((index, body.author, content))
        if index == 0 and isinstance(content, LedgerCreated):
            self.created = content
        if entry.batch_size > 1:
            place = (index - entry.batch_index, entry.accepted_ms)
            if self._batches.setdefault(entry.sig, place) != place:
                message = "it has another time than its batch, or does not stand where it belongs in it"
                self._refuse(index, "VERIFICATION_FAILED", message)
        self._clock.check(index, entry.accepted_ms, content)
        self._find_gaps(index, body, entry)
        self._nothing.index = index
        judged = decide_again(index, candidate, entry, self._layer, self._clock.now)
        if judged.event is not None:
            self.events.append(judged.event)
        if judged.misplaced is not None:
            self.refused.setdefault(index, judged.misplaced)
        if judged.refused is not None:
            self.doubtful[index] = judged.refused

    def finish(self, ends: Mapping[str, int] | None = None, authority: int = 0, size: int = 0) -> None:
        """Settle what later entries would have told.

        ``ends`` are the versions of streams, and ``authority`` its version, where a log of ``size`` ends: what lies
        before that is missing, too. Without them nobody can tell what follows the last entries.
        """
        self._clock.end()
        for stream, index in self._nothing.looked_at.items():
            if self.state.stream(stream) is None:
                self.missing.append(Missing(stream, 1, None, index, index))
        if ends is not None:
            counts: dict[str | None, int] = {None: authority}
            counts.update((name, version) for name, version in ends.items())
            self._compare_ends(counts, size)
        self.missing.sort(key=lambda one: (one.shown_by, one.stream or ""))
        unsure_since = min((one.since for one in self.missing), default=None)
        for index in [index for index in self.doubtful if unsure_since is None or index < unsure_since]:
            self.refused.setdefault(index, self.doubtful.pop(index))
        for event in self.events:
            suspect = suspect_at(self.state.key, event.key, event.index)
            if suspect is not None:
                self.suspects[event.index] = suspect

    def _refuse(self, index: int, code: str, message: str) -> None:
        self.refused.setdefault(index, Refused(code, message))

    def _note(self, index: int, code: str, message: str) -> None:
        self.notes.setdefault(index, Refused(code, message))

    def _find_gaps(self, index: int, body: Body, entry: Entry) -> None:
        """Note what lies between this entry and those before it, and count it, so that what follows fits again."""
        record = self.state.stream(body.stream)
        if entry.stream_version > (0 if record is None else record.version) + 1:
            self._miss(body.stream, entry.stream_version - 1, index)
            counted = msgspec.structs.replace(record or StreamRecord(0, -1), version=entry.stream_version - 1)
            self._layer.put(stream_key(body.stream), counted)
        authority_version = entry.authority_version - (body.kind in AUTHORITY_KINDS)
        if authority_version > self.state.authority_version:
            self._miss(None, authority_version, index)
            self._layer.authority_version = authority_version
        self._layer.merge_down()

    def _compare_ends(self, ends: Mapping[str | None, int], size: int) -> None:
        given = {event.stream for event in self.events if event.kind not in AUTHORITY_KINDS}
        for stream in sorted({*ends, *given}, key=str):
            version, last_index = self._end_of(stream)
            if version > ends.get(stream, version):
                message = (
                    f"{stream or 'authority'} has {version} entries, and the ledger signed that it has {ends[stream]}"
                )
                self._refuse(last_index, "VERIFICATION_FAILED", message)
            elif version != ends.get(stream):
                self._miss(stream, ends.get(stream), size)

    def _miss(self, stream: str | None, last: int | None, shown_by: int) -> None:
        version, last_index = self._end_of(stream)
        self.missing.append(Missing(stream, version + 1, last, shown_by, last_index + 1))

    def _end_of(self, stream: str | None) -> tuple[int, int]:
        """Return the version and the last index of a stream, or of authority, as far as it was fed."""
        if stream is None:
            return self.state.authority_version, self.authority[-1][0] if self.authority else -1
        record = self.state.stream(stream)
        return (0, -1) if record is None else (record.version, record.last_index)


class _Nothing(Base):
    """What lies under a part: nothing; which streams were looked at, is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.index = 0
        self.looked_at: dict[str, int] = {}

    def record(self, key: bytes) -> Any:
        if key[:1] == b"s":
            self.looked_at.setdefault(key[1:].decode(), self.index)
