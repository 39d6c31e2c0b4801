"""The ledger as tools use it: open, shared by threads, and with one rule more about who signs.

Calls run side by side, and the gate puts what they submit in order. Who may sign is asked of the ledger at each
signing, because roles change while a server runs: an agent that was made human or admin since then signs nothing here
any more.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any, Final

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, age, origin_of, untrusted_block
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home import trust
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.membership import read_membership
from deedbook.ledger.lifecycle.authority import RESERVED_NAMES

NEVER_SIGNED_AS: Final = ("human", "admin")
"""Roles whose signature means that a person decided: no tool gives it."""


class ToolLedger(Ledger):
    """An open ledger whose agent signs only what a tool may sign.

    In a folder that is not trusted nothing is opened, and every call is refused until it is.
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

        Raises Refused: ``NOT_TRUSTED``, in words that hold nothing of the folder; ``USAGE`` once ``client.toml`` is not
        what it was: calls are under way that began with it, so it is not exchanged; as ``Ledger.client``.
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
            message = "client.toml has changed since this server was started, which goes on by the old one: restart it"
            raise Refused("USAGE", message)
        return client

    def others(self) -> dict[str, str]:
        """Return what stands beside the words of others in every answer that holds some."""
        return origin_of(self.client, Home(self.settings.home)).label()

    def quote(self, author: str, at: str | int, text: str) -> str:
        """Return words of others as a text that is read by itself."""
        said = f"{author}, {age(at, datetime.now(UTC))}:\n{text}"
        return f"{UNTRUSTED_NOTICE}\n{untrusted_block(said, origin_of(self.client, Home(self.settings.home)))}\n"

    def author(self, name: str | None = None) -> Author:
        """Return the author that signs. Raises Refused: ``USAGE`` without an agent; as ``check_may_sign``."""
        agent = name or self.agent
        if agent is None:
            advice = "start it with `deed mcp --as NAME`, or set DEEDBOOK_AGENT"
            message = f"somebody must sign this, and this server acts for nobody: {advice}"
            raise Refused("USAGE", f"{message}; `deed agent add NAME` registers an agent")
        check_may_sign(agent, roles_of(self.client, agent))
        return super().author(agent)

    def _key(self, name: str, signed: list[tuple[str, str, Any]]) -> Key:
        try:
            return super()._key(name, signed)
        except Refused as refusal:
            if refusal.code != "KEY_LOCKED":
                raise
            message = (
                f"the key of {name} is sealed: `deed key delegate --as {name}` in a terminal makes a session key for"
                " this server, or start it with --passphrase-fd"
            )
            raise Refused("KEY_LOCKED", message, **refusal.details) from refusal


class Tools:
    """Tools of one ledger, each a method."""

    def __init__(self, ledger: ToolLedger) -> None:
        self._ledger = ledger


def roles_of(client: Client, name: str) -> frozenset[str] | None:
    """Return the roles of an agent now; None when no such agent is registered."""
    return next((one.roles for one in client.agents() if one.name == name), None)


def check_may_sign(name: str, roles: frozenset[str] | None, before: str = "") -> None:
    """Refuse an agent that no tool may sign as, or that is not registered; ``before`` says what it would do.

    Raises Refused: ``AGENT_UNKNOWN``, ``NOT_AUTHORIZED``.
    """
    before = before and f"{before}, but "
    if roles is None:
        advice = f"`deed agent add {name} --role agent` registers it, --as NAME takes another"
        raise Refused("AGENT_UNKNOWN", f"{before}{name} is not registered in this ledger: {advice}", name=name)
    held = [role for role in NEVER_SIGNED_AS if role in roles]
    if name in RESERVED_NAMES or held:
        reason = f"{name} has the role {held[0]}" if held else f"{name} is the ledger's own key"
        advice = "a person decides with `deed` in a terminal; start the server as an agent, with `deed mcp --as NAME`"
        message = f"{before}{reason}, and no tool signs as that: {advice}"
        raise Refused("NOT_AUTHORIZED", message, name=name, roles=sorted(roles))
