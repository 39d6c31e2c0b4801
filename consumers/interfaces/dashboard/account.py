"""The account of a name in the dashboard: whether it may decide here, as the signed entries of the ledger say now.

Several people can use one dashboard. Each browser is logged in under one name, and signs only with the key of that
name. The place of a key decides who can attack it:

- The keys are files in the ledger's folder with mode 0600, so one system user owns all of them. That user can print a
  link for each name. A link only allows reading, and that user can read the log anyway. A signature needs the
  passphrase.
- The owner of the folder can copy a sealed key and try passphrases on it. Root can also read the memory of this
  process, with an unlocked key. People who trust neither run a dashboard on their own machine, with their key there,
  and ``--server``. A dashboard that is connected to a server signs decisions only as the agent of that connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deedbook.ledger.errors import Corrupted

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger


class Account(NamedTuple):
    """A name, its valid identity key (hex), its roles, and why it may not decide here (empty: it may).

    The key is empty if the name has none, and None if that cannot be known. ``signer.why_unusable`` says whether the
    file of the key is here and usable. Without a usable key, the human can still see their queue.
    """

    name: str
    key: str | None = ""
    roles: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def human(self) -> str | None:
        """The name, if it may decide here."""
        return None if self.why_not else self.name


def account_of(ledger: Ledger, name: str) -> Account:
    """Return the account of a name (empty: nobody). If entries fail a check, the ledger can still be read.

    Raises Unavailable: as ``StreamReader.read``.
    """
    if not name:
        here = ", ".join(humans_here(ledger))
        return Account("", why_not=f"say with --as who decides: {here}" if here else "no human's key is here")
    try:
        agent, key = ledger.client.streams.identity(name)
    except Corrupted as error:
        return Account(name, None, why_not=error.message)
    if key is not None and not key.is_valid:
        return Account(name, why_not=f"the key of {name} was {key.ended_as} at entry {key.ended_index}")
    if agent is None or key is None or "human" not in agent.roles:
        why_not = f"{name} is no human: only humans decide here"
    else:
        why_not = why_not_connected(name, connection_of(ledger))
    return Account(name, key.key if key else "", agent.roles if agent else (), why_not)


def connection_of(ledger: Ledger) -> str | None:
    """Return the name under which a ledger is connected to its server; None if it is used in its folder."""
    return None if ledger.settings.server is None else ledger.agent or "root"


def why_not_connected(name: str, connected_as: str | None) -> str:
    """Return why a name may not decide at a dashboard with this connection (empty: it may)."""
    if connected_as in (None, name):
        return ""
    return f"this dashboard is connected to its server as {connected_as}, so nobody else decides here"


def humans_here(ledger: Ledger) -> list[str]:
    """Return the names of the humans whose keys are in the ledger's folder."""
    agents = ledger.client.agents()
    humans = [agent.name for agent in agents if "human" in agent.roles and agent.removed_index is None]
    return sorted(name for name in humans if ledger.home.key_file(name).exists())
