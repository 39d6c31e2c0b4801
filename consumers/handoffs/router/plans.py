"""Which handoffs an event causes: a function of a chain and what is known of the event, and of nothing else.

So a retry, another router and a dry run (``rehearse``) come to the same id, content and idempotency key.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
from blake3 import blake3

from deedbook.consumers.handoffs.router.chains import (
    Chain,
    Step,
    Template,
    fill_line,
    fill_text,
    fits,
    label_max_chars,
    line_max_chars,
    one_line,
    text_max_chars,
)
from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.format.codec import converted, encode_canonical
from deedbook.ledger.format.forms import NOT_IN_IDS
from deedbook.ledger.limits import data_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deedbook.ledger.events.body import Event

id_max_chars: Final = 200
id_max_bytes: Final = 240
"""An id names a file: its UTF-8 and ``.md`` stay within the 255 bytes that file systems take."""

CREATED: Final = "handoff.created"
_CORR: Final = re.compile(r"chain:([a-z0-9][a-z0-9_-]{0,62}):([0-9a-f]{16}):([0-9]{1,2})")


class Lineage(NamedTuple):
    """Which chain made a handoff, for which root, after how many hops; all empty for what no chain made."""

    chain: str = ""
    root: str = ""
    hop: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a chain may know of an event and of its handoff, as both were at that event."""

    event_id: str
    index: int
    kind: str
    author: str
    day: str
    id: str
    title: str
    sender: str
    receiver: str
    reviewer: str
    summary: str = ""
    reasoning_refs: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    lineage: Lineage = Lineage()

    def properties(self) -> dict[str, str]:
        """Return what conditions speak of."""
        return {
            "from": self.sender,
            "to": self.receiver,
            "reviewer": self.reviewer,
            "author": self.author,
            "id": self.id,
            "title": self.title,
            "kind": self.kind,
            "chain": self.lineage.chain,
        }


class Planned(NamedTuple):
    """A handoff to be created; ``spare_id`` serves when ``id`` is somebody else's already."""

    chain: str
    step: int
    id: str
    spare_id: str
    data: HandoffCreated
    corr: str
    idem: str


def mismatch(chain: Chain, facts: Facts) -> str | None:
    """Return why ``chain`` does not fire on this event, in words; None when it does."""
    if facts.kind not in chain.kinds:
        return f"when: {facts.kind} is not {' or '.join(sorted(chain.kinds))}"
    if facts.kind == CREATED and facts.lineage.chain:
        # The router would react to itself: eight steps of eight hops were millions of handoffs of one event.
        return f"chain {facts.lineage.chain} made it: it sets off another once somebody acts on it"
    properties = facts.properties()
    for condition in chain.where:
        value = properties[condition.name]
        if not any(fits(pattern, value) for pattern in condition.patterns):
            patterns = " or ".join(map(repr, condition.patterns))
            return f"where.{condition.name}: {shorten(one_line(value), 80)!r} is not {patterns}"
    return None


def stopped(chain: Chain, facts: Facts) -> str | None:
    """Return why ``chain`` must not fire although it matches: its handoffs would lie more hops away than it allows."""
    hop = facts.lineage.hop + 1
    if hop <= chain.hops_max:
        return None
    return f"chain {chain.name} stopped a loop: hop {hop} of at most {chain.hops_max}, begun by {facts.lineage.root}"


def plan_step(chain: Chain, number: int, facts: Facts, default_reviewer: str | None) -> Planned:
    """Return the handoff that step ``number`` (from 1) makes. Raises Refused: ``INVALID_FIELD``, as for no name."""
    step = chain.steps[number - 1]
    root = facts.lineage.root or facts.event_id.partition(":")[2][:16]
    lineage = Lineage(chain.name, root, facts.lineage.hop + 1)
    values = facts.properties() | {
        "summary": facts.summary,
        "reasoning_ref": ", ".join(facts.reasoning_refs),
        "artifacts": ", ".join(facts.artifacts),
        "chain": chain.name,
        "hop": str(lineage.hop),
        "day": facts.day,
    }
    idem = f"{chain.name}:{number}:{facts.event_id}"
    wanted = None if step.id is None else handoff_id(fill_line(step.id, values))
    name = wanted or handoff_id(f"{facts.id}-{chain.name}-{number}")
    return Planned(
        chain=chain.name,
        step=number,
        id=name,
        spare_id=_cut(name, _digest(idem), always=True),
        data=_content(step, values, chain.name, default_reviewer, facts.reasoning_refs),
        corr=f"chain:{lineage.chain}:{lineage.root}:{lineage.hop}",
        idem=idem,
    )


def read_lineage(corr: str | None) -> Lineage:
    """Return the lineage that the creating event of a handoff carries in ``corr``; empty when it carries none."""
    found = None if corr is None else _CORR.fullmatch(corr)
    return Lineage() if found is None else Lineage(found.group(1), found.group(2), int(found.group(3)))


def handoff_id(text: str) -> str:
    """Return an id a handoff can have, as like ``text`` as possible; empty when nothing of it can stand in one."""
    name = re.sub(r"[/\\]", "-", one_line(unicodedata.normalize("NFC", text).replace("\u3000", " ")))
    name = " ".join(re.sub(f"[{NOT_IN_IDS}]", "", name).removesuffix(".md").split()).lstrip("-. ")
    return _cut(name, _digest(name))


def _content(
    step: Step[Template], values: Mapping[str, str], chain: str, default_reviewer: str | None, behind: Sequence[str]
) -> HandoffCreated:
    to = fill_line(step.to, values)
    if step.reviewer is not None:
        reviewer: str | None = fill_line(step.reviewer, values)
    else:
        reviewer = default_reviewer if default_reviewer != to else None  # nobody is made to review his own work
    data = HandoffCreated(
        title=fill_line(step.title, values, label_max_chars) or shorten(f"{chain}: {values['id']}", label_max_chars),
        to=to,
        reviewer=reviewer,
        created=values["day"],
        proposal=None if step.proposal is None else fill_line(step.proposal, values, line_max_chars) or None,
        depends_on=list(dict.fromkeys(filter(None, (handoff_id(fill_line(one, values)) for one in step.depends_on)))),
        unlock_at=step.unlock_at,
        task="" if step.task is None else fill_text(step.task, values, text_max_chars),
        tasks=_lines(step.tasks, values),
        criteria=_lines(step.criteria, values),
        context="" if step.context is None else fill_text(step.context, values, text_max_chars),
        answers=None if step.answers is None else handoff_id(fill_line(step.answers, values)) or None,
        reasoning_refs=list(behind),
    )
    return converted(msgspec.to_builtins(_fitting(data)), HandoffCreated, f"chain {chain}")


def _lines(templates: tuple[Template, ...], values: Mapping[str, str]) -> list[str]:
    """Return lines of a list; one that came out empty has nothing to say and is left out."""
    return [line for one in templates if (line := fill_line(one, values, line_max_chars))]


def _fitting(data: HandoffCreated) -> HandoffCreated:
    """Return content that fits an entry: texts that others filled are shortened, the context first."""
    for name in ("context", "task"):
        excess = len(encode_canonical(data)) - data_size_max_bytes
        if excess > 0:
            text = getattr(data, name)
            # A character has at least one byte: as many characters less is enough.
            text = shorten(text, max(len(text) - excess - len("…".encode()), 0))
            data = msgspec.structs.replace(data, **{name: text})
    return data


def _digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:12]


def _cut(name: str, digest: str, *, always: bool = False) -> str:
    """Return ``name`` within the limits of an id; what is cut off, or ``always``, is stood for by the digest."""
    if not always and len(name) <= id_max_chars and len(name.encode()) <= id_max_bytes:
        return name
    room = id_max_bytes - len(digest) - 1
    kept = name[: id_max_chars - len(digest) - 1].encode()[:room].decode(errors="ignore")
    return f"{kept.rstrip()}-{digest}"


class ChainSource(Protocol):
    """What plans read of a ledger (``router.worker.Source``)."""

    def facts(self, event: Event) -> Facts:
        """Return what is known of an event on a handoff's stream."""

    def is_made_by_step(self, name: str, idem: str) -> bool:
        """Return whether a router made the handoff ``name`` under the key ``idem``."""

    def exists(self, name: str) -> bool:
        """Return whether there is a handoff of this id."""


def rehearse(
    chains: Sequence[Chain],
    event: Event,
    source: ChainSource,
    default_reviewer: str | None,
    *,
    every_chain: bool = False,
) -> dict[str, Any]:
    """Return ``{"index", "id", "kind", "handoff", "hop", "chains"}`` with what each chain would make of ``event``.

    A chain that is about other kinds is only named with ``every_chain``. ``why_not`` says why a chain makes nothing; a
    step has its handoff, or ``refused``; ``is_there`` says that it was made, or that its id is taken. Raises Refused:
    ``USAGE`` when the event is none of a handoff.
    """
    if not event.stream.startswith("handoff/"):
        raise Refused("USAGE", f"entry {event.index} is {event.kind} on {event.stream}: chains are about handoffs")
    facts = source.facts(event)
    asked = [chain for chain in chains if every_chain or event.kind in chain.kinds]
    return {
        "index": event.index,
        "id": event.id,
        "kind": event.kind,
        "handoff": event.name,
        "hop": facts.lineage.hop,
        "chains": [_chain(chain, facts, source, default_reviewer) for chain in asked],
    }


def _chain(chain: Chain, facts: Facts, source: ChainSource, default_reviewer: str | None) -> dict[str, Any]:
    why_not = mismatch(chain, facts) or stopped(chain, facts)
    numbers = range(1, len(chain.steps) + 1) if why_not is None else ()
    steps = [_step(chain, number, facts, source, default_reviewer) for number in numbers]
    return {"chain": chain.name, "fires": why_not is None, "why_not": why_not, "steps": steps}


def _step(chain: Chain, number: int, facts: Facts, source: ChainSource, default_reviewer: str | None) -> dict[str, Any]:
    try:
        planned = plan_step(chain, number, facts, default_reviewer)
    except Refused as refusal:
        return {"step": number, "refused": {"code": refusal.code, "message": refusal.message}}
    data = planned.data
    made = next((name for name in (planned.id, planned.spare_id) if source.is_made_by_step(name, planned.idem)), None)
    name = made or (planned.spare_id if source.exists(planned.id) else planned.id)
    return {
        "step": number,
        "id": name,
        "to": data.to,
        "reviewer": data.reviewer,
        "title": data.title,
        "depends_on": list(data.depends_on),
        "tasks": len(data.tasks),
        "criteria": len(data.criteria),
        "hop": facts.lineage.hop + 1,
        "is_there": made is not None,
    }
