"""Who waits for whom now: what ``handoffs.next`` answers, as waits that somebody else has an interest in.

Left out is what an agent owes only itself: to go on with work that it has claimed. To go on because a reviewer
requested changes is told; the two are distinguished by the event since which it waits. All pages are read before
anything is decided, because a wait that was not read would look like one that is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from consumers.handoffs.notifier.episodes import Key, Waiting
from ledger.client import read_event
from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.client import Ask, Client

page_rows: Final = 200
waits_max: Final = 100_000
kinds_kept_max: Final = 10_000
looks_max: Final = 3


class Lookout:
    """Asks the views who is waited for."""

    def __init__(self, client: Client, answer: Ask) -> None:
        """Ask by ``answer``, and ``client`` for the events since which something waits."""
        self._client = client
        self._answer = answer
        self._kinds: dict[int, str] = {}  # an entry never changes, so its kind is read once

    def look(self) -> tuple[int, list[Waiting]]:
        """Return how much of the log the answer has seen at least, and every wait.

        Pages are asked one after the other, and what changes meanwhile could stand on none of them: then all are read
        again, up to ``looks_max`` times. What is missed after that is found by the look for the event that changed it.

        Raises:
            Refused: ``TOO_LARGE`` when more than ``waits_max`` wait.
        """
        size = self._client.head().size
        for _ in range(looks_max):
            pages = list(self._pages())
            now = self._client.head().size
            if len(pages) == 1 or now == size:
                break
            size = now
        return size, [waiting_of(item) for page in pages for item in page if self._is_told(item)]

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        after = None
        for _ in range(waits_max // page_rows):
            arguments = {"limit": page_rows} | ({} if after is None else {"after": after})
            page = self._answer("handoffs.next", arguments)
            yield page["items"]
            after = page["next"]
            if after is None:
                return
        raise Refused("TOO_LARGE", f"more than {waits_max} waits are open", max=waits_max)

    def _is_told(self, item: dict[str, Any]) -> bool:
        return item["action"] != "continue" or self._kind_of(item["since_index"]) == "handoff.changes_requested"

    def _kind_of(self, index: int) -> str:
        if index not in self._kinds:
            if len(self._kinds) >= kinds_kept_max:
                self._kinds.clear()
            self._kinds[index] = read_event(index, self._client.entry(index)).kind
        return self._kinds[index]


def waiting_of(item: dict[str, Any]) -> Waiting:
    """Return the wait that an item of ``handoffs.next`` says."""
    return Waiting(
        key=Key(item["kind"], item["id"], item["agent"], item["action"]),
        title=item["title"],
        status=item["status"],
        sender=item["from"] or None,
        receiver=item["to"] or None,
        since_index=item["since_index"],
        since_ms=item["since_ms"],
    )
