"""What a file says, in the ledger's terms (DESIGN §10).

The ledger's fields have limits that files do not know: a text that does not fit is shortened at a word and ends in "…",
or left out, and stands whole in the skeleton, which is the file itself. Nothing of a file is ever lost by its mapping.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sdk.text import shorten
from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events.fields import NAME_PATTERN
from ledger.events.handoff import HandoffClaims, HandoffContent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.handoffs.files.syntax.document import Checkbox, HandoffFile

title_max_chars: Final = 200
line_max_chars: Final = 2000
label_max_chars: Final = 200
# What may stand in an event beside its envelope; larger texts are left to the skeleton.
content_size_max_bytes: Final = 40 * 1024
_DAY: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(?![0-9])")


def content_of_file(file: HandoffFile, *, skeleton: str | None, reviewer: str | None) -> HandoffContent:
    """Return the content that a file describes; ``reviewer`` is who reviews where the file names nobody.

    Raises:
        Refused: ``TOO_LARGE`` when its lists alone do not fit into an event; ``INVALID_FIELD`` for a dependency that no
            handoff can be called.
    """
    sender, to = name_of(file.sender), name_of(file.to)
    named = name_of(file.reviewer)
    if file.entry("Reviewer") is None and reviewer not in (sender, to):
        named = reviewer  # a file that says "—" names nobody, on purpose
    fields: dict[str, Any] = {
        "title": shortened(file.title, title_max_chars),
        "to": to,
        "reviewer": named,
        "created": day_of(file.created),
        "proposal": None if file.proposal is None else shortened(file.proposal, line_max_chars),
        "depends_on": list(file.depends_on),
        "task": file.task,
        "tasks": [shortened(box.text, line_max_chars) for box in file.tasks],
        "criteria": [shortened(box.text, line_max_chars) for box in file.criteria],
        "context": file.context,
        "skeleton": skeleton,
    }
    for name in ("context", "task"):
        if len(encode_canonical(fields)) > content_size_max_bytes:
            fields[name] = ""
    if len(encode_canonical(fields)) > content_size_max_bytes:
        raise Refused("TOO_LARGE", f"its tasks and criteria take more than {content_size_max_bytes} bytes")
    try:
        return msgspec.convert(fields, HandoffContent)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"the file says what no handoff can: {error}") from error


def claims_of_file(file: HandoffFile) -> HandoffClaims:
    """Return what a file says of its own state."""
    said = "" if file.status is None else file.status.written + file.status.rest
    return HandoffClaims(
        status=shortened(said, line_max_chars) if said else None,
        tasks=_ticked(file.tasks),
        criteria=_ticked(file.criteria),
    )


def name_of(written: str | None) -> str | None:
    """Return the agent's name that is written, as ``kuro`` for ``Kuro``; None where it is none, or several."""
    name = (written or "").strip().strip("`@*").lower()
    return name if re.match(NAME_PATTERN, name) else None


def claimed_author(written: str | None) -> str | None:
    """Return who a file says it is from: an agent's name where it is one, else the words as they stand."""
    return name_of(written) or (shortened(written, line_max_chars) if written else None)


def day_of(written: str | None) -> str | None:
    """Return the day that a date begins with; None where it lacks a year."""
    found = _DAY.match((written or "").strip())
    return found[0] if found else None


def shortened(text: str, chars_max: int) -> str:
    """Return a text on one line, its signs as they are, of at most so many characters."""
    return shorten(" ".join(text.split()), chars_max)


def _ticked(boxes: Sequence[Checkbox]) -> list[int]:
    return [position for position, box in enumerate(boxes) if box.is_checked]
