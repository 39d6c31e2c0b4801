"""The ledger for tools: open, shared by threads, and with one more rule about who signs.

Calls run concurrently, and the gate orders their submissions. Each signing asks the ledger for the agent's roles,
because roles change while a server runs: an agent that has become human or admin cannot sign here any more.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from mcp.types import CallToolResult

from deedbook.consumers.interfaces.mcp.answers import answered
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, Origin, age, origin_of, untrusted_block
from deedbook.consumers.sdk.sealer import named
from deedbook.consumers.sdk.tool_agents import check_may_sign, roles_of
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home import trust
from deedbook.ledger.home.membership import read_membership
from deedbook.projections.answers.answer import Answer


class ToolLedger(Ledger):
    """An open ledger whose agent signs only what a tool may sign.

    An untrusted folder is not opened, and every call is refused until the user trusts the folder.
    """

    def _prepare(self) -> None:
        self._client = None
        self._stop = threading.Event()
        self._opening = threading.Lock()
        if trust.is_trusted(self.settings.home):
            self._open()

    def _open(self) -> None:
        super()._prepare()
        self._member = read_membership(self.settings.home)
        try:
            trust.demand(self.settings.home, super().client)
        except BaseException:
            super().close()
            raise

    @property
    def client(self) -> Client:
        """The client underneath.

        Raises Refused: ``NOT_TRUSTED``, with a message that repeats no text of the folder; ``USAGE`` if ``client.toml``
        changed (it is not reloaded, because calls that use the old one may be running); as ``Ledger.client``.
        """
        with self._opening:
            if self._client is None and not self._stop.is_set():
                try:
                    trust.demand(self.settings.home)
                    self._open()
                except Refused as refusal:
                    raise Refused(refusal.code, trust.UNTRUSTED) if refusal.code == "NOT_TRUSTED" else refusal from None
        client = super().client
        if read_membership(self.settings.home) != self._member:
            message = "client.toml has changed since this server started: restart the server"
            raise Refused("USAGE", message)
        return client

    @property
    def origin(self) -> Origin:
        """The origin of the ledger's texts."""
        return origin_of(self.client)

    def quote(self, author: str, at: str | int, text: str) -> str:
        """Return untrusted text as a self-contained block with author, age and notice."""
        text = f"{author}, {age(at, datetime.now(UTC))}:\n{text}"
        return f"{UNTRUSTED_NOTICE}\n{untrusted_block(text, self.origin)}\n"

    def author(self, name: str | None = None, *, allow_secret: bool = False) -> Author:
        """Return the author that signs. Raises Refused: ``USAGE`` without an agent; as ``check_may_sign``."""
        agent = name or self.agent
        if agent is None:
            advice = "start it with `deed mcp --as NAME`, or set DEEDBOOK_AGENT"
            message = f"this server has no agent to sign with: {advice}"
            raise Refused("USAGE", f"{message}; to register an agent, run `deed agent add NAME`")
        check_may_sign(agent, roles_of(self.client, agent))
        return super().author(agent, allow_secret=allow_secret)

    def _key(self, name: str, signed: list[tuple[str, str, Any]], *, is_identity: bool = False) -> Key:
        try:
            return super()._key(name, signed, is_identity=is_identity)
        except Refused as refusal:
            if refusal.code != "KEY_LOCKED":
                raise
            message = (
                f"the key of {name} is sealed: make a session key for this server with `deed key delegate --as {name}`"
                " in a terminal, or start it with --passphrase-fd"
            )
            raise Refused("KEY_LOCKED", message, **refusal.details) from refusal


class Tools:
    """A group of tools for one ledger; each tool is a method."""

    def __init__(self, ledger: ToolLedger) -> None:
        self._ledger = ledger

    def _answered(self, answer: dict[str, Any], type_: type[Answer]) -> CallToolResult:
        """Return the result of a call. Sealed texts stay closed and are only named, because a model would read them."""
        return answered(named(answer, self._ledger.query_with), type_, self._ledger.origin)
