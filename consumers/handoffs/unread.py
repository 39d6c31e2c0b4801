"""The lines of others that an agent has not read yet. ``peek`` shows them; ``read_next`` also marks them as read.

The position of each agent is in the ledger's folder on this machine. Only `deed unread` moves it (``read_next``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.consumers.sdk.text import sanitize_line, shorten
from deedbook.ledger.client.client import Ask

COMMAND: Final = "deed unread"
lines_looked_at: Final = 3
line_max_chars: Final = 160


def peek(view: Ask, home: Path, agent: str, limit: int = lines_looked_at) -> dict[str, Any]:
    """Return the first unread lines, as the query answers; they stay unread.

    Raises Unavailable: ``STORE_UNAVAILABLE``: the file of the position cannot be read. Refused: as the query.
    """
    path, after = _path(home, agent), -1
    if path.exists():  # only looking must not create the file
        with contextlib.closing(open_subscriptions(path)) as store:
            after = (store.position(path.stem) or 0) - 1
    return view("handoffs.unread", {"agent": agent, "after": after, "limit": limit})


def read_next(view: Ask, home: Path, agent: str, limit: int) -> dict[str, Any]:
    """Return the next unread lines, as the query answers, and store that they were read.

    Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``; ``STORE_IN_USE`` if another process read them meanwhile.
    """
    path = _path(home, agent)
    with contextlib.closing(open_subscriptions(path)) as store:
        after = (store.position(path.stem) or 0) - 1
        answer = view("handoffs.unread", {"agent": agent, "after": after, "limit": limit})
        if answer["items"]:
            with store.transaction():
                store.check_is_next(path.stem, after + 1)
                store.move(path.stem, answer["items"][-1]["event_index"] + 1)
    return answer


def more_of(unread: Mapping[str, Any]) -> list[str]:
    """Return the line that follows the first unread lines and says how many more there are; empty if there are none."""
    left = unread["total"] - len(unread["items"])
    return [f"… and {left} more"] if left else []


def line_of(item: Mapping[str, Any]) -> str:
    """Return an unread line in one short line of text: its stream's id, who, and the beginning of what they did."""
    return shorten(sanitize_line(f"{item['id']}: {item['author']} {item['text']}"), line_max_chars)


def _path(home: Path, agent: str) -> Path:
    return home / "subscribers" / f"unread-{agent}.db"
