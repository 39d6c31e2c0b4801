"""What the acts on a handoff sign, from what a caller says: the command line and the MCP tools share it (seed 002).

People count tasks and criteria from 1, events from 0. Content that no handoff file could hold is refused before it is
signed, because ``render`` and ``watch`` would fail on it ever after.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from consumers.handoffs.files.content import amended, content_from
from consumers.sdk.names import split_ids
from ledger.errors import Refused
from ledger.events import handoff as kinds
from ledger.events.fields import EventData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.client import Client
    from ledger.config import Settings


def created_by(sender: str, settings: Settings, /, *, to: str, reviewer: str | None, **given: Any) -> EventData:
    """Return what a handoff from ``sender`` holds, with today's date and the configured reviewer if none is named.

    ``given`` are the other fields of ``HandoffContent``; of ``depends_on`` each may be several ids with commas.

    Raises:
        Refused: ``INVALID_FIELD`` or ``TOO_LARGE`` for what no handoff file could hold.
    """
    from consumers.handoffs.files.current import new_file  # noqa: PLC0415 - a markdown parser that ticks need not

    data = kinds.HandoffCreated(
        to=to,
        reviewer=reviewer or default_reviewer(settings, sender, to),
        created=datetime.now(UTC).strftime("%Y-%m-%d"),
        **given
        | {
            "depends_on": [one for text in given["depends_on"] for one in split_ids(text)],
            "answers": given["answers"] and given["answers"].removesuffix(".md"),
        },
    )
    new_file(data, sender)
    return data


def amendment_of(shown: dict[str, Any], changes: dict[str, Any], reason: str, client: Client) -> EventData:
    """Return the amendment that sets ``changes`` in a handoff (an answer of ``handoffs.show``), its file with it.

    Raises:
        Refused: ``USAGE`` when nothing changes or nobody would receive the work; ``INVALID_FIELD`` or ``TOO_LARGE``.
    """
    from consumers.handoffs.files.current import file_now, new_file  # noqa: PLC0415 - a markdown parser
    from consumers.handoffs.files.syntax.parsing import parse  # noqa: PLC0415
    from consumers.handoffs.files.syntax.revising import Revision, revise  # noqa: PLC0415

    content = content_from(shown)
    data = amended(content, changes, reason)
    if content.skeleton is None:
        new_file(data, shown["from"])
        return data
    file = parse(file_now(shown, client.get_blob(content.skeleton)))
    # The rest of the content is the ledger's alone, and stands in no file.
    in_files = {name: value for name, value in changes.items() if name in Revision.__struct_fields__}
    return msgspec.structs.replace(data, skeleton=client.put_blob(revise(file, Revision(**in_files))))


def ticks_of(
    shown: dict[str, Any], tasks: Sequence[int], criteria: Sequence[int], *, is_all: bool = False, undo: bool = False
) -> list[EventData]:
    """Return the ticks of tasks and criteria counted from 1, or with ``is_all`` of every one that is open.

    Raises:
        Refused: ``INVALID_FIELD`` for one that there is not, ``USAGE`` for nothing to tick.
    """
    if is_all:
        tasks = [n for n, one in enumerate(shown["tasks"], 1) if one["done"] == undo]
        wanted = ("checked",) if undo else ("open", "claimed")
        criteria = [n for n, one in enumerate(shown["criteria"], 1) if one["mark"] in wanted]
    at = [position_of(shown["tasks"], "task", n) for n in tasks]
    drafts: list[EventData] = [kinds.HandoffTaskChecked(position=one, checked=not undo) for one in at]
    at = [position_of(shown["criteria"], "criterion", n) for n in criteria]
    drafts += [kinds.HandoffCriterionChecked(position=one, checked=not undo) for one in at]
    if not drafts:
        raise Refused("USAGE", "nothing to tick: give --task N, --criterion N, or --all")
    return drafts


def position_of(rows: list[dict[str, Any]], what: str, number: int) -> int:
    """Return the position of a task or criterion that a person counts from 1.

    Raises:
        Refused: ``INVALID_FIELD``, in the person's counting.
    """
    if not 1 <= number <= len(rows):
        raise Refused("INVALID_FIELD", f"there is no {what} {number} (of {len(rows)})", path="$.data.position")
    return number - 1


def default_reviewer(settings: Settings, sender: str, to: str) -> str | None:
    """Return the configured reviewer, unless it is party to the handoff."""
    name = settings.config.default_reviewer
    return None if name in (sender, to) else name
