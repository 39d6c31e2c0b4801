"""The desk: one open ledger and the one agent that the tools sign as.

Whoever serves many calls holds one desk: clients and readers are shared by threads, so calls run side by side and the
gate puts what they submit in order. Who may sign is asked of the ledger at each signing, because roles change while a
server runs: an agent that was made human or admin since then signs nothing here any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.author import Author
from ledger.errors import Refused
from ledger.home import Home
from ledger.lifecycle.authority import RESERVED_NAMES

if TYPE_CHECKING:
    from ledger.client import Ask, Client
    from ledger.config import Settings
    from ledger.identity import Key

NEVER_SIGNED_AS: Final = ("human", "admin")
"""Roles whose signature means that a person decided: no tool gives it."""


class Desk:
    """An open ledger, what answers view queries of it, and the acting agent; threads may share it."""

    def __init__(self, settings: Settings, client: Client, answer: Ask, *, passphrase: str | None = None) -> None:
        """Work on ``client``'s ledger as ``settings.agent``, whose sealed key ``passphrase`` opens."""
        self.settings = settings
        self.client = client
        self.answer = answer
        self._passphrase = passphrase

    @property
    def agent(self) -> str | None:
        """The acting agent, or None: then nothing can be signed."""
        return self.settings.agent

    def ask(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a view query; arguments that are None are not sent."""
        return self.answer(query, {name: value for name, value in arguments.items() if value is not None})

    def author(self) -> Author:
        """Return the author that signs.

        Raises:
            Refused: ``USAGE`` without an agent, ``AGENT_UNKNOWN``, or ``NOT_AUTHORIZED`` for one that no tool signs as.
        """
        if self.agent is None:
            raise Refused(
                "USAGE",
                "somebody must sign this, and this server acts for nobody: start it with `baton mcp --as NAME`, or set"
                " BATON_AGENT; `baton agent add NAME` registers an agent",
            )
        roles = roles_of(self.client, self.agent)
        if roles is None:
            raise Refused(
                "AGENT_UNKNOWN",
                f"{self.agent} is not registered in this ledger: `baton agent add {self.agent}` does it",
                name=self.agent,
            )
        check_may_sign(self.agent, roles)
        return Author(self.client, self.agent, self._key)

    def _key(self, kinds: list[tuple[str, str]]) -> Key:
        name = self.agent or ""
        try:
            return Home(self.settings.home).signing_key(name, kinds, lambda _: self._passphrase)
        except Refused as refusal:
            if refusal.code != "KEY_LOCKED":
                raise
            said = (
                f"the key of {name} is sealed: `baton key delegate --as {name}` in a terminal makes a session key for"
            )
            more = "this server, or start it with --passphrase-fd"
            raise Refused("KEY_LOCKED", f"{said} {more}", **refusal.details) from refusal


def roles_of(client: Client, name: str) -> frozenset[str] | None:
    """Return the roles of an agent now; None when no such agent is registered."""
    return next((one.roles for one in client.agents() if one.name == name), None)


def check_may_sign(name: str, roles: frozenset[str]) -> None:
    """Refuse an agent that no tool may sign as.

    Raises:
        Refused: ``NOT_AUTHORIZED``.
    """
    held = [role for role in NEVER_SIGNED_AS if role in roles]
    if name in RESERVED_NAMES or held:
        said = f"{name} has the role {held[0]}" if held else f"{name} is the ledger's own key"
        raise Refused(
            "NOT_AUTHORIZED",
            f"{said}, and no tool signs as that: a person decides with `baton` in a terminal; start the server as an"
            " agent, with `baton mcp --as NAME`",
            name=name,
            roles=sorted(roles),
        )
