"""Where streams end: the ledger's signed word on how many entries some streams, and authority, have in a log of a size.

A tree proves what stands in a log, never that nothing more does: whoever holds some streams cannot see by their entries
what follows the last ones. This note says it, under the key of the log's checkpoints and about one of its trees: a C2SP
signed note of two lines, ``TYPE`` and the fields of ``Ends`` in their RFC 8785 form. A ledger that signs it wrongly is
convicted by the entries that it hides.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ledger.checkpoint import CheckpointKey, CheckpointVerifier, note_size_max_bytes, open_note, sign_note
from ledger.codec import decode_strict, encode_canonical
from ledger.errors import Refused

TYPE: Final = "application/vnd.baton.ends.v1"
Count = Annotated[int, msgspec.Meta(ge=0)]


class Ends(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many entries a log of ``size`` under ``root`` (hex) has of authority, and of each of some streams."""

    size: Count
    root: str
    authority: Count
    streams: dict[str, Count]

    def text(self) -> str:
        """Return the text that is signed."""
        return f"{TYPE}\n{encode_canonical(self).decode()}\n"


_decoder = msgspec.json.Decoder(Ends)


def sign_ends(ends: Ends, key: CheckpointKey) -> str:
    """Return the signed note. Raises Refused: ``TOO_LARGE`` when it names more streams than a note has room for."""
    note = sign_note(ends.text(), key)
    if len(note.encode()) > note_size_max_bytes:
        raise Refused("TOO_LARGE", f"a note has no room for the ends of {len(ends.streams)} streams: ask for fewer")
    return note


def open_ends(note: str, verifier: CheckpointVerifier) -> Ends:
    """Return what the verifier's key signed.

    Raises:
        Corrupted: the key did not sign this note.
        Refused: it is no such note in its one form.
    """
    text = open_note(note, verifier)
    ends = decode_strict(text.removeprefix(f"{TYPE}\n").encode(), _decoder)
    if ends.text() != text:
        raise Refused("INVALID_FORMAT", "the note about ends is not in its one form")
    return ends
