"""What a chain may know of an event, read from the log as it was at that event.

A view shows the present: a handoff that was amended since would give another title now than it gave then. So the view
only says where the handoff's events are, and those up to the event in question are read from the log itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from consumers.handoffs.router.matching import Facts, Lineage, read_lineage
from ledger.client import read_event
from ledger.events.handoff import HandoffCompleted, HandoffContent
from ledger.events.imported import RecordImported, read_mapped

if TYPE_CHECKING:
    from ledger.client import Ask, Client
    from ledger.events.body import Event

CONTENT_KINDS: Final = frozenset({"handoff.created", "handoff.amended", "record.imported"})
WAITING_KINDS: Final = frozenset({*CONTENT_KINDS, "handoff.approved", "handoff.claimed", "handoff.released"})
"""After these a handoff waits for its receiver, or will once the lease runs out."""
SERVICE: Final = "service"

page_rows: Final = 500


class Source:
    """Reads what chains need to know of a ledger."""

    def __init__(self, client: Client, answer: Ask, router: str) -> None:
        """Read events through ``client`` and find them through ``answer``, on behalf of the agent ``router``."""
        self._client = client
        self._answer = answer
        self._router = router

    def facts(self, event: Event) -> Facts:
        """Return what is known of ``event``, which stands on a handoff's stream."""
        opened: int | None = None
        content = completed = event.index
        for row in self._rows(event.stream, event.index):
            if row["kind"] in CONTENT_KINDS:
                content = row["event_index"]
                opened = content if opened is None else opened
            elif row["kind"] == "handoff.completed":
                completed = row["event_index"]
        first = self._event(content if opened is None else opened)
        last = first if first.index == content else self._event(content)
        data, sender = _content_of(last, first)
        done = self._event(completed).data if completed != event.index else event.data
        done = done if isinstance(done, HandoffCompleted) else HandoffCompleted()
        return Facts(
            event_id=event.id,
            index=event.index,
            kind=event.kind,
            author=event.author,
            day=f"{datetime.fromtimestamp(event.accepted_ms / 1000, UTC):%Y-%m-%d}",
            id=event.name,
            title=data.title,
            sender=sender,
            receiver=data.to or "",
            reviewer=data.reviewer or (sender if isinstance(last.data, RecordImported) else last.author),
            summary=done.summary,
            reasoning_ref=done.reasoning_ref or data.reasoning_ref or "",
            artifacts=tuple(done.artifacts),
            lineage=self._lineage(first),
        )

    def is_made_by_step(self, name: str, idem: str) -> bool:
        """Return whether the handoff ``name`` is the one that a router made under the key ``idem``."""
        for row in self._rows(f"handoff/{name}", None):
            opened = self._event(row["event_index"])
            return opened.idem == idem and self._is_router(opened.author)
        return False

    def exists(self, name: str) -> bool:
        """Return whether there is a handoff of this id."""
        found = self._answer("catalog.find", {"stream": f"handoff/{name}", "limit": 1})
        return bool(found["events"])

    def unlocked_by(self, name: str) -> list[str]:
        """Return, as a list of one id, the event since which a handoff that is ready now can be claimed.

        That is the last of what let it wait (an approval, a release, the claim whose lease ran out) and of what
        unlocked it (the completion of each handoff that it depends on).
        """
        own = self._rows(f"handoff/{name}", None)
        content = self._event(max(row["event_index"] for row in own if row["kind"] in CONTENT_KINDS))
        data, _ = _content_of(content, content)
        found = [row for row in own if row["kind"] in WAITING_KINDS]
        for wanted in data.depends_on:
            rows = self._rows(f"handoff/{wanted}", None)
            done = [row for row in rows if row["kind"] == f"handoff.{data.unlock_at}"]
            # One that was imported as done is verified without having been completed here.
            done = done or [row for row in rows if row["kind"] == "handoff.verified"]
            found += done[-1:]
        return [max(found, key=lambda row: int(row["event_index"]))["id"]] if found else []

    def ready(self, about: str | None, limit: int) -> list[dict[str, Any]]:
        """Return ``{"id", "to", "version"}`` of what could be announced as ready (about one handoff, or at all)."""
        arguments: dict[str, Any] = {"limit": limit} if about is None else {"about": about, "limit": limit}
        found: list[dict[str, Any]] = self._answer("handoffs.unannounced", arguments)["handoffs"]
        return found

    def _lineage(self, opened: Event) -> Lineage:
        """Return the lineage of a handoff, as the event that opened it says: if a router signed that.

        Anybody may write a ``corr``. Believing others could only count too many hops, but would let whoever creates
        a handoff keep a chain from firing on it.
        """
        lineage = read_lineage(opened.corr)
        return lineage if lineage.chain and self._is_router(opened.author) else Lineage()

    def _is_router(self, name: str) -> bool:
        return name == self._router or any(
            agent.name == name and SERVICE in agent.roles for agent in self._client.agents()
        )

    def _rows(self, stream: str, until: int | None) -> list[dict[str, Any]]:
        """Return the rows of a stream's events, up to and with the index ``until``."""
        rows: list[dict[str, Any]] = []
        after = -1
        while True:
            page = self._answer("catalog.find", {"stream": stream, "after": after, "limit": page_rows})
            rows += [row for row in page["events"] if until is None or row["event_index"] <= until]
            if page["next"] is None or (until is not None and page["next"] > until):
                return rows
            after = page["next"]

    def _event(self, index: int) -> Event:
        return read_event(index, self._client.entry(index))


def _content_of(last: Event, first: Event) -> tuple[HandoffContent, str]:
    """Return the content that an event set, and the name of the handoff's sender."""
    origin = first.data
    sender = (origin.claimed_author or "") if isinstance(origin, RecordImported) else first.author
    if isinstance(last.data, RecordImported):
        mapped = read_mapped(last.data)
        assert mapped is not None  # noqa: S101 - the gate admits no other on a handoff's stream
        content = mapped[0]
        sender = last.data.claimed_author or ""
    else:
        content = last.data
    assert isinstance(content, HandoffContent)  # noqa: S101 - the kinds that set content hold it
    return content, sender
