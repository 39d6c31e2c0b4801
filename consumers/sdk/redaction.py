"""Erases bodies from a ledger: the removed texts, other entries with these texts, and the signed events.

A redaction is about one entry. The texts of an entry are often repeated: a handoff cites a finding, a brief quotes a
step. So before anything is signed, one pass over the log finds the entries that repeat the texts or hold a text that
the caller names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from deedbook.consumers.sdk.ledger import entries_now
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.admission.erasure import ErasedEntry, erase
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import EntryRedacted, RedactionProposed
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.authority import ROOT

repeated_min_chars: Final = 16
"""Other entries may contain a shorter text, such as "done", by chance."""
Step = Callable[[int, int], None]


class PlannedErasure(msgspec.Struct, frozen=True):
    """An erasure that nobody has signed yet: the entry, each erased text, and the blobs that are erased with it."""

    erased: ErasedEntry
    texts: list[str]
    blobs: list[str]

    @property
    def index(self) -> int:
        """The index of the entry."""
        return self.erased.index


def plan_erasure(client: Client, index: int) -> PlannedErasure:
    """Return what erasing the body of an entry would remove.

    Raises Refused: ``NOT_FOUND``, and as ``admission.erasure.erase``.
    """
    data = client.entry(index)
    erased = erase(index, data, lambda stream: entries_now(client, stream=stream))
    before, after = (msgspec.to_builtins(event.data) for event in (read_event(index, data), erased.event_left))
    needed = blobs_of(erased.event.data)
    blobs = {ref for ref in erased.blobs if ref in needed or len(names_of_blob(client, ref)) > 1}
    return PlannedErasure(erased, [*dict.fromkeys(_lost_texts(before, after))], sorted(blobs))


def names_of_blob(client: Client, ref: str) -> list[str]:
    """Return the refs by which entries name a blob: both digests, or only this ref if there is no such blob."""
    try:
        return [ref, client.stat_blob(ref).sha256]
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return [ref]


def find_holders(client: Client, texts: Sequence[str], step: Step = lambda _done, _total: None) -> dict[str, list[int]]:
    """Return the indexes of the entries whose bodies hold each of these texts; ``step(done, total)`` gets progress."""
    needles = {text: _spelled(text) for text in texts if text}
    holders: dict[str, list[int]] = {text: [] for text in needles}
    size, start = client.head().size, 0
    while start < size and needles:
        page = client.entries(start)
        for index, data in page.entries:
            body = _in_one_spelling(decode_entry(data).body)
            for text, needle in needles.items():
                if needle in body:
                    holders[text].append(index)
        start = page.next_index
        step(min(start, size), size)
    return holders


class KeptText(msgspec.Struct, frozen=True):
    """An entry that still holds a text after the redaction, and the fields that hold it (names are not erased)."""

    entry: int
    fields: list[str]


def kept_texts(client: Client, holders: Sequence[int], planned: Sequence[PlannedErasure], text: str) -> list[KeptText]:
    """Return the entries among ``holders`` that hold a text even after their erasable texts are removed."""
    bodies = {plan.index: plan.erased.entry.body for plan in planned}
    kept: list[KeptText] = []
    for index in holders:
        body = bodies.get(index) or decode_entry(client.entry(index)).body
        if fields := list(dict.fromkeys(_fields_with(json.loads(body), text))):
            kept.append(KeptText(index, fields))
    return kept


def _fields_with(value: Any, text: str, path: str = "") -> Iterator[str]:
    if isinstance(value, str) and text in value:
        yield path
    elif isinstance(value, list):
        yield from (found for item in value for found in _fields_with(item, text, path))
    elif isinstance(value, dict):
        for name, item in value.items():
            # A key that holds the text is not repeated in the answer.
            yield from [f"a key in {path}"] if text in name else ()
            yield from _fields_with(item, text, f"{path}.{name}".removeprefix("body").lstrip("."))


def repeated(planned: Sequence[PlannedErasure]) -> list[str]:
    """Return the texts of erasures that are long enough to look for in other entries."""
    return [text for plan in planned for text in plan.texts if len(text) >= repeated_min_chars]


def sign_erasure(author: Author, planned: PlannedErasure, reason: str, *, is_second: bool) -> Accepted:
    """Erase the body of an entry as root or as the second human, or propose it as the first human.

    Raises as ``Author.emit``.
    """
    erased, kind = planned.erased, EntryRedacted if author.name == ROOT or is_second else RedactionProposed
    # Refs are hashes of texts. Without the texts, nobody could say which version a cited ref meant.
    view = author.client.view if erased.event.stream.startswith("reasoning/") else None
    versions = {} if view is None else view("redactions.versions", {"entry": erased.index})["versions"]
    data = kind(
        entry=erased.index,
        event=erased.event.id,
        remnant=erased.remnant,
        reason=reason,
        blobs=planned.blobs,
        versions={int(number): ref for number, ref in versions.items()},
    )
    return author.emit(Draft(stream="ledger", data=data))[0]


def _spelled(text: str) -> bytes:
    """Return a text as the canonical form of JSON spells it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def _in_one_spelling(body: bytes) -> bytes:
    r"""Return a body in which each character has its shortest spelling: other programs may write ``\u`` or ``\/``."""
    is_other = b"\\u" in body or b"\\/" in body
    return json.dumps(json.loads(body), ensure_ascii=False).encode() if is_other else body


def _lost_texts(before: Any, after: Any) -> Iterator[str]:
    """Yield each text of plain data that is different afterwards."""
    if isinstance(before, str):
        if before not in (after, ERASED):
            yield before
    elif isinstance(before, dict):
        for name, value in before.items():
            yield from _lost_texts(value, after.get(name) if isinstance(after, dict) else None)
    elif isinstance(before, list):
        others = after if isinstance(after, list) else []
        for at, value in enumerate(before):
            yield from _lost_texts(value, others[at] if at < len(others) else None)
