"""A node's connection: nats-py, hardened against what an agent may put into a message.

An exception while nats-py reads a message ends its reading for good, silently, with the connection still "connected":
a node would be deaf from then on. Bytes that are no text do that in a subject and in the status line of headers, and
a hundred thousand headers hold the event loop up for a tenth of a second (all measured with 2.16). Agents choose these
bytes. So text is decoded leniently here, and headers are bounded before they are looked at.
"""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ledger import limits


class NodeClient(Client):
    """A ``nats`` client that no message from outside can stop."""

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Return the headers; none when there are too many bytes of them, or they are no headers."""
        if not headers or len(headers) > limits.message_headers_max_bytes:
            return None
        try:
            parsed: dict[str, str] | None = await super()._process_headers(headers)
        except (ValueError, LookupError):
            return None
        return parsed

    async def allow(self, subscription: Subscription, count: int) -> None:
        """Let the server pass on so many messages of a subscription, in all since it began, and then end it there.

        To nats-py it stays open: its own count drops what waits once so many were read.
        """
        await self._send_unsubscribe(subscription._id, limit=count)  # noqa: SLF001 - there is no other way to say it

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Msg:
        text, answer_to = subject.decode(errors="replace"), reply.decode(errors="replace")
        return self.msg_class(subject=text, reply=answer_to, data=data, headers=headers, _client=self, _sid=sid)
