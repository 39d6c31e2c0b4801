"""Signing what a file asks for, as the acting agent: its plan, or a new handoff.

What happens if we crash here: nothing of a submission is in the log, or all of it; the plan that is made again asks
only for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.handoffs.content import amended, content_from
from consumers.handoffs.files.mapping import content_of_file
from consumers.handoffs.files.syntax.comparing import with_progress_of
from consumers.handoffs.files.telling import Told
from ledger.author import Draft, kind_of
from ledger.errors import Refused
from ledger.events.handoff import HandoffCreated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.handoffs.files.planning import Plan
    from consumers.handoffs.files.syntax.document import HandoffFile
    from ledger.author import Author

events_in_submission_max: Final = 128
reason_for_amending: Final = "edited in its file"


def sign_plan(
    author: Author,
    shown: dict[str, Any],
    plan: Plan,
    *,
    edited: HandoffFile,
    ledger: HandoffFile,
    reviewer: str | None,
) -> Told:
    """Sign a plan on the handoff as it was shown; ``reviewer`` reviews what names nobody.

    Raises:
        Refused: ``STREAM_CONFLICT`` when it went on meanwhile, or whatever the ledger refuses.
        Unavailable: the ledger cannot be used.
    """
    steps = list(plan.steps)
    if plan.amends:
        skeleton = author.client.put_blob(with_progress_of(edited, ledger))
        content = content_of_file(edited, skeleton=skeleton, reviewer=reviewer)
        kept = {name: shown[name] for name in ("unlock_at", "answers", "reasoning_ref")}
        changes = msgspec.structs.asdict(content) | kept | {"created": content.created or shown["created"]}
        steps.insert(0, amended(content_from(shown), changes, reason_for_amending))
    # Each event of a handoff is one line of its log: so many, and the stream is at that version.
    version = len(shown["log"])
    stream = f"handoff/{shown['id']}"
    drafts = [Draft(stream=stream, data=data, expect=version + n) for n, data in enumerate(steps)]
    return _signed(author, shown["id"], drafts)


def sign_new(author: Author, id_: str, file: HandoffFile, *, reviewer: str | None) -> Told:
    """Hand over what a new file describes.

    Raises:
        Refused: the file names no receiver, or the ledger refuses it. Unavailable: the ledger cannot be used.
    """
    skeleton = author.client.put_blob(file.content)
    fields = msgspec.structs.asdict(content_of_file(file, skeleton=skeleton, reviewer=reviewer))
    if fields["to"] is None:
        raise Refused("INVALID_FIELD", "the file names nobody in `To:`, or nobody that an agent can be called")
    return _signed(author, id_, [Draft(stream=f"handoff/{id_}", data=HandoffCreated(**fields), expect=0)])


def _signed(author: Author, id_: str, drafts: Sequence[Draft]) -> Told:
    indexes: list[int] = []
    for start in range(0, len(drafts), events_in_submission_max):
        accepted = author.emit(*drafts[start : start + events_in_submission_max])
        indexes += [one.index for one in accepted]
    kinds = [kind_of(draft) for draft in drafts]
    return Told("signed", id_, ", ".join(kinds), {"kinds": kinds, "indexes": indexes})
