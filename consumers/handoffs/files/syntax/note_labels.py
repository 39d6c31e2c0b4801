"""The labels of a receiver's notes in a handoff file, by the fields of ``ReceiverNotes``."""

from __future__ import annotations

from typing import Final

NOTE_LABELS: Final = {
    "done": "Done",
    "found": "Found",
    "reproduce": "Reproduce",
    "baseline": "Baseline",
    "tested_by": "Tested-by",
    "touches": "Touches",
    "traps": "Trap",
    "tried": "Tried",
    "argued": "Argued",
    "not_known": "Not-known",
    "not_part": "Not-part",
    "artifacts": "Artifact",
}
