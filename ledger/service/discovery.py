"""A node answers NATS tools that look for services: `$SRV.PING`, `INFO` and `STATS` of `deedbook` (NATS ADR-32).

So `nats micro ls` finds the nodes of a ledger, with their version and role. The answers are structs of nats-py's
``micro``. Its endpoints are not used, because a node has one queue for each agent (``ledger.service.intake``). Agents
may send these requests, because each agent can read the whole log anyway. Each subscription of a node is for only a few
messages. The server counts them and drops further ones, so a flood fills no queue here and logs no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from secrets import token_hex
from typing import Any, Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.micro.service import EndpointInfo, EndpointStats, ServiceInfo, ServicePing, ServiceStats

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.service.intake import QUEUE
from deedbook.ledger.system.metrics import Metrics

NAME: Final = "deedbook"
window_s: Final = 1.0
_NANOSECONDS: Final = 1_000_000_000


class Discovery:
    """Answers requests for services on behalf of one node.

    ``role`` returns the present role of the node, ``address`` the signed note of its address (``proof.checkpoint``).
    """

    def __init__(
        self, ledger: str, role: Callable[[], str], metrics: Metrics, address: Callable[[], str] = lambda: ""
    ) -> None:
        self.id = token_hex(11)
        self._ledger, self._role, self._metrics, self._address = ledger, role, metrics, address
        self._started = datetime.now(UTC)
        self._heard = 0
        self._first_s = 0.0
        self._is_used_up = asyncio.Event()
        try:
            self._version = version("deedbook")
        except PackageNotFoundError:  # from a checkout that is not installed
            self._version = "0.0.0"

    async def run(self, nats: NodeClient) -> None:
        """Answer over a connection until cancelled; ends when it is closed."""
        while not nats.is_closed:
            self._heard = 0
            self._is_used_up.clear()
            subscription: Subscription = await nats.subscribe(subjects.DISCOVERY, cb=self._answer)
            # Sent in the same write as the subscription, so that the server never has the subscription without the
            # limit.
            await subscription.unsubscribe(limits.discovery_answers_per_s_max)
            while not (self._is_used_up.is_set() or nats.is_closed):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(window_s):
                        await self._is_used_up.wait()
            await asyncio.sleep(max(0.0, self._first_s + window_s - asyncio.get_running_loop().time()))

    async def _answer(self, message: Msg) -> None:
        self._heard += 1
        if self._heard == 1:
            self._first_s = asyncio.get_running_loop().time()
        if self._heard >= limits.discovery_answers_per_s_max:
            self._is_used_up.set()
        document = self.document(message.subject)
        if document is None or not message.reply:
            return
        with contextlib.suppress(NatsError):  # the tool sends its request again
            await message.respond(json.dumps(document).encode())

    def document(self, subject: str) -> dict[str, Any] | None:
        """Return the answer to a request on this subject; None if it names another service, node or verb."""
        verb, *target = subject.split(".")[1:]
        if target != [NAME, self.id][: len(target)]:
            return None
        metadata = {"ledger": self._ledger, "role": self._role()}
        with contextlib.suppress(DeedbookError):  # a node that must not sign has no address
            metadata |= {"address": address} if (address := self._address()) else {}
        own: dict[str, Any] = {
            "name": NAME,
            "id": self.id,
            "version": self._version,
            "metadata": metadata,
        }
        patterns = {"submit": subjects.submit_pattern(self._ledger), "read": subjects.read_pattern(self._ledger)}
        match verb:
            case "PING":
                return ServicePing(**own).to_dict()
            case "INFO":
                endpoints = [EndpointInfo(name, pattern, QUEUE) for name, pattern in patterns.items()]
                description = "A signed, append-only ledger for AI agents that hand work to each other"
                return ServiceInfo(**own, description=description, endpoints=endpoints).to_dict()
            case "STATS":
                stats = [self._stats(name, pattern) for name, pattern in patterns.items()]
                return ServiceStats(**own, started=self._started, endpoints=stats).to_dict()
            case _:  # a tool may name any verb
                return None

    def _stats(self, name: str, pattern: str) -> EndpointStats:
        if name == "read":
            requests, errors, seconds = self._metrics.values("reads")[""], 0.0, 0.0
        else:
            requests, errors = self._metrics.values("submissions")[""], sum(self._metrics.values("refusals").values())
            seconds = self._metrics.values("submit_seconds")[""]
        total = int(seconds * _NANOSECONDS)
        return EndpointStats(name, pattern, QUEUE, int(requests), int(errors), total, total // max(1, int(requests)))
