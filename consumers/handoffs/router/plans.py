"""The handoffs that an event causes: a pure function of a chain and the facts of the event.

So a retry, another router and a dry run (``rehearse``) give the same id, content and idempotency key.
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
from deedbook.ledger.format.forms import NOT_IN_IDS, in_one_script
from deedbook.ledger.limits import data_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deedbook.ledger.events.body import Event

id_max_chars: Final = 200
id_max_bytes: Final = 240
"""An id is the name of a file, so its UTF-8 with ``.md`` must stay within the 255 bytes that file systems allow."""

CREATED: Final = "handoff.created"
_CORR: Final = re.compile(r"chain:([a-z0-9][a-z0-9_-]{0,62}):([0-9a-f]{16}):([0-9]{1,2})")


class Lineage(NamedTuple):
    """The chain that made a handoff, its root event and its hops; all empty if no chain made it."""

    chain: str = ""
    root: str = ""
    hop: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an event and its handoff, as of that event, that a chain may use.

    ``tags`` and ``domains`` are those of the versions of reasonings that the handoff or its result cites.
    """

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
    tags: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    lineage: Lineage = Lineage()

    def properties(self) -> dict[str, str]:
        """Return the properties that conditions test, by name."""
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


class PlannedHandoff(NamedTuple):
    """A handoff to be created; ``spare_id`` is used if another handoff has the ``id``."""

    chain: str
    step: int
    id: str
    spare_id: str
    data: HandoffCreated
    corr: str
    idem: str


def mismatch(chain: Chain, facts: Facts) -> str | None:
    """Return the reason why ``chain`` does not fire on this event; None if it fires."""
    if facts.kind not in chain.kinds:
        return f"when: {facts.kind} is not {' or '.join(sorted(chain.kinds))}"
    if facts.kind == CREATED and facts.lineage.chain:
        # Otherwise the router would react to its own events: eight steps and eight hops would make millions of
        # handoffs.
        return f"chain {facts.lineage.chain} made it: it fires no chain before somebody acts on it"
    properties: dict[str, tuple[str, ...]] = {name: (value,) for name, value in facts.properties().items()}
    properties |= {"tag": facts.tags, "domain": facts.domains}
    for condition in chain.where:
        values = properties[condition.name]
        if not any(fits(pattern, value) for pattern in condition.patterns for value in values):
            patterns = " or ".join(map(repr, condition.patterns))
            return f"where.{condition.name}: {shorten(one_line(', '.join(values)), 80)!r} is not {patterns}"
    return None


def stopped(chain: Chain, facts: Facts) -> str | None:
    """Return the reason why a matching ``chain`` must not fire: its handoffs would exceed its limit of hops."""
    hop = facts.lineage.hop + 1
    if hop <= chain.hops_max:
        return None
    root = facts.lineage.root
    return f"chain {chain.name} stopped a loop that {root} began: hop {hop} exceeds the limit of {chain.hops_max}"


def plan_step(chain: Chain, number: int, facts: Facts, default_reviewer: str | None) -> PlannedHandoff:
    """Return the handoff that step ``number`` (from 1) makes. Raises Refused: ``INVALID_FIELD``."""
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
    return PlannedHandoff(
        chain=chain.name,
        step=number,
        id=name,
        spare_id=_cut(name, _digest(idem), always=True),
        data=_content(step, values, chain.name, default_reviewer, facts.reasoning_refs),
        corr=f"chain:{lineage.chain}:{lineage.root}:{lineage.hop}",
        idem=idem,
    )


def read_lineage(corr: str | None) -> Lineage:
    """Return the lineage in the ``corr`` of the event that created a handoff; empty if there is none."""
    match = None if corr is None else _CORR.fullmatch(corr)
    return Lineage() if match is None else Lineage(match.group(1), match.group(2), int(match.group(3)))


def handoff_id(text: str) -> str:
    """Return a valid handoff id as similar to ``text`` as possible; empty if no character is allowed in one."""
    name = re.sub(r"[/\\]", "-", one_line(unicodedata.normalize("NFC", text).replace("\u3000", " ")))
    name = " ".join(re.sub(f"[{NOT_IN_IDS}]", "", in_one_script(name)).removesuffix(".md").split()).lstrip("-. ")
    return _cut(name, _digest(name))


def _content(
    step: Step[Template], values: Mapping[str, str], chain: str, default_reviewer: str | None, behind: Sequence[str]
) -> HandoffCreated:
    to = fill_line(step.to, values)
    if step.reviewer is not None:
        reviewer: str | None = fill_line(step.reviewer, values)
    else:
        reviewer = default_reviewer if default_reviewer != to else None  # nobody reviews their own work
    data = HandoffCreated(
        title=fill_line(step.title, values, label_max_chars) or shorten(f"{chain}: {values['id']}", label_max_chars),
        to=to,
        reviewer=reviewer,
        created=values["day"],
        proposal=None if step.proposal is None else fill_line(step.proposal, values, line_max_chars) or None,
        depends_on=list(dict.fromkeys(filter(None, (handoff_id(fill_line(id_, values)) for id_ in step.depends_on)))),
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
    """Fill the templates of a list; return the lines that are not empty."""
    return [line for template in templates if (line := fill_line(template, values, line_max_chars))]


def _fitting(data: HandoffCreated) -> HandoffCreated:
    """Return content that fits an entry: the context is shortened first, then the task."""
    for name in ("context", "task"):
        excess = len(encode_canonical(data)) - data_size_max_bytes
        if excess > 0:
            text = getattr(data, name)
            # A character has at least one byte, so removing as many characters is enough.
            text = shorten(text, max(len(text) - excess - len("…".encode()), 0))
            data = msgspec.structs.replace(data, **{name: text})
    return data


def _digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:12]


def _cut(name: str, digest: str, *, always: bool = False) -> str:
    """Return ``name`` within the limits of an id; if it is cut, or ``always``, the digest is appended."""
    if not always and len(name) <= id_max_chars and len(name.encode()) <= id_max_bytes:
        return name
    room = id_max_bytes - len(digest) - 1
    start = name[: id_max_chars - len(digest) - 1].encode()[:room].decode(errors="ignore")
    return f"{start.rstrip()}-{digest}"


class ChainSource(Protocol):
    """The part of a ledger that plans read (``router.worker.LedgerSource``)."""

    def facts(self, event: Event) -> Facts:
        """Return the facts of an event on a handoff's stream."""

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

    A chain for other kinds is listed only with ``every_chain``. ``why_not`` is the reason why a chain makes nothing. A
    step has its handoff, or ``refused``; ``is_there`` says that the handoff exists already. Raises Refused: ``USAGE``
    if the event is not on a handoff.
    """
    if not event.stream.startswith("handoff/"):
        raise Refused(
            "USAGE", f"entry {event.index} is {event.kind} on {event.stream}: chains only follow events on handoffs"
        )
    facts = source.facts(event)
    selected = [chain for chain in chains if every_chain or event.kind in chain.kinds]
    return {
        "index": event.index,
        "id": event.id,
        "kind": event.kind,
        "handoff": event.name,
        "hop": facts.lineage.hop,
        "chains": [_chain(chain, facts, source, default_reviewer) for chain in selected],
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
