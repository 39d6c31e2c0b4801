"""Gives imported handoffs the names that their files lack, and counts what an import still needs from people.

Pure. An imported handoff that nobody here has confirmed is imported again with the added names; its importer signs
that. It approves nothing: the handoff stays pending, and its claims stay. Handoffs that claim to be over wait for
nobody and need no names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from deedbook.consumers.handoffs.agent_names import AgentNames, independent
from deedbook.ledger.events.handoff import HandoffContent
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.format.codec import converted
from deedbook.projections.handoffs.claims import claims_over


def is_unconfirmed(row: Mapping[str, Any]) -> bool:
    """Return whether a row of ``handoffs.existing`` is an imported handoff that nobody here has confirmed."""
    return row["status"] == "pending" and row["claimed_status"] is not None


def with_names(data: RecordImported, row: Mapping[str, Any], agents: AgentNames, *, is_new: bool) -> RecordImported:
    """Return a file's record with the names that its handoff has here (``row``) and the names in ``agents.naming``.

    ``is_new`` says that the file changed since its import: then its names replace those of the handoff. Otherwise names
    are only added: an agent that an earlier import named stays. ``data`` itself is returned if nothing is added.
    """
    content = converted(data.mapped, HandoffContent)
    here = (row["from"] or None, row["to"] or None, row["reviewer"])
    if is_new:
        is_default = content.reviewer in (None, agents.reviewer) and here[2] in agents.names
        sender, to = data.claimed_author or here[0], content.to or here[1]
        reviewer = independent(here[2] if is_default else content.reviewer, (sender, to))
    else:
        reviewer = here[2] if here[2] in agents.names else content.reviewer or agents.naming.reviewer or here[2]
        # Keep a name that is an agent. Do not add a name that would make the reviewer a party to the handoff.
        sender, to = (
            before if before in agents.names else independent(after, (reviewer,)) or before
            for before, after in zip(here[:2], (data.claimed_author, content.to), strict=True)
        )
        reviewer = independent(reviewer, (sender, to))
        if (sender, to, reviewer) == here:
            return data
        added = zip(("from", "to", "reviewer"), (sender, to, reviewer), here, strict=True)
        reason = "names " + ", ".join(f"{word} {name}" for word, name, before in added if name and name != before)
        data = msgspec.structs.replace(data, reason=reason)
    named = msgspec.structs.replace(content, to=to, reviewer=reviewer)
    return msgspec.structs.replace(data, mapped=msgspec.to_builtins(named), claimed_author=sender)


class ImportNeeds(NamedTuple):
    """The state of the handoffs of an import that nobody here has confirmed.

    ``history`` counts those that claim to be over. The other fields are about the rest: ``reviewers`` counts the
    handoffs that wait for each reviewer, ``no_reviewer`` and ``no_receiver`` those that name none, and ``unknown`` the
    names that no agent here has. ``reviewer`` is the agent who can review the most of those that name no reviewer;
    ``reviewable`` is their number. ``others`` counts those that lack a name and that other agents imported: only the
    importer can import them again.
    """

    history: int
    reviewers: dict[str, int]
    no_reviewer: int
    no_receiver: int
    unknown: dict[str, int]
    reviewer: str
    reviewable: int
    others: dict[str, int]


def needs_of(rows: Iterable[Mapping[str, Any]], agents: AgentNames, importer: str | None) -> ImportNeeds:
    """Return what the handoffs of an import need from people; ``rows`` are those of ``handoffs.existing``."""
    unconfirmed = [row for row in rows if is_unconfirmed(row)]
    pending = [row for row in unconfirmed if not claims_over(row["claimed_status"])]
    humans, reviewers = agents.having("human"), agents.having("reviewer", "human")
    # A human who sent the work may confirm it if its file names no reviewer.
    reviewer_of = [row["reviewer"] or (row["from"] if row["from"] in humans else "") for row in pending]
    unreviewed = [row for row, name in zip(pending, reviewer_of, strict=True) if not name]
    unreceived = [row for row in pending if not row["to"]]
    named = [{row["reviewer"], row["to"]} - {None, ""} for row in pending]
    able = Counter(name for row in unreviewed for name in reviewers if name not in (row["from"], row["to"]))
    reviewer, reviewable = next(iter(able.most_common(1)), ("", 0))
    lacking = (row for row, name in zip(pending, reviewer_of, strict=True) if not (name and row["to"]))
    return ImportNeeds(
        history=len(unconfirmed) - len(pending),
        reviewers=_counted(name for name in reviewer_of if name in agents.names),
        no_reviewer=len(unreviewed),
        no_receiver=len(unreceived),
        unknown=_counted(name for names in named for name in names if name not in agents.names),
        reviewer=reviewer,
        reviewable=reviewable,
        others=_counted(row["importer"] for row in lacking if importer not in (None, row["importer"])),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
